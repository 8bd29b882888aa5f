"""The sampler: when the driver is queried, and its release for maintenance, by re-exec if necessary."""

import fcntl
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from watchdog import clock
from watchdog.clock import Waiter
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import Plan
from watchdog.core.policy import Pulse, longest_step_s
from watchdog.core.quiet import LONGEST_REST_S, Ticks
from watchdog.core.rules import Switches
from watchdog.daemon.looks import Looks
from watchdog.node.drivers.devices import descriptors, open_devices
from watchdog.node.drivers.protocol import Driver, DriverReading, released_reading
from watchdog.node.drivers.thread import DriverThread, PulseState, Rest
from watchdog.report.text import span

# A reading lists processes, which holds the driver's global lock for milliseconds (MangoHud#2104): deadlines that lie
# close together share one.
_CLOSEST_S = 0.1
_SHORTEST_S = 1.0


class Pace:
    """Schedules readings: the next tick is at `tick_s`, unless a deadline comes before. Times are CLOCK_BOOTTIME."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.tick_s = -math.inf
        self._deadline_s = math.inf
        self._last_s = -math.inf

    @property
    def next_reading_s(self) -> float:
        """When to read next; in the past if a reading is overdue."""
        return min(self.tick_s, self._deadline_s)

    def begin(self, now: Now) -> None:
        """Note the start of a reading: the next tick stays on the grid, and missed ticks are skipped."""
        self._last_s = now.boottime_s
        is_early = now.boottime_s < self.tick_s  # a deadline brought this reading forward
        if not is_early:
            due_s = self.tick_s + self.interval_s
            self.tick_s = due_s if due_s > now.boottime_s else now.boottime_s + self.interval_s
        self._deadline_s = math.inf

    def plan(self, plan: Plan, now: Now) -> None:
        """Schedule a reading for when the first step of this plan comes due, or a brake releases."""
        # This includes steps that a brake will withhold: it may have released by then.
        coming = (entry for entry in plan.entries if entry.due_in_s > 0)
        waits = [entry.due_in_s for entry in coming if entry.withheld_by is None or not entry.withheld_by.is_permanent]
        waits += [entry.releases_in_s for entry in plan.entries if entry.releases_in_s is not None]
        if waits:
            self._deadline_s = min(self._deadline_s, max(now.boottime_s + min(waits), self._last_s + _CLOSEST_S))

    def set_times(self, last_s: float, next_s: float) -> None:
        """Note when the last reading of a rest was, and when the next tick is."""
        self._last_s, self.tick_s = last_s, next_s

    def read_at(self, at_s: float) -> None:
        """Read at this time at the latest, however soon after the last reading that is."""
        self._deadline_s = min(self._deadline_s, at_s)

    def bring_forward(self, now: Now) -> None:
        """Read soon, a second after the last reading at the earliest: the pods or the policy have changed."""
        self._deadline_s = min(self._deadline_s, max(now.boottime_s, self._last_s + _SHORTEST_S))


# How long a driver call may last once maintenance is requested: with half a second until that is noticed, and a re-exec
# after it, the devices are closed within five seconds.
_RELEASED_WITHIN_S: Final = 3.0
# A daemon that starts during maintenance must not open the driver, so it first waits for its Node object; and for the
# pods, without which its first cycle would be of no use, and the next one comes a second later.
_FIRST_PATIENCE_S: Final = 5.0
_UNSEEN: Final = "the node was under maintenance, and its object has not been read again since"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReading:
    """A finished reading."""

    reading: DriverReading
    # When it was requested.
    asked: Now
    # How long it took.
    took_s: float
    # The GPUs that it covers; None: all.
    only: frozenset[str] | None


RETRIED_NEXT_CYCLE: Final = (
    "the next cycle tries again; if this repeats, check the driver: `nvidia-smi`, and the kernel log"
)


def reject_late(reading: DriverReading, took_s: float) -> DriverReading:
    """A reading that took too long, without its amounts, and with a gap that reports it."""
    why = Problem(f"the driver took {took_s:.0f} s to answer, so its answer is too old to use", RETRIED_NEXT_CYCLE)
    gap = Gap(reason=GapReason.DRIVER_TIMEOUT, what=reading.interface, problem=why)
    gpus = tuple(replace(gpu, listed=False) for gpu in reading.gpus)
    uses = tuple(replace(use, used=None) for use in reading.uses)
    return replace(reading, gpus=gpus, uses=uses, gaps=(*reading.gaps, gap), blind=True)


class Sampler:
    """Queries the driver, one request at a time, without waiting for it.

    When maintenance begins, one more reading is taken, to report which accounts are spared; then the driver is
    released, and every reading until the end of maintenance is empty. `reexecuted`: a re-exec released the driver.
    """

    def __init__(self, driver: Driver, interval_s: float, now: Now, *, reexecuted: bool = False) -> None:
        self.pace = Pace(interval_s)
        self.thread = DriverThread(driver)
        self._interface = driver.interface
        self.maintenance: str | None = None
        self._asked = now
        self._asked_for: frozenset[str] | None = None
        self._last: DriverReading | None = None
        self._ready: TimedReading | None = None
        self._reexecuted = reexecuted
        self._wait_until_s = now.boottime_s + _FIRST_PATIENCE_S
        self._awaits_first = False
        self._since_s = now.boottime_s
        self._was_read = False
        self._is_open = False
        self._is_releasing = False
        self._left_open: tuple[str, ...] = ()
        self._rest: Rest | None = None
        self._looks = Looks()

    def set_pulse(self, pulse: Pulse | None) -> None:
        """Read the memory counters between readings, except under maintenance; None: do not."""
        self.thread.pulse = pulse if self.maintenance is None else None

    @property
    def pulse_state(self) -> PulseState:
        """The state of the pulse as of now; may be read from any thread."""
        return PulseState(is_active=self.thread.is_pulsing, looks_spent=self._looks.spent)

    def note_rise(self, now: Now) -> tuple[str, ...]:
        """Bring a reading forward if memory counters have risen, as soon as one of those GPUs has a look left.

        Returns the GPUs and MIG instances that are newly without looks.
        """
        pulse, risen = self.thread.pulse, self.thread.take_risen()
        if not risen or pulse is None:
            return ()
        next_s = self.pace.next_reading_s if self._rest is None else min(self._rest.next_s, self.pace.next_reading_s)
        if next_s <= now.boottime_s:
            return ()  # it comes at once anyway
        cards = max(self.thread.counted, 1)
        free_s, card = self._looks.free_s(risen, pulse.looks, cards)
        at_s = max(free_s, now.boottime_s)
        if at_s < next_s:
            self._looks.plan(at_s, card, pulse.looks, cards)
            self.pace.read_at(at_s)
        return self._looks.note_spent(risen, now.boottime_s) if at_s > now.boottime_s else ()

    def begin_rest(self, reading: DriverReading, since: Now, until_s: float, is_unchanged: Callable[[], bool]) -> Rest:
        """Leave the ticks to the driver's thread while readings equal this one, until a time on CLOCK_BOOTTIME at most.

        `is_unchanged`: see `Rest`.
        """
        interval_s = self.pace.interval_s
        until_s = min(until_s, since.boottime_s + LONGEST_REST_S)
        rest = self._rest = Rest(
            reading=reading,
            since=since,
            next_s=self.pace.tick_s,
            interval_s=interval_s,
            late_s=longest_step_s(interval_s),
            until_s=until_s,
            is_unchanged=is_unchanged,
        )
        self.thread.begin_rest(rest)
        # By then the thread has handed a reading over, unless the driver hangs.
        self.pace.set_times(since.boottime_s, until_s + longest_step_s(interval_s))
        return rest

    def end_rest(self, now: Now, *, at_once: bool = False) -> Ticks | None:
        """End the rest if a reading is due, or the thread has ended it: the ticks of a rest that has ended."""
        rest = self._rest
        if rest is None:
            return None
        is_due = at_once or now.boottime_s >= self.pace.next_reading_s or self.maintenance is not None
        if self.thread.is_resting and not is_due:
            return None
        self.thread.end_rest()
        self._rest = None
        self.pace.set_times(rest.last.boottime_s, rest.next_s)
        asked = self.thread.asked
        if asked is not None and asked.boottime_s > rest.last.boottime_s:  # a reading that the rest did not count
            self._asked, self._asked_for = asked, None
            self.pace.begin(asked)
        return rest.ticks

    def bring_forward(self, now: Now) -> None:
        """Read soon, a second after the last reading at the earliest: the pods or the policy have changed."""
        if self._rest is not None:
            self.pace.set_times(self._rest.last.boottime_s, self.pace.tick_s)
        self.pace.bring_forward(now)

    @property
    def is_resting(self) -> bool:
        """Whether the driver's thread keeps the ticks."""
        return self._rest is not None

    def note_switches(self, switches: Switches, now: Now, *, awaits_pods: bool = False) -> None:
        """Apply the switches of the Node object, or that it is unknown; `awaits_pods`: no list of pods has come yet."""
        reason = switches.maintenance
        is_awaited = awaits_pods
        if not switches.unseen:
            self._reexecuted = False
        elif self._reexecuted or self.maintenance is not None:
            reason = self.maintenance or _UNSEEN
        else:
            is_awaited = True
        self._awaits_first = is_awaited and not self._is_open and now.boottime_s < self._wait_until_s
        if (reason is None) != (self.maintenance is None):
            self._since_s = now.boottime_s
            self._was_read = False
            self._left_open = ()
            self.bring_forward(now)
        self.maintenance = reason

    def pop_reading(self, now: Now) -> TimedReading | None:
        """The finished reading, or None; one that the driver's thread has taken on its own after `end_rest` only."""
        if self._rest is not None:
            self.thread.silence()
            return None
        reading = self.thread.pop_reading()
        if self._is_releasing and not self.thread.busy:
            self._check_released()
        if reading is None:
            ready, self._ready = self._ready, None
            return ready
        if self._asked_for is None:
            self._last = reading
        self._was_read = self.maintenance is not None
        took_s = now.boottime_s - self._asked.boottime_s
        return TimedReading(reading=reading, asked=self._asked, took_s=took_s, only=self._asked_for)

    def request_next(self, now: Now) -> None:
        """Request the next reading, or the release of the driver, if it is due and the driver is free."""
        if self.thread.busy or self._rest is not None or self._still_awaits(now):
            return
        if self.maintenance is not None and self._is_open and self._was_read:
            self._is_releasing = True
            self.thread.release()
            return
        is_last = self.maintenance is not None and self._is_open
        if now.boottime_s < self.pace.next_reading_s and not is_last:
            return
        self.pace.begin(now)
        if self.maintenance is None or is_last:
            self.request_reading(None, now)
        else:
            reading = released_reading(self.maintenance, self._interface, self._last)
            self._ready = TimedReading(reading=reading, asked=now, took_s=0.0, only=None)

    def request_reading(self, only: frozenset[str] | None, now: Now) -> None:
        """Request a reading of these GPUs (None: all); the driver must be free."""
        self._asked, self._asked_for = now, only
        self._is_open = True
        if only is None:
            self._looks.begin(now.boottime_s)
        self.thread.request(only)

    def wake_s(self, now: Now) -> float:
        """CLOCK_BOOTTIME at which `request_next` or `pop_reading` has work; infinity while the driver is busy."""
        if self._ready is not None or (self._rest is not None and not self.thread.is_resting):
            return now.boottime_s
        if self.thread.busy and self._rest is None:
            return float("inf")
        if self._still_awaits(now):
            return self._wait_until_s
        return now.boottime_s if self.maintenance is not None and self._is_open else self.pace.next_reading_s

    def silence(self, longest_s: float, now: Now) -> tuple[str, ...]:
        """A message if the driver has not answered for longer than this."""
        is_busy = self.thread.busy and self._rest is None
        silent_s = now.boottime_s - self._asked.boottime_s if is_busy else 0.0
        return (f"{self._interface} has not responded for {silent_s:.0f} s",) if silent_s > longest_s else ()

    def why_reexec(self, now: Now) -> str | None:
        """Why only a re-exec can release the driver; None if it is not needed."""
        if self.maintenance is None:
            return None
        if self._left_open:
            still_open = ", ".join(self._left_open)
            return f"{self.maintenance}, and {self._interface} still has open after its shutdown: {still_open}"
        waited_s = now.boottime_s - self._since_s
        if self._is_open and waited_s > _RELEASED_WITHIN_S:
            return f"{self.maintenance}, but a call into {self._interface} has not returned for {waited_s:.0f} s"
        return None

    def _still_awaits(self, now: Now) -> bool:
        return self._awaits_first and now.boottime_s < self._wait_until_s

    def _check_released(self) -> None:
        self._is_releasing = False
        try:
            self._left_open = open_devices()
        except OSError as error:
            self._left_open = (f"unknown device files ({error.strerror})",)
        self._is_open = bool(self._left_open)


def read_once(driver: Driver, patience_s: float) -> DriverReading:
    """Read once, on a separate thread; if the driver does not answer within this time, the reading is blind.

    The thread then keeps hanging, so the process has to end with `os._exit`.
    """
    thread = DriverThread(driver)
    waiter = Waiter()
    waiter.watch(thread.fileno())
    thread.request()
    deadline_s = clock.now().boottime_s + patience_s
    while (left_s := deadline_s - clock.now().boottime_s) > 0:
        waiter.wait(left_s)
        reading = thread.pop_reading()
        if reading is not None:
            return reading
    why = Problem(f"no answer within {span(patience_s)}: a call into the driver hangs", "see dmesg for NVRM messages")
    gap = Gap(reason=GapReason.DRIVER_TIMEOUT, what=driver.interface, problem=why)
    return DriverReading(driver=None, interface=driver.interface, gaps=(gap,), blind=True)


_MARKER: Final = "GPU_WATCHDOG_REEXECUTED"


def was_reexecuted() -> bool:
    """Whether this process was started by `reexec`; to be called once, before the driver is opened.

    It closes device files that the earlier image opened while it was being replaced.
    """
    if os.environ.pop(_MARKER, None) is None:
        return False
    with suppress(OSError):
        for number in descriptors():
            os.close(number)
    return True


def reexec() -> None:
    """Replace this process by a new one with the same arguments; returns only if that fails, after printing why.

    execve(2) waits for a thread that hangs in the driver and can't be killed; so would the end of the process.
    """
    with suppress(OSError):
        for number in descriptors():
            fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.environ[_MARKER] = "1"
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a log that can't be written prevents nothing
            stream.flush()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError as error:
        sys.stderr.write(f"{sys.executable} can't be re-executed, so this process ends: {error.strerror}\n")
