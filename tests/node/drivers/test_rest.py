"""The ticks that the driver's thread keeps by itself while nothing changes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pynvml
import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, mig_card, uses
from tests.node.drivers.test_thread import is_readable, read, wait
from tests.node.support import wait_until
from tests.stub import GIB, LISTS, Stub, StubDelay, StubReturn
from tests.worlds import at
from watchdog import clock
from watchdog.core.quiet import Ticks
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.drivers.thread import DriverThread, Rest

READING = DriverReading(driver="0", interface="NVML")
TERMS = Rest(
    reading=READING,
    since=at(0),
    next_s=at(1).boottime_s,
    interval_s=1.0,
    late_s=1.75,
    until_s=at(10).boottime_s,
    is_unchanged=lambda: True,
)


def test_equal_readings_are_counted() -> None:
    """At most an interval counts between two, and a tick that is late leaves the others where they were."""
    rest = replace(TERMS)
    assert (rest.ticks, rest.last) == (None, at(0))
    for second in (1.0, 2.5, 3.0):
        assert rest.count_reading(replace(READING), at(second), 0.01)
    assert rest.ticks == Ticks(last=at(3), counted_s=2.5, took_s=(0.01,) * 3)
    assert (rest.last, rest.next_s) == (at(3), at(4).boottime_s)


def test_ticks_that_were_missed_are_not_made_up_for() -> None:
    """After a slow reading the next one comes an interval later, and not at once."""
    rest = replace(TERMS, late_s=5.0)
    assert rest.count_reading(READING, at(4.5), 3.0)
    assert rest.next_s == at(5.5).boottime_s


@pytest.mark.parametrize(
    ("terms", "reading", "second"),
    [
        (TERMS, replace(READING, driver="1"), 1.0),
        (TERMS, READING, 1.8),
        (TERMS, READING, 10.0),
        (replace(TERMS, is_unchanged=lambda: False), READING, 1.0),
    ],
    ids=["another reading", "late", "the end", "a process has ended"],
)
def test_what_ends_a_rest(terms: Rest, reading: DriverReading, second: float) -> None:
    """The loop gets that reading, and it is not counted: what it means is for the loop to find out."""
    rest = replace(terms, late_s=20.0 if second == 10.0 else terms.late_s)
    assert not rest.count_reading(reading, at(second), 0.0)
    assert (rest.ticks, rest.last) == (None, at(0))


def test_a_rest_is_bounded() -> None:
    """Its ticks are kept one by one, and a short interval must not make thousands of them."""
    rest = replace(TERMS, until_s=at(1000).boottime_s)
    assert [rest.count_reading(READING, at(second + 1), 0.0) for second in range(102)] == [True] * 100 + [False] * 2


@pytest.fixture
def thread(world: NvmlWorld) -> Iterator[DriverThread]:
    world.show(card("a", ghost(1)))
    found = DriverThread(world.driver())
    yield found
    assert found.close(5.0)


def begin(thread: DriverThread, is_unchanged: Callable[[], bool] = lambda: True) -> Rest:
    """Read, and rest from then on, with a tick every 50 ms."""
    since = clock.now()
    rest = Rest(
        reading=read(thread),
        since=since,
        next_s=since.boottime_s + 0.05,
        interval_s=0.05,
        late_s=30.0,
        until_s=since.boottime_s + 60.0,
        is_unchanged=is_unchanged,
    )
    thread.begin_rest(rest)
    return rest


def count(rest: Rest) -> int:
    return len(rest.ticks.took_s) if rest.ticks is not None else 0


def test_the_thread_reads_by_itself_until_something_changes(world: NvmlWorld, thread: DriverThread) -> None:
    """Nothing wakes the loop for equal readings; the first that differs is handed over like one that was requested."""
    rest = begin(thread)
    wait_until(lambda: count(rest) >= 4)
    assert (thread.is_resting, is_readable(thread, 0.0)) == (True, False)
    world.show(card("a", ghost(1, 2 * GIB)))
    assert uses(wait(thread), "GPU-a") == {1: 2 * GIB}
    assert (thread.is_resting, thread.busy) == (False, False)
    assert thread.asked is not None
    assert thread.asked.boottime_s > rest.last.boottime_s
    world.forget_calls()
    time.sleep(0.2)
    assert world.calls() == 0, "the loop decides when to read again"


def test_the_end_of_a_process_is_a_change(thread: DriverThread) -> None:
    """The driver may list it for a while longer."""
    ended = [False, False, False, True]
    rest = begin(thread, lambda: not ended.pop(0))
    wait(thread)
    assert count(rest) == 3


def test_a_reading_in_progress_when_the_rest_ends_is_handed_over(world: NvmlWorld, thread: DriverThread) -> None:
    """What the loop was woken for needs a reading anyway, and it is neither lost nor counted twice."""
    rest = begin(thread)
    wait_until(lambda: count(rest) >= 1)
    world.show(card("a", ghost(1)), delays=(StubDelay(call=LISTS[0], ms=300.0),))
    wait_until(lambda: thread.busy)
    thread.end_rest()
    counted = rest.ticks
    assert wait(thread) == rest.reading
    assert rest.ticks == counted


def test_a_request_ends_the_rest(thread: DriverThread) -> None:
    """One reading comes of it, and then the thread is silent."""
    rest = begin(thread)
    wait_until(lambda: count(rest) >= 1)
    while thread.busy:
        time.sleep(0.001)
    thread.end_rest()
    read(thread)
    assert not is_readable(thread, 0.2)


def failing(code: int) -> Stub:
    """A card whose processes can't be listed."""
    return Stub(gpus=(card("a", ghost(1)),), returns=(StubReturn(call=LISTS[0], code=code),))


NODES = {
    "a process": Stub(gpus=(card("a", ghost(1)),)),
    "another amount": Stub(gpus=(card("a", ghost(1, 2 * GIB)),)),
    "another process": Stub(gpus=(card("a", ghost(2)),)),
    "more in use by none": Stub(gpus=(card("a", ghost(1), base=GIB),)),
    "an amount that is missing": Stub(gpus=(card("a", ghost(1, None)),)),
    "another list": Stub(gpus=(card("a", ghost(1, lists=("compute", "mps"))),)),
    "no process": Stub(gpus=(card("a"),)),
    "another card": Stub(gpus=(card("a", ghost(1)), card("b", ghost(2)))),
    "instances": Stub(gpus=(mig_card("a", ghost(1, gi=1, ci=0)),)),
    "a failure": failing(pynvml.NVML_ERROR_UNKNOWN),
    "another failure": failing(pynvml.NVML_ERROR_NO_PERMISSION),
}


@pytest.mark.parametrize("before", NODES)
@pytest.mark.parametrize("after", NODES)
def test_a_reading_like_another_is_the_reading(world: NvmlWorld, before: str, after: str) -> None:
    """What is taken over from the reading before is what reading it again would give."""
    drivers = (world.driver(layout_every_s=3600.0), world.driver(layout_every_s=3600.0))
    NODES[before].write(world.path)
    first, _ = (driver.read() for driver in drivers)
    NODES[after].write(world.path)
    taken, again = drivers[0].read(like=first), drivers[1].read()
    assert taken == again


def test_a_quiet_card_is_not_computed_again(world: NvmlWorld) -> None:
    """A quiet tick costs little more than NVML's calls: the values of an unchanged card are taken over."""
    world.show(card("a", ghost(1)), mig_card("b", ghost(2, gi=1, ci=0)))
    driver = world.driver()  # which enumerates the cards again before each reading
    first = driver.read()
    assert driver.read(like=first).uses[0] is first.uses[0]
    assert driver.read().uses[0] is not first.uses[0]
