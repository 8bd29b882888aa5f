"""Intentions that are on disk, or on their way there, while something else goes wrong."""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tests.daemon.eviction_rig import World, planned
from tests.daemon.rig import Group, MemoryRecord
from tests.worlds import Gi, at, policy, process, rule, step
from watchdog.core.brakes import NODE, Begun, Brake, BrakeMemory, owner_of
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Moment, PlanEntry, Result
from watchdog.daemon.actions.intentions import LOOP_LATE


def world(group: Group, record: MemoryRecord | None = None) -> World:
    """A pod that is due for a kill."""
    key = group.key(group.start())
    processes, under = (process(key.pid, "a/main", key=key),), policy(rule(step(grace_s=60.0)))
    return World(under, used={key.pid: 4 * Gi}, processes=processes, record=record or MemoryRecord(), group=group)


def late(made: World, second: float) -> Future[int]:
    """What a cycle has intended, while the disk took longer than the cycle waits."""
    opened = made.open(second)
    (intended,) = opened.intentions.values()
    assert isinstance(intended, Future)
    intended.set_running_or_notify_cancel()
    assert [entry.withheld_by for entry in made.close(opened).plan.entries] == [Brake.JOURNAL]
    return intended


@pytest.mark.parametrize("begins", [True, False])
def test_an_intention_counts_once_where_the_journal_is_taken_over_meanwhile(group: Group, begins: bool) -> None:
    """Points 22 and 29: what the journal already counts counts once if it begins, and not at all if it does not."""
    made = world(group)
    opened = made.open(1.0)
    (entry,) = opened.plan.taken
    earlier, intended = Begun(at_s=at(0.5).boottime_s), Begun(at_s=at(1.0).boottime_s)
    whom = owner_of(entry.assessment.pod)
    made.cycle.actions.take_over((), 0.0, BrakeMemory.of([(whom, earlier), (whom, intended)]))
    finish = made.close(opened, objection=lambda *_: None if begins else "it was protected by then")
    assert [each.result for each in (*finish.began, *finish.outcomes)] == [Result.DONE if begins else Result.WITHDRAWN]
    assert len(made.cycle.ledger.brakes.begun[NODE]) == (2 if begins else 1)
    made.cycle.actions.take_over((), 0.0, BrakeMemory.of([(whom, earlier), (whom, intended)]))
    assert len(made.cycle.ledger.brakes.begun[NODE]) == 2


@pytest.mark.parametrize("slow", [True, False])
def test_who_was_late_is_measured_where_it_is_written(group: Group, *, slow: bool) -> None:
    """Point 22: the disk is blamed only if it took too long from queueing to commit."""
    made = world(group, MemoryRecord(stalled=True, slow=slow))
    late(made, 1.0).set_result(1)
    made.wake(4.0)
    (found,) = made.ended
    assert (found.result, "disk" in found.reason, "watchdog was busy" in found.reason) == (
        Result.WITHDRAWN,
        slow,
        not slow,
    )


def test_an_intention_that_the_disk_took_too_long_for_begins_nothing(group: Group) -> None:
    """Point 22: also if the loop was so late that it finds it written."""
    made = world(group, MemoryRecord(slow=True))
    closed = made.close(made.open(1.0))
    assert [(each.result, "disk" in each.reason) for each in closed.outcomes] == [(Result.WITHDRAWN, True)]
    assert [line[0] for line in made.record.lines] == ["intend", "withdraw"]


def test_what_a_late_loop_finds_written_is_withdrawn_for_that_reason(group: Group) -> None:
    """Point 22: no signal, and the record says that the watchdog was busy."""
    made = world(group)
    closed = made.close(replace(made.open(1.0), late=LOOP_LATE), answers=False)
    assert [(each.result, each.reason) for each in closed.outcomes] == [(Result.WITHDRAWN, LOOP_LATE)]
    assert made.record.lines[-1] == ("withdraw", LOOP_LATE)


def test_a_defect_in_one_late_intention_loses_no_other(group: Group) -> None:
    """Point 22: whatever went wrong with another one, what gets to the disk too late is withdrawn."""
    made = world(group, MemoryRecord(stalled=True))
    first, second, third = (late(made, number) for number in (1.0, 2.0, 3.0))
    first.set_result(1)
    second.set_exception(ZeroDivisionError())
    third.set_result(3)
    with pytest.raises(ZeroDivisionError):
        made.wake(4.0)
    made.wake(5.0)
    assert [(each.result, each.number) for each in made.ended] == [(Result.WITHDRAWN, 1), (Result.WITHDRAWN, 3)]
    assert [line[0] for line in made.record.lines].count("withdraw") == 2


def test_a_cycle_that_failed_by_a_defect_of_the_journal_can_be_dropped(group: Group) -> None:
    """A daemon that enforces goes on after a bug: what reports it must not fail by the same one."""
    made = world(group, MemoryRecord(stalled=True))
    opened = made.open(1.0)
    (intended,) = opened.intentions.values()
    assert isinstance(intended, Future)
    intended.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        made.close(opened)
    made.cycle.actions.drop(opened, "the cycle failed")
    assert [line[0] for line in made.record.lines] == ["intend"]


class _Failing(MemoryRecord):
    """A record with a defect that shows once a signal has been sent."""

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Remember the signal, and fail."""
        super().signalled(action, now, signal, keys)
        raise ZeroDivisionError


@pytest.mark.parametrize(("is_sent", "last"), [(False, "withdraw"), (True, "SIGTERM")])
def test_only_what_has_sent_no_signal_is_withdrawn_after_a_defect(group: Group, *, is_sent: bool, last: str) -> None:
    """Point 22: where a bug ends a kill before its first signal, its intention counts for nothing; later, it counts."""

    def objection(_: PlanEntry, moment: Moment) -> None:
        if not is_sent:
            raise ZeroDivisionError

    made = world(group, _Failing())
    opened = made.open(1.0)
    with pytest.raises(ZeroDivisionError):
        made.close(opened, objection=objection)
    made.cycle.actions.drop(opened, "the cycle failed")
    assert made.record.lines[-1][0] == last


def test_a_disk_that_is_too_slow_is_news_once(group: Group) -> None:
    """Point 29: what holds an action back at the last moment is reported once an incident, like any brake."""
    made = world(group, MemoryRecord(stalled=True))
    entries = [planned(made.close(made.open(second)), "kill") for second in (0, 1)]
    assert [(entry.withheld_by, entry.is_new) for entry in entries] == [(Brake.JOURNAL, True), (Brake.JOURNAL, False)]


def test_what_the_disk_has_not_taken_is_not_waited_for_when_a_journal_is_taken_over(group: Group) -> None:
    """Law 10: what is still on its way to the disk is in no journal, and is not waited for."""
    made = world(group, MemoryRecord(stalled=True))
    whom = owner_of(made.open(1.0).plan.taken[0].assessment.pod)
    journal = BrakeMemory.of([(whom, Begun(at_s=at(0.5).boottime_s))])
    taking = threading.Thread(target=made.cycle.actions.take_over, args=((), 0.0, journal), daemon=True)
    taking.start()
    taking.join(10)
    assert not taking.is_alive()
    assert len(made.cycle.ledger.brakes.begun[NODE]) == 1
