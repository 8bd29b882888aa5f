"""What the journal says of an action and of a pod, in sentences."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from watchdog.core.plan import Result
from watchdog.core.policy import Do
from watchdog.core.units import format_bytes
from watchdog.journal.read import HistoryRow
from watchdog.journal.rows import action_of
from watchdog.journal.schema import COLUMNS
from watchdog.report.actions import capital
from watchdog.report.changes import ChangeKind
from watchdog.report.status import AccountStatus, RecentStatus, Status
from watchdog.report.text import clock_time, inert, said

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
    {ChangeKind.WARNED, ChangeKind.WOULD_ACT, ChangeKind.WITHHELD, ChangeKind.MISDECLARED, "intended"}
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
        container = _container_of_account(row)
        found[container, row.gpu] = _account(row, container)
    return tuple(found.values())


def _container_of_account(row: HistoryRow) -> str | None:
    """The container whose account it is; a kill in the account of a whole pod names its victim in the same column."""
    is_own = row.event == ChangeKind.MISDECLARED or row.sentence.startswith(("Container ", "An unknown container "))
    return row.container if is_own else None


def past_sentences(account: Mapping[str, Any], node: str, now_s: float) -> tuple[str, ...]:
    """How an account stood then."""
    name = f"pod {inert(account['namespace'] or '')}/{inert(account['pod'] or '')}"
    if account["container"]:
        name = f"container {inert(account['container'])} of {name}"
    least = "at least " if account["used"] is None else ""
    where = f" on {inert(account['gpu'])}" if account["gpu"] else ""
    at = clock_time(datetime.fromisoformat(account["at"]).timestamp(), now_s)
    used = f"{least}{format_bytes(account['used_at_least'])} of GPU memory{where}"
    rule, mark = account["rule"], account["mark"]
    ruled = f"The rule for it was {inert(rule)}" if rule else "No rule was for it"
    return (
        f"At {at}, when the journal of node {inert(node)} last mentioned it, {name} used {used}{_allowed(account)}.",
        f"{ruled}{f', and this was about its mark {inert(mark)}' if rule and mark else ''}.",
    )


def _allowed(account: Mapping[str, Any]) -> str:
    allowed, declared, by = account["allowed"], account["declared"], account["declared_by"]
    if allowed is None or declared is None:
        return " and declared none in any way that the policy knew"
    origin = "by default of its rule" if by == "default" else f"declared by {inert(by or 'nothing')}"
    top = (
        f", and {format_bytes(allowed - declared)} on top for what the GPU's driver takes" if allowed > declared else ""
    )
    return f" and might use {format_bytes(allowed)}: {format_bytes(declared)} {origin}{top}"


def _account(row: HistoryRow, container: str | None) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "uid": row.uid,
        "container": container,
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


_ENDS: Final = frozenset({ChangeKind.KILL_ENDED, ChangeKind.EVICT_ENDED, ChangeKind.EXPLAINED})
_HALF_DONE: Final = frozenset({Result.INTERRUPTED, Result.FAILED})
_NOTHING_DONE: Final = frozenset({Result.OBSERVED, Result.WITHDRAWN})
_LEADS_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deed:
    """The rows of one kill or eviction: its beginning, its signals, its end and the release of its memory.

    `blocked` is the row that tells that a disruption budget kept an eviction from coming about; `is_live`: it is known
    from the daemon itself, so that what has no end is in progress. `is_earlier`: it befell another pod of the same
    name.
    """

    begun: HistoryRow
    signals: tuple[HistoryRow, ...]
    blocked: HistoryRow | None
    ended: HistoryRow | None
    released: HistoryRow | None
    is_live: bool = False
    is_earlier: bool = False

    @property
    def is_eviction(self) -> bool:
        """Whether it is no kill."""
        return self.begun.do == Do.EVICT


def action_sentences(rows: Sequence[HistoryRow], now_s: float) -> tuple[str, ...]:
    """Tell the last action on the pod that was last called so."""
    action = _last_action(rows)
    return () if action is None else _sentences(action, now_s)


def lead_sentences(
    status: Status, rows: Sequence[HistoryRow], namespace: str, pod: str, now_s: float
) -> tuple[str, ...]:
    """Tell the last kill or eviction of a pod by the status of its daemon, as long as it is what one would ask about.

    That is for an hour, and for one that failed or was interrupted for as long as it is known. `rows` is what the
    journal has of the pod. Where the daemon knows the pod, what befell an earlier pod of the same name is none of it.
    """
    uids = _uids(status, namespace, pod)
    for each in _recent_force(status, namespace, pod):
        if _is_of(each.uid, uids):
            return _leading(_action_of(each), now_s)
    action = _last_action([row for row in rows if _is_of(row.uid, uids)])
    return () if action is None else _leading(replace(action, is_live=True), now_s)


def earlier_sentences(
    status: Status, rows: Sequence[HistoryRow], namespace: str, pod: str, now_s: float
) -> tuple[str, ...]:
    """Tell the last kill or eviction of an earlier pod of the same name as a pod that the daemon knows."""
    uids = _uids(status, namespace, pod)
    if not uids:
        return ()
    for each in _recent_force(status, namespace, pod):
        if not _is_of(each.uid, uids):
            return _leading(replace(_action_of(each), is_earlier=True), now_s)
    action = _last_action([row for row in rows if not _is_of(row.uid, uids)])
    return () if action is None else _leading(replace(action, is_live=True, is_earlier=True), now_s)


def _uids(status: Status, namespace: str, pod: str) -> frozenset[str]:
    named = [each for each in status.accounts if _is_named(each, namespace, pod)]
    return frozenset(uid for each in named if (uid := each.uid) is not None)


def _recent_force(status: Status, namespace: str, pod: str) -> Iterator[RecentStatus]:
    """Kills and evictions of pods of this name, newest first."""
    for each in status.recent:
        is_force = each.do in (Do.KILL, Do.EVICT) and each.result not in _NOTHING_DONE
        if is_force and _is_named(each, namespace, pod):
            yield each


def _is_named(part: AccountStatus | RecentStatus, namespace: str, pod: str) -> bool:
    return (part.namespace, part.pod) == (namespace, pod)


def _is_of(uid: str | None, uids: Collection[str]) -> bool:
    """Whether it is about one of these pods; so it is where either is not told."""
    return uid is None or not uids or uid in uids


def _leading(action: _Deed, now_s: float) -> tuple[str, ...]:
    result = action.ended.result if action.ended is not None else None
    is_half_done = result in _HALF_DONE
    if result in _NOTHING_DONE:
        return ()
    return _sentences(action, now_s) if is_half_done or now_s - action.begun.wall_s <= _LEADS_S else ()


def _action_of(recent: RecentStatus) -> _Deed:
    begun_s = recent.at or 0.0
    columns: dict[str, Any] = dict.fromkeys(COLUMNS)
    columns |= {name: getattr(recent, name) for name in COLUMNS if name in RecentStatus.__struct_fields__}
    columns |= {"event": "intended", "node": "", "boot_id": "", "boottime_s": 0.0}
    begun = HistoryRow(**{**columns, "wall_s": begun_s, "sentence": recent.why or ""})
    signals = tuple(replace(begun, wall_s=each.at or begun_s, detail=each.signal) for each in recent.signals)
    result, reason = recent.result, recent.reason
    ended_s, released_s = recent.ended_at or begun_s, recent.released_at
    ended = None if result is None else replace(begun, wall_s=ended_s, result=result, reason=reason)
    is_blocked = begun.do == Do.EVICT and result == Result.BLOCKED
    return _Deed(
        begun=begun,
        signals=signals,
        blocked=ended if is_blocked else None,
        ended=ended,
        released=replace(begun, wall_s=released_s, reason=recent.unreleased) if released_s else None,
        is_live=True,
    )


def _sentences(action: _Deed, now_s: float) -> tuple[str, ...]:
    told = (_what(action, now_s), _hindrance(action, now_s), _signals(action, now_s), _release(action, now_s))
    return tuple(sentence for sentence in told if sentence)


def _last_action(rows: Sequence[HistoryRow]) -> _Deed | None:
    uid = next((row.uid for row in reversed(rows) if row.uid is not None), None)
    actions = [row.deed for row in rows if row.deed is not None and row.uid == uid]
    mine = [row for row in rows if actions and row.deed == actions[-1]]
    if not mine:
        return None
    return _Deed(
        begun=mine[0],
        signals=tuple(row for row in mine if row.event == "signalled"),
        blocked=next((row for row in mine if row.event == ChangeKind.EVICT_BLOCKED), None),
        ended=next((row for row in mine if row.event in _ENDS), None),
        released=next((row for row in mine if row.event == ChangeKind.RELEASED), None),
    )


def _what(action: _Deed, now_s: float) -> str:
    row, ended = action.begun, action.ended
    verb = action_of(row.do).verb
    begun = ended if action.is_eviction and ended is not None and ended.result == Result.DONE else row
    at = clock_time((action.signals or (begun,))[0].wall_s, now_s)
    whom = f" (container {inert(row.container)})" if row.container and not action.is_eviction else ""
    if ended is not None and ended.result == Result.DONE:
        who = "An earlier pod of this name" if action.is_earlier else "It"
        return f"{who} was {verb.done} at {at}{whom}: {_why(row)}."
    of = f"{capital(verb.an_action)} of {'an earlier pod of this name' if action.is_earlier else 'it'}"
    if ended is None and action.is_live:
        return f"{of} was begun at {at}{whom} and is under way: {_why(row)}."
    end = "its end is not in the journal" if ended is None else _END.get(ended.result or "", "it has ended")
    return f"{of} was begun at {at}{whom}: {_why(row)}. Of that {verb.noun}: {end}."


def _hindrance(action: _Deed, now_s: float) -> str:
    """What kept an eviction from coming about, at first or for good, or made a kill needless."""
    ended, told = action.ended, (*_HALF_DONE, Result.GONE, Result.WITHDRAWN) if action.is_eviction else (Result.GONE,)
    if ended is not None and ended.result in told and ended.reason:
        return f"The reason: {said(ended.reason, 600)}."
    if action.blocked is None or not action.blocked.reason:
        return ""
    since = clock_time(action.blocked.wall_s, now_s)
    return f"It was blocked at {since}: {said(action.blocked.reason, 600)}."


_END: Final[dict[str, str]] = {
    Result.INTERRUPTED: "it was interrupted",
    Result.WITHDRAWN: "it was withdrawn before anything was done",
    Result.FAILED: "it failed",
    Result.GONE: "it was not needed any more",
    Result.BLOCKED: "it was blocked",
}


def _why(row: HistoryRow) -> str:
    least = "at least " if row.used is None else ""
    used = f"it used {least}{format_bytes(row.used_at_least or 0)} of GPU memory"
    allowed = f", {format_bytes(row.allowed)} were allowed" if row.allowed is not None else ""
    rule = (
        f", and rule {inert(row.rule)} {action_of(row.do).verb.does} {inert(row.mark)}" if row.rule and row.mark else ""
    )
    return f"{used}{allowed}{rule}"


def _signals(action: _Deed, now_s: float) -> str:
    if not action.signals:
        return ""
    sent = [(inert((row.detail or "a signal").split(" ")[0], 20), row.wall_s) for row in action.signals]
    first = dict(reversed(sent))
    told = " and ".join(f"{name} at {clock_time(at_s, now_s)}" for name, at_s in sorted(first.items(), key=_moment))
    reason = action.ended.reason if action.ended is not None and action.ended.result in _HALF_DONE else None
    because = f": {said(reason, 600)}" if reason else ""
    if action.ended is not None and action.ended.result == Result.INTERRUPTED and "SIGKILL" not in first:
        return f"Its processes got {told}, and no SIGKILL was sent{because}."
    return f"Its processes got {told}{because}."


def _moment(signal: tuple[str, float]) -> float:
    return signal[1]


def _release(action: _Deed, now_s: float) -> str:
    if action.released is None or action.ended is None or action.ended.result != Result.DONE:
        return ""
    at, reason = clock_time(action.released.wall_s, now_s), action.released.reason
    if reason is None:
        return f"Its memory was seen free at {at}."
    return f"Its memory had not been seen free at {at}: {said(reason, 600)}."
