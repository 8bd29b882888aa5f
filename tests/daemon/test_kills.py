"""Kills of real processes, step by step."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tests.daemon.rig import POLITE, SLOW, STUBBORN, Group, MemoryRecord, due
from tests.worlds import Gi, at, container, container_id, planned, pod, policy, process, rule, snapshot, step, use
from watchdog.core.errors import RecordError
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.daemon.kill import MAX_ROUNDS, Kills, reaction_s
from watchdog.node.process import Handle
from watchdog.report.sentences.action import sent_signals

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


def actions(group: Group, record: MemoryRecord | None = None) -> tuple[Kills, Clock]:
    """Actions on a group."""
    clock = Clock()
    return Kills(group, record or MemoryRecord(), clock), clock


def begun(made: Kills, entry: PlanEntry) -> Outcome:
    """Begin a kill that can begin."""
    intended = made.intend(entry)
    if isinstance(intended, Outcome):
        return intended
    return made.begin(entry, intended.result(), 30.0, lambda _: None)


def advance(made: Kills, clock: Clock, second: float) -> tuple[Outcome, ...]:
    """Go on at a second; signals need a moment of real time to arrive."""
    clock.second = second
    outcomes = made.advance(clock(), lambda _: None)
    time.sleep(0.05)
    return outcomes


def test_term_grace_kill(group: Group) -> None:
    """Point 23: SIGTERM to all, grace, SIGKILL to what is left; the intention comes first."""
    polite, stubborn = group.start(POLITE), group.start(STUBBORN)
    record = MemoryRecord()
    made, clock = actions(group, record)
    entry = due(step(grace_s=5.0), group.key(polite), group.key(stubborn))
    outcome = begun(made, entry)
    both = tuple(str(pid) for pid in sorted((polite.pid, stubborn.pid)))
    assert (outcome.result, outcome.number, len(outcome.signalled)) == (Result.DONE, 7, 2)
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
    """Point 24: the action is in progress until the driver lists no victim any more, or release_timeout is over."""
    for free_at, expected in ((12.0, 12.0), (None, None)):
        record = MemoryRecord()
        made, clock = actions(group, record)
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
    """Point 23: with one EPERM nothing is signalled and nothing is intended."""

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
        made, _ = actions(mixed, record)
        outcome = begun(made, due(step(), mixed.key(one), mixed.key(other)))
        time.sleep(0.1)
        assert (outcome.result, record.lines, len(made)) == (Result.FAILED, [], 0)
        assert "CAP_KILL" in outcome.reason
        assert (one.poll(), other.poll()) == (None, None)
    finally:
        mixed.close()


def test_without_a_record_nothing_is_signalled(group: Group) -> None:
    """Point 31: where an intention can't be written down nothing has been signalled for it."""
    process = group.start(POLITE)
    made, _ = actions(group, MemoryRecord(broken=True))
    intended = made.intend(due(step(), group.key(process)))
    assert isinstance(intended, Future)
    assert isinstance(intended.exception(), RecordError)
    time.sleep(0.1)
    assert (process.poll(), len(made)) == (None, 0)


def test_what_is_on_disk_waits_for_the_last_word(group: Group) -> None:
    """Point 22: nothing is signalled for what the last look, or that moment, speaks against: it is withdrawn."""
    process = group.start(POLITE)
    record = MemoryRecord()
    made, _ = actions(group, record)
    entry = due(step(), group.key(process))
    made.intend(entry)
    outcome = made.begin(entry, 7, 30.0, lambda _: "the pod had become protected")
    assert (outcome.result, outcome.number) == (Result.WITHDRAWN, 7)
    assert record.lines[1:] == [("withdraw", "the pod had become protected")]
    process.kill()
    process.wait()
    assert made.begin(entry, 7, 30.0, lambda _: None).reason == "its processes had ended"
    assert (process.returncode, len(made)) == (-signal.SIGKILL, 0)


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_kill_that_found_nothing_to_signal_is_withdrawn(group: Group, grace_s: float) -> None:
    """Points 22 and 23: what ends between signal 0 and the first signal was not killed; what comes then is not hit."""
    record = MemoryRecord()
    made, clock = actions(group, record)
    process = group.start(POLITE)
    entry = due(step(grace_s=grace_s), group.key(process))
    made.intend(entry)

    def end(_: PlanEntry) -> None:
        process.kill()
        process.wait(5)
        group.start(POLITE)

    outcome = made.begin(entry, 7, 30.0, end)
    assert (outcome.result, outcome.sent, outcome.number, len(made)) == (Result.WITHDRAWN, (), 7, 0)
    assert record.lines[1:] == [("withdraw", "its processes had ended")]
    assert advance(made, clock, 9.0) == ()
    assert group.started[1].poll() is None


def test_a_process_that_has_ended_is_gone(group: Group) -> None:
    """Point 22: a process that ended between decision and signal: `gone`, and nothing is intended."""
    process = group.start(POLITE)
    key = group.key(process)
    process.kill()
    process.wait()
    record = MemoryRecord()
    made, _ = actions(group, record)
    assert begun(made, due(step(), key)).result is Result.GONE
    assert record.lines == []


def test_scope_process_touches_one(group: Group) -> None:
    """Point 21: the others of the container get nothing, not even at the search for forks."""
    victim, other = group.start(POLITE), group.start(POLITE)
    made, clock = actions(group)
    outcome = begun(made, due(step(scope="process"), group.key(victim)))
    assert outcome.signalled == (group.key(victim),) if victim.poll() is None else True
    victim.wait(5)
    for second in (0.1, 0.2, 11.0, 12.0):
        advance(made, clock, second)
    assert other.poll() is None


def test_a_single_process_is_done_once_it_has_ended(group: Group) -> None:
    """Points 23 and 24: after its SIGKILL nothing else is searched for, and only its memory is waited for."""
    victim, record = group.start(STUBBORN), MemoryRecord()
    made, clock = actions(group, record)
    begun(made, due(step(scope="process", grace_s=0), group.key(victim)))
    assert victim.wait(5) == -signal.SIGKILL
    advance(made, clock, 0.5)
    (outcome,) = made.see(ALL_FREE, (), at(1))
    assert (outcome.result, outcome.release_s) == (Result.DONE, 1.0)
    assert record.lines[2:] == [("end", "done"), ("released", "1.0")]


@pytest.mark.parametrize(
    ("scope", "names"), [("process", ["main"]), ("container", ["main"]), ("pod", ["main", "side"])]
)
def test_the_scope_says_whose_processes_are_searched_for(scope: str, names: list[str]) -> None:
    """Point 21: those of the victim, or with scope `pod` those of all containers of the pod."""
    asked: list[frozenset[str]] = []

    class UnansweredQuery(Group):
        """A container that notes which IDs are asked for."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            asked.append(containers)
            return [], True

    both = pod("a", container("main", "1Gi"), container("side", "1Gi"))
    under = policy(rule(step(scope=scope)))  # type: ignore[arg-type]
    (entry,) = planned(snapshot([use(5, 4 * Gi)], [process(5, "a/main")]), [both], under).taken
    actions(UnansweredQuery())[0].intend(entry)
    assert asked == [frozenset(container_id(f"a/{name}") for name in names)]


def test_a_process_id_alone_is_no_target(group: Group) -> None:
    """Point 11: with scope `process` another start time under the same PID is another process."""
    process = group.start(POLITE)
    key = group.key(process)
    stranger = type(key)(pid=key.pid, start_ticks=key.start_ticks - 1)
    made, _ = actions(group)
    assert begun(made, due(step(scope="process"), stranger)).result is Result.GONE
    time.sleep(0.1)
    assert process.poll() is None


def test_a_fork_that_comes_in_the_grace_is_found(group: Group) -> None:
    """Point 23: SIGKILL goes to what is in the container by then, not to the list of the first moment."""
    first = group.start(STUBBORN)
    made, clock = actions(group)
    begun(made, due(step(grace_s=2.0), group.key(first)))
    fork = group.start(STUBBORN)
    for second in (2.0, 2.1, 2.2, 2.4):
        advance(made, clock, second)
    assert (first.wait(5), fork.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)


def test_what_is_started_on_sigterm_has_the_rest_of_the_grace_period(group: Group) -> None:
    """Point 23: a saver that outlives the main process gets SIGTERM, and SIGKILL only once the time is up."""
    main = group.start(SLOW)
    record = MemoryRecord()
    made, clock = actions(group, record)
    begun(made, due(step(grace_s=5.0), group.key(main)))
    saver = group.start(STUBBORN)
    assert main.wait(5) == 0
    for second in (0.4, 4.9):
        advance(made, clock, second)
    assert saver.poll() is None
    advance(made, clock, 5.0)
    assert saver.wait(5) == -signal.SIGKILL
    advance(made, clock, 5.1)
    (outcome,) = made.see(ALL_FREE, (), at(6.0))
    assert [line[0] for line in record.lines] == ["intend", "SIGTERM", "SIGTERM", "SIGKILL", "end", "released"]
    assert [(each.signal, len(each.keys), each.after_s) for each in outcome.sent] == [
        ("SIGTERM", 2, 0.0),
        ("SIGKILL", 1, 5.0),
    ]


def test_the_grace_period_ends_once_all_are_gone(group: Group) -> None:
    """Point 23: nobody waits for the rest of a grace period in which the last process, a joined one, has ended."""
    main = group.start(SLOW)
    record = MemoryRecord()
    made, clock = actions(group, record)
    begun(made, due(step(grace_s=60.0), group.key(main)))
    saver = group.start(POLITE)
    assert main.wait(5) == 0
    advance(made, clock, 0.4)
    assert saver.wait(5) == -signal.SIGTERM
    advance(made, clock, 1.5)
    (outcome,) = made.see(ALL_FREE, (), at(1.6))
    assert [line[0] for line in record.lines] == ["intend", "SIGTERM", "SIGTERM", "end", "released"]
    assert [each.signal for each in outcome.sent] == ["SIGTERM"]


def test_who_joins_is_searched_for_at_most_once_a_second(group: Group) -> None:
    """Point 23: a search reads the whole node, so one a second and one row of the record each is the most."""
    record = MemoryRecord()
    made, clock = actions(group, record)
    begun(made, due(step(grace_s=60.0), group.key(group.start(STUBBORN))))
    before = group.searches
    for tenth in range(1, 50):
        if tenth % 7 == 0:
            group.start(STUBBORN)
        clock.second = tenth / 10
        made.advance(clock(), lambda _: None)
    assert group.searches - before == 4
    assert [line[0] for line in record.lines].count("SIGTERM") <= 1 + 4


def test_a_short_grace_period_has_a_search_in_it(group: Group) -> None:
    """Point 23: who joins within a grace of one second gets SIGTERM in it, not only SIGKILL at its end."""
    made, clock = actions(group)
    begun(made, due(step(grace_s=1.0), group.key(group.start(STUBBORN))))
    joined = group.start(POLITE)
    advance(made, clock, 0.5)
    assert joined.wait(5) == -signal.SIGTERM


def test_a_fork_of_a_single_process_is_no_target(group: Group) -> None:
    """Point 23: with scope `process` what the target starts on SIGTERM is left alone, as all of the container is."""
    target = group.start(SLOW)
    made, clock = actions(group)
    begun(made, due(step(scope="process", grace_s=9.0), group.key(target)))
    fork = group.start(POLITE)
    assert target.wait(5) == 0
    for second in (1.5, 9.5):
        advance(made, clock, second)
    assert fork.poll() is None
    (outcome,) = made.see(ALL_FREE, (), at(9.6))
    assert outcome.result is Result.DONE


class Guarded:
    """A process that signal 0 reaches and no signal of these numbers, as an AppArmor profile can have it."""

    def __init__(self, handle: Handle, denied: tuple[int, ...]) -> None:
        self.key = handle.key
        self._handle = handle
        self._denied = denied

    def alive(self) -> bool:
        return self._handle.alive()

    def signal(self, number: int) -> None:
        if number in self._denied:
            raise PermissionError(13, "Permission denied")

    def close(self) -> None:
        self._handle.close()


@pytest.mark.parametrize(
    ("denied", "at_s", "sent"),
    [((signal.SIGTERM, signal.SIGKILL), 0.0, []), ((signal.SIGKILL,), 5.0, ["SIGTERM"])],
    ids=["all", "SIGKILL"],
)
def test_a_signal_that_is_denied_is_a_failure(denied: tuple[int, ...], at_s: float, sent: list[str]) -> None:
    """Point 23: where signal 0 passes and the real one does not it ends as `failed`, and names what was sent."""

    class Confined(Group):
        """A container under such a profile."""

        def members(self, pod: object, containers: object) -> tuple[list[Handle], bool]:
            found, sees_all = super().members(None, frozenset())  # type: ignore[arg-type]
            return [Guarded(handle, denied) for handle in found], sees_all

    confined = Confined()
    try:
        process = confined.start(POLITE)
        record = MemoryRecord()
        made, clock = actions(confined, record)
        outcome = begun(made, due(step(grace_s=5.0), confined.key(process)))
        if at_s:
            assert outcome.result is Result.DONE
            (outcome,) = advance(made, clock, at_s)
        assert (outcome.result, [each.signal for each in outcome.sent]) == (Result.FAILED, sent)
        assert "denied: Permission denied" in outcome.reason
        assert (len(made), process.poll(), record.lines[-1]) == (0, None, ("end", "failed"))
    finally:
        confined.close()


def test_one_that_a_signal_is_denied_to_saves_no_other(group: Group) -> None:
    """Point 23: where a signal has gone out the kill is completed with whom it reaches, and ends as `failed`."""
    first, second = group.start(POLITE), group.start(STUBBORN)

    class Partly(Group):
        """A container of which one process is out of reach."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            found, sees_all = super().members(pod, containers)
            denied = signal.SIGTERM, signal.SIGKILL
            return [Guarded(each, denied) if each.key.pid == first.pid else each for each in found], sees_all

    made, clock = actions(Partly(group.started))
    assert begun(made, due(step(grace_s=5.0), group.key(first), group.key(second))).result is Result.DONE
    assert advance(made, clock, 5.0) == ()
    assert second.wait(5) == -signal.SIGKILL
    (outcome,) = advance(made, clock, 6.0)
    assert (outcome.result, [each.signal for each in outcome.sent]) == (Result.FAILED, ["SIGTERM", "SIGKILL"])
    assert first.poll() is None


def test_memory_is_waited_for_from_the_end_of_a_grace_that_was_put_off(group: Group) -> None:
    """Points 20 and 24: while a policy file settled nothing was freed, and that time is none of release_timeout."""
    process = group.start(STUBBORN)
    made, clock = actions(group)
    begun(made, due(step(grace_s=5.0), group.key(process)))
    made.advance(at(39.0), lambda _: None, policy_unsettled=True)
    advance(made, clock, 40.0)
    assert process.wait(5) == -signal.SIGKILL
    advance(made, clock, 41.0)
    assert made.see(STILL_LISTED, (), at(42.0)) == ()
    (outcome,) = made.see(STILL_LISTED, (), at(71.0))
    assert "release_timeout" in outcome.reason


def test_a_stronger_step_ends_the_grace(group: Group) -> None:
    """Point 24: the grace of the weaker step is cut to the stronger one's."""
    process = group.start(STUBBORN)
    made, clock = actions(group)
    entry = due(step(grace_s=60.0), group.key(process))
    begun(made, entry)
    made.escalate(due(step(grace_s=0.0), group.key(process)), at(1.0))
    advance(made, clock, 1.0)
    assert process.wait(5) == -signal.SIGKILL


def test_a_stronger_step_wakes_nobody_who_waits_for_memory_alone(group: Group) -> None:
    """Point 24: with the processes gone nothing is left to escalate; a wake-up in the past would let the loop spin."""
    process = group.start(POLITE)
    made, clock = actions(group)
    entry, stronger = (due(step(grace_s=grace_s), group.key(process)) for grace_s in (60.0, 0.0))
    begun(made, entry)
    process.wait(5)
    advance(made, clock, 1.0)
    made.escalate(stronger, at(2.0))
    assert made.next_wake_s == float("inf")


def test_withdrawn_permission_stops_the_grace(group: Group) -> None:
    """Points 20 and 33: no SIGKILL once enforcement is no longer permitted: `interrupted`."""
    process = group.start(STUBBORN)
    record = MemoryRecord()
    made, _ = actions(group, record)
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


@pytest.mark.parametrize(
    ("policy_unsettled", "got"), [(False, "interrupted"), (True, None)], ids=["turned off", "held"]
)
def test_the_first_sigkill_after_the_grace_asks_too(group: Group, policy_unsettled: bool, got: str | None) -> None:
    """Points 22 and 33: what held SIGKILL up at the end of the grace makes it no less subject to the switches."""
    record = MemoryRecord()
    made, clock = actions(group, record)
    first = group.start(POLITE)
    group.sees_all = False  # a process of the container can't be read: it is never sure that all have ended
    begun(made, due(step(grace_s=5.0), group.key(first)))
    first.wait(5)
    for second in (1.5, 4.9, 5.0, 5.1):
        advance(made, clock, second)
    late = group.start(STUBBORN)  # that one can be read by now
    for second in (6.0, 6.5, 7.0):
        outcomes = made.advance(
            at(second), lambda _: None if policy_unsettled else "it was turned off", policy_unsettled=policy_unsettled
        )
        assert [each.result.value for each in outcomes] == ([got] if got and second == 6.0 else [])
    time.sleep(0.1)
    assert late.poll() is None
    assert "SIGKILL" not in [line[0] for line in record.lines]
    if policy_unsettled:
        advance(made, clock, 7.5)
        assert late.wait(5) == -signal.SIGKILL


def test_without_a_grace_period_nothing_comes_between_the_last_check_and_sigkill(group: Group) -> None:
    """Point 22: whoever is searched for is searched for after SIGKILL: a search can take long on a busy node."""
    record = MemoryRecord()

    class Searched(Group):
        """A container; every search for its processes is a line of the record."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            record.lines.append(("search",))
            return super().members(pod, containers)

    made, _ = actions(Searched(group.started), record)
    process = group.start(STUBBORN)
    entry = due(step(grace_s=0.0), group.key(process))
    made.intend(entry)
    made.begin(entry, 7, 30.0, lambda _: record.lines.append(("last check",)))
    assert process.wait(5) == -signal.SIGKILL
    after = [line[0] for line in record.lines][record.lines.index(("last check",)) :]
    assert after[:3] == ["last check", "SIGKILL", "search"]


def test_a_kill_begun_is_completed_after_the_grace(group: Group) -> None:
    """Point 22: once SIGKILL has gone out nothing of it is left half done."""
    process = group.start(STUBBORN)
    made, clock = actions(group)
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
        made, clock = actions(stuck)
        begun(made, due(step(grace_s=0.0), stuck.key(process)))
        assert made.advance(at(1.0), lambda _: "it was called off") == ()  # it is past that
        assert advance(made, clock, 29.0) == ()
        (outcome,) = advance(made, clock, 31.0)
        assert outcome.result is Result.FAILED
        assert "did not end" in outcome.reason
    finally:
        stuck.close()


def test_a_kill_that_may_not_have_reached_all_is_not_done(group: Group) -> None:
    """Point 23: where a process of the container could not be held or read, the end is `failed`, not `done`."""
    process = group.start(POLITE)
    made, clock = actions(group)
    group.sees_all = False
    begun(made, due(step(grace_s=0.0), group.key(process)))
    process.wait(5)
    assert advance(made, clock, 1.0) == ()
    (outcome,) = advance(made, clock, 31.0)
    assert outcome.result is Result.FAILED
    assert "not all its processes" in outcome.reason


def test_interrupting_ends_all(group: Group) -> None:
    """Point 26: when the daemon stops, actions in their grace are `interrupted`; the next waits for their memory."""
    process, record = group.start(STUBBORN), MemoryRecord()
    made, _ = actions(group, record)
    begun(made, due(step(grace_s=9.0), group.key(process)))
    (outcome,) = made.interrupt("stopped", at(1.0))
    assert (outcome.result, len(made), process.poll()) == (Result.INTERRUPTED, 0, None)
    assert record.lines[-1] == ("end", "interrupted")


def test_reaction_is_counted_without_the_time_that_the_policy_asks_for(group: Group) -> None:
    """The reaction time leaves `for` out and counts from the last reading that was not above: an upper bound."""
    process = group.start(POLITE)
    entry = replace(due(step(for_s=0.0), group.key(process)), not_above=at(0.0))
    assert reaction_s(entry, at(0.8)) == pytest.approx(0.8)
    assert reaction_s(replace(entry, not_above=None), at(0.8)) is None


@pytest.mark.parametrize(
    ("scope", "used", "ends"),
    [("process", Gi, True), ("process", Gi + 1, False), ("process", None, False), ("container", 0, False)],
)
def test_a_single_process_is_spared_sigkill_once_use_is_at_the_mark(
    group: Group, scope: str, used: int | None, *, ends: bool
) -> None:
    """Point 22: only scope `process` stops there, and only a use that is known as a whole says so."""
    process, record = group.start(STUBBORN), MemoryRecord()
    made, clock = actions(group, record)
    entry = due(step(scope=scope, grace_s=5.0), group.key(process))  # type: ignore[arg-type]
    begun(made, entry)
    found = replace(entry.assessment, used=used, used_at_least=used or 0)
    assert made.see(STILL_LISTED, (), at(0.5)) == ()  # a reading that does not show the pod at all
    assert made.see(STILL_LISTED, [found], at(1)) == ()
    advance(made, clock, 2.9)
    assert len(record.lines) == 2
    advance(made, clock, 3.0)
    assert record.lines[2:] == ([("end", "gone")] if ends else [])  # its memory is neither free nor waited for
    advance(made, clock, 5.0)
    assert (process.poll() if ends else process.wait(5)) == (None if ends else -signal.SIGKILL)


def test_a_single_process_that_gives_its_memory_back_and_then_ends_was_killed(group: Group) -> None:
    """Points 22 and 23: what ends gives its GPU memory back first; that it still ran then is not sparing it."""
    process, record = group.start(SLOW), MemoryRecord()
    made, clock = actions(group, record)
    entry = due(step(scope="process", grace_s=5.0), group.key(process))
    begun(made, entry)
    assert made.see(ALL_FREE, [replace(entry.assessment, used=0, used_at_least=0)], at(0.1)) == ()
    process.wait(5)
    advance(made, clock, 1.0)
    (outcome,) = made.see(ALL_FREE, (), at(2))
    assert (outcome.result, [each.signal for each in outcome.sent]) == (Result.DONE, ["SIGTERM"])


def test_a_single_process_that_ended_on_sigterm_was_killed(group: Group) -> None:
    """Points 22 and 23: use is at the threshold since the process has ended, so its kill is done, not called off."""
    process, record = group.start(SLOW), MemoryRecord()
    made, clock = actions(group, record)
    entry = due(step(scope="process", grace_s=5.0), group.key(process))
    begun(made, entry)
    process.wait(5)
    found = replace(entry.assessment, used=0, used_at_least=0)
    assert made.see(STILL_LISTED, [found], at(1)) == ()
    advance(made, clock, 1.5)
    (outcome,) = made.see(ALL_FREE, [found], at(2))
    assert (outcome.result, outcome.release_s) == (Result.DONE, 2.0)
    assert record.lines[2:] == [("end", "done"), ("released", "2.0")]


def test_who_joined_too_late_for_sigterm_is_told_apart(group: Group) -> None:
    """Point 23: what is reported is what was sent: here SIGTERM and SIGKILL went to two processes."""
    asked = group.start(SLOW)
    made, clock = actions(group)
    begun(made, due(step(grace_s=5.0), group.key(asked)))
    asked.wait(5)
    late = group.start(POLITE)
    advance(made, clock, 5.0)
    late.wait(5)
    advance(made, clock, 6.0)
    (outcome,) = made.see(ALL_FREE, (), at(7))
    assert [each.signal for each in outcome.sent] == ["SIGTERM", "SIGKILL"]
    assert sent_signals(outcome.sent) == "SIGTERM, and 1 process SIGKILL after 5s"


class Fork:
    """A process that any signal ends, and that is only made up."""

    def __init__(self, pid: int) -> None:
        self.key = ProcessKey(pid=pid, start_ticks=1)
        self._lives = True

    def alive(self) -> bool:
        return self._lives

    def signal(self, number: int) -> None:
        self._lives = self._lives and number == 0

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(("forks", "end"), [(MAX_ROUNDS, "done"), (MAX_ROUNDS + 1, "failed")])
def test_so_many_rounds_of_forks_are_followed(forks: int, end: str) -> None:
    """Point 23: up to ten rounds are searched for and killed; what forks on is `failed`, and no endless loop."""

    class Bomb(Group):
        """A container in which each search finds one more process, `forks` times."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            self.searches += 1
            found = min(max(self.searches - 2, 0), forks)  # those of the intention and of the first signal find none
            return [Fork(4_000_000 + number) for number in range(found + 1)], True

    record = MemoryRecord()
    made, _ = actions(Bomb(), record)
    entry = due(step(grace_s=0.0), Fork(4_000_000).key)
    begun(made, entry)
    for second in range(1, MAX_ROUNDS + 2):
        made.advance(at(second), lambda _: None)
    assert record.lines[-1] == ("end", end)
    assert [line[0] for line in record.lines].count("SIGKILL") == 1 + MAX_ROUNDS
