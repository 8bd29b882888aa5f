"""Tells owners of pods by Events what a pass has for them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from watchdog.core.plan import CycleReport, Outcome
from watchdog.export.tidings import Tidings
from watchdog.kube.events import EventWriter


class Announcer:
    """Hands what each report has for owners of pods to the writer of Events. Nothing here waits for anything."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._tidings = Tidings()
        self._last: CycleReport | None = None

    def counts(self) -> Mapping[str, int]:
        """How many Events had which fate; to be asked from any thread."""
        return self._writer.counts()

    def announce(self, report: CycleReport, say: Callable[[str], None]) -> None:
        """Tell what is new in a report, and say in the log what the writer of Events has met meanwhile."""
        self._last = report
        self._writer.offer(self._tidings.since(report))
        for notice in self._writer.notices.take():
            say(notice)

    def announce_end(self, outcomes: tuple[Outcome, ...], say: Callable[[str], None]) -> None:
        """Tell what ended after the last pass: kills that the end of the daemon interrupts."""
        if self._last is not None and outcomes:
            plan = replace(self._last.plan, entries=())
            self.announce(replace(self._last, plan=plan, began=(), outcomes=outcomes), say)

    def close(self, timeout_s: float) -> None:
        """Write in so many seconds what is still to be written, and end."""
        self._writer.stop(timeout_s)
