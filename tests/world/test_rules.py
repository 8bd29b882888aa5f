"""Rules on a real node: whose labels are not known yet, and those that only observe."""

import json
from pathlib import Path

import pytest

from tests.rig import Node
from tests.rig.command import daemon
from tests.stub import GIB
from tests.world.policies import HEAD, KILL_AT_ONCE
from tests.world.test_kill import ended

pytestmark = pytest.mark.node

TEAMS = f"""{HEAD.format(mode="enforce")}
[[rule]]
name = "of the team"
match = {{ namespace_labels = {{ team = "ml" }} }}
[[rule]]
name = "everybody else"
match = {{}}
[[rule.step]]
{KILL_AT_ONCE}
"""


def teams(world: Node) -> Path:
    """A policy that kills whoever is not of the team, known by a label of the namespace."""
    path = world.root / "policy.toml"
    path.write_text(TEAMS, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_later_rule_kills_nobody_while_labels_are_not_known(world_v1: Node) -> None:
    """Until the namespaces are known their pods are left alone, and are told of; then the rule that is theirs acts."""
    tenant = world_v1.start(world_v1.pod("hog", ("main", "1Gi")), used=9 * GIB)
    world_v1.write()
    namespaces = world_v1.root / "namespaces.json"
    files = ("--pods", world_v1.pods_file, "--journal", world_v1.journal, "--namespaces", namespaces)
    with daemon(world_v1.root, world_v1.stub_file, "--policy", teams(world_v1), *files) as running:
        running.wait_passes(3)
        status = running.status()
        (account,) = status["accounts"]
        assert (account["rule"], account["verdict"], status["plan"]) == (None, "unknown", [])
        assert {gap["what"] for gap in status["gaps"]} >= {"labels of namespace ns", f"namespaces file {namespaces}"}
        assert (tenant.is_alive, tenant.terms) == (True, [])
        namespaces.write_text(json.dumps({"kind": "Namespace", "metadata": {"name": "ns"}}), encoding="utf-8")
        running.wait(ended)
        assert not tenant.is_alive
