"""Quiet ticks: a cycle that equal readings would only repeat is not computed again, and the loop rests (ADR 15)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from watchdog import clock
from watchdog.core.assessment import Inputs
from watchdog.core.model import Now
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle
from watchdog.core.quiet import Resting, Ticks, are_same, is_quiet, next_change_s, repeated
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.cycle_report import in_time
from watchdog.daemon.enforcement import Enforcement, Permission
from watchdog.daemon.sampler import Sampler, TimedReading
from watchdog.daemon.sinks import Sinks
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner

_MOST_SET_S: Final = 1.0  # by which the wall clock may have been set meanwhile, at once or little by little


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuietCycle:
    """A finished cycle that equal readings with equal inputs repeat."""

    reading: DriverReading
    inputs: Inputs
    report: CycleReport
    # Until when (CLOCK_BOOTTIME) they do.
    until_s: float
    # Hours and deletion deadlines end by the wall clock, so `until_s` holds while that clock is this much ahead.
    wall_ahead_s: float


class QuietTicks:
    """Repeats the last cycle while it is quiet; the driver's thread reads at each tick meanwhile.

    `publish` gets the report of a repeated cycle, its inputs, and the ticks of a rest (None: a single reading); it
    returns the report as published.
    """

    def __init__(
        self,
        sampler: Sampler,
        cycle: Cycle,
        scanner: Scanner,
        sinks: Sinks,
        permission: Permission,
        publish: Callable[[CycleReport, Inputs, Ticks | None], CycleReport],
    ) -> None:
        self._sampler = sampler
        self._cycle = cycle
        self._scanner = scanner
        self._sinks = sinks
        self._permission = permission
        self._publish = publish
        self._last: _QuietCycle | None = None

    def begin(self, opened: OpenCycle, closed: ClosedCycle, report: CycleReport, reading: DriverReading | None) -> None:
        """Rest after a published cycle if it is quiet; `reading` is what it was made from (None: two readings)."""
        self._last = None
        is_driver_slow = opened.scan_s > opened.inputs.policy.interval_s  # then the ticks would be late too
        if reading is not None and is_quiet(opened, closed) and not is_driver_slow:
            until_s = next_change_s(closed.plan, opened.inputs.pods.pods, opened.inputs.policy, report.at)
            self._last = _QuietCycle(
                reading=reading,
                inputs=opened.inputs,
                report=in_time(report),
                until_s=min(until_s, self._cycle.residuals.next_change_s(report.at)),
                wall_ahead_s=report.at.wall_s - report.at.boottime_s,
            )
            self._begin_rest(self._last)

    def forget(self) -> None:
        """Repeat nothing until another quiet cycle."""
        self._last = None

    def repeat(self, timed: TimedReading, inputs: Inputs) -> bool:
        """Publish the last cycle once more and rest, if this reading with these inputs only repeats it."""
        last = self._last
        if last is None or not self._is_repeated(last, timed, inputs):
            return False
        passed_s = timed.asked.boottime_s - last.report.at.boottime_s
        took_s = clock.now().boottime_s - timed.asked.boottime_s
        ticks = Ticks(last=timed.asked, counted_s=min(passed_s, inputs.policy.interval_s), took_s=(took_s,))
        pods = replace(last.report.pods, synced=inputs.pods.synced)
        inputs = replace(inputs, overdue=last.inputs.overdue, hidden=last.inputs.hidden)
        last = self._advance(replace(last, inputs=inputs, report=replace(last.report, pods=pods)), ticks)
        self._begin_rest(self._published(last, inputs, None))
        return True

    def end_rest(self, now: Now, *, at_once: bool = False) -> None:
        """Publish the last cycle as of the last tick, if the rest has ended: a reading is due, or has differed."""
        ticks = self._sampler.end_rest(now, at_once=at_once)
        if self._last is not None and ticks is not None:
            last = self._advance(self._last, ticks)
            self._published(last, last.inputs, ticks)

    def _is_repeated(self, last: _QuietCycle, timed: TimedReading, inputs: Inputs) -> bool:
        passed_s = timed.asked.boottime_s - last.report.at.boottime_s
        return (
            timed.asked.boottime_s < last.until_s
            and abs(timed.asked.wall_s - timed.asked.boottime_s - last.wall_ahead_s) < _MOST_SET_S
            and timed.took_s <= inputs.policy.interval_s
            and passed_s < inputs.policy.reset_after_s
            and timed.reading == last.reading
            and are_same(last.inputs, inputs)
            and self._is_still(last)
            and not self._scanner.has_renamed()
        )

    def _is_still(self, last: _QuietCycle) -> bool:
        """Whether nothing has changed but, perhaps, the reading and the inputs."""
        enforcement = self._permission.enforcement
        report = last.report
        return (
            enforcement == Enforcement(enforcing=report.enforcing, suspended=report.suspended, stops=report.stops)
            and self._cycle.ledger is report.plan.ledger
            and not self._cycle.actions.need_readings
            and not self._cycle.actions.have_outcomes
            and not self._sinks.awaits_full_cycles
            and self._scanner.is_unchanged
        )

    def _advance(self, last: _QuietCycle, ticks: Ticks) -> _QuietCycle:
        """Take over the plan, the ledger and the next deadline as of these ticks."""
        report = repeated(last.report, last.inputs, ticks)
        if self._cycle.ledger is last.report.plan.ledger:  # otherwise a switch or a reload has just changed it
            self._cycle.ledger = report.plan.ledger
        self._sampler.pace.plan(report.plan, ticks.last)
        self._last = replace(last, report=report)
        return self._last

    def _published(self, last: _QuietCycle, inputs: Inputs, ticks: Ticks | None) -> _QuietCycle:
        """Publish a repeated cycle."""
        self._last = replace(last, report=self._publish(last.report, inputs, ticks))
        return self._last

    def _begin_rest(self, last: _QuietCycle) -> None:
        """Leave the next ticks to the driver's thread, if they could only repeat this cycle."""
        if self._is_still(last) and not self._sinks.awaits_cycles:
            synced = last.inputs.pods.synced
            stale_s = math.inf if synced is None else synced.boottime_s + last.inputs.policy.stale_after_s
            until_s = min(last.until_s, stale_s)
            rest = self._sampler.begin_rest(
                last.reading, last.report.at, until_s, self._scanner.are_processes_unchanged
            )
            self._sinks.begin_rest(Resting(report=last.report, inputs=last.inputs, ticks=lambda: rest.ticks))
