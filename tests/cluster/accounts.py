"""Service accounts with exactly the rights that a policy needs, as `gpu-watchdog rights` prints them."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from watchdog.core.policy import Policy
from watchdog.kube.access.manifests import ServiceAccount, render

_LIMIT_S = 20.0
_AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account whose token is bound to a pod on a node, as the daemon's is."""

    kubeconfig: Path
    token: str
    identity: ServiceAccount
    pod: Object


@contextlib.contextmanager
def account(plane: ControlPlane, manifests: str, identity: ServiceAccount, node: str | None) -> Iterator[Account]:
    """Make an account with what these manifests give it, in a namespace that is there; all of it goes at the end.

    `node` is where its pod is; None: the token is bound to none. The manifests hold from the moment this is given.
    """
    documents = [each for each in yaml.safe_load_all(manifests) if each is not None]
    here = f"/api/v1/namespaces/{identity.namespace}"
    with ExitStack() as stack:
        named = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": identity.name}}
        plane.api.ask("POST", f"{here}/serviceaccounts", named)
        if documents:
            plane.kubectl("apply", "-f", "-", input=manifests)
            stack.callback(plane.kubectl, "delete", "--wait=false", "-f", "-", input=manifests)
        pod = _pod(plane, identity, node) if node is not None else {}
        if pod:
            stack.callback(plane.api.call, "DELETE", f"{here}/pods/{pod['metadata']['name']}", _AT_ONCE)
        token = plane.service_account_token(identity.namespace, identity.name, bound=pod or None)
        made = Account(kubeconfig=plane.kubeconfig(token=token), token=token, identity=identity, pod=pod)
        _wait_for_admission(plane, made, documents, node)
        yield made


def wait_until(true: Callable[[], bool], what: str, limit_s: float = _LIMIT_S) -> float:
    """Wait until something is so; the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < limit_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


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


def _wait_for_admission(plane: ControlPlane, made: Account, documents: Iterable[Object], node: str | None) -> None:
    """The API server takes up admission policies a second or so after they are written: ask what they refuse."""
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


@pytest.fixture
def account_kubeconfig(control_plane: ControlPlane, namespace: str) -> Iterator[Callable[[Policy, str], Path]]:
    """Gives a kubeconfig for a policy and a node: of an account with the rights of that policy and no others."""
    with ExitStack() as stack:

        def make(policy: Policy, node: str) -> Path:
            identity = ServiceAccount(namespace=namespace, name=f"dog-{secrets.token_hex(3)}")
            made = stack.enter_context(account(control_plane, render(policy, identity), identity, node))
            return made.kubeconfig

        yield make


__all__ = ["Account", "account", "account_kubeconfig", "wait_until"]
