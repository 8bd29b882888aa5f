"""The rights that `gpu-watchdog rights` prints: enough, and nothing more."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.kube.test_rights import WHOLE, markers, parsed
from tests.node.support import wait_until
from tests.rig.cluster.accounts import Account, account
from tests.rig.cluster.api import Object
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.event_rig import warning, writing
from tests.rig.cluster.eviction_rig import Bench
from tests.rig.cluster.network import Answer
from tests.rig.cluster.pods import Pods, path_of
from tests.rig.cluster.upkeep import GI, RESOURCE, Upkeep, cards, wait_for
from watchdog.clock import Bell
from watchdog.core.eviction import EvictionAnswer
from watchdog.core.policy import Policy
from watchdog.kube.claim_requests import ClaimRequests
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.informers import NamespaceInformer, NodeInformer, PodInformer, SliceInformer
from watchdog.kube.objects import decode_pod
from watchdog.kube.rights import (
    PERSONAL_ROLES,
    PersonalRole,
    ServiceAccount,
    render,
    render_personal,
    rights_of,
)

POLICIES: Final = {
    "observe": 'mode = "observe"',
    "kill": WHOLE.partition("[capacity]")[0].replace("evict", "kill").replace("namespace_labels", "labels"),
    "observe and advertise": f'mode = "observe"\n[capacity]\nresource = "{RESOURCE}"\n',
    "everything": WHOLE,
}
ENTRY: Final = f"/status/capacity/{RESOURCE.replace('/', '~1')}"


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


def rows(policy: Policy) -> set[tuple[str, ...]]:
    """How kubectl shows a policy's rights, all verbs on one resource in a row, and its markers."""
    rights, printed = rights_of(policy), render(policy, ServiceAccount())
    parts = (marker.partition("/") for marker in markers(printed))
    marked = {(f"{name}.gpu-memory-watchdog{slash}{rest}", "[]", "[]", "[use]") for name, slash, rest in parts}
    verbs: dict[str, list[str]] = {}
    for right in rights:
        name = f"{right.resource}.{right.group}" if right.group else right.target
        verbs[name] = sorted({*verbs.get(name, []), *right.verbs})
    return marked | {(name, "[]", "[]", f"[{' '.join(its)}]") for name, its in verbs.items()}


@pytest.mark.parametrize("name", POLICIES)
def test_an_account_may_do_nothing_more(control_plane: ControlPlane, namespace: str, name: str) -> None:
    """`kubectl auth can-i --list` shows what the policy needs, and what every account of the cluster may anyhow."""
    policy = parsed(POLICIES[name])
    with acting(control_plane, namespace, lambda _: "", None) as plain:
        anyhow = allowed(control_plane, plain, namespace)
    with acting(control_plane, namespace, lambda identity: render(policy, identity), None) as made:
        found = allowed(control_plane, made, namespace)
        elsewhere = allowed(control_plane, made, "kube-system")
    assert found - anyhow == rows(policy)
    assert found == elsewhere
    assert anyhow <= found


@pytest.mark.parametrize("role", PERSONAL_ROLES, ids=lambda role: role.suffix)
def test_a_person_may_do_nothing_more(control_plane: ControlPlane, namespace: str, role: PersonalRole) -> None:
    """Bound by the printed command, a role gives what it lists, and in another namespace nothing but nodes."""
    identity = ServiceAccount(namespace=namespace, name=f"dog-{secrets.token_hex(3)}")
    name, manifests = f"{identity.name}-{role.suffix}", render_personal(identity)
    (line,) = [each for each in manifests.splitlines() if f"rolebinding {name} " in each]
    with acting(control_plane, namespace, lambda _: "", None) as person:
        anyhow = allowed(control_plane, person, namespace)
        control_plane.kubectl("apply", "-f", "-", input=manifests)
        account = f"--serviceaccount={namespace}:{person.identity.name}"
        control_plane.kubectl(*line.removeprefix("# kubectl ").removesuffix("--group=GROUP").split(), account)
        given = {
            (f"{each.resource}.{each.group}" if each.group else each.target, "[]", "[]", f"[{' '.join(each.verbs)}]")
            for each in role.permissions
        }
        wait_until(lambda: allowed(control_plane, person, namespace) - anyhow == given)
        assert allowed(control_plane, person, "kube-system") - anyhow == (given if role.is_of_cluster else set())
        control_plane.kubectl("delete", "-f", "-", input=manifests)
        control_plane.kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")


def test_the_daemon_needs_each_right_and_no_other(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """With them, and under the admission policies, all of its work is done, and uses every verb that they give."""
    node, policy, bell = pods.node(), parsed(WHOLE), Bell()
    needed = {(right.target, verb) for right in rights_of(policy) for verb in right.verbs}
    with (
        acting(control_plane, namespace, lambda identity: render(policy, identity), node) as made,
        Api(made.kubeconfig) as api,
        writing(made.kubeconfig) as writer,
    ):

        def asked(*, good: bool) -> set[tuple[str, str]]:
            found = control_plane.requests(user=made.identity.user, user_agent=USER_AGENT)
            names = (("/".join(filter(None, (each.resource, each.subresource))), each) for each in found)
            return {(name, each.verb) for name, each in names if not good or each.code in (200, 201)}

        mine = (PodInformer(api, node, bell), NodeInformer(api, node, bell), SliceInformer(api, node, bell))
        informers = (*mine, NamespaceInformer(api, bell))
        for informer in informers:
            informer.start()
        pod = pods.create(node=node)
        for count in (1, 2):
            writer.offer([warning(pod, float(count))])
            wait_until(lambda count=count: writer.counts()["written"] == count)  # type: ignore[misc]
        assert Bench(made, pods).evict(pod).answer is EvictionAnswer.ACCEPTED
        with Upkeep(made.kubeconfig, node, *cards(80)):
            wait_for(control_plane.api, node, 80 * GI)
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        control_plane.api.ask("POST", path, {"metadata": {"name": "c"}, "spec": spec})
        claims = ClaimRequests(api, bell)
        known = decode_pod(json.dumps(pod).encode(), node)
        assert known is not None
        claims.fetch([(known, "c")], 60)
        wait_until(lambda: asked(good=True) == needed)
        assert asked(good=False) == needed
        for informer in informers:
            informer.stop()
    bell.close()


Guarded = tuple[Account, str, str]
Operation = dict[str, Any]


@pytest.fixture
def guarded(control_plane: ControlPlane, namespace: str, pods: Pods) -> Iterator[Guarded]:
    """An account with all rights, its own node, and another node."""
    own, other = pods.node(), pods.node()
    with acting(control_plane, namespace, lambda identity: render(parsed(WHOLE), identity), own) as made:
        yield made, own, other


def patch(plane: ControlPlane, token: str, node: str, *operations: Operation, sub: str = "/status") -> Answer:
    """A JSON patch of a node."""
    body = json.dumps(operations).encode()
    headers = {"Content-Type": "application/json-patch+json"}
    return plane.api.call("PATCH", f"/api/v1/nodes/{node}{sub}", body, token=token, headers=headers)


ADD: Final = {"op": "add", "path": ENTRY, "value": "100Gi"}
LABEL: Final = {"op": "add", "path": "/metadata/labels/a", "value": "b"}


def test_the_own_node_s_entry_can_be_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """It is set, changed and removed, also with as many images on the node as a kubelet reports."""
    made, own, _ = guarded
    names = [f"registry.example/{'x' * 80}/image@sha256:{'a' * 64}", f"registry.example/{'x' * 80}/image:v1"]
    images = [{"names": names, "sizeBytes": 1000 + number} for number in range(50)]  # nodeStatusMaxImages
    control_plane.api.ask("PATCH", f"/api/v1/nodes/{own}/status", {"status": {"images": images}})
    for operation in (ADD, {**ADD, "value": "7"}, {"op": "remove", "path": ENTRY}, ADD):
        assert patch(control_plane, made.token, own, operation).status == 200


ELSEWHERE: Final[tuple[Operation, ...]] = (
    {"op": "add", "path": "/status/capacity/example.com~1other", "value": "1"},
    {"op": "add", "path": "/status/capacity/cpu", "value": "1"},
    {"op": "remove", "path": "/status/capacity/memory"},
    {"op": "remove", "path": "/status/capacity"},
    {"op": "add", "path": ENTRY.replace("capacity", "allocatable"), "value": "1"},
    {"op": "replace", "path": "/status/conditions/0/status", "value": "False"},
    {"op": "add", "path": "/status/addresses", "value": [{"type": "InternalIP", "address": "192.0.2.9"}]},
    {"op": "add", "path": "/status/images", "value": [{"names": ["a.b/c"], "sizeBytes": 1}]},
    {"op": "add", "path": "/status/volumesInUse", "value": ["v"]},
    LABEL,
    {"op": "add", "path": "/metadata/annotations", "value": {"gpu-memory-watchdog/mode": "x"}},
    {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]},
    {"op": "remove", "path": "/status"},
)


def test_nothing_else_of_a_node_can_be_changed(control_plane: ControlPlane, guarded: Guarded) -> None:
    """RBAC gives the whole status, and labels and annotations with it; the admission policy leaves one entry.

    The API server itself drops a change of the spec there. A token of another node's pod, or of none, changes nothing.
    """
    made, own, other = guarded
    before = control_plane.get("node", own)
    for operation in ELSEWHERE:
        for operations in ((operation,), (ADD, operation)):
            answer = patch(control_plane, made.token, own, *operations)
            assert (answer.status, operations) == (403, operations)
            assert "the watchdog may only change" in answer.object["message"]
    assert control_plane.get("node", own) == before
    taint = {"op": "add", "path": "/spec/taints", "value": [{"key": "a.b/c", "effect": "NoSchedule"}]}
    patch(control_plane, made.token, own, taint)
    assert "a.b/c" not in json.dumps(control_plane.get("node", own)["spec"])
    answer = patch(control_plane, made.token, other, ADD)
    assert answer.status == 403
    assert "the node that its pod is on" in answer.object["message"]
    unbound = control_plane.service_account_token(made.identity.namespace, made.identity.name)
    assert patch(control_plane, unbound, own, ADD).status == 403


def test_a_role_that_is_widened_opens_nothing_of_nodes(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """The admission policy holds for nodes as a whole, whatever RBAC gives by mistake."""
    own = pods.node()

    def widened(identity: ServiceAccount) -> str:
        return render(parsed(WHOLE), identity).replace('["nodes/status"]', '["nodes/status", "nodes"]')

    with acting(control_plane, namespace, widened, own) as made:
        for operation in ({"op": "add", "path": "/spec/unschedulable", "value": True}, LABEL):
            answer = patch(control_plane, made.token, own, operation, sub="")
            assert (answer.status, operation) == (403, operation)
            assert "the watchdog may only change" in answer.object["message"]


def test_others_are_not_affected(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """The admission policies are for the watchdog's account alone: administrators and kubelets are as before."""
    _, own, other = guarded
    admin = control_plane.token("admin")
    assert patch(control_plane, admin, other, ADD).status == 200
    assert patch(control_plane, admin, own, LABEL).status == 200
    assert evict(control_plane, admin, pods.create(node=own), None).status == 201


def evict(plane: ControlPlane, token: str, pod: Object, uid: str | None) -> Answer:
    """An eviction of a pod, with this UID as its precondition."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    options = {} if uid is None else {"deleteOptions": {"preconditions": {"uid": uid}}}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **options}
    return plane.api.call("POST", f"{path_of(pod)}/eviction", body, token=token)


def test_only_the_intended_pod_is_evicted(control_plane: ControlPlane, guarded: Guarded, pods: Pods) -> None:
    """Without its UID, with another one, in kube-system or by deletion, the server refuses, whatever is requested."""
    made, own, _ = guarded
    pod = pods.create(node=own)
    system = pods.create(f"system-{secrets.token_hex(3)}", node=own, namespace="kube-system")
    for uid in (None, ""):
        answer = evict(control_plane, made.token, pod, uid)
        assert answer.status == 403
        assert "with the UID of the pod" in answer.object["message"]
    assert evict(control_plane, made.token, pod, "another").status == 409
    assert control_plane.api.call("DELETE", path_of(pod), token=made.token).status == 403
    answer = evict(control_plane, made.token, system, system["metadata"]["uid"])
    assert answer.status == 403
    assert "of this namespace" in answer.object["message"]
    assert pods.exists(pod)
    assert pods.exists(system)
    pods.delete(system)
    assert evict(control_plane, made.token, pod, pod["metadata"]["uid"]).status == 201
