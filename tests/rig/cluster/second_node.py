"""A second real node of the cluster: a kubelet and a containerd of its own, on this machine too."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.rig.cluster.netns import SECOND_ADDRESS
from tests.rig.cluster.node import SECOND, Cluster, Machine

# TEST-NET-3 (RFC 5737).
_SUBNET: Final = "203.0.113.0/24"
_PORTS: Final = (10251, 10348)


class SecondNode(Machine):
    """Another node of a cluster; its object goes with it.

    It shares the network of the first, as machines of one network do, and has mounts and cgroups of its own.
    """

    def __init__(self, cluster: Cluster, programs: Path) -> None:
        # Each has its own folder: what the one before left of its state is not this node's.
        super().__init__(Path(mkdtemp(prefix=f"{SECOND}-", dir=cluster.folder)), programs=programs)
        self.cluster = cluster

    def _start(self) -> None:
        plane = self.cluster.control_plane
        self._run_containerd(self.cluster.namespaces, subnet=_SUBNET)
        self.containerd.load(self.cluster.folder / "images.tar")
        self._stack.callback(plane.api.call, "DELETE", f"/api/v1/nodes/{SECOND}")
        self._run_kubelet(plane, SECOND, lambda: self.cluster.is_ready(SECOND), address=SECOND_ADDRESS, ports=_PORTS)

    def copy_image(self, name: str, *tags: str) -> None:
        """Give this node an image that the first one has."""
        archive = self.folder / "image.tar"
        self.cluster.containerd.ctr("images", "export", str(archive), *(f"{name}:{tag}" for tag in tags))
        self.containerd.load(archive)
        archive.unlink()
