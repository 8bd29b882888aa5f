"""What the journal says of an action and of a pod, in sentences."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from watchdog.core.plan import Result
from watchdog.core.policy import Do
from watchdog.core.units import format_bytes
from watchdog.journal.read import HistoryRow
from watchdog.report.changes import ChangeKind
from watchdog.report.recent import INTENDED, Recent
from watchdog.report.sentences.action import ENDINGS
from watchdog.report.sentences.usage import account_name, amount_used, limit_sum, origin
from watchdog.report.status import AccountStatus, RecentStatus, Status
from watchdog.report.text import capital, clock_time, inert, said

# What the owner of a pod should read of it: not each signal, and no number of a process.
_TOLD: Final = frozenset(
    {
        *(
            ChangeKind.WARNED,
            ChangeKind.WOULD_ACT,
            ChangeKind.WITHHELD,
            ChangeKind.MISDECLARED,
            ChangeKind.EXPLAINED,
            ChangeKind.RELEASED,
        ),
        *(ChangeKind.KILL_ENDED, ChangeKind.EVICT_BLOCKED, ChangeKind.EVICT_DELAYED, ChangeKind.EVICT_ENDED),
    }
)
# An explanation says in full what these say in short.
_EXPLAINED: Final = frozenset({ChangeKind.KILL_ENDED, ChangeKind.EVICT_ENDED, ChangeKind.RELEASED})
_DECIDED: Final = frozenset(
    {ChangeKind.WARNED, ChangeKind.WOULD_ACT, ChangeKind.WITHHELD, ChangeKind.MISDECLARED, INTENDED}
)


def told(rows: Sequence[HistoryRow], most: int) -> tuple[HistoryRow, ...]:
    """The last occurrences that the owner of a pod should read, oldest first."""
    explained = {row.deed for row in rows if row.event == ChangeKind.EXPLAINED and row.deed is not None}
    kept = [row for row in rows if row.event in _TOLD and not (row.event in _EXPLAINED and row.deed in explained)]
    return tuple(kept[-most:])


def last_accounts(rows: Iterable[HistoryRow]) -> tuple[dict[str, Any], ...]:
    """How each account of a pod stood when something was last decided about it, in the order of the first mention."""
    found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    newest = ""
    for row in rows:
        # What is written later of an action has the numbers of the moment at which it was decided.
        if row.event not in _DECIDED or row.used_at_least is None or row.uid is None:
            continue
        if row.uid != newest:
            # A pod that came back under its name is another one.
            newest = row.uid
            found.clear()
        found[row.account, row.gpu] = _account(row)
    return tuple(found.values())


def past_sentences(account: Mapping[str, Any], node: str, now_s: float) -> tuple[str, ...]:
    """How an account stood then."""
    name = account_name(account["namespace"] or "", account["pod"] or "", account["container"] or None)
    where = f" on {inert(account['gpu'])}" if account["gpu"] else ""
    at = clock_time(datetime.fromisoformat(account["at"]).timestamp(), now_s)
    used = f"{amount_used(account['used'], account['used_at_least'])} of GPU memory{where}"
    rule, mark = account["rule"], account["mark"]
    ruled = f'Rule "{inert(rule)}" applied to it' if rule else "No rule applied to it"
    return (
        f"At {at}, when the journal of node {inert(node)} last mentioned it, {name} used {used}{_allowed(account)}.",
        f"{ruled}{f' (step: {inert(mark)})' if rule and mark else ''}.",
    )


def _allowed(account: Mapping[str, Any]) -> str:
    allowed, declared, by = account["allowed"], account["declared"], account["declared_by"]
    if allowed is None or declared is None:
        return " and had no declaration that the policy recognizes"
    return f"; its limit was {limit_sum(allowed, declared, origin(by, 'the default of its rule'))}"


def _account(row: HistoryRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "uid": row.uid,
        "container": row.account,
        "gpu": row.gpu,
        "used": row.used,
        "used_at_least": row.used_at_least,
        "declared": row.declared,
        "declared_by": row.declared_by,
        "allowed": row.allowed,
        "rule": row.rule,
        "mark": row.mark,
        "at": row.at,
    }


_HALF_DONE: Final = frozenset({Result.INTERRUPTED, Result.FAILED})
_NOTHING_DONE: Final = frozenset({Result.OBSERVED, Result.WITHDRAWN})
_LEADS_S: Final = 3600.0


def action_sentences(rows: Sequence[HistoryRow], now_s: float) -> tuple[str, ...]:
    """The last action on the pod that last had this name."""
    action = _last_action(rows)
    return () if action is None else _sentences(action, now_s)


def lead_sentences(
    status: Status, rows: Sequence[HistoryRow], namespace: str, pod: str, now_s: float
) -> tuple[str, ...]:
    """The last kill or eviction of a pod by the status of its daemon, as long as it is what one would ask about.

    That is for an hour, and for one that failed or was interrupted for as long as it is known. `rows` is what the
    journal has of the pod. Where the daemon knows the pod, an earlier pod of the same name is left out.
    """
    uids = _uids(status, namespace, pod)
    known = (each for each in _recent_actions(status, namespace, pod) if _is_of(each.uid, uids))
    action = next(known, None) or _last_action([row for row in rows if _is_of(row.uid, uids)])
    return () if action is None else _leading(action, now_s)


def earlier_sentences(
    status: Status, rows: Sequence[HistoryRow], namespace: str, pod: str, now_s: float
) -> tuple[str, ...]:
    """The last kill or eviction of an earlier pod of the same name as a pod that the daemon knows."""
    uids = _uids(status, namespace, pod)
    if not uids:
        return ()
    known = (each for each in _recent_actions(status, namespace, pod) if not _is_of(each.uid, uids))
    action = next(known, None) or _last_action([row for row in rows if not _is_of(row.uid, uids)])
    return () if action is None else _leading(action, now_s, is_earlier=True)


def _uids(status: Status, namespace: str, pod: str) -> frozenset[str]:
    return frozenset(each.uid for each in status.accounts if _is_named(each, namespace, pod))


def _recent_actions(status: Status, namespace: str, pod: str) -> Iterator[RecentStatus]:
    """Kills and evictions of pods of this name, newest first."""
    for each in status.recent:
        if each.do.enforces and each.result not in _NOTHING_DONE and _is_named(each, namespace, pod):
            yield each


def _is_named(part: AccountStatus | RecentStatus, namespace: str, pod: str) -> bool:
    return (part.namespace, part.pod) == (namespace, pod)


def _is_of(uid: str | None, uids: Collection[str]) -> bool:
    """Whether it is about one of these pods; also where either is not known."""
    return uid is None or not uids or uid in uids


def _leading(action: RecentStatus, now_s: float, *, is_earlier: bool = False) -> tuple[str, ...]:
    if action.result in _NOTHING_DONE:
        return ()
    if action.result not in _HALF_DONE and now_s - (action.at or 0.0) > _LEADS_S:
        return ()
    return _sentences(action, now_s, is_live=True, is_earlier=is_earlier)


def _last_action(rows: Sequence[HistoryRow]) -> RecentStatus | None:
    """The last action that rows of the journal are about, put together as the daemon does it."""
    uid = next((row.uid for row in reversed(rows) if row.uid is not None), None)
    number = next((row.deed for row in reversed(rows) if row.deed is not None and row.uid == uid), None)
    mine = [asdict(row) for row in rows if row.deed is not None and row.deed == number]
    recent = Recent()
    for nth, row in enumerate(mine):
        if not nth:  # its beginning may have been deleted as too old
            recent.take({**row, "event": INTENDED})
        if row["event"] != INTENDED:
            recent.take(row)
    return next(iter(recent.actions), None)


def _sentences(
    action: RecentStatus, now_s: float, *, is_live: bool = False, is_earlier: bool = False
) -> tuple[str, ...]:
    """`is_live`: by the daemon, so that what has no end is in progress. `is_earlier`: on another pod of the name."""
    what = _what(action, now_s, is_live=is_live, is_earlier=is_earlier)
    found = (what, _hindrance(action, now_s), _signals(action, now_s), _release(action, now_s))
    return tuple(sentence for sentence in found if sentence)


def _what(action: RecentStatus, now_s: float, *, is_live: bool, is_earlier: bool) -> str:
    verb, is_eviction, result = action.do.verb, action.do is Do.EVICT, action.result
    at = clock_time(action.effect_at or 0.0, now_s)
    whom = f" (container {inert(action.container)})" if action.container and not is_eviction else ""
    if result == Result.DONE:
        who = "An earlier pod of this name" if is_earlier else "It"
        return f"{who} was {verb.done} at {at}{whom}: {_why(action)}."
    of = f"{capital(verb.an_action)} of {'an earlier pod of this name' if is_earlier else 'this pod'}"
    if result is None and is_live:
        return f"{of} started at {at}{whom} and is in progress: {_why(action)}."
    begun = f"{of} started at {at}{whom}: {_why(action)}."
    if result == Result.BLOCKED:
        return begun  # since when and by what comes next
    end = "its end is not in the journal" if result is None else f"it {ENDINGS.get(result, 'has ended')}"
    return f"{begun} Result: {end}."


def _hindrance(action: RecentStatus, now_s: float) -> str:
    """What kept an eviction from coming about, at first or for good, or made a kill needless."""
    needless = (*_HALF_DONE, Result.GONE, Result.WITHDRAWN) if action.do is Do.EVICT else (Result.GONE,)
    if action.result in needless and action.reason:
        return f"The reason: {said(action.reason, 600)}."
    if action.blocked_at is None or not action.blocked_by:
        return ""
    return f"It was blocked at {clock_time(action.blocked_at, now_s)}: {said(action.blocked_by, 600)}."


def _why(action: RecentStatus) -> str:
    used = f"it used {amount_used(action.used, action.used_at_least or 0)} of GPU memory"
    allowed = f", its limit was {format_bytes(action.allowed)}" if action.allowed is not None else ""
    rule, threshold = action.rule, action.mark
    ruled = f", and rule {inert(rule)} {action.do.verb.does} {inert(threshold)}" if rule and threshold else ""
    return f"{used}{allowed}{ruled}"


def _signals(action: RecentStatus, now_s: float) -> str:
    if not action.signals:
        return ""
    first: dict[str, float] = {}
    for each in action.signals:
        first.setdefault(inert(each.signal or "a signal", 20), each.at or 0.0)
    sent = " and ".join(f"{name} at {clock_time(at_s, now_s)}" for name, at_s in sorted(first.items(), key=_moment))
    because = f": {said(action.reason, 600)}" if action.result in _HALF_DONE and action.reason else ""
    spared = ", and no SIGKILL was sent" if action.result == Result.INTERRUPTED and "SIGKILL" not in first else ""
    return f"Its processes got {sent}{spared}{because}."


def _moment(signal: tuple[str, float]) -> float:
    return signal[1]


def _release(action: RecentStatus, now_s: float) -> str:
    if action.released_at is None or action.result != Result.DONE:
        return ""
    at = clock_time(action.released_at, now_s)
    if action.unreleased is None:
        return f"Its memory was confirmed free at {at}."
    return f"Its memory was not confirmed free by {at}: {said(action.unreleased, 600)}."
