"""The stages of docs/rollout.md on a real node: a label begins one and ends it, whatever the policy's mode."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.docs.rollout_policy import staged_policy
from tests.rig import Daemon, Node, Tenant
from tests.rig.record import actions
from tests.rig.volume import mount
from tests.stub import GIB
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

_STAGE: Final = {"example.com/gpu-memory-stage": "enforce"}
_OUT: Final = {"example.com/gpu-memory": "observe"}
# The page waits longer, and lets one action through in ten minutes, also of those that are only observed.
_FASTER: Final = {
    'for = "30s"': 'for = "1s"',
    'for = "2m"': 'for = "2s"',
    'grace = "30s"': 'grace = "5s"',
    'node = "1 per 10m"': 'node = "5 per 10m"',
}


def _policy(world: Node) -> Path:
    """The policy that the page makes, with its waits shortened."""
    text = staged_policy()
    for slow, fast in _FASTER.items():
        assert slow in text
        text = text.replace(slow, fast)
    return mount(world.root / "policy.toml", text)


def _here(world: Node, namespaces: Mapping[str, Mapping[str, str]]) -> AbstractContextManager[Daemon]:
    file = world.root / "namespaces.json"
    items = [{"kind": "Namespace", "metadata": {"name": name, "labels": dict(own)}} for name, own in namespaces.items()]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    world.mark()
    return run(world, _policy(world), more=("--node-object", world.node_file, "--namespaces", file))


def _offender(world: Node, namespace: str, behaviour: str = "plain") -> Tenant:
    return world.single(f"hog-{namespace}", namespace=namespace, used=4 * GIB, behaviour=behaviour)


def test_a_label_of_the_node_begins_a_stage(any_world: Node) -> None:
    """Enforcing, with the switches real, and no kill before the label; afterwards every pod that has not opted out."""
    hit, spared = _offender(any_world, "a"), _offender(any_world, "b")
    with _here(any_world, {"a": {}, "b": _OUT}) as running:
        running.wait(lambda d: d.metric("would_act_total", action="kill", rule="rest") == 1)
        running.wait(lambda d: d.metric("would_act_total", action="kill", rule="not-yet") == 1)
        running.wait_passes(2)
        assert (running.metric("enforcing"), hit.is_alive, spared.is_alive) == (1, True, True)
        any_world.mark(labels=_STAGE)
        running.wait(lambda _: not hit.is_alive)
        running.wait_passes(3)
        assert spared.is_alive
    assert [(each.namespace, each.result) for each in actions(any_world.journal)] == [("a", "done")]


def test_its_removal_ends_a_stage_also_in_a_grace(any_world: Node) -> None:
    """Back by one stage: no SIGKILL any more for who has got SIGTERM already."""
    tenant = _offender(any_world, "a", "stubborn")
    with _here(any_world, {"a": {}}) as running:
        any_world.mark(labels=_STAGE)
        running.wait(lambda _: tenant.terms)
        any_world.mark()
        running.wait(lambda d: d.metric("actions_total", action="kill", result="interrupted", rule="staged") == 1)
        running.wait_passes(6)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
