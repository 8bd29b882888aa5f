"""Quiet cycles: repeated with equal inputs, they do nothing."""

import random
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from tests.laws.nodes import GeneratedNode, build
from tests.worlds import Gi, at, container, opened, pod, rule, snapshot, step, use
from tests.worlds import inputs as given
from tests.worlds import policy as policy_of
from watchdog.core.assess import hidden_pods
from watchdog.core.assessment import AccountKey, Inputs, KnownDrains
from watchdog.core.errors import Problem
from watchdog.core.ladder import Comparison, climb, is_calm, step_readings
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Gap, GapReason, Node, PinnedLimit, Place, PlaceKind, PodList, ProcessKey, Snapshot
from watchdog.core.plan import ClosedCycle, OpenCycle
from watchdog.core.policy import Match
from watchdog.core.quiet import LONGEST_REST_S, Ticks, are_same, is_quiet, next_change_s, repeated
from watchdog.daemon.cycle_report import report_of
from watchdog.daemon.enforcement import Enforcement


class Cycles:
    """Cycles of one node, one after the other, that act on nothing."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.ledger = Ledger()

    def run(self, seen: Snapshot, second: float) -> tuple[OpenCycle, ClosedCycle]:
        """One cycle with what was seen, at another moment."""
        inputs = replace(self.inputs, hidden=hidden_pods(seen, self.inputs.pods.pods))
        made = opened(replace(seen, at=at(second)), inputs, self.ledger)
        self.ledger = made.plan.ledger
        return made, ClosedCycle(plan=made.plan, began=(), outcomes=())


def small(seed: int) -> tuple[random.Random, GeneratedNode, Cycles]:
    """A node on which little goes on, and cycles of it."""
    dice = random.Random(seed)
    node = build(dice, dice.randint(1, 3), dice.randint(0, 4), dice.randint(0, 3))
    return dice, node, Cycles(given(node.under, node.pods, node=node.node))


@pytest.mark.slow
def test_a_quiet_cycle_only_repeats_itself() -> None:
    """Counted ticks give the same plan and ledger as cycles: nothing is due, and `for` goes on."""
    quiet = waiting = 0
    for seed in range(500):
        dice, node, cycles = small(seed)
        second = 0.0
        for _ in range(4):
            second += dice.choice([0.25, 1.0, 5.0])
            if dice.random() < 0.3:
                node = node.later(dice.randrange(2**32), second)
                cycles.inputs = given(node.under, node.pods, node=node.node)
            made, finish = cycles.run(node.seen, second)
            if is_quiet(made, finish):
                quiet += 1
                waiting += any(entry.due_in_s > 0 for entry in finish.plan.entries)
                _check(cycles, made, finish, dice)
    assert quiet > 200
    assert waiting > 10


@pytest.mark.slow
def test_a_calm_account_need_not_climb() -> None:
    """The shortcut for accounts below every threshold gives what the ladder gives."""
    calm = 0
    for seed in range(400):
        dice, node, cycles = small(seed)
        for second in range(1, 5):
            before, policy, now = cycles.ledger, cycles.inputs.policy, at(second)
            made, _ = cycles.run(node.seen, second)
            for assessment in made.assessments:
                if assessment.rule is not None and is_calm(assessment, before):
                    calm += 1
                    ladder = step_readings(assessment, stale=False)
                    assert all(found.reading is Comparison.BELOW for found in ladder)
                    state = AccountState(ran_under=frozenset({assessment.rule.name}), read=now)
                    assert climb(assessment, ladder, before, policy, now, stale=False) == state
            node = node.later(dice.randrange(2**32), second)
            cycles.inputs = given(node.under, node.pods, node=node.node)
    assert calm > 200


def _check(cycles: Cycles, first: OpenCycle, finish: ClosedCycle, dice: random.Random) -> None:
    begun, policy = first.snapshot.at, first.inputs.policy
    until_s = min(next_change_s(finish.plan, first.inputs.pods.pods, policy, begun), begun.boottime_s + LONGEST_REST_S)
    ticks, then = Ticks(last=begun, counted_s=0.0, took_s=()), finish
    for _ in range(dice.randint(1, 6)):
        passed_s = dice.choice([0.25, 0.5, 1.0, 1.5])
        second = ticks.last.boottime_s + passed_s - at(0).boottime_s
        if at(second).boottime_s >= until_s:
            break
        counted_s = ticks.counted_s + min(passed_s, policy.interval_s)
        ticks = Ticks(last=at(second), counted_s=counted_s, took_s=(*ticks.took_s, 0.0))
        again, then = cycles.run(first.snapshot, second)
        assert (again.attribution, again.assessments) == (first.attribution, first.assessments)
        assert not any(entry.taken or entry.is_new for entry in then.plan.entries)
    if ticks.took_s:
        observing = Enforcement(enforcing=False, suspended=())
        report = report_of(first, finish, observing, policy_loaded_s=0.0, maintenance=None, ended=begun)
        found = repeated(report, first.inputs, ticks)
        assert found.plan == then.plan
        assert (found.at, found.snapshot) == (ticks.last, replace(first.snapshot, at=ticks.last))
    cycles.ledger = finish.plan.ledger


SEEN: Final = snapshot([use(5, Gi // 2)])
TENANT: Final = pod("a", container(declared="1Gi"))
UNDER: Final = policy_of(rule(step()))

OVER: Final = snapshot([use(5, 2 * Gi)])
BY_LABEL: Final = policy_of(rule(step(), match=Match(node_labels={"a": "b"})))
CLIENT: Final = ProcessKey(pid=9, start_ticks=0)
GAP: Final = Gap(reason=GapReason.GPU_ERROR, what="GPU-0", problem=Problem("x"))


@pytest.mark.parametrize(
    ("seen", "differs", "expected"),
    [
        (SEEN, {}, True),
        (OVER, {}, False),
        (OVER, {"under": policy_of(rule(step(for_s=60)))}, True),
        (snapshot([use(5, None)]), {}, False),
        (replace(SEEN, gaps=(GAP,)), {}, False),
        (replace(SEEN, blind=True), {}, False),
        (SEEN, {"gaps": (GAP,)}, False),
        (SEEN, {"under": BY_LABEL, "node": Node(name="n1", known=False)}, False),
        (SEEN, {"pods_stale": True}, False),
        (SEEN, {"unread": frozenset({"b"})}, False),
        (SEEN, {"maintenance": True}, False),
        (SEEN, {"pods": [replace(TENANT, deletion_deadline_s=at(60).wall_s)]}, True),
        (SEEN, {"pods": [replace(TENANT, containers=())]}, False),
    ],
    ids=str,
)
def test_what_is_quiet(seen: Snapshot, differs: dict[str, Any], expected: bool) -> None:
    """Nothing is missing or due; a step that waits for its time, or for the end of a deletion, may wait."""
    terms: dict[str, Any] = {"under": UNDER, "pods": [TENANT], "gaps": (), "unread": frozenset()} | differs
    gaps, unread = terms.pop("gaps"), terms.pop("unread")
    inputs = given(**terms)
    cycles = Cycles(replace(inputs, pods=replace(inputs.pods, gaps=gaps), unread=unread))
    assert is_quiet(*cycles.run(seen, 1.0)) is expected


def test_inputs_are_the_same_only_if_nothing_in_them_differs() -> None:
    """Every field counts, including future ones, except when the pods were confirmed and what a scan finds."""
    base = given(UNDER, [TENANT])
    others: dict[str, Any] = {
        "policy": replace(UNDER),
        "node": Node(name="n1", labels={"a": "b"}),
        "pods": replace(base.pods, pods=()),
        "own": Place(kind=PlaceKind.HOST),
        "namespaces": {"ns": {"a": "b"}},
        "pods_stale": True,
        "journal_writable": False,
        "maintenance": True,
        "enforcing": not base.enforcing,
        "policy_unsettled": True,
        "drains": KnownDrains(servers=frozenset({CLIENT})),
        "listed": {"uid": frozenset({"x/gpu"})},
        "pinned": (PinnedLimit(key=CLIENT, gpu="GPU-0"),),
    }
    ignored: dict[str, Any] = {
        "overdue": frozenset({("uid", "id")}),
        "hidden": frozenset({"uid"}),
        "unread": frozenset({"uid"}),
        "acting": frozenset({AccountKey(uid="uid")}),
        "ending": frozenset({AccountKey(uid="uid")}),
    }
    assert {field.name for field in fields(Inputs)} == others.keys() | ignored.keys()
    same = {name for name, value in (others | ignored).items() if are_same(base, replace(base, **{name: value}))}
    assert same == ignored.keys()
    assert are_same(base, replace(base, pods=PodList(pods=base.pods.pods, synced=at(7))))
    assert not are_same(base, replace(base, pods=replace(base.pods, gaps=(GAP,))))
