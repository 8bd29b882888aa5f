"""The tenants of a simulated node as values, and as the objects that Kubernetes would have of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from watchdog.sim.curve import NOTHING, Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One process of a tenant: its name (15 bytes at most), what it holds, and whether it ignores SIGTERM."""

    name: str
    curve: Curve = NOTHING
    ignores_sigterm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod with one container. The first task leads, the others are its forks. `declared` is a quantity."""

    namespace: str
    pod: str
    uid: str
    container: str
    container_id: str
    resource: str
    declared: str
    tasks: tuple[Task, ...]

    @property
    def title(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def cgroup(self) -> str:
        """The text of /proc/PID/cgroup in its container: cgroup v2, systemd driver, containerd."""
        pod = f"kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        return f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{self.container_id}.scope\n"


def pod_list(tenants: Iterable[Tenant], node: str) -> dict[str, Any]:
    """What `kubectl get pods -A -o json` would print of them."""
    return {"apiVersion": "v1", "kind": "List", "items": [_pod(tenant, node) for tenant in tenants]}


def _pod(tenant: Tenant, node: str) -> dict[str, Any]:
    amounts = {tenant.resource: tenant.declared}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": tenant.namespace, "name": tenant.pod, "uid": tenant.uid},
        "spec": {
            "nodeName": node,
            "containers": [{"name": tenant.container, "resources": {"limits": amounts, "requests": amounts}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": tenant.container,
                    "containerID": f"containerd://{tenant.container_id}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }
