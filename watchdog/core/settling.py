"""Settling: what the end of a deed, or an eviction that has been accepted, changes in the ledger."""

from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do


def settle(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The ledger after an outcome.

    A kill ends with its outcome, and so does an eviction that came about. One that did not holds up no other step: all
    timers go on, and only its own step waits before it is tried again. One that is blocked is still being tried.
    """
    if outcome.result is Result.BLOCKED:
        return ledger
    account, step = outcome.entry.account, outcome.entry.definition.signature
    is_eviction = outcome.entry.do is Do.EVICT
    has_come_about = not is_eviction or outcome.result is Result.DONE
    if outcome.deed is not None and has_come_about:
        ledger = ledger.note_ended(account, step if is_eviction else None)
    if outcome.result is Result.FAILED or (outcome.deed is not None and not has_come_about):
        ledger = ledger.note_failed(account, step, outcome.at)
    return ledger


def accept(ledger: Ledger, entry: PlanEntry, under_way: UnderWay) -> Ledger:
    """The ledger after an eviction has been accepted; where a kill has begun meanwhile that stays the deed."""
    state = ledger.accounts.get(entry.account)
    if state is not None and state.under_way is not None:
        return ledger
    return ledger.note_under_way(entry.account, entry.rule.name, entry.assessment.declared, under_way)
