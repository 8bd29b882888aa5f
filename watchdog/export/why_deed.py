"""What was done to a pod, from the journal's rows of its last kill: what for, which signal when, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.plan import Result
from watchdog.core.units import format_bytes
from watchdog.export.journal_read import HistoryRow
from watchdog.export.news import Event
from watchdog.export.phrases import clock_time, inert

_ENDS: Final = frozenset({Event.KILL_ENDED, Event.EXPLAINED})
_HALF_DONE: Final = frozenset({Result.INTERRUPTED, Result.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kill:
    """The rows of one kill: its beginning, its signals, its end and the release of its memory."""

    begun: HistoryRow
    signals: tuple[HistoryRow, ...]
    ended: HistoryRow | None
    released: HistoryRow | None


def deed_sentences(rows: Sequence[HistoryRow], now_s: float, *, half_done: bool = False) -> tuple[str, ...]:
    """Tell the last kill of the pod that was last called so; with `half_done` only if it failed or was interrupted."""
    kill = _last_kill(rows)
    if kill is None or (half_done and (kill.ended is None or kill.ended.result not in _HALF_DONE)):
        return ()
    told = (_what(kill, now_s), _signals(kill, now_s), _release(kill, now_s))
    return tuple(sentence for sentence in told if sentence)


def _last_kill(rows: Sequence[HistoryRow]) -> _Kill | None:
    uid = next((row.uid for row in reversed(rows) if row.uid is not None), None)
    deeds = [row.deed for row in rows if row.deed is not None and row.uid == uid]
    mine = [row for row in rows if deeds and row.deed == deeds[-1]]
    if not mine:
        return None
    return _Kill(
        begun=mine[0],
        signals=tuple(row for row in mine if row.event == "signalled"),
        ended=next((row for row in mine if row.event in _ENDS), None),
        released=next((row for row in mine if row.event == Event.RELEASED), None),
    )


def _what(kill: _Kill, now_s: float) -> str:
    row, ended = kill.begun, kill.ended
    at = clock_time((kill.signals or (row,))[0].wall_s, now_s)
    whom = f" (container {inert(row.container)})" if row.container else ""
    if ended is not None and ended.result == Result.DONE:
        return f"It was killed at {at}{whom}: {_why(row)}."
    end = "its end is not in the journal" if ended is None else _END.get(ended.result or "", "it has ended")
    return f"A kill of it was begun at {at}{whom}: {_why(row)}. Of that kill: {end}."


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
    rule = f", and rule {inert(row.rule)} kills {inert(row.mark)}" if row.rule and row.mark else ""
    return f"{used}{allowed}{rule}"


def _signals(kill: _Kill, now_s: float) -> str:
    if not kill.signals:
        return ""
    sent = [(inert((row.detail or "a signal").split(" ")[0], 20), row.wall_s) for row in kill.signals]
    first = dict(reversed(sent))
    told = " and ".join(f"{name} at {clock_time(at_s, now_s)}" for name, at_s in sorted(first.items(), key=_moment))
    reason = kill.ended.reason if kill.ended is not None and kill.ended.result in _HALF_DONE else None
    because = f": {inert(reason, 400).rstrip('.')}" if reason else ""
    if kill.ended is not None and kill.ended.result == Result.INTERRUPTED and "SIGKILL" not in first:
        return f"Its processes got {told}, and no SIGKILL was sent{because}."
    return f"Its processes got {told}{because}."


def _moment(signal: tuple[str, float]) -> float:
    return signal[1]


def _release(kill: _Kill, now_s: float) -> str:
    if kill.released is None or kill.ended is None or kill.ended.result != Result.DONE:
        return ""
    at, reason = clock_time(kill.released.wall_s, now_s), kill.released.reason
    if reason is None:
        return f"Its memory was seen free at {at}."
    return f"Its memory had not been seen free at {at}: {inert(reason, 400).rstrip('.')}."
