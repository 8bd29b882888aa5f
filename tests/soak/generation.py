"""Policies by chance: from scratch, and changed as operators change them.

The oracle reads their values, and has arithmetic of its own for what follows from them.
"""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Final

from tests.soak.cluster import KEYS, LABEL, UNLISTED, Gi, Mi
from watchdog.core.policy import (
    CLAIMS,
    Allowance,
    Backoff,
    Brakes,
    Breaker,
    Declaration,
    Do,
    Match,
    Policy,
    Protect,
    Rule,
    Safety,
    Scope,
    Step,
    Threshold,
    Window,
)

_SCOPES: Final[tuple[Scope, ...]] = ("process", "container", "container", "pod")
_DECLARATIONS: Final = (
    Declaration(resource=UNLISTED, unit=1),
    Declaration(resource=KEYS["bytes"][0], unit=KEYS["bytes"][1]),
    Declaration(resource=KEYS["mib"][0], unit=KEYS["mib"][1]),
    Declaration(resource=KEYS["gpu_mib"][0], unit=KEYS["gpu_mib"][1], per="gpu"),
    Declaration(resource=KEYS["share"][0], unit="share", shares=f"label:{LABEL}"),
    Declaration(annotation=KEYS["note"][0], unit=KEYS["note"][1]),
)


def _percent(number: int) -> Threshold:
    return Threshold(share=Fraction(number, 100))


_THRESHOLDS: Final = (
    *(_percent(50), _percent(100), _percent(100), _percent(120)),
    *(Threshold(plus=Gi), Threshold(amount=3 * Gi)),
)


def generate(dice: random.Random) -> Policy:
    """A policy from scratch; or one that leaves a tenant who can choose between two rules nothing to hide behind."""
    policy = _generate_any(dice)
    if dice.random() < 0.7:
        return policy
    kill = Step(above=_percent(100), for_s=dice.choice([3.0, 3.0, 10.0]), do=Do.KILL, grace_s=2.0)
    rules = tuple(replace(rule, mode=None, steps=(kill,)) for rule in _rules_by_tier(dice))
    protect = replace(policy.protect, namespaces=())
    return replace(policy, mode="enforce", rules=rules, protect=protect, brakes=Brakes())


def _generate_any(dice: random.Random) -> Policy:
    return Policy(
        declarations=_DECLARATIONS,
        schemes=(CLAIMS,),
        mode="enforce" if dice.random() < 0.85 else "observe",
        interval_s=dice.choice([1.0, 1.0, 1.0, 2.5, 5.0]),
        stale_after_s=dice.choice([20.0, 60.0, 180.0]),
        release_timeout_s=dice.choice([5.0, 15.0, 30.0]),
        allowance=Allowance(
            percent=Fraction(dice.choice([0, 2, 10]), 100),
            per_context=dice.choice([0, 0, 512 * Mi]),
            max_contexts=dice.choice([1, 4]),
        ),
        rules=_generate_rules(dice),
        protect=Protect(
            namespaces=("team-b",) if dice.random() < 0.15 else (),
            priority_at_least=dice.choice([2_000_000_000, 1000]),
            priority_namespaces=random.Random(repr(dice.getstate())).choice([("*",), ("kube-system", "team-b"), ()]),
            annotation=dice.choice(["", "spare-me"]),
        ),
        brakes=_generate_brakes(dice),
        safety=Safety(signal_mps_clients=dice.random() < 0.2),
    )


# What an operator changes; "mode" is twice as likely.
_CHANGED: Final = (
    *("mode", "mode", "interval_s", "stale_after_s", "allowance.percent", "allowance.per_context"),
    *(
        "protect.namespaces",
        "rules",
        "protect.annotation",
        "protect.priority_at_least",
        "protect.priority_namespaces",
        "brakes",
    ),
    *("release_timeout_s", "safety.signal_mps_clients"),
)


def mutate(dice: random.Random, policy: Policy) -> Policy:
    """The same policy with a change or two, as an operator makes them."""
    other, rules = generate(dice), policy.rules
    for path in dice.sample(_CHANGED, dice.choice([0, 1, 1, 2])):
        table, _, key = path.rpartition(".")
        if table:
            changed = replace(getattr(policy, table), **{key: getattr(getattr(other, table), key)})
            policy = replace(policy, **{table: changed})
        else:
            policy = replace(policy, **{key: getattr(other, key)})
    if dice.random() < 0.3:
        policy = replace(policy, rules=tuple(_retouched(dice, rule) for rule in rules))
    return policy


def _retouched(dice: random.Random, rule: Rule) -> Rule:
    """A rule of the same name, some of its steps changed."""
    steps = tuple(_generate_step(dice) if dice.random() < 0.3 else step for step in rule.steps)
    return replace(rule, steps=steps, mode=dice.choice([None, None, rule.mode]))


def _generate_rules(dice: random.Random) -> tuple[Rule, ...]:
    """Rules for all kinds of pods, or one for each tier, between which a tenant can choose at any time."""
    if dice.random() < 0.2:
        return _rules_by_tier(dice)
    return tuple(_generate_rule(dice, number) for number in range(dice.randint(1, 3)))


def _rules_by_tier(dice: random.Random) -> tuple[Rule, ...]:
    return tuple(replace(_generate_rule(dice, n), match=Match(labels={"tier": "ab"[n]})) for n in range(2))


def _generate_rule(dice: random.Random, number: int) -> Rule:
    namespace, tier = dice.choice(["", "", "team-a", "team-b"]), dice.choice(["", "", "a", "b"])
    return Rule(
        name=f"rule-{number}",
        match=Match(namespaces=(namespace,) if namespace else (), labels={"tier": tier} if tier else {}),
        account=dice.choice(["pod", "pod", "container"]),
        default=dice.choice([None, 0, 1 * Gi, 4 * Gi]),
        mode=dice.choice([None, None, None, None, "observe", "enforce"]),
        steps=_generate_ladder(dice)
        if dice.random() < 0.4
        else tuple(_generate_step(dice) for _ in range(dice.randint(1, 3))),
    )


def _generate_ladder(dice: random.Random) -> tuple[Step, ...]:
    """A ladder as people write it: a warning, a kill with a grace period, and a harder kill that comes sooner."""
    scope = dice.choice(_SCOPES)
    return (
        Step(above=_percent(100), for_s=dice.choice([0.0, 3.0]), do=Do.WARN, repeat_s=60.0),
        Step(above=_percent(110), for_s=dice.choice([1.0, 3.0, 10.0]), do=Do.KILL, scope=scope, grace_s=15.0),
        Step(above=_percent(150), for_s=dice.choice([0.0, 3.0]), do=Do.KILL, scope=scope, grace_s=0.0),
    )


def _generate_step(dice: random.Random) -> Step:
    return Step(
        above=dice.choice(_THRESHOLDS),
        for_s=dice.choice([0.0, 0.0, 1.0, 3.0, 10.0]),
        do=dice.choice([Do.WARN, Do.KILL, Do.KILL, Do.KILL, Do.KILL, Do.EVICT]),
        scope=dice.choice(_SCOPES),
        grace_s=dice.choice([0.0, 0.0, 2.0, 5.0, 15.0]),
        repeat_s=60.0,
    )


def _generate_brakes(dice: random.Random) -> Brakes:
    """Brakes of all kinds, or of one alone: where several hold, the first hides the others."""
    windows = [None, None, Window(count=1, per_s=30.0), Window(count=2, per_s=60.0), Window(count=3, per_s=120.0)]
    brakes = Brakes(
        node=dice.choice(windows),
        namespace=dice.choice(windows),
        owner=dice.choice(windows),
        owner_backoff=dice.choice([None, *(_backoff(*each) for each in _BACKOFFS)]),
        breaker=dice.choice([None, *(_breaker(*each) for each in ((50, 2, 10.0), (34, 3, 20.0), (100, 2, 30.0)))]),
    )
    kind = dice.choice(["all", "all", "none", "backoff", "breaker", "windows"])
    kept = {"backoff": ("owner_backoff",), "breaker": ("breaker",), "windows": ("node", "namespace", "owner")}
    return brakes if kind == "all" else Brakes(**{name: getattr(brakes, name) for name in kept.get(kind, ())})


_BACKOFFS: Final = ((4.0, 2.0, 64.0), (8.0, 3.0, 32.0), (8.0, 3.0, 72.0), (16.0, 1.0, 16.0))


def _backoff(first_s: float, factor: float, max_s: float) -> Backoff:
    return Backoff(first_s=first_s, factor=factor, max_s=max_s)


def _breaker(percent: int, at_least: int, hold_s: float) -> Breaker:
    return Breaker(offenders=Fraction(percent, 100), of_at_least=at_least, hold_s=hold_s)


_NO_BRAKES: Final = Brakes()


def _focused(scope: Scope, grace_s: float, brakes: Brakes = _NO_BRAKES, for_s: float = 0.0) -> Policy:
    kill = Step(above=_percent(100), for_s=for_s, do=Do.KILL, scope=scope, grace_s=grace_s)
    return Policy(
        declarations=_DECLARATIONS,
        schemes=(CLAIMS,),
        mode="enforce",
        release_timeout_s=15.0,
        allowance=Allowance(percent=Fraction(0), per_context=0),
        rules=(Rule(name="rule-0", default=4 * Gi, account="container" if for_s else "pod", steps=(kill,)),),
        brakes=brakes,
    )


def _by_label(for_s: float) -> Policy:
    """Two rules with the same step, between which a tenant can choose at any time."""
    policy = _focused("container", 0.0, for_s=for_s)
    (rule,) = policy.rules
    each = (replace(rule, name=f"rule-{n}", account="pod", match=Match(labels={"tier": "ab"[n]})) for n in range(2))
    return replace(policy, rules=tuple(each))


# The policies of nodes on which one kind of situation comes up again and again, by what their seeds begin with.
FOCUSED: Final = {
    "breaker": _focused("container", 2.0, Brakes(breaker=_breaker(50, 2, 30.0))),
    "process": _focused("process", 15.0),
    "cards": _focused("container", 2.0),
    "deletions": _focused("container", 0.0),
    "dips": _focused("container", 0.0, for_s=4.0),
    "journals": _focused("container", 0.0, Brakes(node=Window(count=2, per_s=120.0))),
    "fat": _by_label(3.0),
    "labels": _by_label(3.0),
    "mps": _focused("container", 5.0),
    "shared": _focused("pod", 5.0),
    "claims": _focused("container", 2.0),
    "slots": _focused("container", 0.0, Brakes(node=Window(count=1, per_s=30.0))),
    "unlisted": _focused("container", 2.0),
    "transfers": _focused("container", 2.0),
    "reboots": _focused("container", 0.0, Brakes(node=Window(count=3, per_s=120.0))),
}
