"""What the daemon knows besides the GPUs: the pods of its node, the node's own object and the labels of namespaces."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from watchdog.core.findings import Assessment
from watchdog.core.model import Gap, Node, Now, PodList
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces
from watchdog.kube.namespacefile import NamespaceFile
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


class NamespaceSource(Protocol):
    """Where the labels of namespaces come from."""

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """The labels by namespace as they are known now, and what could not be learned of them."""


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
        self._node = Node(name=name, known=False)

    def read(self, now: Now) -> tuple[Node, tuple[Gap, ...]]:
        """The node without labels."""
        return self._node, ()


class NoNamespaces:
    """Stands where no source of namespaces was named: none is known."""

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """No namespaces."""
        return {}, ()


def pod_source(options: Options) -> PodSource:
    """The source of pods that the options name."""
    return NoPods() if options.pods is None else PodFile(options.pods, options.node)


def node_source(options: Options) -> NodeSource:
    """The source of the node's object that the options name."""
    return NamedNode(options.node) if options.node_object is None else NodeFile(options.node_object, options.node)


def namespace_source(options: Options) -> NamespaceSource:
    """The source of namespaces that the options name."""
    return NoNamespaces() if options.namespaces is None else NamespaceFile(options.namespaces)


def missing_sources(options: Options, policy: Policy) -> tuple[str, ...]:
    """Warnings of files that the rules of a policy need and the options do not name, each in a sentence."""
    needs = (
        ("--node-object", options.node_object, [rule.name for rule in policy.rules if rule.match.node_labels]),
        ("--namespaces", options.namespaces, [rule.name for rule in policy.rules if rule.match.namespace_labels]),
    )
    return tuple(
        f"no {option} FILE, and rules match by its labels ({', '.join(names)}): a pod that one of them may be for has "
        "no rule and is left alone"
        for option, file, names in needs
        if names and file is None
    )


def with_rule_gaps(pods: PodList, assessments: Iterable[Assessment]) -> PodList:
    """The pod list with what was missing to name the rules of its pods, each thing once."""
    gaps = dict.fromkeys(each.rule_gap for each in assessments if each.rule_gap is not None)
    return replace(pods, gaps=(*pods.gaps, *gaps)) if gaps else pods


def is_stale(pods: PodList, policy: Policy, now: Now) -> bool:
    """Whether a pod list is too old to act on, or has never been there."""
    synced = pods.synced
    if synced is None:
        return True
    if synced.boot_id == now.boot_id:
        return now.boottime_s - synced.boottime_s > policy.stale_after_s
    return True
