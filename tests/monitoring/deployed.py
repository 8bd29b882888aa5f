"""The watchdog's pods as objects of a real API server, so that Prometheus finds them as it does in a cluster."""

import copy
from typing import Any, Final

import yaml

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.monitoring.scraping import NAMESPACE
from tests.node.support import REPOSITORY, wait_until

_MANIFEST: Final = REPOSITORY / "deploy" / "kustomize" / "base" / "daemonset-gpu-watchdog.yaml"


def template() -> Object:
    """The pod template of the DaemonSet that ships."""
    found: Object = yaml.safe_load(_MANIFEST.read_text(encoding="utf-8"))["spec"]["template"]
    return found


def namespaces(plane: ControlPlane, *names: str) -> None:
    """Make namespaces with their default accounts, for no controller does it here."""
    for name in names:
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, namespace=name)


def watchdog(plane: ControlPlane, name: str, *, node: str, port: int, **more: Any) -> None:
    """The watchdog's pod on a node, made of the DaemonSet's template; it listens on a port of loopback.

    `labels` replace the template's, `phase` is its phase, `ports` come beside its own.
    """
    made = copy.deepcopy(template())
    spec, meta = made["spec"], {**made["metadata"], "name": name}
    meta["labels"] = more.get("labels", meta["labels"])
    (container,) = spec["containers"]
    (metrics,) = container["ports"]
    # Loopback is all of this machine, so each daemon needs a port of its own.
    container["ports"] = [{**metrics, "containerPort": port}, *more.get("ports", ())]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "nodeName": node}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    plane.api.ask("POST", path, body)
    status = {"phase": more.get("phase", "Running"), "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    plane.api.ask("PATCH", f"{path}/{name}/status", {"status": status})


def account(plane: ControlPlane, manifests: str) -> str:
    """The token of the account that these manifests give rights to, which is made; they hold once this is given."""
    documents = list(yaml.safe_load_all(manifests))
    (subject,) = next(each for each in documents if each and each["kind"] == "RoleBinding")["subjects"]
    namespace, name = subject["namespace"], subject["name"]
    namespaces(plane, namespace)
    plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, namespace=namespace)
    plane.kubectl("apply", "-f", "-", input=manifests)
    token = plane.service_account_token(namespace, name)
    wait_until(lambda: plane.api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", token=token).status == 200, 20)
    return token


__all__ = ["account", "namespaces", "template", "watchdog"]
