"""Policies by chance: from scratch, and changed as operators change them."""

import random
from dataclasses import replace
from typing import Final

from tests.soak.cluster import Gi, Mi
from tests.soak.policies import BrakePlan, MarkKind, PolicyPlan, RulePlan, StepPlan
from watchdog.core.policy import Scope

_SCOPES: Final[tuple[Scope, ...]] = ("process", "container", "container", "pod")
_MARKS: Final[tuple[tuple[MarkKind, int], ...]] = (
    ("percent", 50),
    ("percent", 100),
    ("percent", 100),
    ("percent", 120),
    ("plus", Gi),
    ("amount", 3 * Gi),
)


def generate(dice: random.Random, number: int) -> PolicyPlan:
    """A policy from scratch; or one that leaves a tenant who can choose between two rules nothing to hide behind."""
    plan = _generate_any(dice, number)
    if dice.random() < 0.7:
        return plan
    kill = StepPlan(kind="percent", number=100, for_s=dice.choice([3.0, 3.0, 10.0]), do="kill", grace_s=2.0)
    rules = [replace(_generate_rule(dice, each), namespace=None, tier="ab"[each], mode=None) for each in range(2)]
    patient = tuple(replace(rule, steps=(kill,)) for rule in rules)
    return replace(plan, mode="enforce", rules=patient, spared_namespace=None, brakes=BrakePlan())


def _generate_any(dice: random.Random, number: int) -> PolicyPlan:
    return PolicyPlan(
        number=number,
        mode="enforce" if dice.random() < 0.85 else "observe",
        interval_s=dice.choice([1.0, 1.0, 1.0, 2.5, 5.0]),
        stale_after_s=dice.choice([20.0, 60.0, 180.0]),
        release_timeout_s=dice.choice([5.0, 15.0, 30.0]),
        percent=dice.choice([0, 2, 10]),
        per_context=dice.choice([0, 0, 512 * Mi]),
        max_contexts=dice.choice([1, 4]),
        rules=_generate_rules(dice),
        spared_namespace="team-b" if dice.random() < 0.15 else None,
        priority_at_least=dice.choice([2_000_000_000, 1000]),
        annotation=dice.choice(["", "spare-me"]),
        brakes=_generate_brakes(dice),
        signal_mps_clients=dice.random() < 0.2,
    )


def mutate(dice: random.Random, plan: PolicyPlan, number: int) -> PolicyPlan:
    """The same policy with a change or two, as an operator makes them."""
    other = generate(dice, number)
    fields = ["mode", "mode", "interval_s", "stale_after_s", "percent", "per_context", "spared_namespace"]
    fields += ["rules", "annotation", "priority_at_least", "brakes", "release_timeout_s", "signal_mps_clients"]
    changed = {field: getattr(other, field) for field in dice.sample(fields, dice.choice([0, 1, 1, 2]))}
    if dice.random() < 0.3:
        changed["rules"] = tuple(_retouched(dice, rule) for rule in plan.rules)
    return replace(plan, number=number, **changed)


def _retouched(dice: random.Random, rule: RulePlan) -> RulePlan:
    """A rule of the same name, some of its steps changed."""
    steps = tuple(_generate_step(dice) if dice.random() < 0.3 else step for step in rule.steps)
    return replace(rule, steps=steps, mode=dice.choice([None, None, rule.mode]))


def _generate_rules(dice: random.Random) -> tuple[RulePlan, ...]:
    """Rules for whatever pods, or one for each tier, between which a tenant can choose at any time."""
    if dice.random() < 0.2:
        return tuple(replace(_generate_rule(dice, number), namespace=None, tier="ab"[number]) for number in range(2))
    return tuple(_generate_rule(dice, number) for number in range(dice.randint(1, 3)))


def _generate_rule(dice: random.Random, number: int) -> RulePlan:
    return RulePlan(
        name=f"rule-{number}",
        namespace=dice.choice([None, None, "team-a", "team-b"]),
        tier=dice.choice([None, None, "a", "b"]),
        account=dice.choice(["pod", "pod", "container"]),
        default=dice.choice([None, 0, 1 * Gi, 4 * Gi]),
        mode=dice.choice([None, None, None, None, "observe", "enforce"]),
        steps=_generate_ladder(dice)
        if dice.random() < 0.4
        else tuple(_generate_step(dice) for _ in range(dice.randint(1, 3))),
    )


def _generate_ladder(dice: random.Random) -> tuple[StepPlan, ...]:
    """A ladder as people write it: a warning, a kill with a grace, and a harder kill that comes sooner."""
    scope = dice.choice(_SCOPES)
    return (
        StepPlan(kind="percent", number=100, for_s=dice.choice([0.0, 3.0]), do="warn"),
        StepPlan(kind="percent", number=110, for_s=dice.choice([1.0, 3.0, 10.0]), do="kill", scope=scope, grace_s=15.0),
        StepPlan(kind="percent", number=150, for_s=dice.choice([0.0, 3.0]), do="kill", scope=scope, grace_s=0.0),
    )


def _generate_step(dice: random.Random) -> StepPlan:
    kind, number = dice.choice(_MARKS)
    return StepPlan(
        kind=kind,
        number=number,
        for_s=dice.choice([0.0, 0.0, 1.0, 3.0, 10.0]),
        do=dice.choice(["warn", "kill", "kill", "kill", "kill", "evict"]),
        scope=dice.choice(_SCOPES),
        grace_s=dice.choice([0.0, 0.0, 2.0, 5.0, 15.0]),
    )


def _generate_brakes(dice: random.Random) -> BrakePlan:
    """Brakes of all kinds, or of one alone: where several hold, the first hides the others."""
    windows = [None, (1, 30.0), (2, 60.0), (3, 120.0)]
    plan = BrakePlan(
        node=dice.choice([None, *windows]),
        namespace=dice.choice([None, *windows]),
        owner=dice.choice([None, *windows]),
        backoff=dice.choice([None, (4.0, 2, 64.0), (8.0, 3, 32.0), (8.0, 3, 72.0), (16.0, 1, 16.0)]),
        breaker=dice.choice([None, (50, 2, 10.0), (34, 3, 20.0), (100, 2, 30.0)]),
    )
    kind = dice.choice(["all", "all", "none", "backoff", "breaker", "windows"])
    if kind == "windows":
        return replace(plan, backoff=None, breaker=None)
    if kind == "all":
        return plan
    only = BrakePlan(backoff=plan.backoff) if kind == "backoff" else BrakePlan()
    return BrakePlan(breaker=plan.breaker) if kind == "breaker" else only


def _focused(scope: Scope, grace_s: float, brakes: BrakePlan) -> PolicyPlan:
    kill = StepPlan(kind="percent", number=100, for_s=0.0, do="kill", scope=scope, grace_s=grace_s)
    rule = RulePlan(name="rule-0", namespace=None, tier=None, account="pod", default=4 * Gi, mode=None, steps=(kill,))
    return PolicyPlan(
        number=0,
        mode="enforce",
        interval_s=1.0,
        stale_after_s=180.0,
        release_timeout_s=15.0,
        percent=0,
        per_context=0,
        max_contexts=4,
        rules=(rule,),
        spared_namespace=None,
        priority_at_least=2_000_000_000,
        annotation="",
        brakes=brakes,
        signal_mps_clients=False,
    )


# The policies of nodes on which one kind of situation comes up again and again, by what their seeds begin with.
FOCUSED: Final = {
    "breaker": _focused("container", 2.0, BrakePlan(breaker=(50, 2, 30.0))),
    "process": _focused("process", 15.0, BrakePlan()),
    "cards": _focused("container", 2.0, BrakePlan()),
    "deletions": _focused("container", 0.0, BrakePlan()),
    "mps": _focused("container", 5.0, BrakePlan()),
    "shared": _focused("pod", 5.0, BrakePlan()),
    "reboots": _focused("container", 0.0, BrakePlan(node=(3, 120.0))),
}
