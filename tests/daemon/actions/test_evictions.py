"""Evictions step by step: the test runs each cycle, and gives the API server's answers."""

from dataclasses import replace

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World, begun, planned
from tests.worlds import Gi, at, container, pod, policy, process, rule, step
from watchdog.core.brakes import Brake
from watchdog.core.eviction import EvictionAnswer
from watchdog.core.plan import Result
from watchdog.core.policy import Do


@pytest.mark.parametrize(("grace_s", "given"), [(0.0, 1), (0.3, 1), (10.0, 10), (10.001, 11)])
def test_the_intention_comes_first_and_the_try_has_the_uid_and_the_grace(grace_s: float, given: int) -> None:
    """Points 27 and 31: the journal, then one try, by UID, counted once. A grace of 0 would be a forced deletion."""
    world = begun(World(policy=policy(rule(replace(EVICT_AT_ONCE, grace_s=grace_s)))))
    (attempt,) = world.tries
    assert world.record.lines == [("intend", "5")]
    assert (attempt.namespace, attempt.name, attempt.uid) == ("ns", "pod-a", "a")
    assert (attempt.number, attempt.grace_s, attempt.is_unsure) == (1, given, False)
    assert len(world.cycle.ledger.brakes.begun[()]) == 1
    assert (world.began, world.ended) == ([], [])


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("declared", [None, "1Gi"])
def test_a_pod_that_uses_nothing_any_more_is_not_evicted(declared: str | None, *, is_finished: bool) -> None:
    """Point 27: no use is a use of 0, also of a pod that declares nothing, or has finished since."""
    tenant = pod("a", container(declared=declared))
    world = begun(World(policy=policy(rule(EVICT_AT_ONCE, default=Gi)), pods=(tenant,)))
    world.answer(EvictionAnswer.BLOCKED, "budget", 5.0)
    world.used, world.pods = {}, (replace(tenant, is_finished=is_finished),)
    world.look(1)
    assert world.results() == ["blocked", "gone"]


def test_a_kill_counts_anew_after_a_pod_has_used_nothing() -> None:
    """Point 15: a reading without use ends a stretch also while an eviction of the pod is being tried."""
    ladder = policy(rule(replace(EVICT_AT_ONCE, for_s=2.0), step("100%", 20, "kill"), default=Gi))
    world = World(policy=ladder, pods=(pod("a"),))
    began = []
    for second in range(40):
        world.used = {} if 10 <= second < 15 else {5: 4 * Gi}
        finish = world.look(second)
        if second == 2:
            world.answer(EvictionAnswer.BLOCKED, "budget", 500.0)
        began += [second for entry in finish.plan.entries if entry.do is Do.KILL and entry.due_in_s <= 0]
    assert began[0] == 15 + 20


def test_without_the_journal_nothing_is_tried() -> None:
    """Point 31: while the journal can't be written nothing is evicted, and that is reported."""
    world = World()
    world.record.broken = True
    finish = world.look(0)
    assert world.tries == []
    assert planned(finish).withheld_by is Brake.JOURNAL
    assert world.cycle.ledger.brakes.begun == {}


def test_without_an_api_it_fails_at_once() -> None:
    """With `--pods` there is no API: failed, nothing intended, no last look, and the step waits before it repeats."""
    world = World(api=None)
    opened = world.open(0)
    assert opened.only == frozenset()
    world.close(opened, answers=False)
    assert (world.results(), world.reason(), world.record.lines) == (["failed"], "no API", [])
    world.look(1)
    assert world.results() == ["failed"]


def test_observing_evicts_nobody() -> None:
    """In observe mode it ends as observed, and the API is not asked."""
    world = World()
    world.look(0, enforcing=False)
    assert (world.results(), world.tries, world.record.lines) == (["observed"], [], [])


@pytest.mark.parametrize(("enforcing", "result"), [(True, "done"), (False, "observed")])
def test_a_warning_is_given_in_the_cycle_that_plans_it(*, enforcing: bool, result: str) -> None:
    """Point 18: it needs neither the disk nor a last look, and maintenance does not hold it back."""
    for maintenance in (False, True):
        world = World(policy=policy(rule(step("100%", 0, "warn"))))
        world.close(world.open(0, enforcing=enforcing, maintenance=maintenance), answers=False)
        assert (world.results(), world.record.lines) == ([result], [])


def test_no_attempt_without_a_last_look() -> None:
    """Law 3: an eviction too is looked at twice; where the driver does not answer the second time nothing is done."""
    world = World()
    opened = world.open(0)
    assert opened.only == {"GPU-0"}
    world.close(opened, answers=False)
    assert (world.tries, world.results()) == ([], ["withdrawn"])
    assert world.look(9.9).plan.taken == ()  # it backs off like a failure
    opened = world.open(10)
    world.seen.again = replace(world.seen.now, uses=())
    world.close(opened)
    assert (world.tries, world.results()) == ([], ["withdrawn", "withdrawn"])
    assert [line[0] for line in world.record.lines] == ["intend", "withdraw"] * 2
    assert world.reason() == "its use was at or below the threshold again"


def test_accepted_then_released() -> None:
    """After 201 it is in progress like a kill, until the driver lists none of the pod's processes any more."""
    world = begun(World())
    world.second = 2.0
    world.answer(EvictionAnswer.ACCEPTED)
    assert world.record.lines[1:] == [("end", "done")]
    under_way = world.state.under_way
    assert under_way is not None
    assert (under_way.whole_pod, under_way.until_s) == (True, at(2 + 10 + 30).boottime_s)
    world.look(3)
    (outcome,) = world.began
    assert (outcome.result, outcome.number, outcome.release_s) == (Result.DONE, 7, None)
    assert world.ended == []
    world.used = {}
    world.look(8.5)
    (outcome,) = world.ended
    assert (outcome.result, outcome.reason, outcome.release_s) == (Result.DONE, "", 6.5)
    assert world.record.lines[-1] == ("released", "6.5")
    assert len(world.tries) == 1
    assert world.state.under_way is None


def test_the_reaction_is_measured_to_the_acceptance() -> None:
    """From the last reading that was not above the threshold to the moment at which the API server took it."""
    world = World(used={5: Gi})
    world.look(0)
    world.used = {5: 4 * Gi}
    assert planned(world.look(1)).pending_eviction is not None
    world.second = 1.5
    world.answer(EvictionAnswer.ACCEPTED)
    world.look(2)
    assert world.began[0].reaction_s == pytest.approx(1.5)


def test_memory_of_another_container_and_of_forks_is_waited_for() -> None:
    """The whole pod goes: the memory of every process of it counts, of those too that came after the eviction."""
    two = pod("a", container("main", "1Gi"), container("side"))
    world = World(pods=(two,), used={5: 4 * Gi, 6: Gi}, processes=(process(6, "a/side"), process(7, "a/side")))
    begun(world).answer(EvictionAnswer.ACCEPTED)
    world.used = {7: Gi}
    for second in (3, 5):
        world.look(second)
    assert world.ended == []
    world.used = {}
    world.look(6)
    assert world.results() == ["done"]


def test_memory_that_does_not_come_back_is_given_up() -> None:
    """After the grace and release_timeout the next action need not wait longer, and that is reported."""
    world = begun(World())
    world.answer(EvictionAnswer.ACCEPTED)
    world.look(39.9)
    assert world.ended == []
    world.look(40)
    assert (world.results(), world.ended[0].release_s) == (["done"], None)
    assert "the driver still lists its memory" in world.reason()
    assert ("released", "None") in world.record.lines


@pytest.mark.parametrize(
    ("answer", "result"),
    [(EvictionAnswer.GONE, "gone"), (EvictionAnswer.SPARED, "interrupted"), (EvictionAnswer.REFUSED, "failed")],
)
def test_answers_that_end_it(answer: EvictionAnswer, result: str) -> None:
    """Gone, spared by the API's answer, refused: reported at once, nothing is in progress, and the step waits 10 s."""
    world = begun(World())
    world.answer(answer, "so it is")
    assert (world.results(), world.reason()) == ([result], "so it is")
    assert ("end", result) in world.record.lines
    assert (world.pending_eviction, world.state.under_way) == (None, None)
    for second in range(1, 11):
        world.look(second)
        assert len(world.tries) == (1 if second < 10 else 2)
    assert world.record.lines.count(("intend", "5")) == 2


@pytest.mark.parametrize("answer", [EvictionAnswer.REFUSED, EvictionAnswer.ACCEPTED])
def test_other_steps_start_over_only_once_it_came_about(answer: EvictionAnswer) -> None:
    """Points 18 and 27: an eviction that comes to nothing resets no other step; after one that ended all start over."""
    later = step("100%", 20, "kill", grace_s=0.0)
    world = begun(World(policy=policy(rule(EVICT_AT_ONCE, later))))
    for second in range(1, 10):
        world.look(second)
    world.answer(answer, "403")
    if answer is EvictionAnswer.REFUSED:
        assert world.state.stretches["all", later.signature].counted_s == 9.0
    else:
        world.used = {}
        world.look(9)
        assert ("all", later.signature) not in world.state.stretches
