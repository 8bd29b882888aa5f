"""Quiet cycles: repeated with equal inputs, they do nothing."""

import random
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from tests.laws.nodes import build
from tests.worlds import Gi, at, container, pod, rule, snapshot, step, use
from tests.worlds import inputs as given
from tests.worlds import policy as policy_of
from watchdog.core.assess import assess, hidden_pods
from watchdog.core.assessment import Inputs, KnownDrains
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.errors import Problem
from watchdog.core.ladder import Comparison, climb, is_calm, step_readings
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Gap, GapReason, Node, PinnedLimit, Place, PlaceKind, PodList, ProcessKey, Snapshot
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle
from watchdog.core.policy import Match
from watchdog.core.quiet import LONGEST_REST_S, Ticks, are_same, is_quiet, next_change_s, repeated
from watchdog.daemon.enforcement import Enforcement
from watchdog.daemon.sinks import report_of


class Cycles:
    """Cycles of one node, one after the other, that act on nothing."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.ledger = Ledger()

    def run(self, seen: Snapshot, second: float) -> tuple[OpenCycle, ClosedCycle]:
        """One cycle with what was seen, at another moment."""
        seen = replace(seen, at=at(second))
        inputs = replace(self.inputs, hidden=hidden_pods(seen, self.inputs.pods.pods))
        attribution = attribute(seen, inputs.pods.pods)
        assessments = assess(attribution, seen, inputs)
        plan = decide(assessments, self.ledger, seen.at, inputs)
        self.ledger = plan.ledger
        opened = OpenCycle(
            inputs=inputs, snapshot=seen, attribution=attribution, assessments=assessments, plan=plan, scan_s=0.0
        )
        return opened, ClosedCycle(plan=plan, began=(), outcomes=())


def report(opened: OpenCycle, finish: ClosedCycle) -> CycleReport:
    """The report of a cycle that only observed."""
    observing = Enforcement(enforcing=False, suspended=())
    return report_of(opened, finish, observing, policy_loaded_s=0.0, maintenance=None, ended=opened.snapshot.at)


def test_a_quiet_cycle_only_repeats_itself() -> None:
    """Counted ticks give the same plan and ledger as cycles: nothing is due, and `for` goes on."""
    quiet = waiting = 0
    for seed in range(2000):
        dice = random.Random(seed)
        node = build(dice, dice.randint(1, 3), dice.randint(0, 4), dice.randint(0, 3))
        cycles = Cycles(given(node.under, node.pods, node=node.node))
        second = 0.0
        for _ in range(4):
            second += dice.choice([0.25, 1.0, 5.0])
            if dice.random() < 0.3:
                node = node.later(dice.randrange(2**32), second)
                cycles.inputs = given(node.under, node.pods, node=node.node)
            opened, finish = cycles.run(node.seen, second)
            if is_quiet(opened, finish):
                quiet += 1
                waiting += any(entry.due_in_s > 0 for entry in finish.plan.entries)
                _check(cycles, opened, finish, dice)
    assert quiet > 500
    assert waiting > 50


def test_a_calm_account_need_not_climb() -> None:
    """The shortcut for accounts below every threshold gives what the ladder gives."""
    calm = 0
    for seed in range(1000):
        dice = random.Random(seed)
        node = build(dice, dice.randint(1, 3), dice.randint(0, 4), dice.randint(0, 3))
        cycles = Cycles(given(node.under, node.pods, node=node.node))
        for second in range(1, 5):
            before, policy, now = cycles.ledger, cycles.inputs.policy, at(second)
            opened, _ = cycles.run(node.seen, second)
            for assessment in opened.assessments:
                if assessment.rule is not None and is_calm(assessment, before):
                    calm += 1
                    ladder = step_readings(assessment, stale=False)
                    assert all(found.reading is Comparison.BELOW for found in ladder)
                    state = AccountState(ran_under=frozenset({assessment.rule.name}), read=now)
                    assert climb(assessment, ladder, before, policy, now, stale=False) == state
            node = node.later(dice.randrange(2**32), second)
            cycles.inputs = given(node.under, node.pods, node=node.node)
    assert calm > 500


def _check(cycles: Cycles, opened: OpenCycle, finish: ClosedCycle, dice: random.Random) -> None:
    before, policy = finish.plan, opened.inputs.policy
    until_s = next_change_s(before, opened.inputs.pods.pods, policy, opened.snapshot.at)
    counted_s, last, then = 0.0, opened.snapshot.at, finish
    count = 0
    for _ in range(dice.randint(1, 6)):
        passed_s = dice.choice([0.25, 0.5, 1.0, 1.5])
        now = replace(last, boottime_s=last.boottime_s + passed_s, wall_s=last.wall_s + passed_s)
        if now.boottime_s >= min(until_s, opened.snapshot.at.boottime_s + LONGEST_REST_S):
            break
        counted_s, last, count = counted_s + min(passed_s, policy.interval_s), now, count + 1
        again, then = cycles.run(opened.snapshot, now.boottime_s - at(0).boottime_s)
        assert (again.attribution, again.assessments) == (opened.attribution, opened.assessments)
        assert not any(entry.taken or entry.is_new for entry in then.plan.entries)
    if count:
        ticks = Ticks(last=last, counted_s=counted_s, took_s=(0.0,) * count)
        found = repeated(report(opened, finish), opened.inputs, ticks)
        assert found.plan == then.plan
        assert (found.at, found.snapshot) == (last, replace(opened.snapshot, at=last))
    cycles.ledger = before.ledger


SEEN: Final = snapshot([use(5, Gi // 2)])
TENANT: Final = pod("a", container(declared="1Gi"))
UNDER: Final = policy_of(rule(step()))

BY_LABEL: Final = policy_of(rule(step(), match=Match(node_labels={"a": "b"})))


def _is_quiet(seen: Snapshot = SEEN, **more: Any) -> bool:
    gaps = more.pop("gaps", ())
    terms: dict[str, Any] = {"under": UNDER, "pods": [TENANT]} | more
    inputs = given(**terms)
    return is_quiet(*Cycles(replace(inputs, pods=replace(inputs.pods, gaps=gaps))).run(seen, 1.0))


CLIENT: Final = ProcessKey(pid=9, start_ticks=0)
GAP: Final = Gap(reason=GapReason.GPU_ERROR, what="GPU-0", problem=Problem("x"))


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, True),
        ({"seen": snapshot([use(5, 2 * Gi)])}, False),
        ({"seen": snapshot([use(5, 2 * Gi)]), "under": policy_of(rule(step(for_s=60)))}, True),
        ({"seen": snapshot([use(5, None)])}, False),
        ({"seen": replace(SEEN, gaps=(GAP,))}, False),
        ({"seen": replace(SEEN, blind=True)}, False),
        ({"gaps": (GAP,)}, False),
        ({"under": BY_LABEL, "node": Node(name="n1", known=False)}, False),
        ({"pods_stale": True}, False),
        ({"maintenance": True}, False),
        ({"pods": [replace(TENANT, deletion_deadline_s=at(60).wall_s)]}, True),
        ({"pods": [replace(TENANT, containers=())]}, False),
    ],
    ids=str,
)
def test_what_is_quiet(differs: dict[str, Any], expected: bool) -> None:
    """Nothing is missing or due; a step that waits for its time, or for the end of a deletion, may wait."""
    assert _is_quiet(**differs) is expected


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
        "pinned": (PinnedLimit(key=CLIENT, gpu="GPU-0"),),
    }
    ignored: dict[str, Any] = {"overdue": frozenset({("uid", "id")}), "hidden": frozenset({"uid"})}
    assert {field.name for field in fields(Inputs)} == others.keys() | ignored.keys()
    for name, value in others.items():
        assert not are_same(base, replace(base, **{name: value})), name
    for name, value in ignored.items():
        assert are_same(base, replace(base, **{name: value})), name
    assert are_same(base, replace(base, pods=PodList(pods=base.pods.pods, synced=at(7))))
    assert not are_same(base, replace(base, pods=replace(base.pods, gaps=(GAP,))))
