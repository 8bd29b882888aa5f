"""The daemon: one loop that looks, decides, acts and reports, and is free between any two of its steps."""

import math
import signal
import sys
from dataclasses import replace

from watchdog import clock
from watchdog.act import Deeds
from watchdog.config.problems import PolicyError
from watchdog.config.watch import PolicyFile
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Policy
from watchdog.cycle import Cycle, Pass, View
from watchdog.enforcement import Enforcement, Footing, judge
from watchdog.export.listen import ListenError
from watchdog.late import outdated, without_second_look
from watchdog.leftovers import left_over
from watchdog.node.driver import Driver, DriverReading
from watchdog.node.nvml import NvmlDriver
from watchdog.node.nvml_thread import DriverThread
from watchdog.node.scan import Scanner
from watchdog.options import Options
from watchdog.pace import Pace
from watchdog.reporter import Reporter
from watchdog.sources import with_rule_gaps
from watchdog.start import open_processes
from watchdog.surroundings import Surroundings
from watchdog.waiter import Waiter

# The stop file, a changed policy and a lock that has come free are looked for this often, with little more than a stat.
_HEARTBEAT_S = 0.5
# A second look that took longer says what was, not what is; the next pass decides anew.
_SECOND_LOOK_S = 2.0
# A pass that fails in a way that nobody foresaw is logged and tried again; this many in a row end the daemon.
_MAX_FAILURES = 10


def run_daemon(options: Options) -> int:
    """Run the daemon on this node's GPUs; the exit code."""
    policy_file = PolicyFile(options.policy)
    try:
        policy = policy_file.load()
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    footing, scanner = open_processes(options)
    try:
        daemon = Daemon(options, (policy_file, policy), NvmlDriver(), footing, scanner)
    except ListenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return daemon.run()


class Daemon:
    """Runs passes until it is told to stop."""

    def __init__(
        self,
        options: Options,
        policy: tuple[PolicyFile, Policy],
        driver: Driver,
        footing: Footing,
        scanner: Scanner,
    ) -> None:
        now = clock.now()
        self._options = options
        self._footing = footing
        self._policy_file, self._policy = policy
        self._policy_loaded_s = now.wall_s
        self._surroundings = Surroundings(options, footing.own)
        self._driver = driver
        self._thread = DriverThread(driver)
        self._scanner = scanner
        self._reporter = Reporter(options, self._policy, now)
        deeds = Deeds(scanner, self._reporter.record, clock.now)
        self._cycle = Cycle(scanner, deeds)
        self._pace = Pace(self._policy.interval_s)
        self._enforcement = Enforcement(enforcing=False, suspended=())
        self._opened: Pass | None = None
        self._asked = now
        self._asked_for: frozenset[str] | None = None
        self._patience_s = _SECOND_LOOK_S
        self._next_beat_s = -math.inf
        self._reload_wanted = False
        self._failures = 0
        self._exit_code: int | None = None

    def run(self) -> int:
        """Run until a signal ends it; the exit code."""
        waiter = Waiter()
        waiter.watch(self._thread.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            waiter.on(number, self.stop)
        waiter.on(signal.SIGHUP, self._want_reload)
        lacks = "CAP_KILL is missing: a pod with processes of another user can't be killed; run as root with it"
        self._reporter.start(self._policy, () if self._footing.may_signal_others else (lacks,))
        while self._exit_code is None:
            try:
                self._turn(clock.now())
            except Exception as error:  # the one broad except: a bug must not end a daemon that enforces
                self._fail(error)
            waiter.wait(self._idle_s(clock.now()) if self._exit_code is None else 0.0)
        self._end(clock.now())
        waiter.close()
        return self._exit_code

    def stop(self) -> None:
        """End as soon as the step at hand is done."""
        self._exit_code = 0

    def _want_reload(self) -> None:
        self._reload_wanted = True
        self._next_beat_s = -math.inf

    def _turn(self, now: Now) -> None:
        if now.boottime_s >= self._next_beat_s:
            self._beat(now)
        self._cycle.advance(now, self._is_permitted)
        reading = self._thread.take()
        if reading is not None:
            self._take(reading, now)
        elif not self._thread.busy and now.boottime_s >= self._pace.next_look_s:
            self._pace.begin(now)
            self._ask(None, now)

    def _beat(self, now: Now) -> None:
        """What is looked for between passes: a new policy, new pods, the lock, the stop file, a driver that hangs."""
        self._next_beat_s = now.boottime_s + _HEARTBEAT_S
        if self._reload_wanted or self._policy_file.has_changed():
            self._reload_wanted = False
            self._reload(now)
        # While a deed is under way it is looked at every second, however long the interval is.
        if self._surroundings.have_changed or self._cycle.is_acting:
            self._pace.hurry(now)
        inheritance = self._reporter.tend(now)
        if inheritance is not None:
            until_s = now.boottime_s + self._policy.release_timeout_s
            self._cycle.take_over(left_over(inheritance.unfinished, until_s), inheritance.brakes)
        self._judge()
        silent_s = now.boottime_s - self._asked.boottime_s if self._thread.busy else 0.0
        reasons = [f"NVML has not answered for {silent_s:.0f} s"] if silent_s > self._policy.reset_after_s else []
        self._reporter.note_silence(tuple(reasons))

    def _judge(self) -> None:
        before = self._enforcement
        self._enforcement = judge(
            self._policy,
            self._footing,
            self._options.journal,
            has_lock=self._reporter.has_lock,
            has_journal=self._reporter.has_journal,
        )
        if self._enforcement.enforcing and not before.enforcing:
            self._cycle.ledger = self._cycle.ledger.begun_anew()
            self._opened = None  # what was planned before, and waits for its second look, is not to be done now

    def _reload(self, now: Now) -> None:
        try:
            policy = self._policy_file.load()
        except PolicyError as error:
            self._reporter.policy_refused(error, now)
            return
        self._policy, self._policy_loaded_s = policy, now.wall_s
        self._pace.interval_s = policy.interval_s
        self._pace.hurry(now)
        self._reporter.policy_loaded(policy, now)

    def _ask(self, only: frozenset[str] | None, now: Now) -> None:
        self._asked, self._asked_for = now, only
        self._thread.request(only)

    def _take(self, reading: DriverReading, now: Now) -> None:
        """A reading has come: the first of a pass takes it as far as its plan, the second lets it act."""
        took_s = now.boottime_s - self._asked.boottime_s
        if self._opened is not None:
            opened, self._opened = self._opened, None
            self._finish(opened, reading, took_s)
            return
        if self._asked_for is not None:
            return  # a second look whose pass has failed: a part of the node must not be taken for the whole
        if took_s > self._policy.reset_after_s:
            reading = outdated(reading, took_s)
        self._judge()
        self._patience_s = min(max(_SECOND_LOOK_S, 2 * took_s), self._policy.reset_after_s)
        opened = self._cycle.open(reading, self._view(now), self._asked, now)
        if opened.only:
            self._opened = opened
            self._ask(opened.only, now)
        else:
            self._finish(opened, None, 0.0)

    def _view(self, now: Now) -> View:
        return self._surroundings.view(
            self._policy,
            now,
            journal_writable=self._reporter.is_writable,
            enforcing=self._enforcement.enforcing,
        )

    def _finish(self, opened: Pass, second: DriverReading | None, took_s: float) -> None:
        now = clock.now()
        if second is not None:
            # A pod that has been deleted, or is being deleted, since the plan was made is not to be hit.
            opened = replace(opened, view=self._view(now))
        if took_s > self._patience_s:
            opened, second = without_second_look(opened, took_s), None
        # What was let through a moment ago may have been told to stop while the driver was asked again.
        finish = self._cycle.close(opened, second if self._enforcement.enforcing else None, now)
        ended = clock.now()
        if not opened.view.conditions.pods_stale:  # on a stale list no timer runs, so no deadline comes nearer
            self._pace.plan(finish.plan, ended)
        report = CycleReport(
            node=opened.view.setting.node,
            at=opened.snapshot.at,
            policy=opened.view.setting.policy,
            policy_loaded_at_s=self._policy_loaded_s,
            enforcing=self._enforcement.enforcing,
            suspended=self._enforcement.suspended,
            snapshot=opened.snapshot,
            pods=with_rule_gaps(opened.view.pods, opened.assessments),
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=finish.outcomes,
            namespaces=opened.view.setting.namespaces,
            scan_s=opened.scan_s,
            duration_s=ended.boottime_s - opened.snapshot.at.boottime_s,
        )
        self._reporter.publish(report, is_stale=opened.view.conditions.pods_stale)
        self._failures = 0
        stuck = self._driver.needs_new_process
        if stuck is not None:
            self._reporter.say_ending(stuck)
            self._exit_code = 1

    def _is_permitted(self, entry: PlanEntry) -> bool:
        """Whether a deed in its grace may still go on to SIGKILL: force only ever gets less."""
        return self._enforcement.enforcing and self._surroundings.permit(entry, self._policy, clock.now())

    def _idle_s(self, now: Now) -> float:
        moments = [self._next_beat_s, self._cycle.next_wake_s]
        if not self._thread.busy:
            moments.append(self._pace.next_look_s)
        return min(moments) - now.boottime_s

    def _fail(self, error: Exception) -> None:
        self._opened = None
        self._failures += 1
        self._next_beat_s = clock.now().boottime_s + _HEARTBEAT_S
        self._reporter.say_failure(error)
        if self._failures >= _MAX_FAILURES:
            self._reporter.say_ending(f"{self._failures} passes in a row have failed")
            self._exit_code = 1

    def _end(self, now: Now) -> None:
        self._cycle.interrupt("the watchdog was stopped in the grace period", now)
        self._reporter.stop(self._cycle.take_ended(), now)
        if self._thread.close(timeout_s=0.2):
            self._scanner.close()
