"""`gpu-watchdog withdraw --all-nodes`: what `[capacity]` left on the nodes of a cluster, taken back by one account."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.accounts import Account, account
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import writes
from tests.cluster.pods import Pods
from tests.node.support import wait_until
from tests.rig.command import COMMAND
from tools.chart import CHART, withdrawal_admission
from watchdog.kube.capacity import list_nodes
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.rights import ServiceAccount

RESOURCE: Final = "example.com/left"
COUNT: Final = 6
POOL: Final = "tests.invalid/pool"
_PATCH: Final = {"Content-Type": "application/merge-patch+json"}


def hook_role(identity: ServiceAccount) -> str:
    """The role and its binding, as the chart has them for the time of an uninstallation, and what ties them down."""
    text = (CHART / "templates" / "withdraw.yaml").read_text(encoding="utf-8")
    (rules,) = [yaml.safe_load(each)["rules"] for each in _rules(text)]
    name = f"{identity.name}-withdraw"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    role = {**head, "kind": "ClusterRole", "rules": rules}
    binding = {
        **head,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": identity.namespace, "name": identity.name}],
    }
    return yaml.safe_dump_all([role, binding]) + "---\n" + withdrawal_admission(name, identity.user, RESOURCE)


def _rules(template: str) -> Iterator[str]:
    for document in template.split("---\n"):
        if "kind: ClusterRole\n" in document and "rules:" in document:
            yield document[document.index("rules:") :]


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
        label: Any = {"metadata": {"labels": {"tests.invalid/probe": "1"}}}
        path = f"/api/v1/nodes/{nodes[0]}/status?dryRun=All"
        plane = control_plane
        wait_until(lambda: plane.api.call("PATCH", path, label, headers=_PATCH, token=made.token).status == 403)
        yield made


def withdraw(by: Account, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the account's kubeconfig."""
    given = ("--all-nodes", "--resource", RESOURCE, "--kubeconfig", str(by.kubeconfig), *more)
    return subprocess.run([COMMAND, "withdraw", *given], capture_output=True, text=True, timeout=120, check=False)


def advertising(plane: ControlPlane, nodes: list[str]) -> list[str]:
    """Which of the nodes have the entry."""
    found = {name: plane.api.ask("GET", f"/api/v1/nodes/{name}")["status"]["capacity"] for name in nodes}
    assert all(capacity["cpu"] == "8" for capacity in found.values())
    return [name for name, capacity in found.items() if RESOURCE in capacity]


def test_it_goes_from_every_node(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """Each node that has the entry loses it, and nothing else; once more, there is nothing to do, and that is fine."""
    began = time.time()
    said = withdraw(cleaner)
    assert (said.returncode, said.stderr) == (0, "")
    assert advertising(control_plane, nodes) == []
    assert [f"node {name} no longer advertises {RESOURCE}" in said.stdout for name in nodes] == [True] * COUNT
    assert said.stdout.splitlines()[-1] == f"no node advertises {RESOURCE} any more"
    asked = control_plane.requests(user_agent=USER_AGENT, since=began)
    assert sorted({(each.verb, each.resource) for each in asked}) == [("list", "nodes"), ("patch", "nodes")]
    assert sum(each.verb == "patch" for each in asked) == COUNT
    again = withdraw(cleaner)
    assert (again.returncode, again.stdout) == (0, f"no node advertises {RESOURCE}: nothing to remove\n")


def test_one_that_can_not_be_changed_keeps_no_other_from_it(
    control_plane: ControlPlane, nodes: list[str], cleaner: Account
) -> None:
    """A node that refuses is told by name with the reason; all others are done, and the exit code says it."""
    control_plane.apply(_refuses(nodes[2]))
    path = f"/api/v1/nodes/{nodes[2]}/status?dryRun=All"
    change = {"status": {"capacity": {"cpu": "9"}}}
    wait_until(lambda: control_plane.api.call("PATCH", path, change, headers=_PATCH).status == 403)
    try:
        said = withdraw(cleaner)
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            control_plane.kubectl("delete", kind, "tests-refuses")
    assert said.returncode == 1
    assert advertising(control_plane, nodes) == [nodes[2]]
    assert f"removing {RESOURCE} from node {nodes[2]}" in said.stderr
    told = said.stderr.splitlines()[-1]
    assert f" 1 of {COUNT} nodes" in told
    assert told.endswith(f"`gpu-watchdog withdraw --all-nodes --resource {RESOURCE}`")


def test_one_that_no_answer_comes_for_keeps_no_other_from_it(
    control_plane: ControlPlane, nodes: list[str], cleaner: Account, tmp_path: Path
) -> None:
    """Where the connection breaks at one node, those after it are done all the same, and the exit code says it."""
    with ApiProxy(control_plane.api, tmp_path) as proxy:
        proxy.cut(when=writes(f"/{nodes[1]}/status"), times=None)
        given = ("--all-nodes", "--resource", RESOURCE, "--kubeconfig", str(cleaner.through(proxy)))
        said = subprocess.run([COMMAND, "withdraw", *given], capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 1
    assert [f"node {name} no longer advertises {RESOURCE}" in said.stdout for name in nodes] == [
        name != nodes[1] for name in nodes
    ]
    assert said.stderr.startswith(f"node {nodes[1]}: ")
    assert f" 1 of {COUNT} nodes" in said.stderr.splitlines()[-1]
    # The request was carried out, and its answer lost: once more, and there is nothing left to do.
    assert (advertising(control_plane, nodes), withdraw(cleaner).returncode) == ([], 0)


def test_only_what_is_selected(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """Nodes of another release keep theirs, and that they have it is said; any of several selectors suffices."""
    # In the words that the chart makes of nodeSelector and of each operator of an affinity.
    one, other = f"{POOL}=a", f"{POOL} in (a,c),{POOL} notin (b),kubernetes.io/hostname,!tests.invalid/absent"
    said = withdraw(cleaner, "--selector", one, "--selector", other)
    assert said.returncode == 0
    assert advertising(control_plane, nodes) == nodes[1::2]
    selected = f"no node matching {one} or {other}"
    assert said.stdout.splitlines()[-1] == f"{selected} advertises {RESOURCE} any more"
    assert said.stderr.startswith(f"{COUNT // 2} other nodes ")
    odd = withdraw(cleaner, "--selector", "pool in")
    assert (odd.returncode, "400" in odd.stderr) == (1, True)
    assert advertising(control_plane, nodes) == nodes[1::2]


def _refuses(node: str) -> list[Any]:
    """An admission policy by which nobody may change a node."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "tests-refuses"}}
    rule = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.name != '{node}'", "reason": "Forbidden"}],
    }
    bound = {"policyName": "tests-refuses", "validationActions": ["Deny"]}
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    ]


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
def test_the_account_can_do_nothing_else(
    control_plane: ControlPlane, nodes: list[str], cleaner: Account, change: Any
) -> None:
    """Its right is to patch the status of all nodes; the admission policy leaves of that the removal of one entry."""
    path = f"/api/v1/nodes/{nodes[1]}/status?dryRun=All"
    refused = control_plane.api.call("PATCH", path, change, headers=_PATCH, token=cleaner.token)
    assert refused.status == 403
    allowed = {"status": {"capacity": {RESOURCE: None}}}
    assert control_plane.api.call("PATCH", path, allowed, headers=_PATCH, token=cleaner.token).status == 200


def test_where_it_comes_back_that_is_said(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """Somebody who still advertises it: after some rounds the command gives up, and says what to remove."""
    process = subprocess.Popen(
        [COMMAND, "withdraw", "--all-nodes", "--resource", RESOURCE, "--kubeconfig", str(cleaner.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        change = {"status": {"capacity": {RESOURCE: "7"}}}
        control_plane.api.ask("PATCH", f"/api/v1/nodes/{nodes[0]}/status", change, headers=_PATCH)
        time.sleep(0.2)
    _, stderr = process.communicate(timeout=180)
    assert process.returncode == 1
    assert f"nodes keep advertising {RESOURCE}, such as {nodes[0]}" in stderr


def test_a_list_in_portions_is_read_to_its_end(control_plane: ControlPlane, nodes: list[str], cleaner: Account) -> None:
    """The API server gives its nodes in portions where it is asked to: none is forgotten."""
    began = time.time()
    with Api(cleaner.kubeconfig) as api:
        found = [node.name for node in list_nodes(api, portion=2)]
    assert len(control_plane.requests(user=cleaner.identity.user, since=began)) >= COUNT // 2
    assert set(nodes) <= set(found)
    assert len(found) == len(set(found))
