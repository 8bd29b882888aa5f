"""Settling: what the progress and the end of a deed, or an eviction that has been accepted, change in the ledger."""

from collections.abc import Iterable
from dataclasses import replace

from watchdog.core.findings import AccountKey
from watchdog.core.ledger import AccountState, Ledger, UnderWay
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do


def settle(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The ledger after an outcome.

    A kill ends with its outcome, and so does an eviction that came about. One that did not holds up nothing else: all
    stretches go on, and only the next eviction waits. One that is blocked is still being tried.
    """
    if outcome.result is Result.BLOCKED:
        return ledger
    account, step = outcome.entry.account, outcome.entry.definition.signature
    if outcome.result is Result.WITHDRAWN:  # it never began, so no stretch starts over
        return ledger.note_failed(account, outcome.entry.do, outcome.at)
    is_eviction = outcome.entry.do is Do.EVICT
    has_come_about = not is_eviction or outcome.result is Result.DONE
    if outcome.deed is not None and has_come_about:
        ledger = ledger.note_ended(account, step if is_eviction else None)
    if outcome.result is Result.FAILED or (outcome.deed is not None and not has_come_about):
        ledger = ledger.note_failed(account, outcome.entry.do, outcome.at)
    return ledger


def accept(ledger: Ledger, entry: PlanEntry, under_way: UnderWay) -> Ledger:
    """The ledger after an eviction has been accepted; where a kill has begun meanwhile that stays the deed."""
    state = ledger.accounts.get(entry.account)
    if state is not None and state.under_way is not None:
        return ledger
    return ledger.note_under_way(entry.account, under_way)


def note_sent(ledger: Ledger, kills: Iterable[tuple[AccountKey, tuple[str, ...], bool]]) -> Ledger:
    """The ledger with the signals that each kill under way has sent, and whether its processes have ended."""
    changed: dict[AccountKey, AccountState] = {}
    for key, sent, ended in kills:
        state = ledger.accounts.get(key)
        under_way = state.under_way if state is not None else None
        if state is not None and under_way is not None and (under_way.sent, under_way.ended) != (sent, ended):
            changed[key] = replace(state, under_way=replace(under_way, sent=sent, ended=ended), calm=None)
    return replace(ledger, accounts={**ledger.accounts, **changed}) if changed else ledger
