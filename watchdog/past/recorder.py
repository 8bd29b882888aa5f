"""The recorder: what passes change, written to the journal in batches; at rest a line a minute."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.journal.schema import Statement, body_statement, span_statement
from watchdog.past.recording import Differ, Frame, pack

# Every commit is synced to the disk, which costs a write there. What is not written yet is lost with a kill -9, and
# replay ends every timer there.
_BATCH_S: Final = 10.0
_ALIVE_S: Final = 60.0
# Whoever replays begins with a whole state: this much has to be read at most before the time that is asked for.
_WHOLE_S: Final = 3600.0


class Sink(Protocol):
    """Where the recorder writes: the journal."""

    @property
    def writable(self) -> bool:
        """Whether the last write succeeded."""

    def later(self, statements: Iterable[Statement]) -> None:
        """Write these together with whatever is written next."""


class Recorder:
    """Keeps the past of one daemon's life. What it can't write is a gap in the past, and nothing else."""

    def __init__(self) -> None:
        self._forget()

    def record(self, report: CycleReport, sink: Sink) -> None:
        """Take in a cycle. Where it has news, what is written goes to disk with these."""
        if not sink.writable:
            self._forget()
            return
        try:
            self._take(report)
            statements = tuple(self._due(report))
        except (UnicodeEncodeError, OverflowError):  # what cannot be encoded is no reason to stop watching
            self._forget()
            return
        if statements:
            sink.later(statements)

    def end(self, sink: Sink) -> None:
        """The daemon stops: write what is left, and until when it held."""
        if sink.writable and self._since is not None:
            sink.later(tuple(self._write()))
        self._forget()

    def _forget(self) -> None:
        self._differ = Differ()
        self._since: Now | None = None
        self._last: Now | None = None
        self._begun: Now | None = None
        self._frames: list[Frame] = []
        self._whole_s = 0.0
        self._written_s = 0.0

    def _take(self, report: CycleReport) -> None:
        now, last = report.at, self._last
        if last is not None and (now.boot_id != last.boot_id or now.boottime_s < last.boottime_s):
            self._forget()
            last = None
        changed = self._differ.changes(report)
        skipped = last is not None and now.boottime_s - last.boottime_s > longest_step_s(report.policy.interval_s)
        if last is None:
            self._since, self._whole_s, self._written_s = now, now.boottime_s, now.boottime_s
        if changed or skipped:
            held_s = 0.0 if last is None else now.boottime_s - last.boottime_s
            self._append(now, held_s, changed, is_full=last is None)
        self._last = now

    def _append(self, now: Now, held_s: float, changed: dict[str, object], *, is_full: bool) -> None:
        begun = self._begun = self._begun or now
        elapsed_s = now.boottime_s - begun.boottime_s
        ahead_s = now.wall_s - begun.wall_s - elapsed_s
        frame = Frame(
            at_ms=round(elapsed_s * 1000),
            held_ms=round(held_s * 1000),
            # Clocks that drift apart by some milliseconds are no change of either.
            wall_ms=round(ahead_s * 1000) if abs(ahead_s) > 0.1 else 0,
            full=is_full,
            **changed,  # type: ignore[arg-type]
        )
        self._frames.append(frame)

    def _due(self, report: CycleReport) -> Iterator[Statement]:
        """What is to be written after this cycle: with an action at once, else every few seconds."""
        now_s = report.at.boottime_s
        waited_s = now_s - self._written_s
        if now_s - self._whole_s >= _WHOLE_S:
            yield from self._write()
            self._whole_s = now_s
            self._differ = Differ()
            self._append(report.at, 0.0, self._differ.changes(report), is_full=True)
            waited_s = _ALIVE_S
        is_action = bool(report.began or report.outcomes) or any(each.news for each in report.plan.entries)
        if waited_s >= (_BATCH_S if self._frames else _ALIVE_S) or is_action or self._is_first:
            yield from self._write()

    @property
    def _is_first(self) -> bool:
        return bool(self._frames) and self._frames[0].full

    def _write(self) -> Iterator[Statement]:
        since, last, begun = self._since, self._last, self._begun
        if since is None or last is None:
            return
        self._written_s = last.boottime_s
        yield span_statement(since, last)
        frames, self._frames, self._begun = self._frames, [], None
        if frames and begun is not None:
            yield body_statement(since, begun, pack(frames), is_full=frames[0].full)


def longest_step_s(interval_s: float) -> float:
    """How far apart two cycles may be for readings to have followed one another; more is a gap."""
    return 1.5 * interval_s + 0.25
