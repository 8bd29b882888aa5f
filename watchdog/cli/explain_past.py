"""What the journal and the daemon's recent actions have about a pod, for `explain`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, NamedTuple

from watchdog.core.plan import Result
from watchdog.journal.read import HistoryRow
from watchdog.report.changes import BLOCKED, ENDED, ChangeKind
from watchdog.report.recent import INTENDED, Recent
from watchdog.report.sentences.action import HALF_DONE, recent_action
from watchdog.report.sentences.usage import account_name, amount_used, limit_sum, origin
from watchdog.report.status import AccountStatus, RecentStatus, Status
from watchdog.report.text import clock_time, inert

# What the owner of a pod reads: not each signal, and no PID.
_SHOWN: Final = frozenset(
    {
        *(ChangeKind.WARNED, ChangeKind.WOULD_ACT, ChangeKind.WITHHELD, ChangeKind.MISDECLARED, ChangeKind.EXPLAINED),
        *(*ENDED, *BLOCKED, ChangeKind.EVICT_DELAYED, ChangeKind.RELEASED, ChangeKind.TRANSFERRED),
    }
)
# An explanation has in full what these have in short.
_EXPLAINED: Final = frozenset({*ENDED, ChangeKind.RELEASED})
_DECIDED: Final = frozenset(
    {ChangeKind.WARNED, ChangeKind.WOULD_ACT, ChangeKind.WITHHELD, ChangeKind.MISDECLARED, INTENDED}
)
_ACCOUNT: Final = (
    *("namespace", "pod", "uid", "container", "gpu", "used", "used_at_least", "used_beside"),
    *("declared", "declared_by", "allowed"),
    *("rule", "threshold", "at"),
)
_NOTHING_DONE: Final = frozenset({Result.OBSERVED, Result.WITHDRAWN})
_LEADS_S: Final = 3600.0


def last_occurrences(rows: Sequence[HistoryRow], most: int) -> tuple[HistoryRow, ...]:
    """The last occurrences that concern the owner of a pod, oldest first."""
    explained = {row.action_id for row in rows if row.event == ChangeKind.EXPLAINED and row.action_id is not None}
    kept = [row for row in rows if row.event in _SHOWN and not (row.event in _EXPLAINED and row.action_id in explained)]
    return tuple(kept[-most:])


def last_accounts(rows: Iterable[HistoryRow]) -> tuple[dict[str, Any], ...]:
    """Each account of a pod as of the last decision about it, in the order of the first mention."""
    found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    newest = ""
    for row in rows:
        # What is written later about an action has the numbers of the moment at which it was decided.
        if row.event not in _DECIDED or row.used_at_least is None or row.uid is None:
            continue
        if row.uid != newest:
            # A pod that came back under its name is another one.
            newest = row.uid
            found.clear()
        account = {name: getattr(row, name) for name in _ACCOUNT}
        found[row.account, row.gpu] = {**account, "container": row.account}
    return tuple(found.values())


def account_sentences(account: Mapping[str, Any], node: str, now_s: float) -> tuple[str, ...]:
    """Use, limit and rule of an account, as of the journal's last decision about it."""
    name = account_name(account["namespace"] or "", account["pod"] or "", account["container"] or None)
    where = f" on {inert(account['gpu'])}" if account["gpu"] else ""
    at = clock_time(datetime.fromisoformat(account["at"]).timestamp(), now_s)
    used = f"{amount_used(account['used'], account['used_at_least'])} of GPU memory{where}"
    allowed, declared, by = account["allowed"], account["declared"], account["declared_by"]
    limit = " and had no declaration that the policy recognizes"
    if allowed is not None and declared is not None:
        limit = f"; its limit was {limit_sum(allowed, declared, origin(by, 'the default of its rule'))}"
    rule, threshold = account["rule"], account["threshold"]
    ruled = f'Rule "{inert(rule)}" applied to it' if rule else "No rule applied to it"
    return (
        f"At {at}, when the journal of node {inert(node)} last mentioned it, {name} used {used}{limit}.",
        f"{ruled}{f' (step: {inert(threshold)})' if rule and threshold else ''}.",
    )


def action_sentences(rows: Sequence[HistoryRow], now_s: float) -> tuple[str, ...]:
    """The last action on the pod that last had this name."""
    action = _last_action(rows)
    return () if action is None else recent_action(action, now_s)


class LastActions(NamedTuple):
    """Sentences about the last kill or eviction."""

    # Of the pod.
    own: tuple[str, ...]
    # Of an earlier pod of the same name.
    earlier: tuple[str, ...]


def last_actions(status: Status, rows: Sequence[HistoryRow], namespace: str, pod: str, now_s: float) -> LastActions:
    """The last kills or evictions, from the daemon or else from the journal's rows about the pod.

    Each is shown for an hour, or if it failed or was interrupted, for as long as it is known. If the daemon does not
    know the pod, each action of this name is the pod's own.
    """

    def is_named(part: AccountStatus | RecentStatus) -> bool:
        return (part.namespace, part.pod) == (namespace, pod)

    uids = {account.uid for account in status.accounts if is_named(account)}

    def sentences(*, is_earlier: bool) -> tuple[str, ...]:
        def is_meant(uid: str | None) -> bool:
            return (uid is not None and bool(uids) and uid not in uids) is is_earlier

        known = (action for action in status.recent if action.do.enforces and is_named(action) and is_meant(action.uid))
        action = next((action for action in known if action.result not in _NOTHING_DONE), None)
        action = action or _last_action([row for row in rows if is_meant(row.uid)])
        if action is None or action.result in _NOTHING_DONE:
            return ()
        if action.result not in HALF_DONE and now_s - (action.at or 0.0) > _LEADS_S:
            return ()
        return recent_action(action, now_s, is_live=True, is_earlier=is_earlier)

    return LastActions(own=sentences(is_earlier=False), earlier=sentences(is_earlier=True))


def _last_action(rows: Sequence[HistoryRow]) -> RecentStatus | None:
    """The last action that rows of the journal are about, put together as the daemon does it."""
    uid = next((row.uid for row in reversed(rows) if row.uid is not None), None)
    number = next((row.action_id for row in reversed(rows) if row.action_id is not None and row.uid == uid), None)
    own = [asdict(row) for row in rows if row.action_id is not None and row.action_id == number]
    recent = Recent()
    for nth, row in enumerate(own):
        if not nth:  # its beginning may have been deleted as too old
            recent.add_row({**row, "event": INTENDED})
        if row["event"] != INTENDED:
            recent.add_row(row)
    return next(iter(recent.actions), None)
