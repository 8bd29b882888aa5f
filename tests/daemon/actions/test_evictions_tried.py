"""Evictions that were not accepted yet: later cycles try again, and nothing else waits for them."""

import subprocess
from dataclasses import replace

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World, begun, blocked, planned
from tests.daemon.rig import Group
from tests.worlds import Gi, container, pod, policy, process, rule, step
from watchdog.core.brakes import Brake
from watchdog.core.eviction import EvictionAnswer
from watchdog.core.plan import Result
from watchdog.core.policy import Backoff, Brakes, Step, Window

KILL_LATER = step("200%", 0, "kill", grace_s=0.0)
LADDER = policy(rule(EVICT_AT_ONCE, KILL_LATER))
BOTH = (pod("a", container(declared="1Gi")), pod("b", container(declared="1Gi", of="b")))


def offender(group: Group, gib: float, *steps: Step) -> tuple[subprocess.Popen[bytes], World]:
    """The process of pod a that uses this much, and the world; its ladder is an eviction and a kill far above it."""
    running = group.start()
    mine = (process(running.pid, "a/main", key=group.key(running)),)
    under = policy(rule(*steps)) if steps else LADDER
    return running, World(policy=under, group=group, processes=mine, used={running.pid: int(gib * Gi)})


def test_blocked_is_reported_once_and_tried_again() -> None:
    """Blocked is reported once, however often it stays so; each further try is the same action, after a last look."""
    world = blocked(World())
    assert (world.results(), world.ended[0].number) == (["blocked"], 7)
    assert ("end", "blocked") not in world.record.lines
    world.look(4)
    assert len(world.tries) == 1
    opened = world.open(5)
    assert opened.only == {"GPU-0"}
    world.close(opened)
    assert [attempt.number for attempt in world.tries] == [1, 2]
    world.answer(EvictionAnswer.BLOCKED, "still", 5.0)
    world.look(11)
    world.answer(EvictionAnswer.ACCEPTED)
    assert world.results() == ["blocked"]
    world.used = {}
    world.look(12)
    assert world.results() == ["blocked", "done"]
    assert world.record.lines.count(("intend", "5")) == 1
    assert len(world.cycle.ledger.brakes.begun[()]) == 1


def test_the_plan_has_why_it_waits_and_when_it_is_tried_again() -> None:
    """A blocked eviction is in the plan with its reason and next try, once. Law 10: a silent one holds up no cycle."""
    world = blocked(World(), wait_s=20.0)
    entry = planned(world.look(6))
    assert (entry.withheld_by, entry.releases_in_s, entry.due_in_s, entry.is_new) == (Brake.PENDING, 14.0, 0, False)
    assert entry.pending_eviction is not None
    assert (entry.pending_eviction.tries, entry.pending_eviction.is_blocked) == (1, True)
    assert entry.pending_eviction.refused.startswith("the disruption budget b needs")
    for second in range(20, 60):
        entry = planned(world.look(second))
        assert (entry.taken, entry.withheld_by, entry.releases_in_s) == (False, Brake.PENDING, None)
        assert entry.pending_eviction is not None
        assert (entry.pending_eviction.tries, entry.pending_eviction.next_s) == (2, None)


def test_one_silent_try_holds_up_no_other_pod() -> None:
    """Law 10: another pod is evicted meanwhile."""
    world = begun(World(pods=BOTH, processes=(process(6, "b/main"),)))
    world.used = {5: 4 * Gi, 6: 4 * Gi}
    world.look(1)
    assert [attempt.uid for attempt in world.tries] == ["a", "b"]


@pytest.mark.parametrize("answers_first", [True, False], ids=["blocked", "no answer yet"])
def test_a_harsher_kill_does_not_wait(group: Group, answers_first: bool) -> None:
    """Point 27: while the eviction is tried a stronger step begins all the same, and the eviction is given up."""
    running, world = offender(group, 1.5)
    begun(world)
    if answers_first:
        world.answer(EvictionAnswer.BLOCKED, "no", 30.0)
    world.used = {running.pid: 4 * Gi}
    world.look(1)
    assert running.wait(5) == -9
    (kill,) = world.began
    assert (kill.entry.do.value, kill.result) == ("kill", Result.DONE)
    assert not world.tries[0].is_wanted()
    if not answers_first:
        world.answer(EvictionAnswer.WITHDRAWN)
    evicted = world.ended[-1]
    assert (evicted.entry.do.value, evicted.result) == ("evict", Result.INTERRUPTED)
    assert evicted.reason == "rule all has begun to kill meanwhile"
    assert world.pending_eviction is None
    assert world.state.under_way is not None
    assert world.state.under_way.step == KILL_LATER.signature


def test_an_eviction_accepted_while_a_kill_has_begun_leaves_the_kill_alone(group: Group) -> None:
    """The answer comes too late to be stopped: both are reported, and the kill stays the action that is waited for."""
    running, world = offender(group, 1.5)
    begun(world)
    world.used = {running.pid: 4 * Gi}
    world.look(1)
    world.answer(EvictionAnswer.ACCEPTED)
    assert world.state.under_way is not None
    assert world.state.under_way.step == KILL_LATER.signature
    world.used = {}
    running.wait(5)
    world.wake(1.1)
    world.wake(1.2)
    world.look(2)
    reported = {(outcome.entry.do.value, outcome.result.value) for outcome in world.ended}
    assert reported == {("kill", "done"), ("evict", "done")}
    assert world.state.under_way is None


def test_a_lesser_kill_goes_on_while_the_eviction_is_blocked(group: Group) -> None:
    """Point 27: a blocked eviction is not in progress; a step below it that is due is not kept waiting either."""
    _, world = offender(group, 4.0, step("100%", 3, "kill", grace_s=0.0), EVICT_AT_ONCE)
    blocked(world, wait_s=60.0)
    for second in (1, 2):
        world.look(second)
    assert world.began == []
    world.look(3)
    assert [outcome.entry.do.value for outcome in world.began] == ["kill"]


@pytest.mark.parametrize(
    ("used", "given", "withheld_by"),
    [
        (None, {}, None),
        (4 * Gi, {"pods_stale": True}, Brake.STALE),
        (4 * Gi, {"journal_writable": False}, Brake.JOURNAL),
    ],
)
def test_what_holds_a_try_back_does_not_end_it(
    used: int | None, given: dict[str, bool], withheld_by: Brake | None
) -> None:
    """Law 3, points 16 and 31: by an inconclusive reading or a stale list, or without the journal, none is made."""
    world = blocked(World())
    world.used = {5: used}
    entries = world.look(5, **given).plan.entries
    assert [entry.withheld_by for entry in entries] == ([withheld_by] if withheld_by is not None else [])
    assert (len(world.tries), world.results()) == (1, ["blocked"])
    world.used = {5: 4 * Gi}
    world.look(6)
    assert len(world.tries) == 2


def test_a_blind_stretch_restarts_the_count_for_the_next_try_too() -> None:
    """Point 16: after 10 s without a conclusive reading the step must count again before it is tried again."""
    world = World(policy=policy(rule(replace(EVICT_AT_ONCE, for_s=3.0))))
    for second in range(4):
        world.look(second)
    assert len(world.tries) == 1
    world.answer(EvictionAnswer.BLOCKED, "no", 5.0)
    world.used = {5: None}
    for second in range(4, 20):
        world.look(second)
    world.used = {5: 4 * Gi}
    for second in (20, 21, 22):
        world.look(second)
        assert len(world.tries) == 1
    world.look(23)
    assert len(world.tries) == 2


def test_a_brake_does_not_hold_back_a_try_again() -> None:
    """It was counted when it began: neither its own count nor its owner's back-off keeps it from being tried."""
    brakes = Brakes(owner=Window(count=1, per_s=600.0), owner_backoff=Backoff(first_s=60.0))
    world = blocked(World(policy=policy(rule(EVICT_AT_ONCE), brakes=brakes)))
    world.look(5)
    assert len(world.tries) == 2
    assert len(world.cycle.ledger.brakes.begun[()]) == 1


def test_a_harsher_step_that_a_brake_holds_does_not_hold_up_the_eviction() -> None:
    """The kill above it is held by the owner's brake; the eviction that has begun is tried again all the same."""
    brakes = Brakes(owner=Window(count=1, per_s=600.0))
    world = blocked(World(policy=replace(LADDER, brakes=brakes), used={5: int(1.5 * Gi)}))
    world.used = {5: 4 * Gi}
    assert planned(world.look(5), "kill").withheld_by is Brake.OWNER
    assert len(world.tries) == 2


def test_one_pod_is_evicted_once_whichever_account_wants_it() -> None:
    """Accounts of two containers: the second waits, since the first one's eviction ends the whole pod."""
    both = pod("a", container("main", "1Gi"), container("side", "1Gi"))
    rules = policy(rule(EVICT_AT_ONCE, account="container"))
    world = World(policy=rules, pods=(both,), used={5: 4 * Gi, 6: 3 * Gi}, processes=(process(6, "a/side"),))
    for second in (0, 1):
        finish = world.look(second)
        assert len(world.tries) == 1
        found = [entry for entry in finish.plan.entries if entry.account.container == "side"]
        assert [(entry.withheld_by, entry.pending_eviction) for entry in found] == [(Brake.PENDING, None)]
        world.answer(EvictionAnswer.BLOCKED, "no", 60.0)


def test_a_short_card_gets_one_victim_and_a_blocked_one_frees_the_way() -> None:
    """Point 37: while an answer is awaited there is no other victim; once it is blocked the next one does."""
    pressed = replace(EVICT_AT_ONCE, under_pressure=True)
    used, processes = {5: 40 * Gi, 6: 38 * Gi}, (process(6, "b/main"),)
    world = World(policy=policy(rule(pressed)), pods=BOTH, used=used, processes=processes, free=Gi)
    world.look(0)
    world.look(1)
    assert [attempt.uid for attempt in world.tries] == ["a"]
    world.answer(EvictionAnswer.BLOCKED, "no", 5.0)
    world.look(2)
    assert [attempt.uid for attempt in world.tries] == ["a", "b"]
    world.answer(EvictionAnswer.ACCEPTED)
    world.look(20)
    assert len(world.tries) == 2, "the first one's next try waits for the release of the second"


def test_a_try_again_takes_no_room_from_others() -> None:
    """The brakes have counted it once: another pod that is due in the same cycle is not held back by it."""
    under = policy(rule(EVICT_AT_ONCE), brakes=Brakes(node=Window(count=2, per_s=600.0)))
    world = blocked(World(policy=under, pods=BOTH, processes=(process(6, "b/main"),)))
    world.used = {5: 4 * Gi, 6: 4 * Gi}
    world.look(5)
    assert [attempt.uid for attempt in world.tries] == ["a", "a", "b"]


def test_an_account_that_is_not_seen_for_a_while_is_not_evicted_twice() -> None:
    """A list that is stale and empty for a moment: the eviction is remembered, and not begun a second time."""
    world = blocked(World(), wait_s=20.0)
    pods, world.pods = world.pods, ()
    world.look(1, pods_stale=True)
    world.pods = pods
    world.look(2)
    assert len(world.tries) == 1
    assert world.pending_eviction is not None
