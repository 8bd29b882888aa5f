"""What the daemon knows besides the GPUs: the pods of its node and the node's own object."""

from typing import Protocol

from watchdog.core.model import Gap, Node, Now, PodList
from watchdog.core.policy import Policy
from watchdog.kube.nodefile import NodeFile
from watchdog.kube.podfile import PodFile
from watchdog.options import Options


class PodSource(Protocol):
    """Where the pods of this node come from."""

    def read(self, now: Now) -> PodList:
        """The pods as they are known now."""

    def has_changed(self) -> bool:
        """Whether `read` would find something new."""


class NodeSource(Protocol):
    """Where the node's own object comes from."""

    def read(self, now: Now) -> tuple[Node, tuple[Gap, ...]]:
        """The node as it is known now, and what could not be learned of it."""


class NoPods:
    """Stands where no source of pods was named: every process of a pod is then `unknown_pod`."""

    def read(self, now: Now) -> PodList:
        """No pods, and no moment at which that was known to be true."""
        return PodList()

    def has_changed(self) -> bool:
        """Never."""
        return False


class NamedNode:
    """Stands where no source of the node's object was named: its name is known, its labels are not."""

    def __init__(self, name: str) -> None:
        self._node = Node(name=name)

    def read(self, now: Now) -> tuple[Node, tuple[Gap, ...]]:
        """The node without labels."""
        return self._node, ()


def pod_source(options: Options) -> PodSource:
    """The source of pods that the options name."""
    return NoPods() if options.pods is None else PodFile(options.pods, options.node)


def node_source(options: Options) -> NodeSource:
    """The source of the node's object that the options name."""
    return NamedNode(options.node) if options.node_object is None else NodeFile(options.node_object, options.node)


def is_stale(pods: PodList, policy: Policy, now: Now) -> bool:
    """Whether a pod list is too old to act on, or has never been there."""
    synced = pods.synced
    if synced is None:
        return True
    if synced.boot_id == now.boot_id:
        return now.boottime_s - synced.boottime_s > policy.stale_after_s
    return True
