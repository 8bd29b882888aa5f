"""What a policy needs of the API, and nothing else."""

from dataclasses import replace

import pytest

from watchdog.core.policy import Capacity, Do, Events, Match, Policy, Rule, Step, Threshold

POLICY = Policy(sha256="", source="test")
EVICT = Step(above=Threshold(amount=1), for_s=0, do=Do.EVICT)
KILL = replace(EVICT, do=Do.KILL)


def rule(*steps: Step, **match: object) -> Rule:
    """A rule that matches by these."""
    return Rule(name="r", match=replace(Match(), **match), steps=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "need"),
    [
        ({}, {}),
        ({"rules": (rule(KILL),)}, {}),
        ({"rules": (rule(EVICT),)}, {}),  # observing evicts no pod
        ({"rules": (rule(node_labels={"a": "b"}),)}, {}),
        ({"rules": (rule(namespace_labels={"a": "b"}),)}, {"reads_namespaces"}),
        ({"events": Events(observe=True)}, {"writes_events"}),
        ({"capacity": Capacity(resource="a.b/c")}, {}),
        ({"mode": "enforce", "rules": (rule(KILL),)}, {"writes_events"}),
        ({"mode": "enforce", "rules": (rule(KILL), rule(EVICT))}, {"writes_events", "evicts"}),
        ({"mode": "enforce", "rules": (replace(rule(EVICT), mode="observe"),)}, {"writes_events"}),
    ],
)
def test_each_setting_brings_its_own_need(change: dict[str, object], need: set[str]) -> None:
    """Each setting needs its own part of the API and no other."""
    policy = replace(POLICY, **change)  # type: ignore[arg-type]
    assert {name for name in ("reads_namespaces", "writes_events", "evicts") if getattr(policy, name)} == set(need)
