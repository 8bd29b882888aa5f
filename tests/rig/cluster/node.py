"""A whole cluster of one node: control plane, containerd and a real kubelet that runs real pods."""

import abc
import itertools
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from tests.rig.cluster.api import Object
from tests.rig.cluster.containerd import Containerd
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.credentials import node_user
from tests.rig.cluster.images import write_images
from tests.rig.cluster.kubelet import kubelet
from tests.rig.cluster.netns import NODE_ADDRESS, Namespaces
from tests.rig.cluster.network import Network
from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.rig.cluster.real_pods import RealPods, wait_until

NODE: Final = "node-1"
# They are there in some tests: further_node.
SECOND: Final = "node-2"
THIRD: Final = "node-3"


class Machine(abc.ABC):
    """A context manager: inside, a node is Ready; after it, and after a start that failed, nothing of it is left."""

    def __init__(self, folder: Path, *, programs: Path) -> None:
        """`folder` gets configuration, data and logs."""
        self.folder = folder
        self._programs = programs
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @abc.abstractmethod
    def _start(self) -> None:
        """Start all of it."""

    def _run_containerd(self, beside: Namespaces | None = None, number: int = 1, **more: Any) -> None:
        self.namespaces = self._stack.enter_context(Namespaces(beside, number))
        # Callbacks run from the last to the first: pods' processes go before the shims, which hold the mounts.
        self.cgroups = CgroupRoot(self.namespaces.name)
        self._stack.callback(self.cgroups.close)
        self.containerd = Containerd(self.namespaces, self.folder, **more)
        self._stack.callback(self.containerd.server.stop, limit_s=5)
        self.containerd.start()

    def _run_kubelet(self, plane: ControlPlane, node: str, is_ready: Callable[[], bool], **more: Any) -> None:
        self.kubelet = kubelet(
            self.namespaces,
            self._programs / "kubelet",
            self.folder,
            node=node,
            kubeconfig=plane.kubeconfig(token=plane.token(node_user(node).name)),
            cgroup_root=self.cgroups.path,
            **more,
        )
        self._stack.callback(self.kubelet.stop, hard=True)
        self.kubelet.start()
        self.kubelet.wait_for(is_ready)
        self.pods = RealPods(plane, self.cgroups)


class Cluster(Machine):
    """A control plane and its node. Its folder must not be in use."""

    def _start(self) -> None:
        self._numbers = itertools.count(1)
        self._run_containerd()
        self.containerd.load(write_images(self.folder))
        self.network = Network(namespace=self.namespaces.network_file, address=NODE_ADDRESS, port=443)
        users = [node_user(node) for node in (NODE, SECOND, THIRD)]
        self.control_plane = self._stack.enter_context(
            ControlPlane(self.folder / "plane", programs=self._programs, network=self.network, users=users)
        )
        self._run_kubelet(self.control_plane, NODE, self.is_ready)
        self.pods.wait_for_accounts("default")

    def is_ready(self, node: str = NODE) -> bool:
        """Whether a node exists and is Ready."""
        answer = self.control_plane.api.call("GET", f"/api/v1/nodes/{node}")
        if answer.status != 200:
            return False
        conditions = answer.object["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def node(self, name: str = NODE) -> Object:
        """A node's object. Raises RefusedError where there is none."""
        return self.control_plane.api.ask("GET", f"/api/v1/nodes/{name}")

    def restart_kubelet(self) -> None:
        """End the kubelet by SIGKILL and start it again, until the node is Ready; its pods run on."""
        self.kubelet.stop(hard=True)
        self.kubelet.start()
        self.kubelet.wait_for(self._answers_again)

    def set_capacity(self, resource: str, amount: str | None) -> None:
        """Advertise an extended resource on the node as an administrator would, or take it back (None).

        The scheduler goes by the allocatable amount, which the kubelet takes from the capacity at its next status
        update: until then it is what an earlier test advertised.
        """
        path = f"/status/capacity/{resource.replace('~', '~0').replace('/', '~1')}"
        change: Object = {"op": "remove", "path": path}
        if amount is not None:
            change = {"op": "add", "path": path, "value": amount}
        headers = {"Content-Type": "application/json-patch+json"}
        self.control_plane.api.ask("PATCH", f"/api/v1/nodes/{NODE}/status", [change], headers=headers)
        wait_until(
            lambda: self.node()["status"]["allocatable"].get(resource) == amount,
            f"the kubelet makes {amount} of {resource} allocatable",
        )

    def new_namespace(self, named_after: str) -> str:
        """Make a namespace in which pods can be created; gives its name."""
        words = re.sub("[^a-z0-9]+", "-", named_after.lower()).strip("-")[:40].rstrip("-")
        name = f"{words}-{next(self._numbers)}"
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.control_plane.api.ask("POST", "/api/v1/namespaces", made)
        self.pods.wait_for_accounts(name)
        return name

    def drop_namespace(self, name: str) -> None:
        """Delete a namespace and end its pods at once; the rest of it goes by itself."""
        self.control_plane.api.ask("DELETE", f"/api/v1/namespaces/{name}")
        for each in self.pods.select(name):
            self.pods.delete(each["metadata"]["name"], name)

    def popen(self, command: Sequence[str | Path], **more: Any) -> subprocess.Popen[bytes]:
        """Start a program in the cluster's network; it has this machine's own mounts and PIDs."""
        return subprocess.Popen([*self.network.enter, *map(str, command)], **more)

    def run(self, command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in the cluster's network to its end."""
        given = {"capture_output": True, "text": True, "timeout": 180, **more}
        return subprocess.run([*self.network.enter, *map(str, command)], check=False, **given)

    def kubectl(self, *arguments: str, **more: Any) -> str:
        """What kubectl prints, as the admin. Raises CalledProcessError."""
        return self.control_plane.kubectl(*arguments, **more).stdout

    def _answers_again(self) -> bool:
        """Whether the kubelet's own port answers: the node's condition is still that of the time before."""
        try:
            self.network.connect(10250, 1.0).close()
        except OSError:
            return False
        return self.is_ready()
