"""What memory is held for: cycles are added to the meter, and what must outlive the daemon is written down."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import in_this_boot_s
from watchdog.core.meter import UtilizationMeter
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.core.quiet import LONGEST_REST_S
from watchdog.core.utilization import CardSeconds, IdleTimes, Spender, SpentByHour, Utilization, UtilizationReading
from watchdog.journal.writer import JournalWriter
from watchdog.report.card_hours import HOUR_S

# Each write is synced to disk. A kill -9 loses what has come since the last one.
_WRITE_EVERY_S: Final = 300.0
# Once an account that was idle in the last write computes, the next one comes sooner: a daemon that starts after a
# kill -9 would go on counting from there.
_WRITE_AGAIN_S: Final = 60.0
# What an earlier daemon wrote holds for this long: later, an account may have computed meanwhile.
_HOLDS_S: Final = 900.0
# Owners and hours whose card-seconds are kept while they can't be written: some 10 MB. The oldest are dropped first.
_MOST_UNWRITTEN: Final = 30_000


class UtilizationLog:
    """Meters the cycles of this daemon, and writes down card-seconds and for how long accounts have been idle.

    That is every five minutes, at the end, and when idle memory is reported. What the disk does not take is written
    with what comes next. Without the node's lock nothing is: another daemon counts the same.
    """

    def __init__(self, record: JournalWriter) -> None:
        self._record = record
        self._meter = UtilizationMeter()
        # For how long accounts have computed nothing, as of the last cycle.
        self._idle_s: Mapping[AccountKey, float] = {}
        # The Unix hour of the last cycle, and what is to be written by the hours in which it came.
        self._hour: int | None = None
        self._unwritten: dict[int, dict[Spender, CardSeconds]] = {}
        # The last write, and what it adds.
        self._writing: tuple[Future[None], SpentByHour] | None = None
        # The CLOCK_BOOTTIME of the last write, or of the first cycle; and which accounts were idle then.
        self._written_s: float | None = None
        self._written: frozenset[AccountKey] = frozenset()
        self._is_restored = False

    def restore(self, earlier: IdleTimes | None, now: Now) -> None:
        """Take over what a journal that has just been opened has; when it is a later one, this daemon knows better."""
        is_first, self._is_restored = not self._is_restored, True
        if is_first and earlier is not None:
            self._written = frozenset(earlier.seconds)
            if now.boottime_s - in_this_boot_s(earlier.at, now) <= _HOLDS_S:
                self._meter.restore(earlier)

    def add(self, report: CycleReport, readings: Sequence[UtilizationReading], *, has_lock: bool) -> CycleReport:
        """The report with what the driver has said of the utilisation since the last one, and what that adds up to."""
        at, policy, hour = report.at, report.policy, int(report.at.wall_s // HOUR_S)
        if hour != self._hour:
            self._collect()
            self._hour = hour
        utilization = self._meter.add(
            at.boottime_s,
            report.snapshot,
            report.assessments,
            readings,
            policy.idle,
            gap_s=LONGEST_REST_S + policy.reset_after_s,
        )
        self._idle_s = utilization.idle_s
        if not has_lock:
            self._meter.take_spent()
        elif self._is_due(utilization, at):
            self._write(at)
        return replace(report, utilization=utilization)

    def end(self, now: Now, *, has_lock: bool) -> None:
        """Write what has come since the last write."""
        if has_lock:
            self._write(now)

    def _is_due(self, utilization: Utilization, now: Now) -> bool:
        if self._written_s is None:
            self._written_s = now.boottime_s
        passed_s = now.boottime_s - self._written_s
        is_outdated = passed_s >= _WRITE_AGAIN_S and not self._written <= utilization.idle_s.keys()
        is_due = passed_s >= _WRITE_EVERY_S or is_outdated or bool(utilization.found_idle) or self._has_failed
        is_pending = self._writing is not None and not self._writing[0].done()
        return is_due and not is_pending and self._record.writable

    @property
    def _has_failed(self) -> bool:
        return self._writing is not None and self._writing[0].done() and self._writing[0].exception() is not None

    def _write(self, now: Now) -> None:
        self._collect()
        if self._has_failed and self._writing is not None:
            for hour, spent in self._writing[1].items():
                self._add_spent(hour, spent)
        self._writing, self._written_s = None, now.boottime_s
        if self._unwritten or self._idle_s or self._written:
            spent_by_hour, self._unwritten = self._unwritten, {}
            self._written = frozenset(self._idle_s)
            idle = IdleTimes(at=now, seconds=self._idle_s, reported=self._meter.reported)
            self._writing = self._record.add_utilization(spent_by_hour, idle), spent_by_hour

    def _collect(self) -> None:
        """Take what has come in the current hour since this was last done."""
        if self._hour is not None:
            self._add_spent(self._hour, self._meter.take_spent())

    def _add_spent(self, hour: int, spent: Mapping[Spender, CardSeconds]) -> None:
        """Add it to what is to be written."""
        kept = self._unwritten.setdefault(hour, {}) if spent else {}
        for spender, part in spent.items():
            kept[spender] = kept.get(spender, CardSeconds()) + part
        while sum(map(len, self._unwritten.values())) > _MOST_UNWRITTEN:
            del self._unwritten[min(self._unwritten)]
