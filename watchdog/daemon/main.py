"""The daemon: one loop that queries, decides, acts and reports, and is free between any two of its steps."""

import math
import signal
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from watchdog import clock
from watchdog.clock import Bell, Waiter
from watchdog.config.mistakes import PolicyError
from watchdog.config.watch import PolicyFile
from watchdog.core.model import Now
from watchdog.core.plan import OpenCycle, PlanEntry, View
from watchdog.core.policy import Policy
from watchdog.daemon.cycle import Cycle, outdated, without_last_look
from watchdog.daemon.enforcement import Footing
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.intentions import inherited
from watchdog.daemon.kills import Kills
from watchdog.daemon.permission import Permission
from watchdog.daemon.sampler import Sampler, TimedReading, reexec, was_reexecuted
from watchdog.daemon.second_look import LastLook
from watchdog.daemon.sinks import Sinks, report_of
from watchdog.daemon.sources import Surroundings, open_cluster
from watchdog.journal.writer import COMMIT_WITHIN_S
from watchdog.node.driver import Driver
from watchdog.node.scan import Scanner
from watchdog.options import Options

# What the first signal goes by is at most so old when it is sent: what is older says what was, not what is.
FRESH_S: Final = 2.0
# An answer of the driver that comes too late to act by is asked for once more.
_MOST_LOOKS: Final = 2


class Next(Enum):
    """What a cycle that is open needs next."""

    WAIT = auto()  # for the disk, or for the driver
    LOOK = auto()
    CLOSE = auto()


@dataclass(slots=True, kw_only=True)
class PendingCycle:
    """A cycle that has a plan and is not closed. `look` is the last look, once it has come in time."""

    opened: OpenCycle
    since: Now
    look: TimedReading | None = None
    late_s: float | None = field(default=None, init=False)
    _looks: int = field(default=0, init=False)
    _is_asked: bool = field(default=False, init=False)

    @property
    def write_until_s(self) -> float:
        """Boot time until which the disk may take what is intended."""
        return self.since.boottime_s + COMMIT_WITHIN_S

    @property
    def waits_for_disk(self) -> bool:
        """Whether nothing but the disk is waited for."""
        return not self._is_asked

    def next(self, now: Now, *, maintenance: bool) -> Next:
        """What to do now: first everything is on disk that can be, then the driver is asked, then it is closed."""
        if self._is_asked:
            return Next.WAIT
        if maintenance:
            return Next.CLOSE
        if not self.opened.is_written and now.boottime_s < self.write_until_s:
            return Next.WAIT
        is_looked_at = self.look is not None or self._looks >= _MOST_LOOKS or self._is_over(now)
        return Next.CLOSE if is_looked_at or not self.opened.wants_last_look else Next.LOOK

    def _is_over(self, now: Now) -> bool:
        """Whether the reading that the plan is made of is so long ago that no stretch lasts until a look now."""
        age_s = now.boottime_s - self.opened.snapshot.at.boottime_s
        return age_s >= self.opened.view.setting.policy.reset_after_s

    def ask(self) -> None:
        """The driver has been asked."""
        self._is_asked = True
        self._looks += 1

    def take(self, look: TimedReading) -> None:
        """The driver has answered; what comes too late is good for nothing."""
        self._is_asked = False
        self.look, self.late_s = (look, None) if look.took_s <= FRESH_S else (None, look.took_s)


# The stop file, a changed policy and a lock that has come free are looked for this often, with little more than a stat.
_HEARTBEAT_S = 0.5
# So long the end waits for Events that are still to be written.
_FAREWELL_S = 0.3
# A cycle that fails in a way that nobody foresaw is logged and tried again; this many in a row end the daemon.
_MAX_FAILURES = 10


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
        self._may_signal_others = footing.may_signal_others
        self._policy_file, self._policy = policy
        self._policy_loaded_s = now.wall_s
        self._bell = Bell()
        self._cluster = open_cluster(options, self._bell)
        self._surroundings = Surroundings(options, footing.own, self._cluster)
        self._driver = driver
        self._sampler = Sampler(driver, self._policy.interval_s, now, reexecuted=was_reexecuted())
        self._scanner = scanner
        event_recorder, evictor = (
            (self._cluster.event_recorder, self._cluster.evictor) if self._cluster is not None else (None, None)
        )
        self._sinks = Sinks(options, self._policy, now, event_recorder)
        actions = Kills(scanner, self._sinks.record, clock.now)
        self._cycle = Cycle(scanner, actions, Evictions(evictor, self._sinks.record, clock.now))
        self._permission = Permission(options, footing, self._policy_file, self._surroundings, self._sinks)
        self._opened: PendingCycle | None = None
        self._next_beat_s = -math.inf
        self._reload_wanted = False
        self._failures = 0
        self._begins_anew = False
        self._exit_code: int | None = None

    def run(self) -> int:
        """Run until a signal ends it; the exit code."""
        waiter = Waiter()
        waiter.watch(self._sampler.fileno())
        waiter.watch(self._bell.fileno())
        waiter.watch(self._sinks.bell.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            waiter.on(number, self.stop)
        waiter.on(signal.SIGHUP, self._want_reload)
        lacks = "CAP_KILL is missing: a pod with processes of another user can't be killed; run as root with it"
        self._sinks.start(self._policy, () if self._may_signal_others else (lacks,))
        self._follow()
        while self._exit_code is None:
            try:
                self._turn(clock.now())
            except Exception as error:  # the one broad except: a bug must not end a daemon that enforces
                self._fail(error)
            waiter.wait(self._idle_s(clock.now()) if self._exit_code is None else 0.0)
        self._end(clock.now())
        waiter.close()
        if self._begins_anew:
            reexec()
        return self._exit_code

    def stop(self) -> None:
        """End as soon as the step at hand is done."""
        self._exit_code, self._begins_anew = 0, False

    def _want_reload(self) -> None:
        self._reload_wanted = True
        self._next_beat_s = -math.inf

    def _follow(self) -> None:
        if self._cluster is not None:
            self._cluster.follow(self._policy)

    def _turn(self, now: Now) -> None:
        if self._bell.silence():  # other pods, another node, a reply to an eviction
            self._sampler.pace.hurry(now)
            self._next_beat_s = -math.inf
        if now.boottime_s >= self._next_beat_s:
            self._beat(now)
        self._sinks.bell.silence()  # something is on disk: what waits for it finds that below
        self._cycle.advance(now, self._objection, is_held=self._permission.is_held)
        look = self._sampler.take(now)
        if look is not None:
            self._take(look, now)
        elif self._opened is not None:
            self._go_on(self._opened, now)
        else:
            self._sampler.go_on(now)
        why = self._sampler.why_anew(now)
        if why is not None:
            self._sinks.say_ending(why)
            self._exit_code, self._begins_anew = 1, True

    def _beat(self, now: Now) -> None:
        """What is looked for between cycles: a new policy, new pods, the lock, the switches, a driver that hangs."""
        self._next_beat_s = now.boottime_s + _HEARTBEAT_S
        self._look_at_policy(now)
        # While an action is in progress it is looked at every second, however long the interval is.
        if self._surroundings.have_changed or self._cycle.is_acting:
            self._sampler.pace.hurry(now)
        inheritance = self._sinks.tend(now)
        if inheritance is not None:
            until_s = now.boottime_s + self._policy.release_timeout_s
            self._cycle.take_over(inherited(inheritance.unfinished, until_s), inheritance.brakes)
        self._judge(now)
        for note in self._cluster.take_notes() if self._cluster is not None else ():
            self._sinks.note(note.text, is_problem=note.is_problem)
        self._sinks.note_silence(self._sampler.silence(self._policy.reset_after_s, now))

    def _look_at_policy(self, now: Now) -> None:
        self._policy_file.look(now)
        if self._reload_wanted or self._policy_file.is_ready:
            self._reload_wanted = False
            self._reload(now)
        self._sinks.note_policy_file(self._policy_file.trouble, now)

    def _judge(self, now: Now) -> None:
        """Whether force may be used now, and whether the driver may be kept open."""
        before = self._permission.enforcement
        begins = self._permission.judge(self._policy, now)
        if self._permission.enforcement != before:  # whoever has turned a switch waits to see it
            self._sampler.pace.hurry(now)
        self._sampler.heed(self._permission.switches, now)
        if begins:
            self._cycle.ledger = self._cycle.ledger.reset()
            self._drop("enforcement began anew")  # what was planned before is not to be done now

    def _reload(self, now: Now) -> None:
        try:
            policy = self._policy_file.load()
        except PolicyError as error:
            self._sinks.policy_refused(error, now)
            return
        self._cycle.ledger = self._cycle.ledger.reloaded(self._policy, policy)
        self._policy, self._policy_loaded_s = policy, now.wall_s
        self._sampler.pace.interval_s = policy.interval_s
        self._sampler.pace.hurry(now)
        self._follow()
        self._sinks.policy_loaded(policy, now)

    def _take(self, look: TimedReading, now: Now) -> None:
        """A reading has come: the first of a cycle takes it as far as its plan, the last look lets it act."""
        if self._opened is not None:
            self._opened.take(look)
            self._go_on(self._opened, now)
            return
        if look.only is not None:
            return  # a last look whose pass has failed: a part of the node must not be taken for the whole
        reading = look.reading
        if look.took_s > self._policy.reset_after_s:
            reading = outdated(reading, look.took_s)
        self._judge(now)
        opened = self._cycle.open(reading, self._view(now), look.asked, now)
        if not opened.only:
            self._finish(opened)
            return
        self._opened = PendingCycle(opened=self._cycle.intend(opened), since=now)
        self._go_on(self._opened, now)

    def _go_on(self, waiting: PendingCycle, now: Now) -> None:
        """Once what a cycle intends is on disk, or has not got there in time, look a last time at what is there."""
        following = waiting.next(now, maintenance=self._sampler.maintenance is not None)
        if following is Next.LOOK:
            waiting.ask()
            self._sampler.ask_again(waiting.opened.only, now)
        elif following is Next.CLOSE:
            opened = waiting.opened if waiting.late_s is None else without_last_look(waiting.opened, waiting.late_s)
            self._finish(opened, waiting.look)

    def _drop(self, reason: str) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            self._cycle.drop(opened.opened, reason)

    def _view(self, now: Now) -> View:
        return self._surroundings.view(
            self._policy,
            now,
            journal_writable=self._sinks.is_writable,
            enforcing=self._permission.decides,
            is_held=self._permission.is_held,
        )

    def _finish(self, opened: OpenCycle, look: TimedReading | None = None) -> None:
        last: LastLook | None = None
        if opened.only:
            # The policy file, the switches, the pods, the node: all as they are at this very moment.
            self._look_at_policy(clock.now())
            self._judge(clock.now())
            if self._opened is None:
                return  # enforcement has started over just now
            opened = replace(opened, view=self._view(clock.now()))
        if look is not None:
            fresh_until_s = look.asked.boottime_s + FRESH_S
            last = LastLook(
                reading=look.reading,
                at=clock.now(),
                fresh_until_s=fresh_until_s,
                refusal=lambda entry: self._refusal(entry, fresh_until_s),
                view=lambda: self._view(clock.now()),
            )
        finish = self._cycle.close(opened, last, clock.now())
        self._opened = None
        ended = clock.now()
        if not opened.view.conditions.are_dark:  # no timer runs then, so no deadline comes nearer
            self._sampler.pace.plan(finish.plan, ended)
        report = report_of(
            opened,
            finish,
            self._permission.enforcement,
            policy_loaded_s=self._policy_loaded_s,
            maintenance=self._sampler.maintenance,
            ended=ended,
        )
        self._sinks.publish(report, is_stale=opened.view.conditions.pods_stale)
        if self._cluster is not None:
            node = opened.view.setting.node
            self._cluster.keep_capacity(node, opened.snapshot, self._policy, has_lock=self._sinks.has_lock)
        self._failures = 0
        stuck = self._driver.needs_new_process if self._sampler.maintenance is None else None
        stuck = stuck or (self._cluster.defect if self._cluster is not None else None)
        if stuck is not None:
            self._sinks.say_ending(stuck)
            self._exit_code = 1

    def _objection(self, entry: PlanEntry) -> str | None:
        return self._permission.objection(entry, self._policy)

    def _refusal(self, entry: PlanEntry, fresh_until_s: float) -> str | None:
        """What speaks against a first signal right before it is sent, whatever the last look says."""
        if clock.now().boottime_s > fresh_until_s:
            return "the last look was too old by then"
        return self._permission.objection(entry, self._policy, is_first=True)

    def _idle_s(self, now: Now) -> float:
        waiting = self._opened
        is_writing = waiting is not None and waiting.waits_for_disk
        next_s = waiting.write_until_s if waiting is not None and is_writing else self._sampler.wake_s(now)
        return min(self._next_beat_s, self._cycle.next_wake_s, next_s) - now.boottime_s

    def _fail(self, error: Exception) -> None:
        self._drop("the pass failed")
        self._failures += 1
        self._next_beat_s = clock.now().boottime_s + _HEARTBEAT_S
        self._sinks.say_failure(error)
        if self._failures >= _MAX_FAILURES:
            self._sinks.say_ending(f"{self._failures} passes in a row have failed")
            self._exit_code = 1

    def _end(self, now: Now) -> None:
        self._drop("the watchdog was stopped")
        self._cycle.interrupt("the watchdog was stopped in the grace period", now)
        self._sinks.stop(self._cycle.take_ended(), now)
        if self._cluster is not None:
            self._cluster.close(_FAREWELL_S)
        if self._sampler.close(timeout_s=0.2):
            self._scanner.close()
