"""A release on several real nodes."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self

from tests.rig.cluster.api import Object
from tests.rig.cluster.card import Card
from tests.rig.cluster.further_node import FurtherNode
from tests.rig.cluster.installed import Installed
from tests.rig.cluster.node import NODE, SECOND, THIRD
from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.rig.cluster.real_pods import MEMORY, RealPods, container, pod, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.rig.command import Endpoints
from tests.stub import GIB

# What the card of each node has, in bytes.
TOTAL: Final = {NODE: 1024 * GIB, SECOND: 512 * GIB, THIRD: 256 * GIB}


class Nodes:
    """A release, and what each node has of it: a stub of NVML and a journal of its own."""

    def __init__(self, release: Installed, *further: FurtherNode) -> None:
        self.release = release
        self.cluster = release.cluster
        self.pods = RealPods(self.cluster.control_plane, self.cluster.cgroups, *(each.cgroups for each in further))
        self.cgroups: dict[str, CgroupRoot] = {NODE: self.cluster.cgroups}
        self.state = {NODE: release.state}
        self._cards = []
        for each in further:
            self.cgroups[each.name] = each.cgroups
            self._cards.append(self._equip(each))

    @contextmanager
    def equipped(self) -> Iterator[Self]:
        """The nodes with their cards, labelled for the release."""
        with ExitStack() as stack:
            for node, card in zip(self.further, self._cards, strict=True):
                self.cluster.kubectl("label", "--overwrite", "node", node, "nvidia.com/gpu.present=true")
                stack.enter_context(card)
            yield self

    @property
    def further(self) -> tuple[str, ...]:
        """The nodes beside the first."""
        return tuple(node for node in self.cgroups if node != NODE)

    def _equip(self, node: FurtherNode) -> Card:
        """Let the paths of the release's values lead elsewhere there, as they do on another machine."""
        self.state[node.name] = self.release.folder / f"state-{node.name}"
        driver = self.release.folder / f"driver-{node.name}"
        shutil.copytree(self.release.driver, driver)
        for folder, instead in ((self.release.driver, driver), (self.release.state, self.state[node.name])):
            folder.mkdir(exist_ok=True)
            instead.mkdir(exist_ok=True)
            command = [*node.namespaces.machine, "mount", "--bind", str(instead), str(folder)]
            subprocess.run(command, check=True, timeout=60)
        return Card(driver, node.cgroups, total=TOTAL[node.name])

    def daemon(self, node: str) -> Object:
        """The daemon's only pod of a node."""
        (found,) = [each for each in self.release.pods() if each["spec"]["nodeName"] == node]
        return found

    def at(self, node: str) -> Endpoints:
        """What that daemon answers."""
        return self.release.at(self.daemon(node)["status"]["podIP"])

    def start(self, node: str, name: str, room: str) -> None:
        """A pod over its limit, on that node."""
        one = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
        self.pods.create(pod(name, one, nodeSelector={"kubernetes.io/hostname": node}), room)

    def wait_enforcing(self) -> None:
        """Wait until all daemons enforce, and all nodes offer their memory."""
        wait_until(lambda: all(self.at(node).status()["enforcing"] for node in self.cgroups), "all enforce")
        wait_until(
            lambda: all(self.release.capacity(MEMORY, "allocatable", node) for node in self.cgroups),
            "all offer GPU memory",
        )
