"""Pods that really run on the node: what they are made of, and their containers as the machine sees them."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.support import pauses
from tests.rig.cluster.api import Object, query
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.images import WORKLOAD
from tests.rig.cluster.node_cgroups import CgroupRoot

MEMORY = "veriff.com/gpu-memory"


def container(name: str = "main", *arguments: str, memory: str | None = None) -> Object:
    """A container of the workload image; its arguments are those of workload.c. `memory` is the GPU memory declared."""
    made: Object = {"name": name, "image": WORKLOAD, "imagePullPolicy": "Never", "args": list(arguments)}
    if memory is not None:
        made["resources"] = {"limits": {MEMORY: memory}, "requests": {MEMORY: memory}}
    return made


def pod_spec(*containers: Object, grace_s: int = 30, **more: Any) -> Object:
    """The specification of a pod of these containers, or of one that sleeps."""
    spec = {"containers": list(containers) or [container()], "terminationGracePeriodSeconds": grace_s}
    # No token: the mount would only make the start slower.
    return {**spec, "automountServiceAccountToken": False, "enableServiceLinks": False, **more}


def pod(name: str, *containers: Object, labels: dict[str, str] | None = None, **more: Any) -> Object:
    """A bare pod; `more` is for `pod_spec`."""
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(*containers, **more)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealContainer:
    """A running container: the ID without the runtime's name, and its processes' host PIDs, PID 1 of it first."""

    name: str
    id: str
    pids: tuple[int, ...]
    restarts: int


class RealPods:
    """Creates and reads pods."""

    def __init__(self, control_plane: ControlPlane, *cgroups: CgroupRoot) -> None:
        self._plane = control_plane
        self._cgroups = cgroups

    def wait_for_accounts(self, namespace: str) -> None:
        """Wait until pods can be created in a namespace: its default service account comes by a controller."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(lambda: self._plane.api.call("GET", path).status == 200, f"{namespace} has a service account")

    def create(self, made: Object, namespace: str = "default") -> Object:
        """Create a pod; it is not waited for."""
        return self._plane.api.ask("POST", f"/api/v1/namespaces/{namespace}/pods", made)

    def run(self, made: Object, namespace: str = "default") -> Object:
        """Create a pod and wait until all its containers run; gives the object as it is then."""
        self.create(made, namespace)
        return self.wait(made["metadata"]["name"], is_running, namespace)

    def get(self, name: str, namespace: str = "default") -> Object | None:
        """A pod, or None where there is none of this name."""
        answer = self._plane.api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return answer.object if answer.status == 200 else None

    def select(self, namespace: str = "default", **labels: str) -> list[Object]:
        """The pods of a namespace with these labels, oldest first."""
        selector = query(labelSelector=",".join(f"{key}={value}" for key, value in labels.items())) if labels else ""
        found: list[Object] = self._plane.api.ask("GET", f"/api/v1/namespaces/{namespace}/pods{selector}")["items"]
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    def wait(
        self, name: str, true: Callable[[Object], object], namespace: str = "default", limit_s: float = 180
    ) -> Object:
        """Wait until something is true of a pod that exists; gives the object of which it was."""
        seen: list[Object | None] = []

        def is_so() -> bool:
            seen[:] = [self.get(name, namespace)]
            return seen[0] is not None and bool(true(seen[0]))

        wait_until(is_so, lambda: f"pod {namespace}/{name}: {(seen[0] or {}).get('status')}", limit_s)
        assert seen[0] is not None
        return seen[0]

    def wait_gone(self, uid: str, name: str, namespace: str = "default", limit_s: float = 180) -> None:
        """Wait until the API server has no pod of that UID any more."""

        def gone() -> bool:
            found = self.get(name, namespace)
            return found is None or found["metadata"]["uid"] != uid

        wait_until(gone, f"pod {namespace}/{name} is gone", limit_s)

    def delete(self, name: str, namespace: str = "default", grace_s: int = 0) -> None:
        """Delete a pod, and wait until it is gone."""
        found = self.get(name, namespace)
        if found is None:
            return
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._plane.api.call("DELETE", path, {"gracePeriodSeconds": grace_s})
        self.wait_gone(found["metadata"]["uid"], name, namespace)

    def containers(self, of: Object) -> list[RealContainer]:
        """The containers of a pod that run now, by its object."""
        found = []
        for status in of["status"].get("containerStatuses", ()):
            identity = status.get("containerID", "").rpartition("/")[2]
            if "running" in status["state"]:
                pids = self.pids(of["metadata"]["uid"], identity)
                found.append(
                    RealContainer(name=status["name"], id=identity, pids=pids, restarts=status["restartCount"])
                )
        return found

    def pids(self, uid: str, container_id: str) -> tuple[int, ...]:
        """The host's PIDs of a container's processes, PID 1 of the container first."""
        members = {pid: path for each in self._cgroups for pid, path in each.members().items()}
        pids = [pid for pid, path in members.items() if path.endswith(f"pod{uid}/{container_id}")]
        return tuple(sorted(pids, key=inner_pid))

    def log(self, name: str, namespace: str = "default") -> list[str]:
        """What a pod's only container has printed, line by line."""
        return self._plane.kubectl("logs", "-n", namespace, name).stdout.splitlines()

    def untouched(self, of: str, namespace: str, name: str) -> bool:
        """Whether a container has run from its start on, also seconds after its neighbour ended; else it prints."""
        time.sleep(3)
        found = self.get(of, namespace)
        status = status_of(found or {"status": {}}, name)
        if status.get("restartCount") == 0 and "running" in status["state"]:
            return True
        print(f"container {name} of {namespace}/{of}: {found and found['status']}")
        return False

    def processes(self, of: Object) -> dict[int, str]:
        """The processes of a pod, the sandbox's too: the host's PID and the cgroup."""
        members = {pid: path for each in self._cgroups for pid, path in each.members().items()}
        return {pid: path for pid, path in members.items() if f"pod{of['metadata']['uid']}/" in path}


def is_running(of: Object) -> bool:
    """Whether all containers of a pod run."""
    statuses: Sequence[Object] = of["status"].get("containerStatuses", ())
    return len(statuses) == len(of["spec"]["containers"]) and all("running" in each["state"] for each in statuses)


def status_of(found: Object, name: str = "main") -> Object:
    """The status of a container of a pod, of an init container too; empty before it has one."""
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = (each for kind in kinds for each in found["status"].get(kind, ()) if each["name"] == name)
    return dict(next(statuses, {}))


def killed(found: Object, name: str = "main") -> bool:
    """Whether a container was ended by SIGKILL and runs again."""
    status = status_of(found, name)
    ended = status.get("lastState", {}).get("terminated", {})
    return ended.get("exitCode") == 137 and "running" in status.get("state", {})


def wait_until(
    true: Callable[[], bool], what: str | Callable[[], str], limit_s: float = 180, pause_s: float | None = None
) -> float:
    """Wait until something is true, and give the seconds that it took; `what` is for the failure."""
    began, pauses_s = time.monotonic(), pauses() if pause_s is None else itertools.repeat(pause_s)
    while not true():
        assert time.monotonic() - began < limit_s, f"not so after {limit_s} s: {what() if callable(what) else what}"
        time.sleep(next(pauses_s))
    return time.monotonic() - began


def inner_pid(pid: int) -> int:
    """The PID that a process has in its container."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 2**22
    return int(next((line.split()[-1] for line in lines if line.startswith("NSpid:")), pid))
