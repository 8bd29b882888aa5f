"""A second real node of the cluster: a kubelet and a containerd of its own, on this machine too."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self

from tests.cluster.containerd import Containerd
from tests.cluster.credentials import node_user
from tests.cluster.kubelet import kubelet
from tests.cluster.netns import SECOND_ADDRESS, Namespaces
from tests.cluster.node import SECOND, Cluster
from tests.cluster.node_cgroups import CgroupRoot
from tests.cluster.real_pods import RealPods

# TEST-NET-3 (RFC 5737).
_SUBNET: Final = "203.0.113.0/24"
_PORTS: Final = (10251, 10348)


class SecondNode:
    """A context manager: inside, there is another Ready node; after it neither its object nor anything that ran on it.

    It shares the network of the first, as machines of one network do, and has mounts and cgroups of its own.
    """

    def __init__(self, cluster: Cluster, programs: Path) -> None:
        self.cluster = cluster
        # Each has its own: what the one before left of its state is not this node's.
        self.folder = Path(mkdtemp(prefix=f"{SECOND}-", dir=cluster.folder))
        self._programs = programs
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        plane = self.cluster.control_plane
        self.namespaces = self._stack.enter_context(Namespaces(beside=self.cluster.namespaces))
        self.cgroups = CgroupRoot(self.namespaces.name)
        self._stack.callback(self.cgroups.close)
        self.containerd = Containerd(self.namespaces, self.folder, subnet=_SUBNET)
        self._stack.callback(self.containerd.server.stop, limit_s=5)
        self.containerd.start()
        self.containerd.load(self.cluster.folder / "images.tar")
        self._stack.callback(plane.api.call, "DELETE", f"/api/v1/nodes/{SECOND}")
        self.kubelet = kubelet(
            self.namespaces,
            self._programs / "kubelet",
            self.folder,
            node=SECOND,
            kubeconfig=plane.kubeconfig(token=plane.token(node_user(SECOND).name)),
            cgroup_root=self.cgroups.path,
            address=SECOND_ADDRESS,
            ports=_PORTS,
        )
        self._stack.callback(self.kubelet.stop, hard=True)
        self.kubelet.start()
        self.kubelet.wait_for(lambda: self.cluster.is_ready(SECOND))
        self.pods = RealPods(plane, self.cgroups)

    def copy_image(self, name: str, *tags: str) -> None:
        """Give this node an image that the first one has."""
        archive = self.folder / "image.tar"
        self.cluster.containerd.ctr("images", "export", str(archive), *(f"{name}:{tag}" for tag in tags))
        self.containerd.load(archive)
        archive.unlink()
