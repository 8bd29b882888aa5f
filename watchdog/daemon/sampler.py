"""When the driver is queried, how long its answer may take, and that it is let go for maintenance or begun again."""

import fcntl
import math
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from watchdog import clock
from watchdog.clock import Waiter
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import Plan
from watchdog.core.rules import Switches
from watchdog.node.devices import descriptors, open_devices
from watchdog.node.driver import Driver, DriverReading, let_go
from watchdog.node.driver_thread import DriverThread
from watchdog.report.text import span

# A look lists processes, which holds the driver's global lock for milliseconds (MangoHud#2104): deadlines that
# lie close together share one.
_CLOSEST_S = 0.1
_SHORTEST_S = 1.0
_LASTING = (Brake.PROTECTED, Brake.UNKNOWN_CONTAINER, Brake.MPS)  # brakes that time does not lift


class Pace:
    """Looks on a grid of `interval_s`, and in between when a step's `for` is over. Times are CLOCK_BOOTTIME."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._tick_s = -math.inf
        self._deadline_s = math.inf
        self._last_s = -math.inf

    @property
    def next_look_s(self) -> float:
        """When to look next; in the past where it is overdue."""
        return min(self._tick_s, self._deadline_s)

    def begin(self, now: Now) -> None:
        """A look begins: the next tick stays on the grid, and ticks that were slept through are left out."""
        self._last_s = now.boottime_s
        due_s = self._tick_s + self.interval_s
        passed = now.boottime_s < self._tick_s  # a deadline brought this look forward
        if not passed:
            self._tick_s = due_s if due_s > now.boottime_s else now.boottime_s + self.interval_s
        self._deadline_s = math.inf

    def plan(self, plan: Plan, now: Now) -> None:
        """A cycle has ended with this plan: be there when its first step comes due, or a brake lets go."""
        # What a brake will hold back then is looked at all the same: it may have let go by then.
        waits = [entry.due_in_s for entry in plan.entries if entry.due_in_s > 0 and entry.withheld_by not in _LASTING]
        waits += [entry.lets_go_in_s for entry in plan.entries if entry.lets_go_in_s is not None]
        if waits:
            self._deadline_s = min(self._deadline_s, max(now.boottime_s + min(waits), self._last_s + _CLOSEST_S))

    def hurry(self, now: Now) -> None:
        """Look soon, a second after the last look at the earliest: the pods or the policy have changed."""
        self._deadline_s = min(self._deadline_s, max(now.boottime_s, self._last_s + _SHORTEST_S))


# What is in progress in the driver has so long to end once maintenance is asked for: with the half second until that is
# seen, and a new process after it, the devices are closed within five.
_LET_GO_WITHIN_S: Final = 3.0
# A daemon that begins in the middle of a maintenance should not open the driver: it first hears of its node.
_NODE_PATIENCE_S: Final = 5.0
_UNSEEN: Final = "the node was under maintenance, and its object has not been read again since"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReading:
    """A reading that has come: when it was asked for, how long it took, and of which GPUs it is (None: of all)."""

    reading: DriverReading
    asked: Now
    took_s: float
    only: frozenset[str] | None


class Sampler:
    """Asks the driver for one thing at a time, and never waits for it.

    Under maintenance one more reading is taken, so that it can be said whom it spares; then the driver is let go, and
    until it is over every look is one at nothing. `reexecuted` says that an earlier process let the driver go so.
    """

    def __init__(self, driver: Driver, interval_s: float, now: Now, *, reexecuted: bool = False) -> None:
        self.pace = Pace(interval_s)
        self.maintenance: str | None = None
        self._thread = DriverThread(driver)
        self._asked = now
        self._asked_for: frozenset[str] | None = None
        self._last: DriverReading | None = None
        self._ready: TimedReading | None = None
        self._reexecuted = reexecuted
        self._wait_until_s = now.boottime_s + _NODE_PATIENCE_S
        self._waits = False
        self._since_s = now.boottime_s
        self._is_told = False
        self._is_open = False
        self._is_going = False
        self._kept: tuple[str, ...] = ()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the driver has done something."""
        return self._thread.fileno()

    def heed(self, found: Switches, now: Now) -> None:
        """Take note of what the node's own object asks for, or that it is not known yet."""
        reason = found.maintenance
        self._waits = False
        if not found.unseen:
            self._reexecuted = False
        elif self._reexecuted or self.maintenance is not None:
            reason = self.maintenance or _UNSEEN
        else:
            self._waits = not self._is_open and now.boottime_s < self._wait_until_s
        if (reason is None) != (self.maintenance is None):
            self._since_s = now.boottime_s
            self._is_told = False
            self._kept = ()
            self.pace.hurry(now)
        self.maintenance = reason

    def take(self, now: Now) -> TimedReading | None:
        """The reading that has come, or None."""
        reading = self._thread.take()
        if self._is_going and not self._thread.busy:
            self._has_gone()
        if reading is None:
            ready, self._ready = self._ready, None
            return ready
        if self._asked_for is None:
            self._last = reading
        self._is_told = self.maintenance is not None
        took_s = now.boottime_s - self._asked.boottime_s
        return TimedReading(reading=reading, asked=self._asked, took_s=took_s, only=self._asked_for)

    def go_on(self, now: Now) -> None:
        """Ask the driver for what is next, if it is free: a reading, or to be let go."""
        if self._thread.busy or self._waits:
            return
        if self.maintenance is not None and self._is_open and self._is_told:
            self._is_going = True
            self._thread.let_go()
            return
        is_last = self.maintenance is not None and self._is_open
        if now.boottime_s < self.pace.next_look_s and not is_last:
            return
        self.pace.begin(now)
        if self.maintenance is None or is_last:
            self._ask(None, now)
        else:
            self._ready = TimedReading(reading=let_go(self.maintenance, self._last), asked=now, took_s=0.0, only=None)

    def ask_again(self, only: frozenset[str], now: Now) -> None:
        """Ask once more for some GPUs."""
        self._ask(only, now)

    def wake_s(self, now: Now) -> float:
        """Boot time at which `go_on` or `take` has something to do; infinity where only the driver can say."""
        if self._ready is not None:
            return now.boottime_s
        if self._thread.busy:
            return float("inf")
        if self._waits:
            return self._wait_until_s
        return now.boottime_s if self.maintenance is not None and self._is_open else self.pace.next_look_s

    def silence(self, longest_s: float, now: Now) -> tuple[str, ...]:
        """Say that the driver has not answered for longer than that; nothing: it has."""
        silent_s = now.boottime_s - self._asked.boottime_s if self._thread.busy else 0.0
        return (f"NVML has not answered for {silent_s:.0f} s",) if silent_s > longest_s else ()

    def why_anew(self, now: Now) -> str | None:
        """Why only a new process can let the driver go, or None: this one can, or has, or need not."""
        if self.maintenance is None:
            return None
        if self._kept:
            return f"{self.maintenance}, and NVML has kept open after its end: {', '.join(self._kept)}"
        waited_s = now.boottime_s - self._since_s
        if self._is_open and waited_s > _LET_GO_WITHIN_S:
            return f"{self.maintenance}, and a call into NVML has not come back for {waited_s:.0f} s"
        return None

    def close(self, timeout_s: float) -> bool:
        """Have the driver closed; whether that came about in this time."""
        return self._thread.close(timeout_s)

    def _ask(self, only: frozenset[str] | None, now: Now) -> None:
        self._asked, self._asked_for = now, only
        self._is_open = True
        self._thread.request(only)

    def _has_gone(self) -> None:
        self._is_going = False
        try:
            self._kept = open_devices()
        except OSError as error:
            self._kept = (f"what, can't be seen ({error.strerror})",)
        self._is_open = bool(self._kept)


def read_once(driver: Driver, patience_s: float) -> DriverReading:
    """Read on a thread of its own; a driver that gives nothing in that time is a reading that is blind.

    Its thread then hangs on, so such a process has to end by `os._exit`.
    """
    thread = DriverThread(driver)
    waiter = Waiter()
    waiter.watch(thread.fileno())
    thread.request()
    deadline_s = clock.now().boottime_s + patience_s
    left_s = patience_s
    while left_s > 0 and math.isfinite(left_s):
        waiter.wait(left_s)
        reading = thread.take()
        if reading is not None:
            return reading
        left_s = deadline_s - clock.now().boottime_s
    why = Problem(f"no answer within {span(patience_s)}: a call into the driver hangs", "see dmesg for NVRM messages")
    return DriverReading(driver=None, gaps=(Gap(reason=GapReason.NVML_TIMEOUT, what="NVML", problem=why),), blind=True)


_MARK: Final = "GPU_WATCHDOG_BEGUN_ANEW"


def was_reexecuted() -> bool:
    """Whether this process was begun so; to be asked once, before the driver is opened.

    A device that was opened while the earlier image ended, and came along, is closed.
    """
    if os.environ.pop(_MARK, None) is None:
        return False
    with suppress(OSError):
        for number in descriptors():
            os.close(number)
    return True


def reexec() -> None:
    """Begin again with the same arguments, all other threads ended; comes back, and says why, only where that fails.

    execve(2) waits for a thread that is in the driver and can't be killed; so would the end of the process.
    """
    with suppress(OSError):
        for number in descriptors():
            fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.environ[_MARK] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError as error:
        sys.stderr.write(f"{sys.executable} can't be begun anew, so this process ends: {error.strerror}\n")
