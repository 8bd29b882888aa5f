"""The bar that shows how much of the recorded past a command has read, on a terminal and while that takes long."""

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from watchdog.journal.playback import RecordedCycle, RecordKind
from watchdog.report.text import span

_SHORT_S: Final = 0.5  # work that takes less has no bar
_FRAME_S: Final = 0.5


class PastBar:
    """A bar on stderr, by the seconds covered of those recorded; erased when the context ends.

    There is none, and cycles cost nothing more, if stderr is not a terminal that supports it or stdout is a pipe.
    """

    def __init__(self, title: str, since_s: float) -> None:
        """What lies before `since_s` (Unix time) is read, but not counted."""
        self._title, self._since_s = title, since_s
        self._total_s = 0.0
        self._progress: Progress | None = None
        self._next_s = time.monotonic() + _SHORT_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, total_s: float) -> None:
        """Take note of how many seconds are recorded."""
        self._total_s = total_s

    def over(self, cycles: Iterable[RecordedCycle]) -> Iterable[RecordedCycle]:
        """The same cycles, and the bar while they are read."""
        return self._counted(cycles) if _is_wanted() else cycles

    def _counted(self, cycles: Iterable[RecordedCycle]) -> Iterator[RecordedCycle]:
        covered_s = last_s = 0.0
        for cycle in cycles:
            at = cycle.at
            if cycle.kind is not RecordKind.FIRST:
                covered_s += max(min(at.boottime_s - last_s, at.wall_s - self._since_s), 0.0)
            last_s = at.boottime_s
            if time.monotonic() >= self._next_s:
                self._show(covered_s)
            yield cycle

    def _show(self, covered_s: float) -> None:
        if self._progress is None:
            self._progress = _progress()
            self._progress.add_task(self._title, total=self._total_s, past=span(self._total_s))
        self._progress.update(self._progress.task_ids[0], completed=covered_s)
        self._progress.start()  # draws it
        self._progress.refresh()
        self._next_s = time.monotonic() + _FRAME_S


def _is_wanted() -> bool:
    """Whether somebody sees a bar on stderr, and it is not in the way of what reads stdout."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    try:
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _progress() -> Progress:
    # Without a thread: it would take time from the work, and the bar moves only as that does.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("of {task.fields[past]},"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=_Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: FBT001, FBT002 - as in the library
        """Leave the cursor as it is: a program that is killed could not show it again."""
        return False
