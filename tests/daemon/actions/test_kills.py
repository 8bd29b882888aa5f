"""Kills of real processes, step by step."""

import signal
import subprocess
import time
from dataclasses import dataclass, field, replace

import pytest

from tests.daemon.eviction_rig import World
from tests.daemon.rig import (
    POLITE,
    SLOW,
    STUBBORN,
    Group,
    MemoryRecord,
    advance,
    due,
    no_objection,
    objecting,
    shown,
)
from tests.worlds import (
    Gi,
    at,
    claimant,
    container,
    container_id,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.model import Pod, ProcessKey
from watchdog.core.plan import Moment, Objection, Outcome, PlanEntry, Result
from watchdog.core.policy import Step
from watchdog.daemon.actions.action import reaction_s
from watchdog.daemon.actions.clearance import ALWAYS_CLEAR
from watchdog.daemon.actions.kill import MAX_ROUNDS
from watchdog.daemon.actions.kills import Kills
from watchdog.node.process import Handle


@dataclass
class Scene:
    """The kills of a group of processes, with a record and a clock that the test sets."""

    group: Group = field(default_factory=Group)
    record: MemoryRecord = field(default_factory=MemoryRecord)
    second: float = 0.0

    def __post_init__(self) -> None:
        self.kills = Kills(self.group, self.record, lambda: at(self.second), ALWAYS_CLEAR)

    def begin(
        self,
        step_: Step,
        *processes: subprocess.Popen[bytes],
        objection: Objection = no_objection,
    ) -> PlanEntry:
        """Begin a kill of these processes; `outcome` is what came of it so far."""
        entry = due(step_, *map(self.group.key, processes))
        intended = self.kills.intend(entry, Attribution())
        assert intended is not None
        begun = intended if isinstance(intended, Outcome) else None
        if not isinstance(intended, Outcome):
            begun = self.kills.start(entry, intended.result(), 30.0, objection)
        assert begun is not None
        self.outcome: Outcome = begun
        return entry

    def advance(self, *seconds: float) -> tuple[Outcome, ...]:
        """Go on at these seconds; signals need a moment of real time to arrive."""
        outcomes: tuple[Outcome, ...] = ()
        for self.second in seconds:
            outcomes = advance(self.kills, at(self.second))
            time.sleep(0.05)
        return outcomes

    def see(self, second: float, *found: Assessment, free: bool = True) -> tuple[Outcome, ...]:
        """A cycle in which the memory of the victims is free, or is listed still."""
        self.kills.on_reading(shown(at(second), lambda _: not free, found))
        return self.kills.pop_progress().ended

    def sent(self) -> list[str]:
        """What was recorded, by name."""
        return [line[0] for line in self.record.lines]


@pytest.fixture
def scene(group: Group) -> Scene:
    """The kills of a container of real processes."""
    return Scene(group)


def signals(outcome: Outcome) -> list[str]:
    """The signals of an outcome, in order."""
    return [each.signal for each in outcome.sent]


class Unreachable:
    """A process that no signal reaches, as in a call of the driver; some are denied, as an AppArmor profile does it."""

    def __init__(self, handle: Handle, *denied: int) -> None:
        self.key = handle.key
        self._handle = handle
        self._denied = denied

    def alive(self) -> bool:
        return self._handle.alive()

    def is_still_accepted(self) -> bool:
        return self._handle.is_still_accepted()

    def signal(self, number: int) -> None:
        if number in self._denied:
            raise PermissionError(13, "Permission denied")

    def close(self) -> None:
        self._handle.close()


def test_term_grace_kill(scene: Scene) -> None:
    """Point 23: SIGTERM to all, grace, SIGKILL to what is left; the intention comes first."""
    polite, stubborn = scene.group.start(POLITE), scene.group.start(STUBBORN)
    scene.begin(step(grace_s=5.0), polite, stubborn)
    both = tuple(str(pid) for pid in sorted((polite.pid, stubborn.pid)))
    assert (scene.outcome.result, scene.outcome.number, len(scene.outcome.signalled)) == (Result.DONE, 7, 2)
    assert polite.wait(5) == -signal.SIGTERM
    scene.advance(4.9)
    assert stubborn.poll() is None
    scene.advance(5.0)
    assert stubborn.wait(5) == -signal.SIGKILL
    scene.advance(5.1, 5.2, 5.3)
    assert scene.record.lines == [
        ("intend", *both),
        ("SIGTERM", *both),
        ("SIGKILL", str(stubborn.pid)),
        ("end", "done"),
    ]


def test_the_memory_has_to_come_back(scene: Scene) -> None:
    """Point 24: the action is in progress until the driver lists no victim any more, or release_timeout is over."""
    for free_at, expected in ((12.0, 12.0), (None, None)):
        process = scene.group.start(POLITE)
        scene.second = 0.0
        scene.begin(step(grace_s=5.0), process)
        process.wait(5)
        scene.advance(1.0)
        assert scene.see(2.0, free=False) == ()
        waits = scene.kills.needs_readings
        (outcome,) = scene.see(free_at or 35.0, free=bool(free_at))
        assert (outcome.result, outcome.release_s) == (Result.DONE, expected)
        assert (waits, scene.kills.needs_readings) == (True, False)
        assert "release_timeout" in outcome.reason or free_at


def test_what_is_on_disk_waits_for_the_last_word(scene: Scene) -> None:
    """Point 22: nothing is signalled if the last look, or that moment, has an objection: it is withdrawn."""
    process = scene.group.start(POLITE)
    entry = scene.begin(step(), process, objection=objecting("the pod had become protected"))
    assert (scene.outcome.result, scene.outcome.number) == (Result.WITHDRAWN, 7)
    assert scene.record.lines[1:] == [("withdraw", "the pod had become protected")]
    process.kill()
    process.wait()
    again = scene.kills.start(entry, 7, 30.0, no_objection)
    assert again is not None
    assert again.result is Result.WITHDRAWN
    assert (process.returncode, scene.kills.needs_readings) == (-signal.SIGKILL, False)


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_kill_that_found_nothing_to_signal_is_withdrawn(scene: Scene, grace_s: float) -> None:
    """Points 22 and 23: what ends between signal 0 and the first signal was not killed; what starts then is spared."""
    process = scene.group.start(POLITE)

    def end(_: PlanEntry, moment: Moment) -> None:
        process.kill()
        process.wait(5)
        scene.group.start(POLITE)

    scene.begin(step(grace_s=grace_s), process, objection=end)
    outcome = scene.outcome
    assert (outcome.result, outcome.sent, outcome.number) == (Result.WITHDRAWN, (), 7)
    assert not scene.kills.needs_readings
    assert scene.sent() == ["intend", "withdraw"]
    assert scene.advance(9.0) == ()
    assert scene.group.started[1].poll() is None


def test_a_process_id_alone_is_no_target(scene: Scene) -> None:
    """Points 11 and 22: under the PID of a process that has ended no other is signalled, and nothing is intended."""
    process = scene.group.start(POLITE)
    key = scene.group.key(process)
    for scope, target in (("process", replace(key, start_ticks=key.start_ticks - 1)), ("container", key)):
        if scope == "container":
            process.kill()
            process.wait()
        intended = scene.kills.intend(due(step(scope=scope), target), Attribution())  # type: ignore[arg-type]
        assert isinstance(intended, Outcome)
        assert (intended.result, scene.record.lines) == (Result.GONE, [])
        assert process.poll() == (None if scope == "process" else -signal.SIGKILL)


def test_a_single_process_is_done_once_it_has_ended(scene: Scene) -> None:
    """Points 23 and 24: after its SIGKILL nothing else is searched for, and only its memory is waited for."""
    victim = scene.group.start(STUBBORN)
    scene.begin(step(scope="process", grace_s=0), victim)
    assert victim.wait(5) == -signal.SIGKILL
    scene.advance(0.5)
    (outcome,) = scene.see(1)
    assert (outcome.result, outcome.release_s) == (Result.DONE, 1.0)
    assert scene.record.lines[2:] == [("end", "done"), ("released", "1.0")]


@pytest.mark.parametrize(
    ("scope", "names"), [("process", ["main"]), ("container", ["main"]), ("pod", ["main", "side"])]
)
def test_the_scope_says_whose_processes_are_searched_for(scope: str, names: list[str]) -> None:
    """Point 21: those of the victim, or with scope `pod` those of all containers of the pod."""
    asked: list[frozenset[str]] = []

    class Empty(Group):
        """A container that notes which IDs are asked for."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            asked.append(containers)
            return [], True

    both = pod("a", container("main", "1Gi"), container("side", "1Gi"))
    under = policy(rule(step(scope=scope)))  # type: ignore[arg-type]
    (entry,) = planned(snapshot([use(5, 4 * Gi)], [process(5, "a/main")]), [both], under).taken
    Scene(Empty()).kills.intend(entry, Attribution())
    assert asked == [frozenset(container_id(f"a/{name}") for name in names)]


@dataclass
class SlowGroup(Group):
    """A container that takes three seconds to search."""

    second: float = 0.0

    def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
        self.second += 3.0
        return super().members(pod, containers)


@pytest.fixture
def slow_group(group: Group) -> SlowGroup:
    """The processes of `group`, slow to find."""
    return SlowGroup(group.started)


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_process_that_has_given_its_memory_back_is_spared(group: Group, *, is_declared: bool) -> None:
    """Point 22: SIGTERM was enough once the pod uses nothing, whether it declares anything or not."""
    main = group.start(STUBBORN)
    tenant = pod("a", container(declared="1Gi" if is_declared else None))
    under = policy(rule(step(scope="process", grace_s=10.0), default=Gi))
    world = World(policy=under, pods=(tenant,), group=group)
    world.used, world.processes = {main.pid: 4 * Gi}, (process(main.pid, "a/main", key=group.key(main)),)
    world.look(0)
    world.used = {}
    for second in (1, 2, 4, 11):
        world.look(second)
        world.wake(second)
    assert (world.results(), main.poll()) == (["gone"], None)


@pytest.mark.parametrize("is_enough", [True, False])
def test_a_process_is_spared_by_what_all_on_its_claim_use(group: Group, *, is_enough: bool) -> None:
    """Points 22 and 42: alone each was within the claim all the time; together they are once the other one gives back.

    Until then the process that uses the most gets SIGKILL, as any other that is over its limit.
    """
    main, beside = group.start(STUBBORN), group.start(STUBBORN)
    tenants = claimant("a", "ns/pod-b"), claimant("b", "ns/pod-a")
    under = policy(rule(step(scope="process", grace_s=10.0)), schemes=("dra",))
    world = World(policy=under, pods=tenants, group=group)
    world.used = {main.pid: 3 * Gi, beside.pid: 2 * Gi}
    world.processes = tuple(process(p.pid, f"{uid}/main", key=group.key(p)) for p, uid in ((main, "a"), (beside, "b")))
    world.look(0)
    if is_enough:
        world.used = {main.pid: 3 * Gi, beside.pid: Gi}
    for second in (1, 2, 4, 11):
        world.look(second)
        world.wake(second)
    assert is_enough or main.wait(5) == -signal.SIGKILL
    assert world.results() == (["gone"] if is_enough else [])
    assert beside.poll() is None


def test_many_processes_do_not_age_the_last_look(slow_group: SlowGroup) -> None:
    """Point 22: those that took long to find are held since the intention; a tenant that starts many evades nothing."""
    main, ended = slow_group.start(), slow_group.start()
    kills = Kills(slow_group, MemoryRecord(), lambda: at(slow_group.second), ALWAYS_CLEAR)
    entry = due(step(), slow_group.key(main), slow_group.key(ended))
    kills.intend(entry, Attribution())
    looked_s = slow_group.second
    ended.kill()
    ended.wait(5)
    begun = kills.start(entry, 7, 30.0, lambda *_: "too old" if slow_group.second > looked_s + 2.0 else None)
    assert begun is not None
    assert (begun.result, begun.signalled) == (Result.DONE, (entry.targets[0],))
    assert main.wait(5) == -signal.SIGTERM
    kills.interrupt(at(slow_group.second))


def test_the_largest_process_may_be_another_one_by_the_last_look(slow_group: SlowGroup) -> None:
    """Point 22: with scope `process` all of the container are held, so that two that take turns evade nothing."""
    largest, other = slow_group.start(), slow_group.start()
    kills = Kills(slow_group, MemoryRecord(), lambda: at(slow_group.second), ALWAYS_CLEAR)
    entry = due(step(scope="process"), slow_group.key(largest))
    kills.intend(entry, Attribution())
    begun = kills.start(replace(entry, targets=(slow_group.key(other),)), 7, 30.0, no_objection)
    assert begun is not None
    assert (begun.result, begun.signalled, slow_group.searches) == (Result.DONE, (slow_group.key(other),), 1)
    assert other.wait(5) == -signal.SIGTERM
    kills.interrupt(at(slow_group.second))


def test_a_process_that_started_since_is_found_again(slow_group: SlowGroup) -> None:
    """Point 22: the largest process by the last look may be none of those that are held."""
    held = slow_group.start()
    kills = Kills(slow_group, MemoryRecord(), lambda: at(slow_group.second), ALWAYS_CLEAR)
    entry = due(step(scope="process"), slow_group.key(held))
    kills.intend(entry, Attribution())
    later = slow_group.start()
    begun = kills.start(replace(entry, targets=(slow_group.key(later),)), 7, 30.0, no_objection)
    assert begun is not None
    assert (begun.result, begun.signalled) == (Result.DONE, (slow_group.key(later),))
    kills.interrupt(at(slow_group.second))


def test_what_could_not_be_read_has_not_ended(scene: Scene) -> None:
    """Point 23: a search that finds nobody, and may have missed some, is a failure, after which the kill backs off."""
    process_ = scene.group.start()
    entry = due(step(), scene.group.key(process_))
    process_.kill()
    process_.wait(5)
    for sees_all, result in ((True, Result.GONE), (False, Result.FAILED)):
        scene.group.sees_all = sees_all
        intended = scene.kills.intend(entry, Attribution())
        assert isinstance(intended, Outcome)
        begun = scene.kills.start(entry, 7, 30.0, no_objection)
        assert begun is not None
        assert (intended.result, begun.reason == intended.reason) == (result, True)


def test_what_is_held_for_a_kill_that_does_not_begin_is_released(slow_group: SlowGroup) -> None:
    """Nothing stays held if the last look chooses another victim, or once the cycle ends."""
    closed: list[ProcessKey] = []

    class Noted(Unreachable):
        """A process that notes its release."""

        def close(self) -> None:
            closed.append(self.key)
            super().close()

    slow_group.held_as = Noted
    key = slow_group.key(slow_group.start())
    kills = Kills(slow_group, MemoryRecord(), lambda: at(slow_group.second), ALWAYS_CLEAR)
    entry = due(step(), key)
    kills.intend(entry, Attribution())
    kills.start(replace(entry, victim="side"), 7, 30.0, no_objection)
    assert (slow_group.searches, closed) == (2, [key])
    kills.interrupt(at(slow_group.second))
    kills.intend(entry, Attribution())
    closed.clear()
    kills.release()
    assert closed == [key]


def test_what_is_started_on_sigterm_has_the_rest_of_the_grace_period(scene: Scene) -> None:
    """Point 23: a saver that outlives the main process gets SIGTERM, and SIGKILL only once the time is up."""
    main = scene.group.start(SLOW)
    scene.begin(step(grace_s=5.0), main)
    saver = scene.group.start(STUBBORN)
    assert main.wait(5) == 0
    scene.advance(0.4, 4.9)
    assert saver.poll() is None
    scene.advance(5.0)
    assert saver.wait(5) == -signal.SIGKILL
    scene.advance(5.1)
    (outcome,) = scene.see(6.0)
    assert scene.sent() == ["intend", "SIGTERM", "SIGTERM", "SIGKILL", "end", "released"]
    assert [(each.signal, len(each.keys), each.after_s) for each in outcome.sent] == [
        ("SIGTERM", 2, 0.0),
        ("SIGKILL", 1, 5.0),
    ]


def test_the_grace_period_ends_once_all_are_gone(scene: Scene) -> None:
    """Point 23: the rest of a grace period is not waited for in which the last process, a joined one, has ended."""
    main = scene.group.start(SLOW)
    scene.begin(step(grace_s=60.0), main)
    saver = scene.group.start(POLITE)
    assert main.wait(5) == 0
    scene.advance(0.4)
    assert saver.wait(5) == -signal.SIGTERM
    scene.advance(1.5)
    (outcome,) = scene.see(1.6)
    assert scene.sent() == ["intend", "SIGTERM", "SIGTERM", "end", "released"]
    assert signals(outcome) == ["SIGTERM"]


def test_who_joins_is_searched_for_at_most_once_a_second(scene: Scene) -> None:
    """Point 23: a search reads the whole node, so one a second and one row of the record each is the most."""
    scene.begin(step(grace_s=60.0), scene.group.start(STUBBORN))
    before = scene.group.searches
    for tenth in range(1, 50):
        if tenth % 7 == 0:
            scene.group.start(STUBBORN)
        scene.second = tenth / 10
        advance(scene.kills, at(scene.second))
    assert scene.group.searches - before == 4
    assert scene.sent().count("SIGTERM") <= 1 + 4


def test_a_short_grace_period_has_a_search_in_it(scene: Scene) -> None:
    """Point 23: who joins within a grace of one second gets SIGTERM in it, not only SIGKILL at its end."""
    scene.begin(step(grace_s=1.0), scene.group.start(STUBBORN))
    joined = scene.group.start(POLITE)
    scene.advance(0.5)
    assert joined.wait(5) == -signal.SIGTERM


def test_a_fork_of_a_single_process_is_no_target(scene: Scene) -> None:
    """Point 23: with scope `process` what the target starts on SIGTERM is left alone, as all of the container is."""
    target = scene.group.start(SLOW)
    scene.begin(step(scope="process", grace_s=9.0), target)
    fork = scene.group.start(POLITE)
    assert target.wait(5) == 0
    scene.advance(1.5, 9.5)
    assert fork.poll() is None
    (outcome,) = scene.see(9.6)
    assert outcome.result is Result.DONE


@pytest.mark.parametrize(
    ("denied", "at_s", "sent"),
    [((signal.SIGTERM, signal.SIGKILL), 0.0, []), ((signal.SIGKILL,), 5.0, ["SIGTERM"])],
    ids=["all", "SIGKILL"],
)
def test_a_signal_that_is_denied_is_a_failure(
    scene: Scene, denied: tuple[int, ...], at_s: float, sent: list[str]
) -> None:
    """Point 23: where signal 0 passes and the real one does not it ends as `failed`, with what was sent."""
    scene.group.held_as = lambda handle: Unreachable(handle, *denied)
    process = scene.group.start(POLITE)
    scene.begin(step(grace_s=5.0), process)
    outcome = scene.outcome
    if at_s:
        assert outcome.result is Result.DONE
        (outcome,) = scene.advance(at_s)
    assert (outcome.result, signals(outcome)) == (Result.FAILED, sent)
    assert "denied: Permission denied" in outcome.reason
    assert (scene.kills.needs_readings, process.poll(), scene.record.lines[-1]) == (False, None, ("end", "failed"))


def test_one_that_a_signal_is_denied_to_saves_no_other(scene: Scene) -> None:
    """Point 23: where a signal has gone out the kill is completed with whom it reaches, and ends as `failed`."""
    first, second = scene.group.start(POLITE), scene.group.start(STUBBORN)
    scene.group.held_as = lambda handle: (
        Unreachable(handle, signal.SIGTERM, signal.SIGKILL) if handle.key.pid == first.pid else handle
    )
    scene.begin(step(grace_s=5.0), first, second)
    assert scene.outcome.result is Result.DONE
    assert scene.advance(5.0) == ()
    assert second.wait(5) == -signal.SIGKILL
    (outcome,) = scene.advance(6.0)
    assert (outcome.result, signals(outcome)) == (Result.FAILED, ["SIGTERM", "SIGKILL"])
    assert first.poll() is None


def test_memory_is_waited_for_from_the_end_of_a_grace_that_was_put_off(scene: Scene) -> None:
    """Points 20 and 24: while a policy file settled nothing was freed, and that time is none of release_timeout."""
    process = scene.group.start(STUBBORN)
    scene.begin(step(grace_s=5.0), process)
    advance(scene.kills, at(39.0), policy_unsettled=True)
    scene.advance(40.0)
    assert process.wait(5) == -signal.SIGKILL
    scene.advance(41.0)
    assert scene.see(42.0, free=False) == ()
    (outcome,) = scene.see(71.0, free=False)
    assert "release_timeout" in outcome.reason


def test_a_stronger_step_ends_the_grace(scene: Scene) -> None:
    """Point 24: the grace of the weaker step is cut to the stronger one's."""
    process = scene.group.start(STUBBORN)
    scene.begin(step(grace_s=60.0), process)
    scene.kills.escalate(due(step(grace_s=0.0), scene.group.key(process)), at(1.0))
    scene.advance(1.0)
    assert process.wait(5) == -signal.SIGKILL


def test_a_stronger_step_does_not_wake_a_kill_that_waits_for_memory_alone(scene: Scene) -> None:
    """Point 24: with the processes gone nothing is left to escalate; a wake-up in the past would let the loop spin."""
    process = scene.group.start(POLITE)
    stronger = due(step(grace_s=0.0), scene.group.key(process))
    scene.begin(step(grace_s=60.0), process)
    process.wait(5)
    scene.advance(1.0)
    scene.kills.escalate(stronger, at(2.0))
    assert scene.kills.next_wake_s == float("inf")


@pytest.mark.parametrize(
    ("policy_unsettled", "got"), [(False, "interrupted"), (True, None)], ids=["turned off", "held"]
)
def test_the_first_sigkill_after_the_grace_asks_too(scene: Scene, policy_unsettled: bool, got: str | None) -> None:
    """Points 22 and 33: what held SIGKILL up at the end of the grace makes it no less subject to the switches."""
    first = scene.group.start(POLITE)
    scene.group.sees_all = False  # a process of the container can't be read: it is never sure that all have ended
    scene.begin(step(grace_s=5.0), first)
    first.wait(5)
    scene.advance(1.5, 4.9, 5.0, 5.1)
    late = scene.group.start(STUBBORN)  # that one can be read by now
    for second in (6.0, 6.5, 7.0):
        outcomes = advance(
            scene.kills,
            at(second),
            objecting(None if policy_unsettled else "it was turned off"),
            policy_unsettled=policy_unsettled,
        )
        assert [each.result.value for each in outcomes] == ([got] if got and second == 6.0 else [])
    time.sleep(0.1)
    assert late.poll() is None
    assert "SIGKILL" not in scene.sent()
    if policy_unsettled:
        scene.advance(7.5)
        assert late.wait(5) == -signal.SIGKILL


def test_without_a_grace_period_nothing_comes_between_the_last_check_and_sigkill(scene: Scene) -> None:
    """Point 22: the search for others comes after SIGKILL: it can take long on a busy node."""
    lines = scene.record.lines

    class Searched(Group):
        """A container; every search for its processes is a line of the record."""

        def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
            lines.append(("search",))
            return super().members(pod, containers)

    process = scene.group.start(STUBBORN)
    searched = Scene(Searched(scene.group.started), scene.record)
    searched.begin(step(grace_s=0.0), process, objection=lambda *_: lines.append(("last check",)))
    assert process.wait(5) == -signal.SIGKILL
    after = searched.sent()[lines.index(("last check",)) :]
    assert after[:3] == ["last check", "SIGKILL", "search"]


def test_a_victim_that_does_not_die_fails_in_time(scene: Scene) -> None:
    """Law 10 and point 23: what SIGKILL does not end is `failed` after release_timeout, whatever was called off."""
    scene.group.held_as = Unreachable
    scene.begin(step(grace_s=0.0), scene.group.start(POLITE))
    assert advance(scene.kills, at(1.0), objecting("it was called off")) == ()  # it is past that
    assert scene.advance(29.0) == ()
    (outcome,) = scene.advance(31.0)
    assert outcome.result is Result.FAILED
    assert "did not end" in outcome.reason


@pytest.mark.parametrize("ends", [True, False])
def test_a_sigkill_that_comes_late_has_release_timeout_to_work(scene: Scene, *, ends: bool) -> None:
    """Points 23 and 24: after a pause of the daemon or the node, release_timeout counts from SIGKILL, and no longer."""
    scene.group.held_as = Unreachable
    process = scene.group.start(STUBBORN)
    scene.begin(step(grace_s=5.0), process)
    assert scene.advance(0.1, 60.0, 89.0) == ()
    if ends:
        process.kill()
        process.wait(5)
    assert len(scene.advance(90.5)) == (not ends)
    assert scene.sent()[1:] == ["SIGTERM", "SIGKILL", "end"]
    assert len(scene.see(91.0, free=False)) == ends  # its memory is waited for no longer than that either


def test_a_kill_that_may_not_have_reached_all_is_not_done(scene: Scene) -> None:
    """Point 23: where a process of the container could not be held or read, the end is `failed`, not `done`."""
    process = scene.group.start(POLITE)
    scene.group.sees_all = False
    scene.begin(step(grace_s=0.0), process)
    process.wait(5)
    assert scene.advance(1.0) == ()
    (outcome,) = scene.advance(31.0)
    assert outcome.result is Result.FAILED
    assert "not all its processes" in outcome.reason


def test_what_is_found_last_has_time_to_end(scene: Scene) -> None:
    """Point 23: what gets SIGKILL only when release_timeout is over has not failed to end by then."""
    first = scene.group.start(POLITE)
    scene.group.sees_all = False
    scene.begin(step(grace_s=0.0), first)
    first.wait(5)
    assert scene.advance(1.0) == ()
    late, scene.group.sees_all = scene.group.start(STUBBORN), True
    assert scene.advance(31.0) == ()
    assert late.wait(5) == -signal.SIGKILL
    scene.advance(31.5)
    assert scene.record.lines[-1] == ("end", "done")


def test_reaction_is_counted_without_the_time_that_the_policy_asks_for(scene: Scene) -> None:
    """Promise 3: the reaction time, without `for`, counts from the last reading not above: an upper bound."""
    entry = replace(due(step(for_s=0.0), scene.group.key(scene.group.start(POLITE))), not_above=at(0.0))
    assert reaction_s(entry, at(0.8)) == pytest.approx(0.8)
    assert reaction_s(replace(entry, not_above=None), at(0.8)) is None


@pytest.mark.parametrize(
    ("scope", "used", "ends"),
    [("process", Gi, True), ("process", Gi + 1, False), ("process", None, False), ("container", 0, False)],
)
def test_a_single_process_is_spared_sigkill_once_use_is_at_the_threshold(
    scene: Scene, scope: str, used: int | None, *, ends: bool
) -> None:
    """Point 22: only scope `process` stops there, and only a use that is known as a whole says so."""
    process = scene.group.start(STUBBORN)
    entry = scene.begin(step(scope=scope, grace_s=5.0), process)  # type: ignore[arg-type]
    found = replace(entry.assessment, used=used, used_at_least=used or 0)
    assert scene.see(0.5, free=False) == ()  # a reading that does not show the pod at all
    assert scene.see(1, found, free=False) == ()
    scene.advance(2.9)
    assert len(scene.record.lines) == 2
    scene.advance(3.0)
    assert scene.record.lines[2:] == ([("end", "gone")] if ends else [])  # its memory is neither free nor waited for
    scene.advance(5.0)
    assert (process.poll() if ends else process.wait(5)) == (None if ends else -signal.SIGKILL)


@pytest.mark.parametrize("seen_s", [0.1, 1.0], ids=["before it ended", "after it ended"])
def test_a_single_process_that_ended_on_sigterm_was_killed(scene: Scene, seen_s: float) -> None:
    """Points 22 and 23: what ends gives its GPU memory back first: its kill is done, not called off as within."""
    process = scene.group.start(SLOW)
    entry = scene.begin(step(scope="process", grace_s=5.0), process)
    found = replace(entry.assessment, used=0, used_at_least=0)
    if seen_s == 1.0:
        process.wait(5)
    assert scene.see(seen_s, found, free=seen_s < 1) == ()
    process.wait(5)
    scene.advance(1.5)
    (outcome,) = scene.see(2, found)
    assert (outcome.result, outcome.release_s, signals(outcome)) == (Result.DONE, 2.0, ["SIGTERM"])
    assert scene.record.lines[2:] == [("end", "done"), ("released", "2.0")]


class Fork:
    """A process that any signal ends, and that is only made up."""

    def __init__(self, pid: int) -> None:
        self.key = ProcessKey(pid=pid, start_ticks=1)
        self._lives = True

    def alive(self) -> bool:
        return self._lives

    def is_still_accepted(self) -> bool:
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

    scene = Scene(Bomb())
    entry = due(step(grace_s=0.0), Fork(4_000_000).key)
    assert not isinstance(scene.kills.intend(entry, Attribution()), Outcome)
    scene.kills.start(entry, 7, 30.0, no_objection)
    for second in range(1, MAX_ROUNDS + 2):
        advance(scene.kills, at(second))
    assert scene.record.lines[-1] == ("end", end)
    assert scene.sent().count("SIGKILL") == 1 + MAX_ROUNDS
