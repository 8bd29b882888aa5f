"""A cycle that is open: what it waits for, and when it goes on without it."""

import pytest

from tests.daemon.eviction_rig import World
from tests.daemon.rig import MemoryRecord
from tests.worlds import Gi, at
from watchdog.daemon.actions.last_look import FRESH_S, Next, PendingCycle
from watchdog.daemon.sampler import TimedReading
from watchdog.journal.writer import COMMIT_WITHIN_S
from watchdog.node.drivers.protocol import DriverReading

RESET_S = 10.0  # after this long without a reading no stretch lasts


def _open(used: int = 4 * Gi, *, stalled: bool = False) -> PendingCycle:
    """A cycle that began at second 0; `stalled`: the disk does not take what it intends."""
    return PendingCycle(opened=World(record=MemoryRecord(stalled=stalled), used={5: used}).open(0), since=at(0))


def _look(took_s: float) -> TimedReading:
    return TimedReading(reading=DriverReading(driver=None, interface="NVML"), asked=at(0), took_s=took_s, only=None)


@pytest.mark.parametrize(
    ("waiting", "second", "maintenance", "does"),
    [
        (_open(), 0, False, Next.READ),
        (_open(), 0, True, Next.CLOSE),
        (_open(Gi), 0, False, Next.CLOSE),
        (_open(stalled=True), COMMIT_WITHIN_S - 0.1, False, Next.WAIT),
        (_open(stalled=True), COMMIT_WITHIN_S, False, Next.CLOSE),
        (_open(stalled=True), 0, True, Next.CLOSE),
    ],
    ids=["on disk", "maintenance", "idle", "disk", "slow disk", "disk, maintenance"],
)
def test_first_the_disk_then_the_driver(waiting: PendingCycle, second: float, does: Next, *, maintenance: bool) -> None:
    """Points 16, 22 and 34: the disk is given 2 s, and no last look is taken that could justify nothing."""
    assert waiting.waits_for_disk
    assert waiting.next(at(second), maintenance=maintenance) is does


@pytest.mark.parametrize("stalled", [False, True], ids=["on disk", "not on disk"])
def test_a_loop_that_is_late_itself_begins_nothing_and_blames_no_disk(*, stalled: bool) -> None:
    """Point 22: what was written in time is withdrawn, and a disk that has not written has its own two seconds."""
    waiting = _open(stalled=stalled)
    assert waiting.next(at(COMMIT_WITHIN_S + 1), maintenance=False) is (Next.WAIT if stalled else Next.CLOSE)
    assert (waiting.was_late, waiting.write_until_s) == (True, at(2 * COMMIT_WITHIN_S + 1).boottime_s)
    assert waiting.next(at(2 * COMMIT_WITHIN_S + 1), maintenance=False) is Next.CLOSE


def test_a_reading_that_would_restart_every_stretch_is_not_taken() -> None:
    """Point 16: a look that is repeated that late could justify nothing."""
    waiting = _open()
    seconds = (0.1, RESET_S - 0.1, RESET_S)
    found = [waiting.next(at(second), maintenance=False) for second in seconds]
    assert found == [Next.READ, Next.READ, Next.CLOSE]


def test_a_loop_in_time_is_not_late() -> None:
    """Point 22: it wakes when the disk's time is up, which an eviction's answer or a busy node delays by a moment."""
    for stalled, second in ((False, 0.1), (True, COMMIT_WITHIN_S + 0.3)):
        waiting = _open(stalled=stalled)
        waiting.next(at(second), maintenance=False)
        assert not waiting.was_late
    seen = _open()
    assert [seen.next(at(second), maintenance=False) for second in (0.1, COMMIT_WITHIN_S + 1)] == [Next.READ] * 2


def test_while_the_driver_is_asked_everything_waits() -> None:
    """Point 34: its answer is awaited under maintenance too, since it holds the driver until then."""
    waiting = _open()
    waiting.on_request()
    assert not waiting.waits_for_disk
    assert [waiting.next(at(20), maintenance=each) for each in (False, True)] == [Next.WAIT, Next.WAIT]


def test_an_answer_that_comes_too_late_is_asked_for_once_more() -> None:
    """Point 22: what is more than 2 s old is not used; after a second one like that there is no action."""
    waiting, does = _open(), []
    for took_s in (FRESH_S + 0.1, FRESH_S + 0.2):
        waiting.on_request()
        waiting.on_reading(_look(took_s))
        assert (waiting.last_reading, waiting.late_s) == (None, took_s)
        does.append(waiting.next(at(5), maintenance=False))
    assert does == [Next.READ, Next.CLOSE]


def test_an_answer_in_time_is_the_last_look() -> None:
    """Point 22: up to 2 s old it is what the first signal goes by, whatever the one before was."""
    waiting = _open()
    for took_s in (FRESH_S + 0.1, FRESH_S):
        waiting.on_request()
        waiting.on_reading(_look(took_s))
    assert (waiting.last_reading, waiting.late_s) == (_look(FRESH_S), None)
    assert waiting.next(at(5), maintenance=False) is Next.CLOSE
    first = _open()
    first.on_request()
    first.on_reading(_look(0.1))
    assert first.next(at(1), maintenance=False) is Next.CLOSE
