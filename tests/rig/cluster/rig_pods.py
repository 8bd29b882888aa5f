"""The pods of a rig's node as objects of a real API server, for a daemon that reads no file."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.node.support import wait_until
from tests.rig.cluster.accounts import with_rights
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.pods import Pods
from tests.rig.node import Pod
from tools.programs import programs
from watchdog.config.load import load_policy

_NODE: Final = "n1"


class RigPods:
    """The node, and the pods that are added to it."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        """`stack` is where the daemon's account ends."""
        self._plane = plane
        self._stack = stack
        self._pods = Pods(plane.api, "default")
        self._pods.node(_NODE, capacity={"veriff.com/gpu-memory": "640Gi"})
        self._namespaces = {"default"}

    def add(self, pod: Pod) -> None:
        """Create it with its one container; from then on it has the UID and the container ID of the object."""
        (container,) = pod.containers
        if pod.namespace not in self._namespaces:
            self._add_namespace(pod.namespace)
        spec, _ = container.to_json()
        made = self._pods.create(
            pod.name, node=_NODE, namespace=pod.namespace, container={"resources": spec["resources"]}
        )
        (status,) = made["status"]["containerStatuses"]
        pod.uid, container.id = made["metadata"]["uid"], status["containerID"].partition("://")[2]

    def options(self, policy: Path) -> tuple[str | Path, ...]:
        """For a daemon that may do what this policy needs, in place of `--pods FILE`."""
        made = self._stack.enter_context(with_rights(self._plane, load_policy(policy), _NODE))
        return "--kubeconfig", made.kubeconfig

    def _add_namespace(self, name: str) -> None:
        api = self._plane.api
        api.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        wait_until(lambda: api.call("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default").status == 200)
        self._namespaces.add(name)


@contextmanager
def rig_pods(folder: Path) -> Iterator[RigPods]:
    """A control plane of its own, with the node and without pods."""
    with ControlPlane(folder, programs=programs(), scheduler=False) as plane, ExitStack() as stack:
        yield RigPods(plane, stack)
