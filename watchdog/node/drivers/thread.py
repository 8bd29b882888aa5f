"""The driver's own thread, since a driver call can hang forever; and the readings that it takes between requests."""

import math
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watchdog import clock
from watchdog.core.model import Now
from watchdog.core.policy import Pulse
from watchdog.core.quiet import Ticks
from watchdog.core.utilization import EVERY_S, CardUtilization, UtilizationReading
from watchdog.node.drivers.protocol import Driver, DriverReading

# The share of `every` that the reads may take. With 12 us a call, as on an idle driver, 8 GPUs take 0.2% of 50 ms.
_MOST_SHARE: Final = 0.02
_MEASURED: Final = 9  # reads, of which the median decides: one that waits for a lock of the driver changes nothing
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 3600.0
_MOST_TICKS: Final = 100  # of one rest
# A read of the utilisation may take this long, in which a reading has to wait for it: half a per cent of `EVERY_S`.
_MOST_UTILIZATION_S: Final = 0.05
_MEASURED_UTILIZATIONS: Final = 3
FIRST_LONG_PAUSE_S: Final = 60.0
_EARLY_S: Final = 0.5


class _Request(Enum):
    """Requests other than a reading."""

    RELEASE = auto()
    NONE = auto()  # only wakes the thread: the pulse was set, or a rest begins


class DriverBusyError(RuntimeError):
    """A request was made while another one is in progress, or after `close`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """What a kind of reads between readings costs."""

    # The median time that one takes.
    seconds: float
    # Whether that is too much for how often it is done.
    is_expensive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseState:
    """What the pulse does now."""

    # Whether the memory counters are read between readings.
    is_active: bool = False
    # How many rises have found no look left.
    looks_spent: int = 0


class CostLimit:
    """Pauses reads that cost too much: while the median of the last `measured` is above a limit.

    First for some seconds, then each time twice as long, for an hour at most. The pauses start over once they have been
    cheap for as long as the last one.
    """

    def __init__(self, limit_s: float, measured: int, first_pause_s: float) -> None:
        self._limit_s, self._first_pause_s = limit_s, first_pause_s
        self._took_s: deque[float] = deque(maxlen=measured)
        self._pause_s, self._cheap_since_s = 0.0, -math.inf
        self.paused_until_s = -math.inf
        # None before it has been measured.
        self.cost: ReadCost | None = None

    @property
    def is_expensive(self) -> bool:
        """Whether they pause, or have just been tried again."""
        return self.cost is not None and self.cost.is_expensive

    def add(self, took_s: float, ended_s: float) -> None:
        """Take in how long a read took, and begin a pause if that is too much."""
        self._took_s.append(took_s)
        if len(self._took_s) < (self._took_s.maxlen or 0):
            return
        seconds = sorted(self._took_s)[len(self._took_s) // 2]
        was_expensive, self.cost = self.is_expensive, ReadCost(seconds=seconds, is_expensive=seconds > self._limit_s)
        if not self.cost.is_expensive:
            if was_expensive:
                self._cheap_since_s = ended_s
            return
        has_recovered = not was_expensive and ended_s - self._cheap_since_s >= self._pause_s
        self._pause_s = self._first_pause_s if has_recovered else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self.paused_until_s = ended_s + self._pause_s
        self._took_s.clear()


class CounterPulse:
    """Reads the memory counters between readings, and notices once for each that it has risen.

    A rise is measured from the lowest value since the last full reading began. It pauses while it is too expensive for
    `every`, and while the last reading had no counters.
    """

    def __init__(self, driver: Driver, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._lowest: dict[str, int] = {}
        self._noticed: frozenset[str] = frozenset()
        self.settings = None

    @property
    def settings(self) -> Pulse | None:
        """Its settings; None if it is off. May be set from another thread at any time, so each method reads it once."""
        return self._settings

    @settings.setter
    def settings(self, settings: Pulse | None) -> None:
        self._settings: Pulse | None = settings
        self._limit = CostLimit(_MOST_SHARE * (settings.every_s if settings else 0.0), _MEASURED, FIRST_PAUSE_S)

    @property
    def cost(self) -> ReadCost | None:
        """What it costs; None before that has been measured, and while it is off."""
        return self._limit.cost

    @property
    def wait_s(self) -> float | None:
        """How long to wait until the next read; None if there is nothing to read until it is set or requested."""
        settings = self._settings
        if settings is None or not self._lowest:
            return None
        return max(self._limit.paused_until_s - self._monotonic(), settings.every_s)

    @property
    def is_active(self) -> bool:
        """Whether counters are being read."""
        return self._settings is not None and bool(self._lowest) and not self._limit.is_expensive

    @property
    def counted(self) -> int:
        """How many GPUs and MIG instances have a counter, as of the last full reading."""
        return len(self._lowest)

    def read(self, only: frozenset[str] | None, like: DriverReading | None = None) -> DriverReading:
        """Take a reading; the counters that later ones are compared with are read before the processes are listed.

        A reading of some GPUs changes nothing: what has risen on the others has not been seen yet. `like` is for the
        driver.
        """
        if only is not None:
            return self._driver.read(only)
        is_on = self._settings is not None and not self._limit.is_expensive
        before = dict(self._driver.used()) if is_on else {}
        reading = self._driver.read(None, like)
        self._lowest = before
        self._lower({gpu.uuid: gpu.used for gpu in reading.gpus if gpu.used is not None})
        self._noticed = frozenset()
        return reading

    def risen(self) -> frozenset[str]:
        """Read the counters; those that have now risen by more than `rise`, for the first time since the reading."""
        settings = self._settings
        if settings is None:
            return frozenset()
        limit, began_s = self._limit, self._monotonic()  # another thread may replace it meanwhile
        used = self._driver.used()
        ended_s = self._monotonic()
        limit.add(ended_s - began_s, ended_s)
        self._lower(used)
        risen = {uuid for uuid, now in used.items() if now > self._lowest[uuid] + settings.rise} - self._noticed
        self._noticed |= risen
        return frozenset(risen)

    def _lower(self, used: Mapping[str, int]) -> None:
        self._lowest |= {uuid: min(self._lowest.get(uuid, now), now) for uuid, now in used.items()}


class UtilizationReads:
    """Reads the utilisation of all cards right after a reading, at most every `EVERY_S`, unless that is expensive."""

    def __init__(self, driver: Driver, now: Callable[[], Now]) -> None:
        self._driver = driver
        self._now = now
        self._due_s = -math.inf
        self._limit = CostLimit(_MOST_UTILIZATION_S, _MEASURED_UTILIZATIONS, FIRST_LONG_PAUSE_S)
        self._last: tuple[CardUtilization, ...] = ()
        # Those that were not taken yet; the loop takes them at least every ten seconds.
        self.readings: deque[UtilizationReading] = deque(maxlen=100)

    @property
    def cost(self) -> ReadCost | None:
        """What a read costs; None before that has been measured."""
        return self._limit.cost

    def read_if_due(self) -> None:
        """Read if it is time, or say why not."""
        now_s = self._now().boottime_s
        if now_s < self._due_s:
            return
        # A reading that comes a little earlier than ten seconds after the one before it counts.
        self._due_s = now_s + EVERY_S - _EARLY_S
        if now_s >= self._limit.paused_until_s:
            cards = self._last = self._driver.utilization()
            ended_s = self._now().boottime_s
            self._limit.add(ended_s - now_s, ended_s)
        else:
            cost = self._limit.cost
            why = f"reading it takes {1000 * (cost.seconds if cost else 0.0):.0f} ms on this driver, so it pauses"
            cards = tuple(CardUtilization(gpu=card.gpu, why=why) for card in self._last)
        self.readings.append(UtilizationReading(at_s=now_s, cards=cards))


@dataclass(slots=True, kw_only=True, eq=False)
class Rest:
    """The loop's rest while nothing changes: the driver's thread reads at each tick, and compares.

    Times are CLOCK_BOOTTIME.
    """

    # The one that later ones are compared with.
    reading: DriverReading
    # When that was requested.
    since: Now
    # When the next one is due; more are every `interval_s`.
    next_s: float
    interval_s: float
    # A reading that comes later than this many seconds after the one before it counts as changed.
    late_s: float
    # The first one from then on counts as changed, as does the 101st.
    until_s: float
    # Whether all processes still run; called from the driver's thread.
    is_unchanged: Callable[[], bool]
    # The readings so far, replaced whole, so that any thread may read them; None if there were none.
    ticks: Ticks | None = None

    @property
    def last(self) -> Now:
        """When the last reading was requested."""
        return self.ticks.last if self.ticks is not None else self.since

    def count_reading(self, reading: DriverReading, asked: Now, took_s: float) -> bool:
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
        self._utilization = UtilizationReads(driver, now)
        self._rest: Rest | None = None
        self._risen: frozenset[str] = frozenset()
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

    def begin_rest(self, rest: Rest) -> None:
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
    def pulse_cost(self) -> ReadCost | None:
        """What the pulse costs on this driver; None before it has been measured, and while it is off."""
        return self._pulse.cost

    @property
    def is_pulsing(self) -> bool:
        """Whether memory counters are read between readings."""
        return self._pulse.is_active

    @property
    def counted(self) -> int:
        """How many GPUs and MIG instances have a memory counter."""
        return self._pulse.counted

    @property
    def utilization_cost(self) -> ReadCost | None:
        """What a read of the utilisation costs on this driver; None before it has been measured."""
        return self._utilization.cost

    def take_utilization(self) -> tuple[UtilizationReading, ...]:
        """Take what was read of the utilisation since this was last called."""
        readings = self._utilization.readings
        return tuple(readings.popleft() for _ in range(len(readings)))

    def take_risen(self) -> frozenset[str]:
        """The GPUs and MIG instances whose memory counter has risen since the last full reading began, each once.

        The descriptor becomes readable when one is noticed.
        """
        with self._lock:
            risen, self._risen = self._risen, frozenset()
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

    def pop_reading(self) -> DriverReading | None:
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
                elif risen := self._pulse.risen():
                    with self._lock:
                        self._risen |= risen
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
                        self._risen = frozenset()
                reading = self._pulse.read(request)
            with self._lock:
                self._reading = reading
                self._busy_since = None
                self._bell.ring()
            if request is None:
                self._utilization.read_if_due()
        self._driver.close()

    def _tick(self, rest: Rest) -> None:
        asked = self._now()
        with self._lock:
            if self._rest is not rest:
                return  # it ended just now
            self.asked, self._busy_since, self._risen = asked, time.monotonic(), frozenset()
        reading = self._pulse.read(None, rest.reading)
        took_s = self._now().boottime_s - asked.boottime_s
        with self._lock:
            self._busy_since = None
            if not (self._rest is rest and rest.count_reading(reading, asked, took_s)):
                self._rest, self._reading = None, reading
                self._bell.ring()
        self._utilization.read_if_due()
