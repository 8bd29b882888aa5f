"""What a policy needs of the API: nothing that it does not use."""

from dataclasses import replace

import pytest

from watchdog.core.needs import Needs, needs
from watchdog.core.policy import Capacity, Declaration, Do, Mark, Match, Policy, Rule, Step

POLICY = Policy(sha256="", source="test")
NOTHING = Needs(node=False, namespaces=False, events=False, evict=False, capacity=False)
EVICT = Step(above=Mark(amount=1), for_s=0, do=Do.EVICT)
KILL = replace(EVICT, do=Do.KILL)


def rule(*steps: Step, **match: object) -> Rule:
    """A rule that matches by these."""
    return Rule(name="r", match=replace(Match(), **match), steps=steps)  # type: ignore[arg-type]


def declaration(**more: object) -> Declaration:
    """A declaration in bytes, but for what is named."""
    return replace(Declaration(kind="resource", key="a.b/c", unit=1), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "need"),
    [
        ({}, {}),
        ({"rules": (rule(KILL),), "declarations": (declaration(),)}, {}),
        ({"rules": (rule(EVICT),)}, {}),  # whoever observes evicts nobody
        ({"declarations": (declaration(unit="share", shares=4),)}, {}),
        ({"declarations": (declaration(unit="share", shares="label:a"),)}, {"node"}),
        ({"declarations": (declaration(node_labels={"a": "b"}),)}, {"node"}),
        ({"declarations": (declaration(unit="mig"),)}, {"node"}),  # labels tell whether an instance is cut
        ({"rules": (rule(node_labels={"a": "b"}),)}, {"node"}),
        ({"rules": (rule(namespace_labels={"a": "b"}),)}, {"namespaces"}),
        ({"events_in_observe": True}, {"events"}),
        ({"capacity": Capacity(resource="a.b/c")}, {"node", "capacity"}),
        ({"mode": "enforce", "rules": (rule(KILL),)}, {"node", "events"}),
        ({"mode": "enforce", "rules": (rule(KILL), rule(EVICT))}, {"node", "events", "evict"}),
        ({"mode": "enforce", "rules": (replace(rule(EVICT), mode="observe"),)}, {"node", "events"}),
    ],
)
def test_each_setting_brings_its_own_need(change: dict[str, object], need: set[str]) -> None:
    """A setting needs its part of the API and no other; what is not set needs nothing but the pods."""
    policy = replace(POLICY, **change)  # type: ignore[arg-type]
    assert needs(policy) == replace(NOTHING, **dict.fromkeys(need, True))
