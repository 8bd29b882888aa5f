"""Rules on a real node: whose labels are not known yet, and those that only observe."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.rig import Node, gpu_watchdog
from tests.rig.command import daemon
from tests.stub import GIB
from tests.world.policies import HEAD, KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, run
from watchdog.core.hours import DAYS

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


def test_scan_says_which_file_a_rule_needs(world_v1: Node) -> None:
    """Without `--namespaces` no pod comes under a rule that it may not be for, and both the cycle and stderr say so."""
    world_v1.start(world_v1.pod("hog", ("main", "1Gi")), used=9 * GIB)
    world_v1.write()
    arguments = ("scan", "--json", "--policy", teams(world_v1), "--pods", world_v1.pods_file, "--node", "n1")
    done = gpu_watchdog(*arguments, stub=world_v1.stub_file)
    assert done.returncode == 0
    assert all(each in done.stderr for each in ("Warning: ", "rules of the team", "--kubeconfig FILE"))
    seen = json.loads(done.stdout)
    assert ([gap["what"] for gap in seen["gaps"]], seen["plan"]) == (["labels of namespace ns"], [])
    namespaces = world_v1.root / "namespaces.json"
    namespaces.write_text(json.dumps({"kind": "Namespace", "metadata": {"name": "ns"}}), encoding="utf-8")
    done = gpu_watchdog(*arguments, "--namespaces", namespaces, stub=world_v1.stub_file)
    assert (done.stderr, [entry["rule"] for entry in json.loads(done.stdout)["plan"]]) == ("", ["everybody else"])


def _in_three_days() -> str:
    """Hours that do not hold today, nor tomorrow should it be nearly midnight."""
    return f'active = "{DAYS[(datetime.now(UTC).weekday() + 3) % 7]} 00:00-24:00 UTC"'


@pytest.mark.slow
@pytest.mark.parametrize("observing", ['mode = "observe"', _in_three_days()], ids=["mode", "hours"])
def test_a_grace_ends_where_its_rule_comes_to_observe(world_v1: Node, observing: str) -> None:
    """Point 20: a grace in progress sends no SIGKILL once the rule only observes, though the policy still enforces."""
    tenant = world_v1.start(world_v1.pod("hog", ("main", "1Gi")), used=9 * GIB, behaviour="stubborn")
    world_v1.write()
    policy = write_policy(world_v1.root, KILL_AT_ONCE.replace('grace = "2s"', 'grace = "3s"'))
    with run(world_v1, policy) as running:
        running.wait(lambda d: tenant.terms)
        text = policy.read_text(encoding="utf-8").replace('account = "pod"', f'account = "pod"\n{observing}')
        policy.write_text(text, encoding="utf-8")
        running.wait(lambda d: ended(d, "interrupted"))
        running.wait_passes(3)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        assert running.status()["enforcing"] is True
