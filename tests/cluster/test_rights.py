"""The rights that `gpu-watchdog rights` prints: enough, and nothing more."""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.cluster.accounts import Account, account, roles
from tests.cluster.actions import RESOURCE, Kills
from tests.cluster.api import Answer, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods, path_of
from tests.worlds import parse_policy
from watchdog.core.policy import Policy
from watchdog.kube.rights import Right, ServiceAccount, render, rights_of

WHOLE: Final = f"""
mode = "enforce"
[[declaration]]
resource = "{RESOURCE}"
unit = "1"
[[rule]]
name = "r"
match = {{ namespace_labels = {{ team = "a" }} }}
[[rule.step]]
above = "110%"
for = "10s"
do = "evict"
[capacity]
resource = "{RESOURCE}"
"""
KILLING: Final = WHOLE.partition("[capacity]")[0].replace("evict", "kill").replace("namespace_labels", "labels")
POLICIES: Final = {
    "observe": 'mode = "observe"',
    "kill": KILLING,
    "observe and advertise": f'mode = "observe"\n[capacity]\nresource = "{RESOURCE}"\n',
    "everything": WHOLE,
}
USED_BY: Final = {
    ("pods", "list"): "follow pods",
    ("pods", "watch"): "follow pods",
    ("events", "create"): "write Events",
    ("events", "patch"): "write Events",
    ("nodes", "list"): "follow the node",
    ("nodes", "watch"): "follow the node",
    ("namespaces", "list"): "follow namespaces",
    ("namespaces", "watch"): "follow namespaces",
    ("pods", "get"): "evict",
    ("pods/eviction", "create"): "evict",
    ("nodes/status", "patch"): "advertise",
}
JSON_PATCH: Final = {"Content-Type": "application/json-patch+json"}
ENTRY: Final = f"/status/capacity/{RESOURCE.replace('/', '~1')}"


def parse(text: str) -> Policy:
    """The policy of a text."""
    return parse_policy(text, "policy.toml")


@contextmanager
def acting(
    plane: ControlPlane, namespace: str, manifests: Callable[[ServiceAccount], str], node: str | None
) -> Iterator[Account]:
    """An account of the test's own, with what these manifests give it, of a pod on this node."""
    identity = ServiceAccount(namespace=namespace, name=f"dog-{secrets.token_hex(3)}")
    with account(plane, manifests(identity), identity, node) as made:
        yield made


def allowed(plane: ControlPlane, made: Account, namespace: str) -> set[tuple[str, ...]]:
    """What `kubectl auth can-i --list` shows of an account, row by row: resource, URL, names, verbs (sorted)."""
    text = plane.kubectl("auth", "can-i", "--list", "-n", namespace, kubeconfig=made.kubeconfig).stdout
    head, *rows = text.splitlines()
    starts = [head.index(title) for title in ("Resources", "Non-Resource URLs", "Resource Names", "Verbs")]
    cells = [tuple(row[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)) for row in rows]
    return {(*rest, f"[{' '.join(sorted(verbs.strip('[]').split()))}]") for *rest, verbs in cells}


def rows(rights: Iterable[Right]) -> set[tuple[str, ...]]:
    """How kubectl shows rights: all verbs on one resource in a row."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        name = f"{right.resource}.{right.group}" if right.group else right.target
        verbs[name] = sorted({*verbs.get(name, []), *right.verbs})
    return {(name, "[]", "[]", f"[{' '.join(its)}]") for name, its in verbs.items()}


@pytest.mark.parametrize("name", POLICIES)
def test_an_account_may_do_nothing_more(control_plane: ControlPlane, namespace: str, name: str) -> None:
    """`kubectl auth can-i --list` shows what the policy needs, and what every account of the cluster may anyhow."""
    policy = parse(POLICIES[name])
    with acting(control_plane, namespace, lambda _: "", None) as nobody:
        anyhow = allowed(control_plane, nobody, namespace)
    with acting(control_plane, namespace, lambda identity: render(policy, identity), None) as made:
        found = allowed(control_plane, made, namespace)
        elsewhere = allowed(control_plane, made, "kube-system")
    assert found - anyhow == rows(rights_of(policy))
    assert found == elsewhere
    assert anyhow <= found


def test_all_that_the_daemon_does_works_with_these_rights(
    control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    """The rights are enough: with them, and under the admission policies, each part of the daemon's work is done."""
    node = pods.node()
    with acting(control_plane, namespace, lambda identity: render(parse(WHOLE), identity), node) as made:
        actions = Kills(control_plane, pods, made, node)
        assert {name: action() for name, action in actions.all.items()} == dict.fromkeys(actions.all, "")
        actions.close()


@pytest.mark.parametrize(("target", "verb"), USED_BY)
def test_each_right_is_needed(control_plane: ControlPlane, namespace: str, pods: Pods, target: str, verb: str) -> None:
    """Without any one of them something fails, and is said with its remedy; what has no part in it works on."""
    every = rights_of(parse(WHOLE))
    assert {(right.target, verb) for right in every for verb in right.verbs} == USED_BY.keys()
    lacking = [
        replace(right, verbs=tuple(each for each in right.verbs if (right.target, each) != (target, verb)))
        for right in every
    ]
    node = pods.node()
    given = [right for right in lacking if right.verbs]
    with acting(control_plane, namespace, lambda identity: roles(given, identity), node) as made:
        actions = Kills(control_plane, pods, made, node)
        said = actions.all[USED_BY[target, verb]]()
        actions.close()
    assert "403" in said
    assert "gpu-watchdog rights" in said


@pytest.fixture
def guarded(control_plane: ControlPlane, namespace: str, pods: Pods) -> Iterator[tuple[Account, str, str]]:
    """An account with all rights, its own node, and another node."""
    own, other = pods.node(), pods.node()
    with acting(control_plane, namespace, lambda identity: render(parse(WHOLE), identity), own) as made:
        yield made, own, other


def patch(plane: ControlPlane, token: str, node: str, *operations: dict[str, Any], sub: str = "/status") -> Answer:
    """A JSON patch of a node."""
    body = json.dumps(operations).encode()
    return plane.api.call("PATCH", f"/api/v1/nodes/{node}{sub}", body, token=token, headers=JSON_PATCH)


ADD: Final = {"op": "add", "path": ENTRY, "value": "100Gi"}
Guarded = tuple[Account, str, str]


def test_the_own_node_can_be_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """What the right is for cycles: the entry is set, changed and removed, with many images on the node, too."""
    made, own, _ = guarded
    names = [f"registry.example/{'x' * 80}/image@sha256:{'a' * 64}", f"registry.example/{'x' * 80}/image:v1"]
    images = [{"names": names, "sizeBytes": 1000 + number} for number in range(50)]  # nodeStatusMaxImages
    control_plane.api.ask("PATCH", f"/api/v1/nodes/{own}/status", {"status": {"images": images}})
    remove = {"op": "remove", "path": ENTRY}
    for operation in (ADD, {**ADD, "value": "7"}, remove, ADD):
        assert patch(control_plane, made.token, own, operation).status == 200


ELSEWHERE: Final[tuple[dict[str, Any], ...]] = (
    {"op": "add", "path": "/status/capacity/example.com~1other", "value": "1"},
    {"op": "add", "path": "/status/capacity/cpu", "value": "1"},
    {"op": "remove", "path": "/status/capacity/memory"},
    {"op": "remove", "path": "/status/capacity"},
    {"op": "add", "path": ENTRY.replace("capacity", "allocatable"), "value": "1"},
    {"op": "replace", "path": "/status/conditions/0/status", "value": "False"},
    {"op": "add", "path": "/status/addresses", "value": [{"type": "InternalIP", "address": "192.0.2.9"}]},
    {"op": "add", "path": "/status/images", "value": [{"names": ["a.b/c"], "sizeBytes": 1}]},
    {"op": "add", "path": "/status/volumesInUse", "value": ["v"]},
    {"op": "add", "path": "/metadata/labels/a", "value": "b"},
    {"op": "add", "path": "/metadata/annotations", "value": {"gpu-memory-watchdog/mode": "x"}},
    {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]},
    {"op": "remove", "path": "/status"},
)


def test_nothing_else_of_the_own_node_can_be_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """RBAC gives the whole status, and labels and annotations with it; the admission policy leaves one entry."""
    made, own, _ = guarded
    before = control_plane.get("node", own)
    for operation in ELSEWHERE:
        for operations in ((operation,), (ADD, operation)):
            answer = patch(control_plane, made.token, own, *operations)
            assert (answer.status, operations) == (403, operations)
            assert "the watchdog may only change" in answer.object["message"]
    assert control_plane.get("node", own) == before


def test_whatever_rbac_is_given_beyond_it_the_rest_of_nodes_stays(
    control_plane: ControlPlane, namespace: str, pods: Pods
) -> None:
    """The admission policy holds for nodes as a whole: a role that is widened by mistake opens nothing there."""
    own = pods.node()

    def widened(identity: ServiceAccount) -> str:
        return render(parse(WHOLE), identity).replace('["nodes/status"]', '["nodes/status", "nodes"]')

    with acting(control_plane, namespace, widened, own) as made:
        for operation in (
            {"op": "add", "path": "/spec/unschedulable", "value": True},
            {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        ):
            answer = patch(control_plane, made.token, own, operation, sub="")
            assert (answer.status, operation) == (403, operation)
            assert "the watchdog may only change" in answer.object["message"]


def test_by_way_of_the_status_the_spec_is_not_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """The API server itself drops a change of the spec there: a taint can't be set."""
    made, own, _ = guarded
    taint = {"op": "add", "path": "/spec/taints", "value": [{"key": "a.b/c", "effect": "NoSchedule"}]}
    patch(control_plane, made.token, own, taint)
    assert "a.b/c" not in json.dumps(control_plane.get("node", own)["spec"])


def test_no_other_node_can_be_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """Whoever steals the token of one node's pod can't advertise on another one."""
    made, _, other = guarded
    answer = patch(control_plane, made.token, other, ADD)
    assert answer.status == 403
    assert "the node that its pod is on" in answer.object["message"]
    assert RESOURCE not in control_plane.get("node", other)["status"]["capacity"]


def test_a_token_of_no_pod_changes_no_node(control_plane: ControlPlane, guarded: Guarded) -> None:
    """A token that was made by hand, or lies in a Secret, names no node."""
    made, own, _ = guarded
    token = control_plane.service_account_token(made.identity.namespace, made.identity.name)
    assert patch(control_plane, token, own, ADD).status == 403


def test_others_are_not_concerned(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """The admission policies are for the watchdog's account alone: administrators and kubelets go on as before."""
    _, own, other = guarded
    admin = control_plane.token("admin")
    assert patch(control_plane, admin, other, ADD).status == 200
    assert patch(control_plane, admin, own, {"op": "add", "path": "/metadata/labels/a", "value": "b"}).status == 200
    assert evict(control_plane, admin, pods.create(node=own), None).status == 201


def evict(plane: ControlPlane, token: str, pod: Object, uid: str | None, *, dry: bool = False) -> Answer:
    """An eviction of a pod, with this UID as its precondition."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    options = {} if uid is None else {"deleteOptions": {"preconditions": {"uid": uid}}}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **options}
    return plane.api.call("POST", f"{path_of(pod)}/eviction{'?dryRun=All' if dry else ''}", body, token=token)


def test_only_the_pod_that_was_meant_is_evicted(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """Without the UID of the pod an eviction is refused, whatever the watchdog would do; with another one, too."""
    made, own, _ = guarded
    pod = pods.create(node=own)
    for uid in (None, ""):
        answer = evict(control_plane, made.token, pod, uid)
        assert answer.status == 403
        assert "with the UID of the pod" in answer.object["message"]
    assert evict(control_plane, made.token, pod, "another").status == 409
    assert pods.exists(pod)
    assert evict(control_plane, made.token, pod, pod["metadata"]["uid"]).status == 201


def test_nobody_is_evicted_from_the_system(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """kube-system is kept out by the API server itself, with whatever precondition."""
    made, own, _ = guarded
    pod = pods.create(f"system-{secrets.token_hex(3)}", node=own, namespace="kube-system")
    answer = evict(control_plane, made.token, pod, pod["metadata"]["uid"])
    assert answer.status == 403
    assert "of this namespace" in answer.object["message"]
    assert pods.exists(pod)
    pods.delete(pod)


def test_pods_are_not_deleted(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """No right to delete: an eviction that a budget blocks has no way around it."""
    made, own, _ = guarded
    pod = pods.create(node=own)
    assert control_plane.api.call("DELETE", path_of(pod), token=made.token).status == 403
    assert pods.exists(pod)
