"""Service accounts with exactly the rights that a policy needs, as `gpu-watchdog rights` prints them."""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.real_pods import wait_until
from tests.rig.cluster.rights_guard import vouch_for
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog.core.policy import Policy
from watchdog.kube.kinds import Piece, Right
from watchdog.kube.rights import ServiceAccount, markers_of, render, render_admission, render_role

_AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_MAY_I: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account whose token is bound to a pod on a node, as the daemon's is."""

    plane: ControlPlane
    kubeconfig: Path
    token: str
    identity: ServiceAccount
    pod: Object

    def through(self, by: TcpProxy | ApiProxy | None) -> Path:
        """A new kubeconfig file for it, by way of a proxy."""
        ca = by.ca if isinstance(by, ApiProxy) else None
        return self.plane.kubeconfig(token=self.token, server=by.url if by is not None else None, ca=ca)


@contextmanager
def account(plane: ControlPlane, manifests: str, identity: ServiceAccount, node: str | None) -> Iterator[Account]:
    """Make an account with what these manifests give it, in a namespace that is there; all of it goes at the end.

    `node` is where its pod is; None: the token is bound to none. The manifests hold from the moment this is given.
    """
    documents = [each for each in yaml.safe_load_all(manifests) if each is not None]
    here = f"/api/v1/namespaces/{identity.namespace}"
    vouch_for(identity.user, documents)
    with ExitStack() as stack:
        named = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": identity.name}}
        plane.api.ask("POST", f"{here}/serviceaccounts", named)
        stack.callback(plane.api.call, "DELETE", f"{here}/serviceaccounts/{identity.name}")
        if documents:
            plane.kubectl("apply", "-f", "-", input=manifests)
            stack.callback(plane.kubectl, "delete", "--wait=false", "--ignore-not-found", "-f", "-", input=manifests)
        pod = _pod(plane, identity, node) if node is not None else {}
        if pod:
            stack.callback(plane.api.call, "DELETE", f"{here}/pods/{pod['metadata']['name']}", _AT_ONCE)
        token = plane.service_account_token(identity.namespace, identity.name, bound=pod or None)
        made = Account(plane=plane, kubeconfig=plane.kubeconfig(token=token), token=token, identity=identity, pod=pod)
        _wait_for_roles(made, documents)
        _wait_for_admission(made, documents, node)
        yield made


@contextmanager
def with_rights(
    plane: ControlPlane,
    policy: Policy,
    node: str | None = None,
    *,
    namespace: str = "default",
    without: Collection[Piece] = (),
) -> Iterator[Account]:
    """An account with the rights of a policy and no others, but for the pieces that an operator took away."""
    identity = ServiceAccount(namespace=namespace, name=f"dog-{secrets.token_hex(3)}")
    gone = {identity.object_name(piece) for piece in without}
    documents = render(policy, identity).split("---\n")
    left = [each for each in documents if yaml.safe_load(each)["metadata"]["name"] not in gone]
    with account(plane, "---\n".join(left), identity, node) as made:
        yield made


def roles(rights: Iterable[Right], identity: ServiceAccount, guarded_by: Policy | None = None) -> str:
    """The roles of some rights alone; with what ties them down if a policy is given that this depends on."""
    listed = list(rights)
    pieces = dict.fromkeys(right.piece for right in listed)
    markers = markers_of(guarded_by) if guarded_by is not None else {}
    admission = render_admission(guarded_by, identity) if guarded_by is not None else ()
    made = (render_role(piece, listed, identity, markers.get(piece, ())) for piece in pieces)
    return "---\n".join((*made, *admission))


def lacking(rights: Iterable[Right], missing: Collection[tuple[str, str]]) -> list[Right]:
    """Rights without some verbs, each given as resource and verb."""
    left = (replace(each, verbs=tuple(v for v in each.verbs if (each.target, v) not in missing)) for each in rights)
    return [each for each in left if each.verbs]


def _pod(plane: ControlPlane, identity: ServiceAccount, node: str) -> Object:
    """The pod that the token is bound to; its image is nowhere, so that it never runs."""
    container = {"name": "watchdog", "image": "tests.invalid/watchdog:1", "imagePullPolicy": "Never"}
    spec = {
        "serviceAccountName": identity.name,
        "automountServiceAccountToken": False,
        "nodeName": node,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{identity.name}-pod"}, "spec": spec}
    return plane.api.ask("POST", f"/api/v1/namespaces/{identity.namespace}/pods", body)


def _wait_for_roles(made: Account, documents: Iterable[Object]) -> None:
    """The API server takes up roles some milliseconds after they are written: have the account ask what it may."""
    for role in (each for each in documents if each["kind"] == "ClusterRole"):
        for rule in role["rules"]:
            (group,), (target,) = rule["apiGroups"], rule["resources"][:1]
            resource, _, subresource = target.partition("/")
            for verb in rule["verbs"]:
                what = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
                wait_until(lambda what=what: _may(made, what), f"the role gives {verb} {target}")  # type: ignore[misc]


def _may(made: Account, what: Object) -> bool:
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = made.plane.api.ask("POST", _MAY_I, {**kind, "spec": {"resourceAttributes": what}}, token=made.token)
    return bool(answer["status"]["allowed"])


def _wait_for_admission(made: Account, documents: Iterable[Object], node: str | None) -> None:
    """The API server takes up admission policies a second or so after they are written: ask what they refuse."""
    plane = made.plane
    guarded = {each["metadata"]["name"] for each in documents if each["kind"] == "ValidatingAdmissionPolicy"}
    if f"{made.identity.name}-capacity" in guarded and node is not None:
        label: Any = {"metadata": {"labels": {"tests.invalid/probe": "1"}}}
        path = f"/api/v1/nodes/{node}/status?dryRun=All"
        wait_until(lambda: plane.api.call("PATCH", path, label, token=made.token).status == 403, "nodes are guarded")
    if f"{made.identity.name}-evict" in guarded and made.pod:
        meta = {"name": made.pod["metadata"]["name"], "namespace": made.identity.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{made.identity.namespace}/pods/{meta['name']}/eviction?dryRun=All"
        wait_until(lambda: plane.api.call("POST", path, body, token=made.token).status == 403, "evictions are guarded")


NewAccount = Callable[..., Account]


@pytest.fixture
def new_account(control_plane: ControlPlane, namespace: str) -> Iterator[NewAccount]:
    """Gives accounts as `with_rights` makes them, in the test's namespace; they go with the test."""
    with ExitStack() as stack:

        def make(policy: Policy, node: str | None = None, **more: Any) -> Account:
            return stack.enter_context(with_rights(control_plane, policy, node, namespace=namespace, **more))

        yield make
