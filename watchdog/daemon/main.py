"""The daemon: its parts, and its loop, which queries, decides, acts and reports without blocking."""

import math
import signal
from collections.abc import Collection, Sequence
from dataclasses import replace

from watchdog import clock
from watchdog.clock import Bell, Waiter
from watchdog.config.load import PolicyError
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import Inputs
from watchdog.core.left import LeftPods
from watchdog.core.listed import ListedResources
from watchdog.core.model import Now
from watchdog.core.plan import ClosedCycle, CycleReport, Moment, OpenCycle, Outcome, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.core.quiet import LONGEST_REST_S, Ticks
from watchdog.daemon.actions.actions import Actions, actions_by_do
from watchdog.daemon.actions.intentions import LOOP_LATE
from watchdog.daemon.actions.last_look import FRESH_S, LastLook, Next, PendingCycle, without_last_look
from watchdog.daemon.actions.mps import NodeDrains
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.cycle_report import report_of
from watchdog.daemon.enforcement import Environment, Permission
from watchdog.daemon.file_events import FileEvents
from watchdog.daemon.maintenance import MaintenanceWatch
from watchdog.daemon.quiet_ticks import QuietTicks
from watchdog.daemon.sampler import Sampler, TimedReading, reexec, reject_late, was_reexecuted
from watchdog.daemon.sinks import Sink, Sinks
from watchdog.daemon.sources import Sources, open_cluster
from watchdog.daemon.utilization import UtilizationLog
from watchdog.export.log import Log
from watchdog.node.drivers.protocol import Driver, DriverReading
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options, stop_file

# How often the stop file, the policy file and the lock are checked, which takes little more than a stat each; while the
# loop rests, and the kernel reports every change to them, only with the reading that ends the rest.
_HEARTBEAT_S = 0.5
# How long stopping waits for the remaining Events.
_CLOSE_WITHIN_S = 0.3
# A cycle that fails unexpectedly is logged and tried again; this many in a row that fail, or that a sink lacks, end the
# daemon.
_MAX_FAILURES = 10


class _Ending:
    """Whether the daemon is to end, and how."""

    def __init__(self, log: Log) -> None:
        # The exit code; None: the daemon goes on.
        self.code: int | None = None
        # Whether it restarts in place instead of exiting.
        self.reexecutes = False
        # How many cycles in a row have failed, or are missing in a sink.
        self.failures = 0
        self._log = log

    def stop(self) -> None:
        """End with 0; any thread may call it."""
        self.code, self.reexecutes = 0, False

    def exit(self, why: str, *, reexecutes: bool = False) -> None:
        """End with 1, to be restarted."""
        if self.code is None:  # otherwise it ends already, perhaps by a signal during this step
            self.code, self.reexecutes = 1, reexecutes
            self._log.error(f"exiting, to be restarted: {why}")

    def count_failure(self) -> None:
        """Note that a cycle has failed, or that a sink lacks it: no daemon runs on for ever without its journal."""
        self.failures += 1
        if self.failures >= _MAX_FAILURES:
            self.exit(f"{self.failures} cycles in a row have failed or were not published everywhere")


class _EarlyOutcomes:
    """What the cycles "would have" done while the daemon starts: if enforcement begins, it is done.

    If enforcement does not begin, it is reported once that is clear.
    """

    def __init__(self) -> None:
        self._kept: tuple[Outcome, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep_observed(self, closed: ClosedCycle) -> ClosedCycle:
        """A cycle of the start, without what it only observed, which is kept."""
        observed = tuple(outcome for outcome in closed.outcomes if outcome.result is Result.OBSERVED)
        self._kept = (*self._kept, *observed)
        return replace(closed, outcomes=tuple(each for each in closed.outcomes if each not in observed))

    def report(self, closed: ClosedCycle, *, enforces: bool) -> ClosedCycle:
        """A cycle after the start, with what was kept, unless the daemon enforces."""
        early, self._kept = () if enforces else self._kept, ()
        return replace(closed, outcomes=(*early, *closed.outcomes)) if early else closed


class Daemon:
    """Runs cycles until it is stopped. It is large because all parts of the daemon meet here, and nowhere else."""

    def __init__(
        self,
        options: Options,
        policy: tuple[PolicyFile, Policy],
        driver: Driver,
        environment: Environment,
        scanner: Scanner,
        *,
        further: Sequence[Sink] = (),
    ) -> None:
        """The `further` sinks get every cycle too."""
        now = clock.now()
        self._may_signal_others = environment.may_signal_others
        self._policy_file, self._policy = policy
        self._policy_loaded_s = now.wall_s
        self._bell = Bell()
        self._cluster = open_cluster(options, self._bell)
        self._driver = driver
        self._sampler = Sampler(driver, self._policy.interval_s, now, reexecuted=was_reexecuted())
        self._scanner = scanner
        self._sinks = Sinks(
            options,
            self._policy,
            now,
            None if self._cluster is None else self._cluster.event_writer,
            lambda: self._sampler.pulse_state,
            further=further,
        )
        self._keeper, self._log = self._sinks.keeper, self._sinks.daemon_log
        record = self._keeper.record
        self._sources = Sources(options, environment.own, self._cluster, LeftPods(record.left))
        self._maintenance = MaintenanceWatch(record.maintenance)
        self._listed = ListedResources()
        self._utilization = UtilizationLog(record)
        self._drains = NodeDrains(self._bell, Procfs(options.procfs), self._policy)
        by_do = actions_by_do(scanner, self._cluster, record, clock.now, self._drains)
        self._actions = Actions(by_do, record, clock.now, self._drains)
        self._cycle = Cycle(scanner, self._actions, record)
        self._permission = Permission(options.journal, environment, self._policy_file, self._sources, self._log.warn)
        self._pending: PendingCycle | None = None
        self._quiet_ticks = QuietTicks(
            self._sampler, self._cycle, scanner, self._sinks, self._permission, self._publish
        )
        files = (options.policy, stop_file(options.journal), *self._sources.files)  # the lock is next to the stop file
        self._file_events = FileEvents(files)
        self._last_beat_s = -math.inf
        self._reload_wanted = False
        self._is_writable = True
        self._early = _EarlyOutcomes()
        self._ending = _Ending(self._log)

    def run(self, ends: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> int:
        """Run until it is stopped or one of these signals `ends` it; the exit code."""
        waiter = Waiter()
        for waker in (self._sampler.thread, self._bell, self._sinks.bell, self._file_events):
            if waker.fileno() >= 0:
                waiter.watch(waker.fileno())
        for number in ends:
            waiter.on(number, self.stop)
        if signal.SIGHUP not in ends:
            waiter.on(signal.SIGHUP, self._want_reload)
        lacks = "CAP_KILL is missing: a pod with processes of another user can't be killed; run as root with CAP_KILL"
        self._sinks.start(self._policy, () if self._may_signal_others else (lacks,))
        self._follow()
        while self._ending.code is None:
            try:
                self._step(clock.now())
            except Exception as error:  # a bug must not end a daemon that enforces
                self._fail(error)
            waiter.wait(self._idle_s(clock.now()) if self._ending.code is None else 0.0)
        self._end(clock.now())
        waiter.close()
        if self._ending.reexecutes:
            reexec()
        return self._ending.code

    def stop(self) -> None:
        """End as soon as the current step is done; any thread may call it."""
        self._ending.stop()
        self._bell.ring()

    def _want_reload(self) -> None:
        self._reload_wanted = True
        self._last_beat_s = -math.inf

    def _follow(self) -> None:
        if self._cluster is not None:
            self._cluster.follow(self._policy)

    def _step(self, now: Now) -> None:
        """Do what is due: checks, actions in progress, then the reading that has come or the next one."""
        if self._bell.silence():  # the pods, the node or the namespaces have changed, or an eviction was answered
            self._sampler.bring_forward(now)
            self._last_beat_s = -math.inf
        if self._file_events.silence():
            self._file_events.renew()
            self._last_beat_s = -math.inf
        if now.boottime_s >= self._last_beat_s + _HEARTBEAT_S:
            self._beat(now)
        self._sinks.bell.silence()  # something is on disk now, which is checked below
        self._actions.advance(
            now,
            self._objection,
            policy_unsettled=self._permission.policy_unsettled,
        )
        if self._actions.have_outcomes:
            self._sampler.bring_forward(now)
        self._quiet_ticks.end_rest(now)
        timed = self._sampler.pop_reading(now)
        self._sinks.note_spent_looks(self._sampler.note_rise(now), self._policy)
        if self._pending is not None:
            if timed is not None:
                self._pending.on_reading(timed)
            self._advance_pending(self._pending, now)
        elif timed is not None:
            self._run_cycle(timed, now)
        else:
            self._sampler.request_next(now)
        why = self._sampler.why_reexec(now)
        if why is not None:
            self._ending.exit(why, reexecutes=True)

    def _beat(self, now: Now) -> None:
        """Check between cycles: the policy file, the sources, the lock, the switches, and whether the driver hangs."""
        self._last_beat_s = now.boottime_s
        self._check_policy_file(now)
        # While an action is in progress the driver is queried every second, however long the interval is.
        if self._sources.have_changed or self._actions.need_readings:
            self._sampler.bring_forward(now)
        if self._pending is None:  # a drain would wait for the answer, and the last look age
            self._drains.refresh(now)
        restored = self._keeper.maintain(now)
        if self._keeper.is_writable != self._is_writable:  # a kill may be waiting for the disk
            self._is_writable = self._keeper.is_writable
            self._sampler.bring_forward(now)
        if restored is not None:
            until_s = now.boottime_s + self._policy.release_timeout_s
            self._actions.take_over(restored.unfinished, until_s, restored.brakes)
            self._drains.restore(restored.drained)
            self._maintenance.restore(restored.maintenance, now)
            self._sources.left.restore(restored.left, now)
            self._listed.restore(restored.listed, now)
            self._keeper.record.listed(self._listed.by_pod)
            self._cycle.transfers = self._cycle.transfers.inheriting(restored.transfers, now)
            self._utilization.restore(restored.idle, now)
        self._update_permission(now)
        for message in self._cluster.take_messages() if self._cluster is not None else ():
            (self._log.warn if message.is_problem else self._log.inform)(message.text)
        if self._sampler.thread.has_died:
            self._ending.exit("the thread that reads the driver has died; please report this, with the log")
        self._sinks.note_pulse(self._sampler.thread.pulse_cost)
        self._sinks.note_utilization(self._sampler.thread.utilization_cost)
        self._sinks.note_silence(self._sampler.silence(self._policy.reset_after_s, now))

    def _check_policy_file(self, now: Now) -> None:
        self._policy_file.check(now)
        if self._reload_wanted or self._policy_file.is_ready:
            self._reload_wanted = False
            self._reload(now)
        self._sinks.note_policy_file(self._policy_file.problem, now)

    def _update_permission(self, now: Now) -> None:
        """Determine whether enforcement is permitted now, and whether the driver may be kept open."""
        before = self._permission.enforcement
        begins = self._permission.update(
            self._policy, now, has_lock=self._sinks.has_lock, has_journal=self._sinks.has_journal
        )
        switches, awaits_pods = self._permission.switches, self._cluster is not None and self._cluster.pods.is_awaited
        self._sampler.note_switches(switches, now, awaits_pods=awaits_pods)
        self._maintenance.update(self._sampler.maintenance, now, is_known=not switches.unseen)
        self._permission.under_maintenance = self._sampler.maintenance is not None
        if self._permission.enforcement != before:  # an operator who used a switch waits for the effect
            self._sampler.bring_forward(now)
        self._sampler.set_pulse(self._policy.useful_pulse if self._permission.enforcement.enforcing else None)
        if begins:
            self._cycle.ledger = self._cycle.ledger.reset()
            self._drop("enforcement was resumed")  # what was planned before must not be done now

    def _reload(self, now: Now) -> None:
        try:
            policy = self._policy_file.load()
        except PolicyError as error:
            self._sinks.policy_refused(error, now, has_settled=self._policy_file.has_settled)
            return
        self._cycle.ledger = self._cycle.ledger.reloaded(self._policy, policy)
        self._policy, self._policy_loaded_s = policy, now.wall_s
        self._sampler.pace.interval_s = policy.interval_s
        self._drains.configure(policy)
        self._sampler.bring_forward(now)
        self._follow()
        self._sinks.policy_loaded(policy, now)

    def _run_cycle(self, timed: TimedReading, now: Now) -> None:
        """Turn a reading into a plan, and act on it at once unless a last look comes first."""
        if timed.only is not None:
            return  # the last look of a cycle that has failed: part of the node must not be taken for all of it
        is_old = timed.took_s > self._policy.reset_after_s
        reading = reject_late(timed.reading, timed.took_s) if is_old else timed.reading
        self._update_permission(now)
        inputs = self._inputs(now)
        if self._quiet_ticks.repeat(timed, inputs):
            return
        opened = self._cycle.open(reading, inputs, timed.asked, now)
        self._sources.left.on_reading(opened.attribution, self._scanner.may_live, now)
        if not opened.snapshot.blind and not opened.only:
            self._drains.refresh(now)
        if not opened.only:
            self._finish(opened, reading=reading)
            return
        opened = self._actions.intend(opened)
        queued = clock.now()  # the disk is given its time from here: a plan that took long is no fault of the disk
        self._pending = PendingCycle(opened=opened, since=queued)
        self._advance_pending(self._pending, queued)

    def _advance_pending(self, pending: PendingCycle, now: Now) -> None:
        """Advance the open cycle: once its intentions are on disk or late, request the last look; then close it."""
        step = pending.next(now, maintenance=self._sampler.maintenance is not None)
        if step is Next.READ:
            pending.on_request()
            self._sampler.request_reading(pending.opened.only, now)
        elif step is Next.CLOSE:
            self._close_pending(pending)

    def _close_pending(self, pending: PendingCycle) -> None:
        """Act on the open cycle, with the policy file, the switches, the pods and the node as they are right now."""
        self._check_policy_file(clock.now())
        self._update_permission(clock.now())
        if self._pending is None:
            return  # enforcement has just been resumed, and the cycle was dropped
        opened = pending.opened if pending.late_s is None else without_last_look(pending.opened, pending.late_s)
        if pending.was_late:
            opened = replace(opened, late=LOOP_LATE)
        opened = opened.with_inputs(self._inputs(clock.now()))
        self._finish(opened, None if pending.last_reading is None else self._last_look(pending.last_reading))

    def _last_look(self, timed: TimedReading) -> LastLook:
        fresh_until_s = timed.asked.boottime_s + FRESH_S

        def objection(entry: PlanEntry, moment: Moment) -> str | None:
            is_old = clock.now().boottime_s > fresh_until_s
            return "the last look was already too old" if is_old else self._objection(entry, moment)

        return LastLook(
            reading=timed.reading,
            asked=timed.asked,
            at=clock.now(),
            objection=objection,
            inputs=lambda: self._inputs(clock.now()),
        )

    def _inputs(self, now: Now) -> Inputs:
        inputs = self._sources.inputs(
            self._policy,
            now,
            journal_writable=self._keeper.is_writable,
            enforcing=self._permission.decides,
            policy_unsettled=self._permission.policy_unsettled,
        )
        listed = self._listed.update(inputs.pods.pods, inputs.node, self._policy, now)
        if listed:
            self._keeper.record.listed(listed)
        return replace(self._drains.complete(inputs), listed=self._listed.by_pod)

    def _finish(
        self, opened: OpenCycle, last_look: LastLook | None = None, *, reading: DriverReading | None = None
    ) -> None:
        """Close a cycle and publish it; `reading` is the whole of what it was made from, if there was no last look."""
        closed = self._cycle.close(opened, last_look, clock.now())
        if self._permission.is_starting(clock.now()):
            closed = self._early.keep_observed(closed)
        else:
            closed = self._early.report(closed, enforces=self._permission.decides)
        self._pending = None
        ended = clock.now()
        if not opened.inputs.is_inconclusive:  # otherwise no timer runs, so there is no deadline
            self._sampler.pace.plan(closed.plan, ended)
        report = report_of(
            opened,
            closed,
            self._permission.enforcement,
            policy_loaded_s=self._policy_loaded_s,
            maintenance=self._sampler.maintenance,
            ended=ended,
        )
        report = replace(report, maintenance_start=self._maintenance.start)
        report = self._publish(report, opened.inputs)
        if not self._early:
            self._quiet_ticks.begin(opened, closed, report, reading)
        stuck = self._driver.needs_new_process if self._sampler.maintenance is None else None
        stuck = stuck or (self._cluster.defect if self._cluster is not None else None)
        if stuck is not None:
            self._ending.exit(stuck)

    def _publish(self, report: CycleReport, inputs: Inputs, ticks: Ticks | None = None) -> CycleReport:
        readings = self._sampler.thread.take_utilization()
        report = self._utilization.add(report, readings, has_lock=self._sinks.has_lock)
        is_taken = self._sinks.publish(report, is_stale=inputs.pods_stale, ticks=ticks)
        if self._cluster is not None:
            self._cluster.keep_capacity(report.node, report.snapshot, self._policy, has_lock=self._sinks.has_lock)
        if is_taken:
            self._ending.failures = 0
        else:
            self._ending.count_failure()
        return report

    def _objection(self, entry: PlanEntry, moment: Moment) -> str | None:
        return self._permission.objection(entry, self._policy, clock.now(), moment)

    def _idle_s(self, now: Now) -> float:
        if self._pending is not None and self._pending.waits_for_disk:
            next_s = self._pending.write_until_s
        else:
            next_s = self._sampler.wake_s(now)
        beat_s = self._last_beat_s + (LONGEST_REST_S if self._is_calm else _HEARTBEAT_S)
        return min(beat_s, self._actions.next_wake_s, next_s) - now.boottime_s

    @property
    def _is_calm(self) -> bool:
        """Whether something wakes the loop once there is anything to check between readings."""
        is_watched = self._file_events.are_complete and self._sampler.is_resting
        return is_watched and self._policy_file.is_loaded and self._keeper.is_calm

    def _fail(self, error: Exception) -> None:
        self._drop("the cycle failed")
        self._quiet_ticks.forget()
        self._last_beat_s = clock.now().boottime_s
        self._log.crash(error, clock.now().boottime_s)
        self._ending.count_failure()

    def _drop(self, reason: str) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._actions.drop(pending.opened, reason)

    def _end(self, now: Now) -> None:
        self._quiet_ticks.end_rest(now, at_once=True)
        self._drop("the watchdog was stopped")
        self._actions.interrupt(now)
        self._utilization.end(now, has_lock=self._sinks.has_lock)
        self._sinks.stop(self._actions.take_ended(), now)
        self._drains.close()
        if self._cluster is not None:
            self._cluster.close(_CLOSE_WITHIN_S)
        self._file_events.close()
        if self._sampler.thread.close(timeout_s=0.2):
            self._scanner.close()
