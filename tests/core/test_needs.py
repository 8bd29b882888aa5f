"""What a policy needs of the API, and nothing else."""

import pytest

from tests.worlds import policy, rule, step
from watchdog.core.policy import Capacity, Do, Events, Match, Rule

EVICTS = step(do="evict")


@pytest.mark.parametrize(
    ("mode", "made", "more", "need"),
    [
        ("observe", rule(step()), {}, set()),
        ("observe", rule(EVICTS), {}, set()),  # observing evicts no pod
        ("observe", rule(match=Match(node_labels={"a": "b"})), {}, set()),
        ("observe", rule(match=Match(namespace_labels={"a": "b"})), {}, {"reads_namespaces"}),
        ("observe", rule(), {"events": Events(observe=True)}, {"writes_events"}),
        ("observe", rule(), {"capacity": Capacity(resource="a.b/c")}, set()),
        ("enforce", rule(step()), {}, {"writes_events"}),
        ("enforce", rule(step(), EVICTS), {}, {"writes_events", "evicts"}),
        ("enforce", rule(EVICTS, mode="observe"), {}, {"writes_events"}),
    ],
)
def test_each_setting_brings_its_own_need(mode: str, made: Rule, more: dict[str, object], need: set[str]) -> None:
    """Each setting needs its own part of the API and no other."""
    under = policy(made, mode=mode, **more)
    needs = {"reads_namespaces": under.reads_namespaces, "writes_events": under.writes_events}
    needs["evicts"] = under.takes(Do.EVICT)
    assert {name for name, is_needed in needs.items() if is_needed} == need
