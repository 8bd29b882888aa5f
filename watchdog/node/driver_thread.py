"""The driver's own thread, since a driver call can hang forever; and the readings that it takes between requests."""

import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watchdog import clock
from watchdog.core.model import Now
from watchdog.core.policy import Pulse
from watchdog.core.quiet import Ticks
from watchdog.node.driver import Driver, DriverReading

# The share of `every` that the reads may take. With 12 us a call, as on an idle driver, 8 GPUs take 0.2% of 50 ms.
_MOST_SHARE: Final = 0.02
_MEASURED: Final = 20
_MOST_TICKS: Final = 100  # of one rest
_MEASURED_EVERY_S: Final = 3600.0


class _Request(Enum):
    """Requests other than a reading."""

    RELEASE = auto()
    NONE = auto()  # only wakes the thread: the pulse was set, or a rest begins


class DriverBusyError(RuntimeError):
    """A request was made while another one is in progress, or after `close`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseCost:
    """The median time that reading every memory counter takes, and whether that is too much for `every`."""

    seconds: float
    is_expensive: bool


class CounterPulse:
    """Reads the memory counters between readings, and notices once if one has risen since the last full reading began.

    The time that it takes is measured when it begins and every hour; where that is too much, or a single read takes
    longer than `every`, it stops for an hour. It also stops while the last reading had no counters.
    """

    def __init__(self, driver: Driver, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._settings: Pulse | None = None
        self._before: dict[str, int] = {}
        self._is_noticed = False
        self._costs: list[float] = []
        self._measure_s = monotonic()
        self.cost: PulseCost | None = None

    @property
    def settings(self) -> Pulse | None:
        """Its settings; None if it is off. May be set from another thread at any time, so each method reads it once."""
        return self._settings

    @settings.setter
    def settings(self, settings: Pulse | None) -> None:
        self._settings, self._measure_s, self._costs, self.cost = settings, self._monotonic(), [], None

    @property
    def wait_s(self) -> float | None:
        """How long to wait until the next read; None if there is nothing to read until it is set or requested."""
        settings = self._settings
        if settings is None or not self._before:
            return None
        if self._is_expensive:
            return max(self._measure_s - self._monotonic(), settings.every_s)
        return settings.every_s

    @property
    def _is_expensive(self) -> bool:
        cost = self.cost
        return cost is not None and cost.is_expensive

    def read(self, only: frozenset[str] | None, like: DriverReading | None = None) -> DriverReading:
        """Take a reading; the counters that later ones are compared with are read before the processes are listed.

        A reading of some GPUs changes nothing: what has risen on the others has not been seen yet. `like` is for the
        driver.
        """
        if only is not None:
            return self._driver.read(only)
        is_on = self._settings is not None and not self._is_expensive
        before = dict(self._driver.used()) if is_on else {}
        reading = self._driver.read(None, like)
        self._before = {gpu.uuid: gpu.used for gpu in reading.gpus if gpu.used is not None} | before
        self._is_noticed = False
        return reading

    def has_risen(self) -> bool:
        """Read the counters; whether one has now risen by more than `rise`, for the first time since the reading."""
        settings = self._settings
        if settings is None:
            return False
        used = self._measure(settings)
        if self._is_noticed:
            return False
        for uuid, now in used.items():
            if now > self._before.setdefault(uuid, now) + settings.rise:
                self._is_noticed = True
        return self._is_noticed

    def _measure(self, settings: Pulse) -> Mapping[str, int]:
        began_s = self._monotonic()
        used = self._driver.used()
        took_s = self._monotonic() - began_s
        is_slow = took_s > settings.every_s
        if not is_slow and began_s < self._measure_s:
            return used
        costs = self._costs
        costs.append(took_s)
        if is_slow or len(costs) >= _MEASURED:
            seconds = took_s if is_slow else sorted(costs)[len(costs) // 2]
            cost = PulseCost(seconds=seconds, is_expensive=seconds > _MOST_SHARE * settings.every_s)
            costs.clear()
            if self._settings is settings:
                self.cost, self._measure_s = cost, began_s + _MEASURED_EVERY_S
        return used


@dataclass(slots=True, kw_only=True, eq=False)
class Rest:
    """The loop's rest while nothing changes: the driver's thread reads at each tick, and compares.

    `reading` is the one that later ones are compared with, requested at `since`. The next one is due at `next_s`, more
    every `interval_s`; one that comes more than `late_s` after the one before it counts as changed, as do the first one
    from `until_s` on and the 101st. Times are CLOCK_BOOTTIME. `is_unchanged` is called from the driver's thread:
    whether all processes still run. `ticks` are the readings so far, replaced whole, so that any thread may read them;
    None if there were none.
    """

    reading: DriverReading
    since: Now
    next_s: float
    interval_s: float
    late_s: float
    until_s: float
    is_unchanged: Callable[[], bool]
    ticks: Ticks | None = None

    @property
    def last(self) -> Now:
        """When the last reading was requested."""
        return self.ticks.last if self.ticks is not None else self.since

    def take(self, reading: DriverReading, asked: Now, took_s: float) -> bool:
        """Count a reading; False: it does not count, since something has changed, or it came late."""
        before = self.ticks or Ticks(last=self.since, counted_s=0.0, took_s=())
        passed_s = asked.boottime_s - before.last.boottime_s
        is_in_time = passed_s <= self.late_s and asked.boottime_s < self.until_s and len(before.took_s) < _MOST_TICKS
        if not (is_in_time and reading == self.reading and self.is_unchanged()):
            return False
        due_s = self.next_s + self.interval_s
        self.next_s = due_s if due_s > asked.boottime_s else asked.boottime_s + self.interval_s
        self.ticks = Ticks(
            last=asked,
            counted_s=before.counted_s + min(passed_s, self.interval_s),
            took_s=(*before.took_s, took_s),
        )
        return True


class DriverThread:
    """Owns a driver and reads it on a daemon thread, one reading at a time.

    The loop waits for `fileno()` with a timeout; a call that hangs in the driver blocks only this thread. While the
    loop rests, the thread reads without requests, until a reading differs: that one is handed over like a requested
    one. `asked` is when the last reading that it took without a request was begun; None if there was none.
    """

    def __init__(self, driver: Driver, now: Callable[[], Now] = clock.now) -> None:
        self.asked: Now | None = None
        self._driver = driver
        self._now = now
        self._pulse = CounterPulse(driver)
        self._rest: Rest | None = None
        self._has_risen = False
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[frozenset[str] | _Request | None] = queue.SimpleQueue()
        self._reading: DriverReading | None = None
        self._busy_since: float | None = None
        self._closing = False
        self._bell = clock.Bell()
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a reading is in progress, or the driver is being released."""
        return self._busy_since is not None

    @property
    def has_died(self) -> bool:
        """Whether an unexpected error has ended the thread, so that no reading will ever come again."""
        return not self._closing and not self._thread.is_alive()

    def request(self, only: frozenset[str] | None = None) -> None:
        """Request a reading; DriverBusyError while one is in progress, or after `close`.

        A reading that has not been taken is dropped.
        """
        self._submit(only)

    def rest(self, rest: Rest) -> None:
        """Read without requests from now on, until a reading differs; not while a reading is in progress."""
        with self._lock:
            self._rest = rest
        self._requests.put(_Request.NONE)

    def end_rest(self) -> None:
        """Do not begin another reading without a request; one in progress is handed over when it is finished."""
        with self._lock:
            self._rest = None

    @property
    def is_resting(self) -> bool:
        """Whether it reads without requests, and nothing has changed."""
        return self._rest is not None

    def release(self) -> None:
        """Release the driver; a later reading reopens it. DriverBusyError as with `request`.

        It is finished once the thread is no longer `busy`; the descriptor is readable then.
        """
        self._submit(_Request.RELEASE)

    @property
    def pulse(self) -> Pulse | None:
        """The settings of the pulse between readings; None if it is off."""
        return self._pulse.settings

    @pulse.setter
    def pulse(self, settings: Pulse | None) -> None:
        if settings != self._pulse.settings:
            self._pulse.settings = settings
            self._requests.put(_Request.NONE)

    @property
    def pulse_cost(self) -> PulseCost | None:
        """What the pulse costs on this driver; None before it has been measured, and while it is off."""
        return self._pulse.cost

    def take_rise(self) -> bool:
        """Whether a memory counter has risen since the last full reading began; True once per rise.

        The descriptor becomes readable when that is noticed.
        """
        with self._lock:
            risen, self._has_risen = self._has_risen, False
        return risen

    def _submit(self, request: frozenset[str] | _Request | None) -> None:
        with self._lock:
            self._rest = None
            if self._closing:
                raise DriverBusyError("the driver is being closed")
            if self._busy_since is not None:
                raise DriverBusyError(f"a reading has been in progress for {time.monotonic() - self._busy_since:.1f} s")
            self._drop()
            self._busy_since = time.monotonic()
        self._requests.put(request)

    def fileno(self) -> int:
        """The file descriptor that becomes readable when a reading can be taken or the driver has been released."""
        return self._bell.fileno()

    def silence(self) -> None:
        """Make the descriptor unreadable until something new happens."""
        self._bell.silence()

    def take(self) -> DriverReading | None:
        """Take the finished reading; None if there is none."""
        with self._lock:
            return self._drop()

    def close(self, timeout_s: float) -> bool:
        """Close the driver once the call in progress has ended; False if that takes longer than `timeout_s`.

        The driver is closed on its own thread, so never during a call. A stuck thread ends with the process.
        """
        with self._lock:
            first = not self._closing
            self._closing = True
        if first:
            self._requests.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False  # and the descriptor stays open: the thread may still write to it
        self._bell.close()
        return True

    def _drop(self) -> DriverReading | None:
        reading, self._reading = self._reading, None
        self._bell.silence()
        return reading

    def _run(self) -> None:
        # Signals are for the main thread, which sleeps in a selector and must wake for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            rest, wait_s = self._rest, self._pulse.wait_s
            tick_s = None if rest is None else max(rest.next_s - self._now().boottime_s, 0.0)
            due = rest if tick_s is not None and (wait_s is None or tick_s <= wait_s) else None
            try:
                request = self._requests.get(timeout=wait_s if due is None else tick_s)
            except queue.Empty:
                if due is not None:
                    self._tick(due)
                elif self._pulse.has_risen():
                    with self._lock:
                        self._has_risen = True
                        self._bell.ring()
                continue
            if self._closing:
                break
            if request is _Request.NONE:
                continue
            reading = None
            if request is _Request.RELEASE:
                self._driver.close()
            else:
                if request is None:
                    with self._lock:
                        self._has_risen = False
                reading = self._pulse.read(request)
            with self._lock:
                self._reading = reading
                self._busy_since = None
                self._bell.ring()
        self._driver.close()

    def _tick(self, rest: Rest) -> None:
        asked = self._now()
        with self._lock:
            if self._rest is not rest:
                return  # it ended just now
            self.asked, self._busy_since, self._has_risen = asked, time.monotonic(), False
        reading = self._pulse.read(None, rest.reading)
        took_s = self._now().boottime_s - asked.boottime_s
        with self._lock:
            self._busy_since = None
            if self._rest is rest and rest.take(reading, asked, took_s):
                return
            self._rest, self._reading = None, reading
            self._bell.ring()
