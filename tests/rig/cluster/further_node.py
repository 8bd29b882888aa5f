"""A further real node of the cluster: a kubelet and a containerd of its own, on this machine too."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.rig.cluster.netns import ADDRESS
from tests.rig.cluster.node import SECOND, THIRD, Cluster, Machine

_NUMBERS: Final = {SECOND: 2, THIRD: 3}
# Of TEST-NET-3 (RFC 5737).
_SUBNETS: Final = {SECOND: "203.0.113.0/25", THIRD: "203.0.113.128/25"}
_PORTS: Final = {SECOND: (10251, 10348), THIRD: (10252, 10349)}


class FurtherNode(Machine):
    """Another node of a cluster; its object goes with it.

    It shares the network of the first, as machines of one network do, and has mounts and cgroups of its own.
    """

    def __init__(self, cluster: Cluster, programs: Path, name: str = SECOND) -> None:
        # Each has its own folder: what the one before left of its state is not this node's.
        super().__init__(Path(mkdtemp(prefix=f"{name}-", dir=cluster.folder)), programs=programs)
        self.cluster = cluster
        self.name = name

    def _start(self) -> None:
        plane, name, number = self.cluster.control_plane, self.name, _NUMBERS[self.name]
        self._run_containerd(self.cluster.namespaces, number, subnet=_SUBNETS[name])
        self.containerd.load(self.cluster.folder / "images.tar")
        self._stack.callback(plane.api.call, "DELETE", f"/api/v1/nodes/{name}")
        address = ADDRESS.format(number=number)
        self._run_kubelet(plane, name, lambda: self.cluster.is_ready(name), address=address, ports=_PORTS[name])

    def copy_image(self, name: str, *tags: str) -> None:
        """Give this node an image that the first one has."""
        archive = self.folder / "image.tar"
        self.cluster.containerd.ctr("images", "export", str(archive), *(f"{name}:{tag}" for tag in tags))
        self.containerd.load(archive)
        archive.unlink()
