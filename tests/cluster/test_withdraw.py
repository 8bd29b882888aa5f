"""`gpu-watchdog withdraw`: what `[capacity]` left on one node, or on all nodes of a cluster, is removed."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.node.support import wait_until
from tests.rig.cluster.accounts import Account, NewAccount, account
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.faults import writes
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.upkeep import GI, POLICY, RESOURCE, capacity_of, repeating, set_entry
from tests.rig.command import COMMAND
from tools.chart import CHART, withdrawal_admission
from watchdog.kube.capacity import list_nodes
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.rights import ServiceAccount

WITH_CAPACITY: Final = f'mode = "observe"\n[capacity]\nresource = "{RESOURCE}"\n'
COUNT: Final = 6
POOL: Final = "tests.invalid/pool"
Ended = subprocess.CompletedProcess[str]


def withdraw(*given: str | Path) -> Ended:
    """Run the command."""
    return subprocess.run([COMMAND, "withdraw", *given], capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture
def node(pods: Pods, control_plane: ControlPlane) -> str:
    """A node that advertises it."""
    name = pods.node()
    set_entry(control_plane.api, name, "80Gi")
    return name


@pytest.fixture
def on_node(tmp_path: Path, new_account: NewAccount, node: str) -> Callable[..., Ended]:
    """The command for one node under a policy of this text, with the rights of the daemon there."""
    kubeconfig, policy = new_account(POLICY, node).kubeconfig, tmp_path / "policy.toml"

    def run(text: str, *more: str, node: str = node) -> Ended:
        policy.write_text(text, encoding="utf-8")
        return withdraw("--policy", policy, "--kubeconfig", kubeconfig, "--node", node, *more)

    return run


def test_the_entry_goes_and_no_other(control_plane: ControlPlane, node: str, on_node: Callable[..., Ended]) -> None:
    """Although the node's object is being changed by others; a second time is no failure."""
    before = control_plane.get("node", node)["status"]["capacity"]

    def label(number: int) -> None:
        labels = {"tests.invalid/beat": str(number)}
        control_plane.api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})

    with repeating(label, 0.01):
        ended = on_node(WITH_CAPACITY)
    assert ended.returncode == 0
    assert f"node {node} no longer advertises {RESOURCE} (it was 80Gi)" in ended.stdout
    assert "still has [capacity]" in ended.stderr
    after = control_plane.get("node", node)["status"]["capacity"]
    assert after == {key: value for key, value in before.items() if key != RESOURCE}
    assert on_node(WITH_CAPACITY).returncode == 0


def test_a_refusal_removes_nothing(
    control_plane: ControlPlane, pods: Pods, node: str, on_node: Callable[..., Ended]
) -> None:
    """A policy that names no resource or is invalid, a node that does not exist or is not the account's own, usage."""
    other = pods.node()
    set_entry(control_plane.api, other, "80Gi")
    for ended, code, text in (
        (on_node('mode = "observe"'), 1, "--resource"),
        (on_node("mode = 7"), 1, "--resource"),
        (on_node(WITH_CAPACITY, node="no-such-node"), 1, "'no-such-node'"),
        (on_node(WITH_CAPACITY, node=other), 1, "403"),
        (on_node(WITH_CAPACITY, "--resource", "cpu"), 2, "has no domain"),
    ):
        assert (ended.returncode, ended.stdout, text in ended.stderr) == (code, "", True)
    assert [capacity_of(control_plane.api, each) for each in (node, other)] == [80 * GI] * 2
    assert on_node("mode = 7", "--resource", RESOURCE).returncode == 0
    assert capacity_of(control_plane.api, node) is None


def hook_role(identity: ServiceAccount) -> str:
    """The role and its binding, as the chart has them for an uninstallation, and what limits them."""
    documents = (CHART / "templates" / "withdraw.yaml").read_text(encoding="utf-8").split("---\n")
    (text,) = [each for each in documents if "kind: ClusterRole\n" in each and "rules:" in each]
    text = text.replace("{{ $policy.capacity.resource }}", RESOURCE)
    name, rbac = f"{identity.name}-withdraw", "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    role = {**head, "kind": "ClusterRole", "rules": yaml.safe_load(text[text.index("rules:") :])["rules"]}
    binding = {
        **head,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": identity.namespace, "name": identity.name}],
    }
    return yaml.safe_dump_all([role, binding]) + "---\n" + withdrawal_admission(name)


@pytest.fixture
def nodes(pods: Pods) -> list[str]:
    """Nodes that advertise it, and other things beside."""
    return [
        pods.node(labels={POOL: "ab"[number % 2]}, capacity={RESOURCE: str(40 + number), "cpu": "8"})
        for number in range(COUNT)
    ]


@pytest.fixture
def cleaner(control_plane: ControlPlane, namespace: str, nodes: list[str]) -> Iterator[Account]:
    """The account of the chart's Job, whose token is of a pod on no node of these."""
    identity = ServiceAccount(namespace=namespace, name="cleaner")
    with account(control_plane, hook_role(identity), identity, None) as made:
        label = {"metadata": {"labels": {"tests.invalid/probe": "1"}}}
        wait_until(lambda: dry_run(made, nodes[0], label) == 403)
        yield made


def dry_run(by: Account, node: str, change: Any) -> int:
    """The answer to a change of a node's status."""
    path = f"/api/v1/nodes/{node}/status?dryRun=All"
    return by.plane.api.call("PATCH", path, change, token=by.token).status


def on_all(by: Account, *more: str, proxy: ApiProxy | None = None) -> Ended:
    """The command for all nodes."""
    return withdraw("--all-nodes", "--resource", RESOURCE, "--kubeconfig", by.through(proxy), *more)


def advertising(plane: ControlPlane, nodes: list[str]) -> list[str]:
    """Which of the nodes have the entry; none of them has lost another."""
    found = {name: plane.api.ask("GET", f"/api/v1/nodes/{name}")["status"]["capacity"] for name in nodes}
    assert all(capacity["cpu"] == "8" for capacity in found.values())
    return [name for name, capacity in found.items() if RESOURCE in capacity]


def test_it_goes_from_every_node(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """By one list and one patch each; once more, there is nothing to do, and that is fine."""
    began = time.time()
    ended = on_all(cleaner)
    assert (ended.returncode, ended.stderr, advertising(control_plane, nodes)) == (0, "", [])
    assert ended.stdout.splitlines()[-1] == f"no node advertises {RESOURCE} any more"
    asked = control_plane.requests(user_agent=USER_AGENT, since=began)
    assert sorted({(each.verb, each.resource) for each in asked}) == [("list", "nodes"), ("patch", "nodes")]
    assert sum(each.verb == "patch" for each in asked) == COUNT
    assert on_all(cleaner).returncode == 0


@pytest.mark.parametrize("fault", ["refused", "cut"])
def test_one_node_that_fails_keeps_no_other_from_it(
    control_plane: ControlPlane, nodes: list[str], cleaner: Account, api_proxy: ApiProxy, fault: str
) -> None:
    """It is named, all others are done, and the exit code says so."""
    when = writes(f"/{nodes[2]}/status")
    if fault == "refused":
        api_proxy.answer(403, when=when)
    else:
        api_proxy.cut(when=when, times=None)  # the request is carried out, and its answer lost
    ended = on_all(cleaner, proxy=api_proxy)
    assert ended.returncode == 1
    assert [f"node {name} no longer advertises {RESOURCE}" in ended.stdout for name in nodes] == [
        name != nodes[2] for name in nodes
    ]
    assert nodes[2] in ended.stderr.splitlines()[0]
    assert f" 1 of {COUNT} nodes" in ended.stderr.splitlines()[-1]
    assert advertising(control_plane, nodes) == ([nodes[2]] if fault == "refused" else [])


def test_only_what_is_selected(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """Nodes of another release keep theirs, which is reported; any of several selectors suffices."""
    # As the chart writes nodeSelector and each operator of an affinity.
    one, other = f"{POOL}=a", f"{POOL} in (a,c),{POOL} notin (b),kubernetes.io/hostname,!tests.invalid/absent"
    ended = on_all(cleaner, "--selector", one, "--selector", other)
    assert (ended.returncode, advertising(control_plane, nodes)) == (0, nodes[1::2])
    assert ended.stderr.startswith(f"{COUNT // 2} other nodes ")
    odd = on_all(cleaner, "--selector", "pool in")
    assert (odd.returncode, "400" in odd.stderr, advertising(control_plane, nodes)) == (1, True, nodes[1::2])


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"capacity": {RESOURCE: "1000"}}},
        {"status": {"capacity": {RESOURCE: None, "cpu": "99"}}},
        {"status": {"allocatable": {RESOURCE: None}}},
        {"status": {"capacity": {RESOURCE: None}}, "metadata": {"labels": {"tests.invalid/x": "1"}}},
    ],
    ids=["another amount", "another entry", "allocatable", "a label"],
)
def test_the_account_can_do_nothing_else(nodes: list[str], cleaner: Account, change: Any) -> None:
    """Its right is to patch the status of all nodes; the admission policy leaves only the removal of one entry."""
    assert dry_run(cleaner, nodes[1], change) == 403
    assert dry_run(cleaner, nodes[1], {"status": {"capacity": {RESOURCE: None}}}) == 200


def test_an_entry_that_comes_back_is_reported(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """Another writer still advertises it: after some rounds the command gives up, and names a node."""
    with repeating(lambda _: set_entry(control_plane.api, nodes[0], "7"), 0.2):
        ended = on_all(cleaner)
    assert (ended.returncode, nodes[0] in ended.stderr) == (1, True)


def test_a_list_in_portions_is_read_to_its_end(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """The API server gives its nodes in portions where that is requested: none is forgotten."""
    began = time.time()
    with Api(cleaner.kubeconfig) as api:
        found = [node.name for node in list_nodes(api, portion=2)]
    assert len(control_plane.requests(user=cleaner.identity.user, since=began)) >= COUNT // 2
    assert set(nodes) <= set(found)
    assert len(found) == len(set(found))
