"""The recorder: writes what each cycle changes to the journal, in batches; without changes, one row per minute."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.core.policy import longest_step_s
from watchdog.journal.recording import Frame, FrameEncoder, pack
from watchdog.journal.schema import Statement, body_statement, span_statement

# Every commit is synced to disk. What is not written yet is lost with a kill -9, and replay ends every timer there.
_BATCH_S: Final = 10.0
_ALIVE_S: Final = 60.0
# A replay begins with a full frame, so at most this much has to be read before the requested time.
_FULL_EVERY_S: Final = 3600.0


class Sink(Protocol):
    """Where the recorder writes: the journal."""

    @property
    def writable(self) -> bool:
        """Whether the last write succeeded."""

    def queue_statements(self, statements: Iterable[Statement]) -> None:
        """Write these together with whatever is written next."""


class Recorder:
    """Records the cycles of one daemon. What it can't write is merely missing from the recording."""

    def __init__(self) -> None:
        self._forget()

    def record(self, report: CycleReport, sink: Sink, *, is_repeated: bool = False) -> None:
        """Record a cycle; if it has an action, its rows are written to disk together with those of the journal.

        `is_repeated`: not a new cycle, but the last of the ticks that repeated the previous cycle.
        """
        if not sink.writable:
            self._forget()
            return
        try:
            self._add_cycle(report, is_repeated=is_repeated)
            statements = tuple(self._due(report))
        except (UnicodeEncodeError, OverflowError):  # what cannot be encoded is no reason to stop watching
            self._forget()
            return
        if statements:
            sink.queue_statements(statements)

    def end(self, sink: Sink) -> None:
        """Write the rest, and the end of the span, because the daemon stops."""
        if sink.writable and self._since is not None:
            sink.queue_statements(tuple(self._write()))
        self._forget()

    def _forget(self) -> None:
        self._encoder = FrameEncoder()
        self._since: Now | None = None
        self._last: Now | None = None
        self._body_start: Now | None = None
        self._frames: list[Frame] = []
        self._full_s = 0.0
        self._written_s = 0.0

    def _add_cycle(self, report: CycleReport, *, is_repeated: bool) -> None:
        now, last = report.at, self._last
        if last is not None and (now.boot_id != last.boot_id or now.boottime_s < last.boottime_s):
            self._forget()
            last = None
        if is_repeated and last is not None:
            self._last = now
            return
        changed = self._encoder.changes(report)
        skipped = last is not None and now.boottime_s - last.boottime_s > longest_step_s(report.policy.interval_s)
        if last is None:
            self._since, self._full_s, self._written_s = now, now.boottime_s, now.boottime_s
        if changed or skipped:
            held_s = 0.0 if last is None else now.boottime_s - last.boottime_s
            self._append(now, held_s, changed, is_full=last is None)
        self._last = now

    def _append(self, now: Now, held_s: float, changed: dict[str, object], *, is_full: bool) -> None:
        body_start = self._body_start = self._body_start or now
        elapsed_s = now.boottime_s - body_start.boottime_s
        ahead_s = now.wall_s - body_start.wall_s - elapsed_s
        frame = Frame(
            at_ms=round(elapsed_s * 1000),
            held_ms=round(held_s * 1000),
            # A drift of the clocks by some milliseconds is no change.
            wall_ms=round(ahead_s * 1000) if abs(ahead_s) > 0.1 else 0,
            full=is_full,
            **changed,  # type: ignore[arg-type]
        )
        self._frames.append(frame)

    def _due(self, report: CycleReport) -> Iterator[Statement]:
        """The statements to write after this cycle: at once with an action, otherwise every few seconds."""
        now_s = report.at.boottime_s
        waited_s = now_s - self._written_s
        if now_s - self._full_s >= _FULL_EVERY_S:
            yield from self._write()
            self._full_s = now_s
            self._encoder = FrameEncoder()
            self._append(report.at, 0.0, self._encoder.changes(report), is_full=True)
            waited_s = _ALIVE_S
        is_action = bool(report.began or report.outcomes) or any(each.is_new for each in report.plan.entries)
        is_first = bool(self._frames) and self._frames[0].full
        if waited_s >= (_BATCH_S if self._frames else _ALIVE_S) or is_action or is_first:
            yield from self._write()

    def _write(self) -> Iterator[Statement]:
        since, last, body_start = self._since, self._last, self._body_start
        if since is None or last is None:
            return
        self._written_s = last.boottime_s
        yield span_statement(since, last)
        frames, self._frames, self._body_start = self._frames, [], None
        if frames and body_start is not None:
            yield body_statement(since, body_start, pack(frames), is_full=frames[0].full)
