"""What was done to a pod, from the journal's rows of its last kill or eviction: what for, when, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.plan import Result
from watchdog.core.policy import Do
from watchdog.core.units import format_bytes
from watchdog.export.journal_read import HistoryRow
from watchdog.export.news_item import Event
from watchdog.export.phrases import clock_time, inert, said

_ENDS: Final = frozenset({Event.KILL_ENDED, Event.EVICT_ENDED, Event.EXPLAINED})
_HALF_DONE: Final = frozenset({Result.INTERRUPTED, Result.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deed:
    """The rows of one kill or eviction: its beginning, its signals, its end and the release of its memory.

    `blocked` is the row that tells that a disruption budget kept an eviction from coming about.
    """

    begun: HistoryRow
    signals: tuple[HistoryRow, ...]
    blocked: HistoryRow | None
    ended: HistoryRow | None
    released: HistoryRow | None

    @property
    def is_eviction(self) -> bool:
        """Whether it is no kill."""
        return self.begun.do == Do.EVICT


def deed_sentences(rows: Sequence[HistoryRow], now_s: float, *, half_done: bool = False) -> tuple[str, ...]:
    """Tell the last deed on the pod that was last called so; with `half_done` only if it failed or was interrupted."""
    deed = _last_deed(rows)
    if deed is None or (half_done and (deed.ended is None or deed.ended.result not in _HALF_DONE)):
        return ()
    told = (_what(deed, now_s), _hindrance(deed, now_s), _signals(deed, now_s), _release(deed, now_s))
    return tuple(sentence for sentence in told if sentence)


def _last_deed(rows: Sequence[HistoryRow]) -> _Deed | None:
    uid = next((row.uid for row in reversed(rows) if row.uid is not None), None)
    deeds = [row.deed for row in rows if row.deed is not None and row.uid == uid]
    mine = [row for row in rows if deeds and row.deed == deeds[-1]]
    if not mine:
        return None
    return _Deed(
        begun=mine[0],
        signals=tuple(row for row in mine if row.event == "signalled"),
        blocked=next((row for row in mine if row.event == Event.EVICT_BLOCKED), None),
        ended=next((row for row in mine if row.event in _ENDS), None),
        released=next((row for row in mine if row.event == Event.RELEASED), None),
    )


def _what(deed: _Deed, now_s: float) -> str:
    row, ended = deed.begun, deed.ended
    done, noun, a_noun = ("evicted", "eviction", "An eviction") if deed.is_eviction else ("killed", "kill", "A kill")
    begun = ended if deed.is_eviction and ended is not None and ended.result == Result.DONE else row
    at = clock_time((deed.signals or (begun,))[0].wall_s, now_s)
    whom = f" (container {inert(row.container)})" if row.container and not deed.is_eviction else ""
    if ended is not None and ended.result == Result.DONE:
        return f"It was {done} at {at}{whom}: {_why(row)}."
    end = "its end is not in the journal" if ended is None else _END.get(ended.result or "", "it has ended")
    return f"{a_noun} of it was begun at {at}{whom}: {_why(row)}. Of that {noun}: {end}."


def _hindrance(deed: _Deed, now_s: float) -> str:
    """What kept an eviction from coming about, at first or for good."""
    if not deed.is_eviction:
        return ""
    ended = deed.ended
    if ended is not None and ended.result in (*_HALF_DONE, Result.GONE) and ended.reason:
        return f"The reason: {said(ended.reason, 600)}."
    if deed.blocked is None or not deed.blocked.reason:
        return ""
    since = clock_time(deed.blocked.wall_s, now_s)
    return f"It was blocked at {since}: {said(deed.blocked.reason, 600)}."


_END: Final[dict[str, str]] = {
    Result.INTERRUPTED: "it was interrupted",
    Result.FAILED: "it failed",
    Result.GONE: "it was not needed any more",
    Result.BLOCKED: "it was blocked",
}


def _why(row: HistoryRow) -> str:
    least = "at least " if row.used is None else ""
    used = f"it used {least}{format_bytes(row.used_at_least or 0)} of GPU memory"
    allowed = f", {format_bytes(row.allowed)} were allowed" if row.allowed is not None else ""
    does = "evicts" if row.do == Do.EVICT else "kills"
    rule = f", and rule {inert(row.rule)} {does} {inert(row.mark)}" if row.rule and row.mark else ""
    return f"{used}{allowed}{rule}"


def _signals(deed: _Deed, now_s: float) -> str:
    if not deed.signals:
        return ""
    sent = [(inert((row.detail or "a signal").split(" ")[0], 20), row.wall_s) for row in deed.signals]
    first = dict(reversed(sent))
    told = " and ".join(f"{name} at {clock_time(at_s, now_s)}" for name, at_s in sorted(first.items(), key=_moment))
    reason = deed.ended.reason if deed.ended is not None and deed.ended.result in _HALF_DONE else None
    because = f": {said(reason, 600)}" if reason else ""
    if deed.ended is not None and deed.ended.result == Result.INTERRUPTED and "SIGKILL" not in first:
        return f"Its processes got {told}, and no SIGKILL was sent{because}."
    return f"Its processes got {told}{because}."


def _moment(signal: tuple[str, float]) -> float:
    return signal[1]


def _release(deed: _Deed, now_s: float) -> str:
    if deed.released is None or deed.ended is None or deed.ended.result != Result.DONE:
        return ""
    at, reason = clock_time(deed.released.wall_s, now_s), deed.released.reason
    if reason is None:
        return f"Its memory was seen free at {at}."
    return f"Its memory had not been seen free at {at}: {said(reason, 600)}."
