"""Nodes, pods and budgets as a test wants them: real objects, with the statuses that a kubelet would write."""

import datetime as dt
import itertools
import secrets
from collections.abc import Mapping
from typing import Any, Final

from tests.node.support import wait_until
from tests.rig.cluster.api import Api, Object

# PodGC and the taint manager leave such pods alone, and it lets a pod be scheduled on a node that is not ready yet.
_TOLERATE_ALL: Final = [{"operator": "Exists"}]
_numbers = itertools.count(1)


class Pods:
    """Makes objects through the API server, as the admin. Nodes that it made are removed by `clear`."""

    def __init__(self, api: Api, namespace: str) -> None:
        """`namespace` is where objects go unless another one is named."""
        self.namespace = namespace
        self._api = api
        self._nodes: list[str] = []

    def node(
        self,
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
    ) -> str:
        """A Node that is ready, with 64 CPUs and 256Gi beside `capacity`; gives its name. It has no kubelet."""
        name = name or f"node-{next(_numbers)}-{secrets.token_hex(3)}"
        hostname = {"kubernetes.io/hostname": name, **(labels or {})}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": hostname}}
        self._api.ask("POST", "/api/v1/nodes", body)
        self._nodes.append(name)
        # What a kubelet writes when it comes up.
        has = {"cpu": "64", "memory": "256Gi", "pods": "500", **(capacity or {})}
        status = {"conditions": [_condition("Ready", reason="KubeletReady")], "capacity": has, "allocatable": has}
        self._api.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        return name

    def create(
        self,
        name: str | None = None,
        *,
        node: str = "",
        namespace: str | None = None,
        running: bool = True,
        metadata: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        container: Mapping[str, Any] | None = None,
    ) -> Object:
        """A pod, bound to `node` (or left to the scheduler), running and ready unless `running` is False.

        `metadata` (labels, annotations ...), `spec` and `container` (resources, env ...) are added.
        """
        one = {"name": "main", "image": "tests.invalid/tenant:1", "imagePullPolicy": "Never", **(container or {})}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name or f"pod-{next(_numbers)}", **(metadata or {})},
            "spec": {
                "containers": [one],
                "tolerations": _TOLERATE_ALL,
                **({"nodeName": node} if node else {}),
                **(spec or {}),
            },
        }
        made = self._api.ask("POST", f"/api/v1/namespaces/{namespace or self.namespace}/pods", body)
        return self.run(made) if running and node else made

    def run(self, pod: Object) -> Object:
        """Report that its containers run and are ready, as its kubelet would; gives the pod as it is then."""
        statuses = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": f"{each['image']}@sha256:{'0' * 64}",
                "containerID": f"containerd://{secrets.token_hex(32)}",
                "restartCount": 0,
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": _now()}},
            }
            for each in pod["spec"]["containers"]
        ]
        conditions = [_condition(kind) for kind in ("Initialized", "ContainersReady", "Ready", "PodScheduled")]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses, "startTime": _now()}
        return self.set_status(
            pod, {**status, "hostIP": "192.0.2.1", "podIP": "192.0.2.77", "podIPs": [{"ip": "192.0.2.77"}]}
        )

    def finish(self, pod: Object, *, exit_code: int) -> None:
        """Report that its container has ended, and the pod with it: Failed, or Succeeded with exit code 0."""
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": _now()}
        (known,) = self.read(pod)["status"]["containerStatuses"]
        status = {**known, "ready": False, "started": False, "state": {"terminated": ended}}
        phase = "Failed" if exit_code else "Succeeded"
        not_ready = [_condition(kind, status="False", reason=f"Pod{phase}") for kind in ("ContainersReady", "Ready")]
        self.set_status(pod, {"phase": phase, "conditions": not_ready, "containerStatuses": [status]})

    def set_status(self, pod: Object, status: Object) -> Object:
        """Write parts of a pod's status."""
        return self._api.ask("PATCH", f"{path_of(pod)}/status", {"status": status})

    def read(self, pod: Object) -> Object:
        """The pod as it is now. Raises RefusedError."""
        return self._api.ask("GET", path_of(pod))

    def exists(self, pod: Object) -> bool:
        """Whether this very pod, by UID, is still there."""
        answer = self._api.call("GET", path_of(pod))
        return answer.status == 200 and answer.object["metadata"]["uid"] == pod["metadata"]["uid"]

    def list(self) -> list[Object]:
        """All pods of the namespace."""
        found: list[Object] = self._api.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in found]

    def delete(self, pod: Object, *, grace_s: int = 0) -> None:
        """Delete it; with 0 it is gone at once, otherwise it stays terminating, for no kubelet confirms its end."""
        self._api.ask(
            "DELETE", path_of(pod), {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
        )

    def daemonset(self, spec: Object) -> None:
        """A DaemonSet."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"
        self._api.ask("POST", path, {"metadata": {"name": "agent"}, "spec": spec})

    def budget(self, labels: Mapping[str, str], *, allowed: int | None, name: str, **spec: object) -> None:
        """A PodDisruptionBudget, once the disruption controller allows `allowed` evictions by it, if given.

        `spec` is minAvailable (the only one for pods without a controller), maxUnavailable, unhealthyPodEvictionPolicy.
        """
        spec = {"selector": {"matchLabels": dict(labels)}, **spec}
        self._api.ask("POST", self._budgets, {"metadata": {"name": name}, "spec": spec})
        if allowed is not None:
            self.wait_for_budget(name, allowed=allowed)

    def loosen(self, name: str, *, allowed: int, **spec: object) -> None:
        """Change a budget, until it allows this many evictions."""
        self._api.ask("PATCH", f"{self._budgets}/{name}", {"spec": spec})
        self.wait_for_budget(name, allowed=allowed)

    def wait_for_budget(self, name: str, *, allowed: int) -> None:
        """Wait until a budget allows this many evictions."""

        def known() -> bool:
            status = self._api.ask("GET", f"{self._budgets}/{name}").get("status", {})
            return bool(status.get("observedGeneration")) and status.get("disruptionsAllowed") == allowed

        wait_until(known)

    @property
    def _budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"

    def clear(self) -> None:
        """Remove the nodes."""
        for name in self._nodes:
            self._api.call("DELETE", f"/api/v1/nodes/{name}")
        self._nodes.clear()


def path_of(pod: Object) -> str:
    """Where the API has this pod."""
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _condition(kind: str, *, status: str = "True", reason: str = "") -> Object:
    made: Object = {"type": kind, "status": status, "lastTransitionTime": _now()}
    return {**made, "reason": reason} if reason else made


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
