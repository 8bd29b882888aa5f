"""Kills of real processes, moment by moment."""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.act.rig import POLITE, SLOW, STUBBORN, Group, MemoryRecord, due
from tests.worlds import at, step
from watchdog.act.deed import reaction_s
from watchdog.act.kills import Deeds
from watchdog.core.brakes import Brake
from watchdog.core.model import Now
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.node.pidfd import Handle

ALL_FREE = lambda _key: False  # noqa: E731
STILL_LISTED = lambda _key: True  # noqa: E731


@pytest.fixture
def group() -> Iterator[Group]:
    """A container of real processes, ended afterwards."""
    made = Group()
    yield made
    made.close()


class Clock:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> Now:
        return at(self.second)


def deeds(group: Group, record: MemoryRecord | None = None) -> tuple[Deeds, Clock]:
    """Deeds on a group."""
    clock = Clock()
    return Deeds(group, record or MemoryRecord(), clock), clock


def begun(made: Deeds, entry: PlanEntry) -> Outcome:
    """Begin a kill that can begin."""
    outcome = made.begin(entry, 30.0)
    assert isinstance(outcome, Outcome)
    return outcome


def advance(made: Deeds, clock: Clock, second: float) -> tuple[Outcome, ...]:
    """Go on at a second; signals need a moment of real time to arrive."""
    clock.second = second
    outcomes = made.advance(clock(), lambda _: None)
    time.sleep(0.05)
    return outcomes


def test_term_grace_kill(group: Group) -> None:
    """Point 23: SIGTERM to all, grace, SIGKILL to what is left; the intention comes first."""
    polite, stubborn = group.start(POLITE), group.start(STUBBORN)
    record = MemoryRecord()
    made, clock = deeds(group, record)
    entry = due(step(grace_s=5.0), group.key(polite), group.key(stubborn))
    outcome = begun(made, entry)
    both = tuple(str(pid) for pid in sorted((polite.pid, stubborn.pid)))
    assert (outcome.result, outcome.deed, len(outcome.signalled)) == (Result.DONE, 7, 2)
    assert polite.wait(5) == -signal.SIGTERM
    advance(made, clock, 4.9)
    assert stubborn.poll() is None
    advance(made, clock, 5.0)
    assert stubborn.wait(5) == -signal.SIGKILL
    for second in (5.1, 5.2, 5.3):
        advance(made, clock, second)
    assert record.lines == [
        ("intend", *both),
        ("SIGTERM", *both),
        ("SIGKILL", str(stubborn.pid)),
        ("end", "done"),
    ]


def test_the_memory_has_to_come_back(group: Group) -> None:
    """Point 24: the deed is under way until the driver lists no victim any more, or release_timeout is over."""
    for free_at, expected in ((12.0, 12.0), (None, None)):
        record = MemoryRecord()
        made, clock = deeds(group, record)
        process = group.start(POLITE)
        begun(made, due(step(grace_s=5.0), group.key(process)))
        process.wait(5)
        advance(made, clock, 1.0)
        assert made.see(STILL_LISTED, (), at(2.0)) == ()
        assert len(made) == 1
        (outcome,) = made.see(ALL_FREE if free_at else STILL_LISTED, (), at(free_at or 35.0))
        assert (outcome.result, outcome.release_s) == (Result.DONE, expected)
        assert len(made) == 0
        assert "release_timeout" in outcome.reason or free_at


def test_signal_0_to_all_first(group: Group) -> None:
    """Point 23: one EPERM and nobody is signalled, nothing is intended."""

    class Foreign:
        """A process of which the kernel says EPERM."""

        def __init__(self, handle: Handle) -> None:
            self.key = handle.key
            self._handle = handle

        def alive(self) -> bool:
            return True

        def signal(self, number: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        def close(self) -> None:
            self._handle.close()

    class Mixed(Group):
        """A container one process of which is foreign."""

        def members(self, pod: object, containers: object) -> tuple[list[Handle], bool]:
            (first, *others), sees_all = super().members(None, frozenset())  # type: ignore[arg-type]
            return [*others, Foreign(first)], sees_all

    mixed = Mixed()
    try:
        one, other = mixed.start(POLITE), mixed.start(POLITE)
        record = MemoryRecord()
        made, _ = deeds(mixed, record)
        outcome = begun(made, due(step(), mixed.key(one), mixed.key(other)))
        time.sleep(0.1)
        assert (outcome.result, record.lines, len(made)) == (Result.FAILED, [], 0)
        assert "CAP_KILL" in outcome.reason
        assert (one.poll(), other.poll()) == (None, None)
    finally:
        mixed.close()


def test_without_a_record_nobody_is_signalled(group: Group) -> None:
    """Point 31: an intention that can't be written down is withheld as `journal`."""
    process = group.start(POLITE)
    made, _ = deeds(group, MemoryRecord(broken=True))
    assert made.begin(due(step(), group.key(process)), 30.0) is Brake.JOURNAL
    time.sleep(0.1)
    assert (process.poll(), len(made)) == (None, 0)


def test_who_has_ended_is_gone(group: Group) -> None:
    """Point 22: a process that ended between decision and signal: `gone`, and nothing is intended."""
    process = group.start(POLITE)
    key = group.key(process)
    process.kill()
    process.wait()
    record = MemoryRecord()
    made, _ = deeds(group, record)
    assert begun(made, due(step(), key)).result is Result.GONE
    assert record.lines == []


def test_scope_process_touches_one(group: Group) -> None:
    """Point 21: the others of the container get nothing, not even at the search for forks."""
    victim, other = group.start(POLITE), group.start(POLITE)
    made, clock = deeds(group)
    outcome = begun(made, due(step(scope="process"), group.key(victim)))
    assert outcome.signalled == (group.key(victim),) if victim.poll() is None else True
    victim.wait(5)
    for second in (0.1, 0.2, 11.0, 12.0):
        advance(made, clock, second)
    assert other.poll() is None


def test_a_process_id_alone_is_no_target(group: Group) -> None:
    """Point 11: with scope `process` another start time under the same PID is another process."""
    process = group.start(POLITE)
    key = group.key(process)
    stranger = type(key)(pid=key.pid, start_ticks=key.start_ticks - 1)
    made, _ = deeds(group)
    assert begun(made, due(step(scope="process"), stranger)).result is Result.GONE
    time.sleep(0.1)
    assert process.poll() is None


def test_a_fork_that_comes_in_the_grace_is_found(group: Group) -> None:
    """Point 23: SIGKILL goes to what is in the container by then, not to the list of the first moment."""
    first = group.start(STUBBORN)
    made, clock = deeds(group)
    begun(made, due(step(grace_s=2.0), group.key(first)))
    fork = group.start(STUBBORN)
    for second in (2.0, 2.1, 2.2, 2.4):
        advance(made, clock, second)
    assert (first.wait(5), fork.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)


def test_a_fork_that_outlives_its_parents_is_found(group: Group) -> None:
    """Point 23: when all that got SIGTERM have ended, a last search finds the fork that did not get it."""
    first = group.start(SLOW)
    made, clock = deeds(group)
    begun(made, due(step(grace_s=2.0), group.key(first)))
    fork = group.start(STUBBORN)
    assert first.wait(5) == 0
    for second in (0.3, 0.6):
        advance(made, clock, second)
    assert fork.wait(5) == -signal.SIGKILL


def test_a_stronger_step_ends_the_grace(group: Group) -> None:
    """Point 24: the grace of the weaker step is cut to the stronger one's."""
    process = group.start(STUBBORN)
    made, clock = deeds(group)
    entry = due(step(grace_s=60.0), group.key(process))
    begun(made, entry)
    made.hasten(due(step(grace_s=0.0), group.key(process)), at(1.0))
    advance(made, clock, 1.0)
    assert process.wait(5) == -signal.SIGKILL


def test_withdrawn_permission_stops_the_grace(group: Group) -> None:
    """Points 20 and 33: no SIGKILL once force is not permitted any more, `interrupted`."""
    process = group.start(STUBBORN)
    record = MemoryRecord()
    made, _ = deeds(group, record)
    begun(made, due(step(grace_s=2.0), group.key(process)))
    (outcome,) = made.advance(at(1.0), lambda _: "it was called off")
    assert (outcome.result, outcome.reason, record.lines[-2:]) == (
        Result.INTERRUPTED,
        "it was called off",
        [("end", "interrupted"), ("released", "None")],
    )
    assert made.advance(at(5.0), lambda _: None) == ()
    time.sleep(0.1)
    assert process.poll() is None


def test_a_kill_begun_is_completed_after_the_grace(group: Group) -> None:
    """Point 22: once SIGKILL has gone out nothing of it is left half done."""
    process = group.start(STUBBORN)
    made, clock = deeds(group)
    begun(made, due(step(grace_s=0.0), group.key(process)))
    assert process.wait(5) == -signal.SIGKILL
    clock.second = 0.1
    assert made.advance(clock(), lambda _: "it was called off") == ()


def test_a_victim_that_does_not_die_fails_in_time(group: Group) -> None:
    """Law 10 and point 23: what SIGKILL does not end is `failed` after release_timeout."""

    class Stuck:
        """A process that the driver holds in an uninterruptible call."""

        def __init__(self, handle: Handle) -> None:
            self.key = handle.key
            self._handle = handle

        def alive(self) -> bool:
            return True

        def signal(self, number: int) -> None:
            """Take any signal and live on."""

        def close(self) -> None:
            self._handle.close()

    class InTheDriver(Group):
        """A container of such processes."""

        def members(self, pod: object, containers: object) -> tuple[list[Handle], bool]:
            found, sees_all = super().members(None, frozenset())  # type: ignore[arg-type]
            return [Stuck(handle) for handle in found], sees_all

    stuck = InTheDriver()
    try:
        process = stuck.start(POLITE)
        made, clock = deeds(stuck)
        begun(made, due(step(grace_s=0.0), stuck.key(process)))
        assert advance(made, clock, 29.0) == ()
        (outcome,) = advance(made, clock, 31.0)
        assert outcome.result is Result.FAILED
        assert "did not end" in outcome.reason
    finally:
        stuck.close()


def test_a_kill_that_may_not_have_reached_all_is_not_done(group: Group) -> None:
    """Point 23: where a process of the container could not be held or read, the end is `failed`, not `done`."""
    process = group.start(POLITE)
    made, clock = deeds(group)
    begun(made, due(step(grace_s=0.0), group.key(process)))
    group.sees_all = False
    process.wait(5)
    assert advance(made, clock, 1.0) == ()
    (outcome,) = advance(made, clock, 31.0)
    assert outcome.result is Result.FAILED
    assert "not sure" in outcome.reason


def test_interrupting_ends_all(group: Group) -> None:
    """Point 26: when the daemon stops, deeds in their grace are `interrupted`."""
    process = group.start(STUBBORN)
    made, _ = deeds(group)
    begun(made, due(step(grace_s=9.0), group.key(process)))
    (outcome,) = made.interrupt("stopped", at(1.0))
    assert (outcome.result, len(made), process.poll()) == (Result.INTERRUPTED, 0, None)


def test_reaction_is_counted_without_the_time_that_the_policy_asks_for(group: Group) -> None:
    """The reaction time leaves `for` out and counts from the last reading that was not above: an upper bound."""
    from dataclasses import replace

    process = group.start(POLITE)
    entry = replace(due(step(for_s=0.0), group.key(process)), not_above=at(0.0))
    assert reaction_s(entry, at(0.8)) == pytest.approx(0.8)
    assert reaction_s(replace(entry, not_above=None), at(0.8)) is None
