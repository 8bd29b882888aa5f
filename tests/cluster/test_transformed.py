"""The guard of an account under other names: what Kustomize and helm make of the manifests, on a real API server."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.test_manifests import definition
from tests.deploy.chart import kustomized, objects
from tests.deploy.test_chart import POLICIES
from tests.kube.test_rights import parsed
from tests.rig.cluster.accounts import NewAccount
from tests.rig.cluster.api import Object
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.doctor_rig import Clinic
from tests.rig.cluster.network import Answer
from tests.rig.cluster.pods import Pods, path_of
from tests.rig.cluster.real_pods import wait_until
from tests.rig.cluster.rights_guard import vouch_for
from tools.programs import helm
from watchdog.kube.rights import Restriction, ServiceAccount, capacity_admission, render

pytestmark = pytest.mark.slow

RESOURCE: Final = "veriff.com/gpu-memory"
_LABEL: Final = {"metadata": {"labels": {"tests.invalid/probe": "1"}}}
_ENTRY: Final = {"status": {"capacity": {RESOURCE: "7"}}}
_SCC: Final = ("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints", "Cluster")
_RBAC: Final = "rbac.authorization.k8s.io"
_EVERYTHING: Final = (
    POLICIES["all"].replace("example.com/vram", RESOURCE) + '[protect]\nnamespaces = ["gpu-operator", "jupyter-*"]\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What was applied: the account that the DaemonSet's pods run as, with the token of a pod on `own`."""

    plane: ControlPlane
    token: str
    user: str
    pod: Object
    own: str
    other: str

    def patch(self, node: str, change: Object) -> Answer:
        """A change of a node's status, as a dry run."""
        return self.plane.api.call("PATCH", f"/api/v1/nodes/{node}/status?dryRun=All", change, token=self.token)

    def evict(self, namespace: str, name: str, uid: str | None = None) -> Answer:
        """An eviction, as a dry run."""
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if uid is not None:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All"
        return self.plane.api.call("POST", path, body, token=self.token)


Install = Callable[[list[Object]], Installed]


@pytest.fixture
def install(control_plane: ControlPlane, pods: Pods) -> Iterator[Install]:
    """Applies objects, first as a server-side dry run; all of them go with the test."""
    applied: list[list[Object]] = []

    def apply(found: list[Object]) -> Installed:
        applied.append([each for each in found if each["kind"] != "Namespace"])
        (daemonset,) = [each for each in found if each["kind"] == "DaemonSet"]
        namespace, name = (
            daemonset["metadata"]["namespace"],
            daemonset["spec"]["template"]["spec"]["serviceAccountName"],
        )
        control_plane.make_namespace(namespace)
        text = yaml.safe_dump_all(found)
        flags = ("--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
        assert len(control_plane.kubectl("apply", *flags, input=text).stdout.split()) == len(found)
        control_plane.kubectl("apply", "-f", "-", input=text)
        identity, own = ServiceAccount(namespace=namespace, name=name), pods.node()
        # OpenShift's kind is in no API that the daemon's code uses.
        vouch_for(identity.user, [each for each in found if "-scc" not in each["metadata"]["name"]])
        spec = {"serviceAccountName": name, "automountServiceAccountToken": False}
        pod = pods.create(f"watchdog-{secrets.token_hex(2)}", node=own, namespace=namespace, spec=spec)
        applied.append([pod])
        token = control_plane.service_account_token(namespace, name, bound=pod)
        return Installed(plane=control_plane, token=token, user=identity.user, pod=pod, own=own, other=pods.node())

    yield apply
    for found in applied:
        text = yaml.safe_dump_all(found)
        control_plane.kubectl("delete", "--ignore-not-found", "--grace-period=0", "--force", "-f", "-", input=text)


def _holds(it: Installed) -> None:
    """The account may change its own entry of its own node, and evict by UID; all else is refused by the guard."""
    wait_until(lambda: _reported(it.patch(it.own, _ENTRY)) == (200, ""), "the role holds")
    wait_until(lambda: _reported(it.patch(it.own, _LABEL))[0] == 403, "the guard of nodes holds")
    wait_until(lambda: _reported(it.evict("kube-system", "none"))[0] == 403, "the guard of evictions holds")
    pod = it.pod["metadata"]
    for refused, part in (
        (it.patch(it.other, _ENTRY), "the node that its pod is on"),
        (it.patch(it.other, _LABEL), "the node that its pod is on"),
        (it.patch(it.own, _LABEL), "may only change the node's status.capacity"),
        (it.patch(it.own, {"status": {"capacity": {"cpu": "1"}}}), "that its role names"),
        (it.evict("kube-system", "none", "uid"), "pods of this namespace"),
        (it.evict(pod["namespace"], pod["name"]), "with the UID of the pod"),
    ):
        status, message = _reported(refused)
        assert (status, "ValidatingAdmissionPolicy" in message, part in message) == (403, True, True), message
    assert it.evict(pod["namespace"], pod["name"], pod["uid"]).status == 201
    path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}?dryRun=All"
    assert it.plane.api.call("DELETE", path, token=it.token).status == 403


def _reported(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.object.get("message", "")


KUSTOMIZATIONS: Final[Mapping[str, dict[str, Any]]] = {
    "as it is": {},
    "namespace": {"namespace": "gpus-a"},
    "namePrefix": {"namePrefix": "acme-"},
    "nameSuffix": {"nameSuffix": "-blue"},
    "labels": {"labels": [{"pairs": {"team": "infra"}, "includeSelectors": True, "includeTemplates": True}]},
    "commonLabels and annotations": {"commonLabels": {"team": "infra"}, "commonAnnotations": {"a.b/c": "d"}},
    "images and namespace": {"images": [{"name": "gpu-memory-watchdog", "newName": "b.c/d"}], "namespace": "gpus-b"},
    "everything": {
        "namespace": "gpus-c",
        "namePrefix": "acme-",
        "nameSuffix": "-blue",
        "labels": [{"pairs": {"team": "infra"}, "includeSelectors": True}],
    },
}


def _evictions() -> list[Object]:
    """What `gpu-watchdog rights` adds for evictions, as an operator puts it beside the overlay."""
    printed = yaml.safe_load_all(render(parsed(_EVERYTHING), ServiceAccount()))
    return [each for each in printed if each["metadata"]["name"].endswith("-evict")]


@pytest.fixture(scope="module")
def openshift(control_plane: ControlPlane) -> Iterator[None]:
    """The kind of OpenShift, as far as its name goes."""
    kind = definition(*_SCC)
    control_plane.apply(kind)
    name = f"crd/{kind['metadata']['name']}"
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=170s", name)
    yield
    control_plane.kubectl("delete", name)


@pytest.mark.usefixtures("openshift")
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_a_kustomization(
    control_plane: ControlPlane, install: Install, clinic: Clinic, tmp_path: Path, name: str
) -> None:
    """Whatever it renames, the account that runs is restricted; doctor confirms it, and OpenShift has it too."""
    (tmp_path / "evict.yaml").write_text(yaml.safe_dump_all(_evictions()), encoding="utf-8")
    components = ("options/openshift", "platforms/gke")
    more = KUSTOMIZATIONS[name]
    found = kustomized(tmp_path, *components, overlay="capacity", beside=("evict.yaml",), **more)
    it = install([dict(each) for each in found.values()])
    _holds(it)
    (own,) = [each["metadata"]["name"] for each in found.values() if each["kind"] == _SCC[2]]
    namespace = it.pod["metadata"]["namespace"]
    scc = {"group": _SCC[0], "resource": _SCC[3], "verb": "use", "namespace": namespace}
    wait_until(lambda: _may(control_plane, it.user, {**scc, "name": own}), "the role of OpenShift's object holds", 30)
    assert not _may(control_plane, it.user, {**scc, "name": "privileged"})
    if name == "everything":
        assert it.user == "system:serviceaccount:gpus-c:acme-gpu-watchdog-blue"
        reported = clinic.ask(control_plane.kubeconfig(token=it.token), node=it.own)
        assert [reported.what(each).rpartition(", ")[2] for each in ("guard_nodes", "guard_evictions")] == [
            "by dry runs"
        ] * 2


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("r", ("--namespace=gpus-d",)),
        ("other", ("--namespace=gpus-e", "--set=serviceAccount.name=guard")),
        ("other", ("--namespace=gpus-f", "--set=fullnameOverride=dog,nameOverride=dog")),
    ],
)
def test_a_release(install: Install, release: str, flags: tuple[str, ...]) -> None:
    """Under any names that helm is given, the account that runs is restricted."""
    helm()
    found = objects(*flags, policy=_EVERYTHING, release=release)
    _holds(install([each for each in found if "helm.sh/hook" not in str(each["metadata"].get("annotations"))]))


def test_two_that_advertise_different_resources(control_plane: ControlPlane, install: Install) -> None:
    """The guard of one release does not refuse what the role of another allows."""
    helm()
    first = install(objects("--namespace=gpus-g", "--no-hooks", policy=_EVERYTHING))
    _holds(first)
    flags = ("--namespace=gpus-h", "--no-hooks", "--set=serviceAccount.name=second")
    second = install(objects(*flags, policy=_EVERYTHING.replace(RESOURCE, "a.b/c")))
    change = {"status": {"capacity": {"a.b/c": "7"}}}
    wait_until(lambda: _reported(second.patch(second.own, change)) == (200, ""), "the role holds")
    wait_until(lambda: "its role names" in _reported(second.patch(second.own, _ENTRY))[1], "the guard holds")
    assert _reported(second.patch(second.own, change)) == (200, "")
    assert "its role names" in _reported(first.patch(first.own, change))[1]


def _may(plane: ControlPlane, user: str, what: Object, groups: tuple[str, ...] = ()) -> bool:
    spec = {"user": user, "groups": [*groups, "system:authenticated"], "resourceAttributes": what}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = plane.api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


@pytest.fixture
def wildcard(control_plane: ControlPlane) -> Iterator[str]:
    """A user whose role allows everything."""
    name = f"wildcard-{secrets.token_hex(3)}"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": name}],
    }
    del binding["rules"]
    control_plane.apply([role, binding])
    wait_until(lambda: _may(control_plane, name, {"resource": "nodes", "verb": "delete"}), "the role holds")
    yield name
    control_plane.kubectl("delete", f"clusterrole/{name}", f"clusterrolebinding/{name}")


def _impersonate(user: str, group: str = "") -> dict[str, str]:
    return {"Impersonate-User": user, **({"Impersonate-Group": group} if group else {})}


def test_nobody_else_is_restricted(
    control_plane: ControlPlane, new_account: NewAccount, pods: Pods, wildcard: str
) -> None:
    """Administrators, roles with wildcards, kubelets and the node controller change nodes and evict as before.

    No account of the control plane has the markers, or it has all of them.
    """
    node = pods.node()
    new_account(parsed(_EVERYTHING), node)
    pod = pods.create(node=node)
    api, where = control_plane.api, f"/api/v1/nodes/{node}/status?dryRun=All"
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"{path_of(pod)}/eviction?dryRun=All"
    kubelet = _impersonate(f"system:node:{node}", "system:nodes")
    for headers in ({}, _impersonate(wildcard), kubelet):
        assert api.call("PATCH", where, _LABEL, headers=headers).status == 200, headers
        assert api.call("POST", path, eviction, headers=headers).status == 201, headers
    controller = _impersonate("system:serviceaccount:kube-system:node-controller")
    assert api.call("PATCH", where, _LABEL, headers=controller).status == 200
    listed = api.ask("GET", "/api/v1/namespaces/kube-system/serviceaccounts")["items"]
    accounts = [f"system:serviceaccount:kube-system:{each['metadata']['name']}" for each in listed]
    assert len(accounts) > 20
    for user in (*accounts, "system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy"):
        groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system") if user in accounts else ()
        permissions = [
            _may(control_plane, user, {"group": "gpu-memory-watchdog", "resource": each, "verb": "use"}, groups)
            for each in (*Restriction, "unrestricted")
        ]
        assert len(set(permissions)) == 1, user


def test_a_broken_guard_does_not_take_nodes_down(
    control_plane: ControlPlane, new_account: NewAccount, pods: Pods
) -> None:
    """If its condition can't be evaluated, the watchdog is refused, but neither are kubelets nor administrators."""
    node, controller = pods.node(), _impersonate("system:serviceaccount:kube-system:node-controller")
    made = new_account(parsed(_EVERYTHING), node)
    api, where = control_plane.api, f"/api/v1/nodes/{node}/status?dryRun=All"
    name = f"broken-{secrets.token_hex(3)}"
    query = f"authorizer.group('gpu-memory-watchdog').resource('{Restriction.CAPACITY}').check('use').allowed()"
    text = capacity_admission(name)
    assert query in text
    broken = text.replace(query, "[true][request.userInfo.username.size()]")
    control_plane.kubectl("apply", "-f", "-", input=broken)
    try:
        wait_until(lambda: api.call("PATCH", where, _LABEL, headers=controller).status != 200, "it is in force")
        assert api.call("PATCH", where, _ENTRY, token=made.token).status != 200
        for headers in ({}, _impersonate(f"system:node:{node}", "system:nodes")):
            assert api.call("PATCH", where, _LABEL, headers=headers).status == 200
    finally:
        control_plane.kubectl("delete", "-f", "-", input=broken)
        wait_until(lambda: api.call("PATCH", where, _LABEL, headers=controller).status == 200, "it is gone")
