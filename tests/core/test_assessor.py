"""The assessor: what it keeps from the cycle before is what would have been computed again."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.nodes import REPLICAS, GeneratedNode, build, nodes
from tests.worlds import NODE, Gi, at, container, gpu, inputs, pod, policy, process, rule, snapshot, step, use
from watchdog.config.fields import hours
from watchdog.core.assess import Assessor, assess
from watchdog.core.assessment import Assessment, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import UNREADABLE, Node, Place, PlaceKind, Pod, PodList, Snapshot
from watchdog.core.policy import Do, Match, Policy


@dataclass(frozen=True)
class World:
    """The inputs of one cycle."""

    seen: Snapshot
    inputs: Inputs


def afresh(seen: Snapshot, given: Inputs) -> tuple[Assessment, ...]:
    """The assessments of a cycle that remembers nothing."""
    return assess(attribute(seen, given.pods.pods), seen, given)


def later(assessor: Assessor, seen: Snapshot, given: Inputs) -> tuple[Assessment, ...]:
    """The assessments of one more cycle."""
    return assessor.assess(attribute(seen, given.pods.pods), seen, given)


def _step(dice: random.Random, node: GeneratedNode, given: Inputs, second: float) -> tuple[GeneratedNode, Inputs]:
    """One cycle later: mostly only the time differs, sometimes use, pods, policy, node or own place do."""
    changes = ["use", "one", "pods", "end", "policy", "node", "namespaces", "own", "size"]
    what = dice.choice(["nothing"] * 3 + changes)
    if what == "use":
        node = node.later(dice.randrange(2**32), second)
    elif what == "one" and node.seen.uses:
        first, *others = node.seen.uses
        node = replace(node, seen=replace(node.seen, uses=(replace(first, used=dice.randrange(20 * Gi)), *others)))
    elif what == "pods" and node.pods:
        node = replace(node, pods=tuple(dice.sample(node.pods, dice.randint(1, len(node.pods)))))
    elif what == "end":
        deadline_s = at(second + dice.randint(-2, 5)).wall_s
        node = replace(node, pods=tuple(_terminate(dice, each, deadline_s) for each in node.pods))
    elif what == "policy":
        node = replace(node, under=build(dice, 1, 0, 0).under if dice.random() < 0.5 else replace(node.under))
    elif what == "node":
        labels = {"pool": dice.choice("ab"), REPLICAS: dice.choice("14")}
        given = replace(given, node=Node(name="n1", labels=labels))
    elif what == "namespaces":
        given = replace(given, namespaces={f"ns-{number}": {"team": dice.choice("ab")} for number in range(2)})
    elif what == "own":
        given = replace(given, own=Place(kind=PlaceKind.POD, pod=f"uid-{dice.randrange(9):02}"))
    elif what == "size":
        first_gpu, *more = node.seen.gpus
        node = replace(node, seen=replace(node.seen, gpus=(replace(first_gpu, total=dice.randrange(90) * Gi), *more)))
    # A cycle makes its snapshot again, of equal values that are other objects.
    seen = replace(node.seen, at=at(second), uses=tuple(node.seen.uses), processes=dict(node.seen.processes))
    return replace(node, seen=seen), replace(given, policy=node.under, pods=PodList(pods=node.pods))


def _terminate(dice: random.Random, pod: Pod, deadline_s: float) -> Pod:
    return replace(pod, deletion_deadline_s=deadline_s) if dice.random() < 0.3 else pod


@given(nodes(), st.integers(0, 2**32), st.integers(1, 12))
def test_it_gives_what_a_cycle_gives_that_remembers_nothing(node: GeneratedNode, seed: int, cycles: int) -> None:
    """Through any changes of use, pods, policy, node and time an assessor agrees with `assess`."""
    dice, assessor = random.Random(seed), Assessor()
    given = inputs(node.under)
    for second in range(cycles):
        node, given = _step(dice, node, given, second)
        assert later(assessor, node.seen, given) == afresh(node.seen, given)


def _quiet_node() -> tuple[Snapshot, tuple[Pod, ...], Policy]:
    pods = tuple(pod(uid, container(declared="4Gi", of=uid)) for uid in ("a", "b"))
    processes = [process(5, "a/main"), process(6, "b/main")]
    return snapshot([use(5, Gi), use(6, Gi)], processes, [gpu()]), pods, policy(rule(step()))


def test_what_has_not_changed_is_not_worked_out_again() -> None:
    """The identical assessments are returned for every pod of which nothing has changed."""
    seen, pods, under = _quiet_node()
    assessor, given = Assessor(), inputs(under, pods)
    first = later(assessor, seen, given)
    second = later(assessor, replace(seen, at=at(1), uses=tuple(seen.uses)), replace(given))
    assert [id(each) for each in second] == [id(each) for each in first]
    cards = tuple(replace(each, used=3 * Gi) for each in seen.gpus)
    moved = replace(seen, at=at(2), uses=(use(5, 2 * Gi), seen.uses[1]), gpus=cards)
    a, b = later(assessor, moved, given)
    assert a.used == 2 * Gi
    assert b is first[1]


CHANGES: dict[str, Callable[[World], World]] = {
    "own place": lambda w: replace(w, inputs=replace(w.inputs, own=Place(kind=PlaceKind.POD, pod="a"))),
    "node label": lambda w: replace(w, inputs=replace(w.inputs, node=Node(name="n1", labels={"pool": "x"}))),
    "node not known": lambda w: replace(w, inputs=replace(w.inputs, node=replace(NODE, known=False))),
    "namespace label": lambda w: replace(w, inputs=replace(w.inputs, namespaces={"ns": {"team": "x"}})),
    "namespace not known": lambda w: replace(w, inputs=replace(w.inputs, namespaces={})),
    "the hours of a rule end": lambda w: replace(w, seen=replace(w.seen, at=at(36_000))),
    "size of a card": lambda w: replace(w, seen=replace(w.seen, gpus=(gpu(total=2 * Gi),))),
    "blind": lambda w: replace(w, seen=replace(w.seen, blind=True)),
    "unseen": lambda w: replace(w, seen=replace(w.seen, unseen=frozenset({"GPU-0"}))),
    "down": lambda w: replace(w, seen=replace(w.seen, gpus=(gpu(up=False, listed=False),))),
    "not listed": lambda w: replace(w, seen=replace(w.seen, gpus=(gpu(listed=False),))),
    "unreadable": lambda w: replace(w, seen=replace(w.seen, processes={5: process(5, place=UNREADABLE)})),
    "its deadline cycles": lambda w: replace(w, seen=replace(w.seen, at=at(20))),
    "the same pod declares less": lambda w: replace(
        w, inputs=replace(w.inputs, pods=PodList(pods=(pod("a", container(declared="1Mi")), *w.inputs.pods.pods[1:])))
    ),
    "policy": lambda w: replace(w, inputs=replace(w.inputs, policy=policy(declarations=()))),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("use_moves", [False, True])
def test_each_thing_that_has_a_part_in_it_is_looked_at(name: str, use_moves: bool) -> None:
    """Each input of an assessment is compared, whether it changes alone or together with another pod's use."""
    office = hours().read("Mon-Fri 08:00-18:00 UTC")
    rules = (
        rule(step(), match=Match(node_labels={"pool": "x"}), name="of the pool"),
        rule(step(), match=Match(namespace_labels={"team": "x"}), name="of the team"),
        rule(step(), active=office),
    )
    deadline_s = at(10).wall_s
    pods = (
        pod("a", container(declared="4Gi"), deletion_deadline_s=deadline_s),
        pod("b", container(declared="4Gi", of="b")),
        pod("idle", container(declared="4Gi", of="idle")),
    )
    seen = snapshot([use(5, Gi), use(6, Gi)], [process(5, "a/main"), process(6, "b/main")], [gpu()])
    before = World(seen=seen, inputs=inputs(policy(*rules), pods, namespaces={"ns": {}}))
    assessor = Assessor()
    assert later(assessor, before.seen, before.inputs) == afresh(before.seen, before.inputs)
    after = CHANGES[name](before)
    if use_moves:
        uses = tuple(replace(each, used=2 * Gi) if each.pid == 6 else each for each in after.seen.uses)
        after = replace(after, seen=replace(after.seen, uses=uses))
    expected = afresh(after.seen, after.inputs)
    assert expected != afresh(before.seen, before.inputs)
    assert later(assessor, after.seen, after.inputs) == expected


def test_a_failure_without_an_incident_is_forgotten() -> None:
    """An action that fails on an account that is below its thresholds leaves no wait for the next incident."""
    seen, pods, under = _quiet_node()
    assessments = assess(attribute(seen, pods), seen, inputs(under, pods))
    ledger = decide(assessments, Ledger(), at(0), inputs(under, pods)).ledger
    ledger = ledger.note_failed(assessments[0].account, Do.KILL, at(1))
    ledger = decide(assessments, ledger, at(2), inputs(under, pods)).ledger
    assert not ledger.accounts[assessments[0].account].failures


def test_over_and_below_all_thresholds_is_still_over() -> None:
    """An account over its allowed amount but below its thresholds keeps the time since which it is over."""
    seen, pods, _ = _quiet_node()
    under = policy(rule(step("200%")))
    seen = replace(seen, uses=(use(5, 5 * Gi),))
    assessments = assess(attribute(seen, pods), seen, inputs(under, pods))
    ledger = Ledger()
    for second in range(3):
        ledger = decide(assessments, ledger, at(second), inputs(under, pods)).ledger
        ledger = decide(tuple(replace(each) for each in assessments), ledger, at(second), inputs(under, pods)).ledger
    assert ledger.accounts[assessments[0].account].over_since == at(0)
    assert ledger.accounts[assessments[1].account].over_since is None


def test_a_rule_of_a_reloaded_policy_is_the_new_one() -> None:
    """A last look compares rules by identity, so those of a reloaded, equal policy must be the new ones."""
    seen, pods, under = _quiet_node()
    assessor = Assessor()
    later(assessor, seen, inputs(under, pods))
    reloaded = replace(under, rules=tuple(replace(each) for each in under.rules))
    assessments = later(assessor, seen, inputs(reloaded, pods))
    assert {id(each.rule) for each in assessments} == {id(reloaded.rules[0])}
