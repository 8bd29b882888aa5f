"""The driver's own thread: what hangs in the driver hangs there alone."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, row, uses
from tests.node.support import wait_until
from tests.stub import GIB, LISTS, MIB, StubDelay
from tests.worlds import at, gpu
from watchdog.core.policy import Pulse
from watchdog.core.utilization import CardUtilization
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.drivers.thread import CounterPulse, DriverBusyError, DriverThread, UtilizationReads

SLOW = (StubDelay(call=LISTS[0], ms=600.0),)


@pytest.fixture
def thread(world: NvmlWorld) -> Iterator[DriverThread]:
    world.show(card("a", ghost(1)), card("b", ghost(2)))
    found = DriverThread(world.driver())
    yield found
    assert found.close(5.0)


def is_readable(thread: DriverThread, timeout_s: float) -> bool:
    return bool(select.select([thread], [], [], timeout_s)[0])


def wait(thread: DriverThread) -> DriverReading:
    assert is_readable(thread, 5.0)
    reading = thread.pop_reading()
    assert reading is not None
    return reading


def read(thread: DriverThread) -> DriverReading:
    """Request a reading, and wait for it."""
    thread.request()
    return wait(thread)


def test_a_reading_comes_when_it_is_asked_for(thread: DriverThread) -> None:
    """The descriptor is readable while a reading is there, and only then, so that the loop sleeps until it is."""
    assert (thread.pop_reading(), thread.busy, is_readable(thread, 0.0)) == (None, False, False)
    for _ in range(3):
        reading = read(thread)
        assert (uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ({1: GIB}, {2: GIB})
        assert (thread.pop_reading(), thread.busy, is_readable(thread, 0.0)) == (None, False, False)


def test_a_reading_of_some_rows_can_be_asked_for(thread: DriverThread) -> None:
    """Point 22: the last look goes the same way."""
    read(thread)
    thread.request(frozenset({"GPU-b"}))
    assert [gpu.uuid for gpu in wait(thread).gpus] == ["GPU-b"]


def test_only_one_reading_is_under_way(world: NvmlWorld, thread: DriverThread) -> None:
    """A second request while the driver is slow is refused, not queued: no pile of readings follows a hang."""
    world.show(card("a", ghost(1)), delays=SLOW)
    thread.request()
    is_busy: bool = thread.busy
    assert is_busy
    with pytest.raises(DriverBusyError, match=r"in progress for 0\.\d s"):
        thread.request()
    assert not is_readable(thread, 0.05)
    assert uses(wait(thread), "GPU-a") == {1: GIB}
    assert not thread.busy


def test_a_reading_that_nobody_took_gives_way_to_the_next(world: NvmlWorld, thread: DriverThread) -> None:
    """The loop never gets an old reading for a new request."""
    thread.request()
    assert is_readable(thread, 5.0)
    world.show(card("a", ghost(1, 7 * GIB)))
    thread.request()
    assert uses(wait(thread), "GPU-a") == {1: 7 * GIB}
    assert thread.pop_reading() is None


def test_a_hanging_call_holds_up_neither_the_caller_nor_close(world: NvmlWorld) -> None:
    """A call can hang in the kernel for ever; the daemon ends in time all the same, with no shutdown in a call."""
    world.show(card("a", ghost(1)), delays=SLOW)
    thread = DriverThread(world.driver())
    thread.request()
    wait_until(lambda: world.calls(LISTS[0]) > 0, 5)
    begun_s = time.monotonic()
    assert not thread.close(0.05)
    assert time.monotonic() - begun_s < 0.5
    with pytest.raises(DriverBusyError, match="being closed"):
        thread.request()
    assert world.library.nvmlStubInitialized() == 1  # not shut down under the call
    assert thread.close(5.0)
    assert world.library.nvmlStubInitialized() == 0
    assert world.library.nvmlStubShutdownsDuringCall() == 0


def test_close_ends_the_thread_and_the_descriptor(world: NvmlWorld) -> None:
    """A daemon that starts and ends its driver leaves no thread, no descriptor and no session behind."""
    world.show(card("a"))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    others = set(threading.enumerate())
    for _ in range(5):
        thread = DriverThread(world.driver())
        read(thread)
        assert thread.close(5.0)
        assert thread.close(0.0)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert "driver" not in {one.name for one in set(threading.enumerate()) - others}
    assert world.library.nvmlStubInitialized() == 0


def test_signals_go_to_the_main_thread(world: NvmlWorld, thread: DriverThread) -> None:
    """SIGTERM must wake the loop, not the thread that sits in the driver; and it cuts no call short."""
    world.show(card("a", ghost(1)), delays=SLOW)
    heard: list[float] = []
    old = signal.signal(signal.SIGUSR1, lambda *_: heard.append(time.monotonic()))
    try:
        begun_s = time.monotonic()
        thread.request()
        wait_until(lambda: world.calls(LISTS[0]) > 0, 5)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert len(heard) == 1
        assert heard[0] - begun_s < 0.5
        reading = wait(thread)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert time.monotonic() - begun_s >= 0.6
    assert row(reading, "GPU-a").listed
    driver = next(one for one in threading.enumerate() if one.name == "driver")
    status = Path(f"/proc/self/task/{driver.native_id}/status").read_text(encoding="ascii")
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1], 16)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        assert blocked >> (number - 1) & 1


PULSE = Pulse(every_s=0.02, rise=100 * MIB)


def pulsing(world: NvmlWorld, thread: DriverThread) -> None:
    """Read once, with a pulse; the counter of card a is 1 GiB then."""
    thread.pulse = PULSE
    read(thread)
    world.forget_calls()


def test_a_counter_that_rises_is_noticed_once_for_each_reading(world: NvmlWorld, thread: DriverThread) -> None:
    """The loop wakes within a pulse, once for each card: until the next reading that is all there is to know."""
    pulsing(world, thread)
    world.show(card("a", ghost(1, GIB + 100 * MIB)), card("b", ghost(2)))
    assert not is_readable(thread, 0.2), "not more than `rise`"
    world.show(card("a", ghost(1)), card("b", ghost(2, GIB + 101 * MIB)))
    assert is_readable(thread, 5.0)
    assert thread.pop_reading() is None
    assert (thread.take_risen(), thread.take_risen()) == (frozenset({"GPU-b"}), frozenset())
    world.show(card("a", ghost(1)), card("b", ghost(2, 3 * GIB)))
    assert not is_readable(thread, 0.2)
    world.show(card("a", ghost(1, 2 * GIB)), card("b", ghost(2, 3 * GIB)))
    assert is_readable(thread, 5.0)
    thread.silence()
    assert thread.take_risen() == {"GPU-a"}
    assert world.calls(LISTS[0]) == 0
    read(thread)
    world.show(card("a", ghost(1)), card("b", ghost(2, 2 * GIB)))
    assert not is_readable(thread, 0.2), "less than at the last reading"
    world.show(card("a", ghost(1)), card("b", ghost(2, 4 * GIB)))
    assert is_readable(thread, 5.0)
    thread.silence()
    world.show(card("a", ghost(1, 3 * GIB)), card("b", ghost(2, 4 * GIB)))
    assert is_readable(thread, 5.0)
    assert thread.take_risen() == {"GPU-a", "GPU-b"}, "a slow caller gets both"


def test_a_rise_before_a_reading_is_forgotten_with_it(world: NvmlWorld, thread: DriverThread) -> None:
    """The reading has seen what rose, so that nothing more is to be looked at."""
    pulsing(world, thread)
    world.show(card("a", ghost(1, 3 * GIB)), card("b", ghost(2)))
    assert is_readable(thread, 5.0)
    read(thread)
    assert not thread.take_risen()


def test_a_pulse_calls_only_a_session_that_is_open(world: NvmlWorld, thread: DriverThread) -> None:
    """Under maintenance the driver is released, and a pulse must not open it again; nor one that is off call it."""
    pulsing(world, thread)
    thread.release()
    assert is_readable(thread, 5.0)
    thread.pop_reading()
    world.forget_calls()
    time.sleep(0.1)
    assert world.calls() == 0
    thread.pulse = None
    read(thread)
    world.forget_calls()
    time.sleep(0.1)
    assert world.calls() == 0


@pytest.mark.parametrize(("ms", "is_expensive"), [(0.0, False), (2.0, True)])
def test_a_pulse_that_costs_too_much_stops_by_itself(
    world: NvmlWorld, thread: DriverThread, ms: float, is_expensive: bool
) -> None:
    """Where a counter takes as long as a list, reading it at 20 Hz would disturb every tenant of the card."""
    delays = (StubDelay(call="nvmlDeviceGetMemoryInfo_v2", ms=ms),) if ms else ()
    world.show(card("a", ghost(1)), delays=delays)
    thread.pulse = PULSE
    read(thread)
    wait_until(lambda: thread.pulse_cost is not None, 5)
    assert thread.pulse_cost is not None
    assert thread.pulse_cost.is_expensive is is_expensive
    assert thread.pulse_cost.seconds >= ms / 1000
    world.forget_calls()
    time.sleep(0.2)
    assert (world.calls() == 0) is is_expensive
    thread.pulse = None
    read(thread)
    assert thread.pulse_cost is None


class Counters:
    """A driver of two GPUs with counters that a test sets; `busy` is done during each read of them."""

    interface = "NVML"
    needs_new_process = None

    def __init__(self) -> None:
        self.counters = {"a": 0, "b": 0}
        self.reads = 0
        self.now_s = 0.0
        self.takes_s = 0.0
        self.busy: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """All GPUs, or these; meanwhile the counters may change."""
        self.meanwhile()
        shown = {uuid: used for uuid, used in self.counters.items() if only is None or uuid in only}
        return DriverReading(
            interface="NVML",
            driver="0",
            gpus=tuple(replace(gpu(), uuid=uuid, used=used) for uuid, used in shown.items()),
        )

    def used(self) -> dict[str, int]:
        """The counters as they are, after a while."""
        self.reads += 1
        self.now_s += self.takes_s
        self.busy()
        return dict(self.counters)

    def utilization(self) -> tuple[CardUtilization, ...]:
        """None is reported."""
        return ()

    def close(self) -> None:
        """There is nothing to release."""


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def pulse(counters: Counters) -> CounterPulse:
    found = CounterPulse(counters, lambda: counters.now_s)
    found.settings = PULSE
    found.read(None)
    return found


def test_the_last_look_at_one_gpu_hides_no_rise_on_another(counters: Counters, pulse: CounterPulse) -> None:
    """Before a kill only its GPUs are read again; what was allocated elsewhere meanwhile has not been seen."""
    counters.counters["b"] = GIB
    pulse.read(frozenset({"a"}))
    assert pulse.risen()
    pulse.read(frozenset({"a"}))
    assert not pulse.risen(), "it has been noticed"


def test_a_pulse_can_be_switched_off_while_it_reads(counters: Counters, pulse: CounterPulse) -> None:
    """By the stop file, a reload or maintenance, on the loop's thread, at any moment; and no cost is left over."""
    counters.busy, counters.takes_s = lambda: setattr(pulse, "settings", None), 1.0
    assert pulse.risen() == frozenset()
    assert (pulse.wait_s, pulse.cost, pulse.risen()) == (None, None, frozenset())


@example([500, None, 0, 300])
@given(st.lists(st.one_of(st.just(None), st.integers(0, 1000)), min_size=1, max_size=30))
def test_a_rise_is_measured_from_the_lowest_value_since_the_reading(story: list[int | None]) -> None:
    """Point 40: after a fall, what comes next is seen however much was in use before it; None is a full reading."""
    counters = Counters()
    pulse = CounterPulse(counters, lambda: 0.0)
    pulse.settings = PULSE
    pulse.read(None)
    lowest, is_noticed = 0, False
    for value in story:
        if value is None:
            pulse.read(None)
            lowest, is_noticed = counters.counters["a"], False
            continue
        counters.counters["a"] = value * MIB
        lowest = min(lowest, value * MIB)
        is_new = value * MIB > lowest + PULSE.rise and not is_noticed
        assert pulse.risen() == ({"a"} if is_new else frozenset())
        is_noticed = is_noticed or is_new


@pytest.mark.parametrize(("before", "during", "after"), [(0, 2, 2), (2, 0, 2), (2, 0, 0)])
def test_what_changes_while_processes_are_listed_hides_no_rise(
    counters: Counters, pulse: CounterPulse, before: int, during: int, after: int
) -> None:
    """A list takes milliseconds, in which a job may end and another one begin; the lower of both values counts."""
    counters.counters["a"] = before * GIB
    counters.meanwhile = lambda: counters.counters.update(a=during * GIB)
    pulse.read(None)
    counters.counters["a"] = after * GIB
    assert pulse.risen() == ({"a"} if after > min(before, during) else frozenset())


def beat(counters: Counters, pulse: CounterPulse, *took_s: float) -> None:
    """Wait for as long as the pulse does, and read the counters, which takes so long each time."""
    for takes_s in took_s:
        assert pulse.wait_s is not None
        counters.now_s += pulse.wait_s
        counters.takes_s = takes_s
        pulse.risen()


def costs(pulse: CounterPulse) -> tuple[float, bool]:
    """The cost, to the microsecond."""
    assert pulse.cost is not None
    return round(pulse.cost.seconds, 6), pulse.cost.is_expensive


CHEAP_S, SLOW_S = 0.0001, 3.0


def test_slow_reads_turn_nothing_off_while_most_are_quick(counters: Counters, pulse: CounterPulse) -> None:
    """Point 40: a read that waits for a lock of the driver, as at the start of a process, is not what reads cost."""
    beat(counters, pulse, *[CHEAP_S] * 9)
    for _ in range(30):
        beat(counters, pulse, *[SLOW_S] * 4, *[CHEAP_S] * 5)
        assert (costs(pulse), pulse.wait_s, pulse.is_active) == ((CHEAP_S, False), PULSE.every_s, True)


def test_a_driver_that_stays_slow_is_left_alone_for_longer_and_longer(counters: Counters, pulse: CounterPulse) -> None:
    """Point 40: from seconds to an hour; once it has been quick for as long as the last pause, from the start."""
    beat(counters, pulse, *[SLOW_S] * 9)
    assert costs(pulse) == (SLOW_S, True)
    reads = counters.reads
    pulse.read(None)
    assert counters.reads == reads, "none before a full reading either"
    pauses_s = []
    for _ in range(12):
        assert not pulse.is_active
        pauses_s.append(pulse.wait_s)
        beat(counters, pulse, *[SLOW_S] * 9)
    assert pauses_s == pytest.approx([5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600])
    beat(counters, pulse, *[CHEAP_S] * 9)
    assert (pulse.is_active, costs(pulse)) == (True, (CHEAP_S, False))
    beat(counters, pulse, *[SLOW_S] * 5)
    assert pulse.wait_s == pytest.approx(3600), "too soon to start over"
    beat(counters, pulse, *[CHEAP_S] * 9)
    counters.now_s += 3600
    beat(counters, pulse, *[SLOW_S] * 5)
    assert pulse.wait_s == pytest.approx(5)


def test_without_counters_there_is_no_pulse(counters: Counters, pulse: CounterPulse) -> None:
    """GB10 and other unified chips have none: waking up twenty times a second would be for nothing."""
    assert (pulse.wait_s, pulse.is_active) == (PULSE.every_s, True)
    counters.counters.clear()
    pulse.read(None)
    assert (pulse.wait_s, pulse.is_active) == (None, False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_noticed(counters: Counters) -> None:
    """An unexpected error of the driver ends its thread, and only another process can read again."""

    def fail() -> None:
        raise RuntimeError

    thread = DriverThread(counters)
    read(thread)
    has_died: bool = thread.has_died
    assert not has_died
    counters.busy = fail
    thread.pulse = PULSE
    wait_until(lambda: thread.has_died, 5)
    thread.close(1.0)


class Busy(Counters):
    """A driver that says how busy its GPUs are, which takes a while."""

    def utilization(self) -> tuple[CardUtilization, ...]:
        """Half."""
        self.reads += 1
        self.now_s += self.takes_s
        return (CardUtilization(gpu="a", ratio=0.5, by_pid={}),)


def reads_of(driver: Busy) -> UtilizationReads:
    """The reads of this driver's utilisation, by its own clock."""
    return UtilizationReads(driver, lambda: at(driver.now_s))


def test_utilisation_is_read_at_most_every_ten_seconds() -> None:
    """One tick a second brings one read in ten; a tick that comes half a second early is one of them."""
    driver = Busy()
    found = reads_of(driver)
    for second in range(61):
        driver.now_s = second - (0.4 if second % 10 == 0 and second else 0.0)
        found.read_if_due()
    assert driver.reads == 7
    assert [round(each.at_s - at(0).boottime_s, 1) for each in found.readings][:3] == [0.0, 9.6, 19.6]


def test_utilisation_that_takes_too_long_pauses_and_says_so() -> None:
    """Three slow reads, then pauses, each twice as long, in which it is unknown why; once it is fast it goes on."""
    driver = Busy()
    driver.takes_s = 0.1
    found = reads_of(driver)
    for _ in range(30):
        driver.now_s += 10.0
        found.read_if_due()
    assert driver.reads < 15
    assert found.cost is not None
    assert found.cost.is_expensive
    silent = [each.cards[0] for each in found.readings if each.cards[0].ratio is None]
    assert {each.why for each in silent} == {"reading it takes 100 ms on this driver, so it pauses"}
    driver.takes_s = 0.001
    for _ in range(60):
        driver.now_s += 10.0
        found.read_if_due()
    assert found.readings[-1].cards[0].ratio == 0.5


def test_the_thread_reads_utilisation_after_a_reading(world: NvmlWorld, thread: DriverThread) -> None:
    """The loop takes what there is, once; it comes after the reading, and a slow one delays no other reading."""
    world.show(card("a", ghost(1, utilization=35), utilization=90))
    read(thread)
    wait_until(lambda: bool(thread._utilization.readings), 5)
    ((found,),) = [each.cards for each in thread.take_utilization()]
    assert (found.ratio, thread.take_utilization()) == (0.9, ())
