"""Right before the first signal: changes to the pod since the last look, and a cycle that fails there."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World
from tests.daemon.rig import Direct, Group
from tests.worlds import Gi, container, container_id, pod, policy, process, rule, step
from watchdog.core.model import Container, Pod
from watchdog.core.plan import Moment, PlanEntry
from watchdog.core.policy import JournalLimits, Match, Rule, Scope, Step
from watchdog.journal.journal import Journal

OFFENDER = pod("a", container(declared="1Gi"))
RESTARTED = frozenset({container_id("a/main"), "5" * 64})


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (replace(OFFENDER, annotations={"x": "1"}, labels={"y": "2"}), ""),
        (replace(OFFENDER, priority=2_000_000_000), "the pod had become protected"),
        (replace(OFFENDER, containers=(container(declared="8Gi"),)), "its use was at or below the threshold again"),
        (replace(OFFENDER, containers=(*OFFENDER.containers, container("new", "1Mi"))), ""),
        (replace(OFFENDER, containers=(container(declared="1Gi", resources={"cpu": "2"}),)), ""),
        (
            replace(OFFENDER, containers=(replace(container(declared="1Gi"), ids=RESTARTED),)),
            "what it would have ended had",
        ),
        (replace(OFFENDER, namespace="spared"), "the policy, or the rule that applies to the pod, had changed"),
        (None, "its use or its limit was unknown"),
    ],
)
def test_what_is_written_after_the_last_look_is_judged_by_that_look(now: Pod | None, reason: str) -> None:
    """Point 22 and law 11: the store of this moment counts, and a byte in an annotation withdraws nothing."""
    world = World(
        policy=policy(rule(name="spared", match=Match(namespaces=("spared",))), rule(EVICT_AT_ONCE)), pods=(OFFENDER,)
    )
    opened = world.open(0)
    world.pods = (now,) if now is not None else ()
    world.close(opened)
    assert len(world.tries) == (0 if reason else 1)
    assert reason in (world.reason() if world.ended else "")


KILL_AT_ONCE = step("100%", 0, grace_s=10.0)
SIDE = container("side")


def offender_in(group: Group, *rules: Rule, of: Pod = OFFENDER) -> World:
    """A pod with a real process that is due for a kill by the first of these rules."""
    key = group.key(group.start())
    processes = (process(key.pid, "a/main", key=key),)
    return World(policy(*rules), (of,), used={key.pid: 4 * Gi}, processes=processes, group=group)


def done(world: World) -> list[str]:
    """What has begun or ended, by its result."""
    return [each.result.value for each in (*world.began, *world.ended)]


@pytest.mark.parametrize(
    ("scope", "now", "is_killed"),
    [
        ("container", (*OFFENDER.containers, replace(SIDE, ids=RESTARTED)), True),
        ("pod", (*OFFENDER.containers, replace(SIDE, ids=RESTARTED)), True),  # it uses nothing
        ("process", (*OFFENDER.containers, replace(SIDE, resources={"cpu": "2"})), True),
        ("container", (replace(OFFENDER.containers[0], ids=RESTARTED), SIDE), False),
        ("process", (replace(OFFENDER.containers[0], ids=RESTARTED), SIDE), False),
        ("pod", (replace(OFFENDER.containers[0], ids=RESTARTED), SIDE), False),
    ],
)
def test_only_a_change_of_what_would_be_ended_withdraws_a_kill(
    group: Group, scope: Scope, now: tuple[Container, ...], *, is_killed: bool
) -> None:
    """Point 22: the IDs of the containers that use GPU memory count, and no other container's, at any scope."""
    before = replace(OFFENDER, containers=(*OFFENDER.containers, SIDE))
    world = offender_in(group, rule(replace(KILL_AT_ONCE, scope=scope)), of=before)
    opened = world.open(0)
    world.pods = (replace(before, containers=now),)
    world.close(opened)
    assert done(world) == (["done"] if is_killed else ["withdrawn"])


@pytest.mark.parametrize(
    ("other", "is_killed"),
    [
        (KILL_AT_ONCE, True),
        (replace(KILL_AT_ONCE, grace_s=0.0), True),
        (replace(KILL_AT_ONCE, for_s=60.0), False),
        (replace(KILL_AT_ONCE, scope="pod"), False),
        (EVICT_AT_ONCE, False),
    ],
)
def test_a_relabel_after_the_last_look_spares_no_pod_whose_kill_is_due_under_both_rules(
    group: Group, other: Step, *, is_killed: bool
) -> None:
    """Point 22 and law 11: a label that is written again and again withdraws a kill only if another rule spares."""
    one = rule(KILL_AT_ONCE, name="one", match=Match(labels={"tier": "a"}))
    before = replace(OFFENDER, labels={"tier": "a"})
    world = offender_in(group, one, rule(other, name="other"), of=before)
    opened = world.open(0)
    world.pods = (OFFENDER,)
    world.close(opened)
    assert done(world) == (["done"] if is_killed else ["withdrawn"])


def test_what_was_withdrawn_is_tried_again_once_a_second(group: Group) -> None:
    """Point 22: no tenant puts a kill off for longer by a change that withdraws it, however often, nor spends tries."""
    world = offender_in(group, rule(KILL_AT_ONCE))
    tried = 0
    for tenths in range(0, 100, 2):
        opened = world.open(tenths / 10)
        tried += len(opened.intentions)
        world.close(opened, objection=lambda *_: "it had changed")
    assert tried == 10
    world.look(10)
    assert done(world) == ["done"] + ["withdrawn"] * 10


@pytest.mark.parametrize("of_node", [True, False], ids=["node", "namespace"])
def test_a_label_of_the_node_or_the_namespace_counts_until_the_first_signal(*, of_node: bool) -> None:
    """Point 22: a rule that spares the pod by then is for it, although nothing was written on the pod itself."""
    spare = {"spare": "yes"}
    by_node = rule(name="by-node", match=Match(node_labels=spare))
    by_namespace = rule(name="by-namespace", match=Match(namespace_labels=spare))
    world = World(
        policy=policy(by_node, by_namespace, rule(EVICT_AT_ONCE)), pods=(OFFENDER,), namespaces={OFFENDER.namespace: {}}
    )
    opened = world.open(0)
    if of_node:
        world.node = replace(world.node, labels=spare)
    else:
        world.namespaces = {OFFENDER.namespace: spare}
    world.close(opened)
    assert (world.tries, world.results()) == ([], ["withdrawn"])
    assert "the policy, or the rule that applies to the pod, had changed" in world.reason()


def test_a_cycle_that_fails_half_way_withdraws_what_it_has_not_begun(tmp_path: Path) -> None:
    """Points 22 and 29: no brake counts what no signal was sent for, and what has begun goes on."""
    journal = Journal.open(tmp_path / "journal.db", JournalLimits(), "n1")
    pods = (OFFENDER, pod("b", container(declared="1Gi", of="b")))
    world = World(pods=pods, used={5: 4 * Gi, 6: 3 * Gi}, processes=(process(6, "b/main"),), journal=Direct(journal))
    opened = world.open(0)
    asked: list[str] = []

    def objection(entry: PlanEntry, moment: Moment) -> None:
        asked.append(entry.account.uid)
        if len(asked) > 1:
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        world.close(opened, objection=objection)
    world.cycle.actions.drop(opened, "the cycle failed")
    begun, other = asked
    assert [attempt.uid for attempt in world.tries] == [begun]
    ended = world.cycle.actions.take_ended()
    assert [(each.entry.account.uid, each.result) for each in ended] == [(other, "withdrawn")]
    assert len(journal.brakes(opened.snapshot.at).begun[()]) == 1
    journal.close()


@pytest.mark.parametrize(("for_s", "is_evicted"), [(9.0, True), (60.0, False)])
def test_a_relabel_before_the_last_look_spares_no_pod_whose_step_is_due_under_both_rules(
    *, for_s: float, is_evicted: bool
) -> None:
    """Point 15 and law 11: the step of the other rule is taken if it is due; its own time still has to have passed."""
    one = rule(step("100%", 10, "evict", grace_s=10.0), name="one", match=Match(labels={"tier": "a"}))
    other = rule(step("100%", for_s, "evict", grace_s=5.0), name="other")
    pods = [replace(OFFENDER, labels={"tier": each}) for each in ("a", "b")]
    world = World(policy=policy(one, other))
    for second in range(10):
        world.pods = (pods[second % 2],)
        world.look(second)
    world.pods = (pods[0],)
    opened = world.open(10)
    assert [entry.rule.name for entry in opened.plan.taken] == ["one"]
    world.pods = (pods[1],)
    world.close(replace(opened, inputs=replace(opened.inputs, pods=replace(opened.inputs.pods, pods=world.pods))))
    assert [attempt.grace_s for attempt in world.tries] == ([5] if is_evicted else [])
    assert ("had changed" in world.reason()) if not is_evicted else not world.ended


def test_while_the_policy_file_settles_nothing_is_begun_and_nothing_counts_as_failed() -> None:
    """Point 20: what is due stays due, and is done as soon as the file has settled."""
    world = World()
    world.look(0, policy_unsettled=True)
    assert (world.tries, world.record.lines, world.results()) == ([], [], [])
    world.look(1)
    assert len(world.tries) == 1
