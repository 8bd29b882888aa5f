"""What a cycle takes as given besides the GPUs: pods, the node object and namespaces, and what they allow."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from watchdog.clock import Bell
from watchdog.core.assess import Setting
from watchdog.core.assessment import Assessment
from watchdog.core.attribute import ContainerKey, overdue_gaps
from watchdog.core.model import Gap, Node, Now, Place, PodList
from watchdog.core.needs import needs as needs_of
from watchdog.core.plan import Conditions, PlanEntry, View
from watchdog.core.policy import Policy, Rule
from watchdog.core.rules import (
    Namespaces,
    Switches,
    Terminating,
    maintenance_of,
    observes,
    protection,
    rule_of,
    switches,
)
from watchdog.kube.files import NamespaceFile, NodeFile, PodFile
from watchdog.options import Options

if TYPE_CHECKING:
    from watchdog.daemon.cluster import Cluster


_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it in every container
NO_PODS: Final = (
    "there is no source of pods, so every process of a pod counts as unknown_pod; "
    "give --kubeconfig FILE, run in a pod of the cluster, or give --pods FILE"
)
_NO_EVICTION: Final = (
    "the policy evicts, and there is no API to ask: each eviction fails with the reason `no API`; give --kubeconfig "
    "FILE or run in a pod of the cluster, without --pods, or use `kill`"
)
_NO_CAPACITY: Final = (
    "[capacity] needs the Kubernetes API, which is not asked, so nothing is advertised on the node; "
    "give --kubeconfig FILE or run in a pod of the cluster, without --pods"
)


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

    def has_changed(self) -> bool:
        """Whether `read` would find something new."""

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Whether nothing new can be learned, and what is known was last known to be true longer ago than this."""


class NamespaceSource(Protocol):
    """Where the labels of namespaces come from."""

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """The labels by namespace as they are known now, and what could not be learned of them."""

    def has_changed(self) -> bool:
        """Whether `read` would find something new."""

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Whether nothing new can be learned, and what is known was last known to be true longer ago than this."""


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

    def has_changed(self) -> bool:
        """Never."""
        return False

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: it is not known at all."""
        return False


class NoNamespaces:
    """Stands where no source of namespaces was named: none is known."""

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """No namespaces."""
        return {}, ()

    def has_changed(self) -> bool:
        """Never."""
        return False

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: it is not known at all."""
        return False


def uses_api(options: Options) -> bool:
    """Whether the Kubernetes API is asked: where no file of pods is named, and there is a way to it."""
    return options.pods is None and (options.kubeconfig is not None or _IN_CLUSTER in os.environ)


def open_cluster(options: Options, bell: Bell) -> "Cluster | None":
    """The cluster behind the API, where it is asked; otherwise its client is not even loaded (20 MiB)."""
    if not uses_api(options):
        return None
    from watchdog.daemon.cluster import Cluster

    return Cluster(options, bell)


def pod_source(options: Options, cluster: "Cluster | None" = None) -> PodSource:
    """The source of pods that the options name."""
    if options.pods is not None:
        return PodFile(options.pods, options.node)
    return NoPods() if cluster is None else cluster.pods


def node_source(options: Options, cluster: "Cluster | None" = None) -> NodeSource:
    """The source of the node's object that the options name."""
    if options.node_object is not None:
        return NodeFile(options.node_object, options.node)
    return NamedNode(options.node) if cluster is None else cluster.node


def namespace_source(options: Options, cluster: "Cluster | None" = None) -> NamespaceSource:
    """The source of namespaces that the options name."""
    if options.namespaces is not None:
        return NamespaceFile(options.namespaces)
    return NoNamespaces() if cluster is None else cluster.namespaces


def missing_sources(options: Options, policy: Policy) -> tuple[str, ...]:
    """Warnings of what the rules of a policy need and nothing gives, each in a sentence."""
    if uses_api(options):
        return ()
    by_node = [rule.name for rule in policy.rules if rule.match.node_labels]
    by_namespace = [rule.name for rule in policy.rules if rule.match.namespace_labels]
    needs = (
        ("nodes", "--node-object", options.node_object, by_node),
        ("namespaces", "--namespaces", options.namespaces, by_namespace),
    )
    unmatched = (
        f"there is no way to the labels of {what} (rules {', '.join(names)}): give --kubeconfig FILE, or {option} FILE "
        "with --pods; a pod that one of these rules may be for has no rule and is left alone"
        for what, option, file, names in needs
        if names and file is None
    )
    evicts = needs_of(policy).evict
    return (*unmatched, *([_NO_CAPACITY] if policy.capacity is not None else []), *([_NO_EVICTION] if evicts else []))


def with_gaps(
    pods: PodList, assessments: Sequence[Assessment], overdue: frozenset[ContainerKey] = frozenset()
) -> PodList:
    """The pod list with what was missing to name the rules of its pods, and the containers that it lacks, each once."""
    gaps = dict.fromkeys(each.rule_gap for each in assessments if each.rule_gap is not None)
    found = (*gaps, *(overdue_gaps(assessments, overdue) if overdue else ()))
    return replace(pods, gaps=(*pods.gaps, *found)) if found else pods


def is_stale(pods: PodList, policy: Policy, now: Now) -> bool:
    """Whether a pod list is too old to act on, or has never been there."""
    synced = pods.synced
    if synced is None:
        return True
    if synced.boot_id == now.boot_id:
        return now.boottime_s - synced.boottime_s > policy.stale_after_s
    return True


class Surroundings:
    """Reads the sources that the options name, again whenever it is asked. `own` is where the daemon itself runs."""

    def __init__(self, options: Options, own: Place | None, cluster: "Cluster | None" = None) -> None:
        self._own = own
        self._pods = pod_source(options, cluster)
        self._node = node_source(options, cluster)
        self._namespaces = namespace_source(options, cluster)
        self._terminating = Terminating()

    @property
    def have_changed(self) -> bool:
        """Whether there are other pods than at the last look, or another node or namespaces."""
        return any(source.has_changed() for source in (self._pods, self._node, self._namespaces))

    def switches(self, now: Now, old_after_s: float = math.inf) -> Switches:
        """What the node's own object asks for at this moment; known no more where it is older than this.

        Its age counts only while something keeps the daemon from learning more of it.
        """
        found = switches(*self._node.read(now))
        return replace(found, unseen=found.unseen or self._node.is_old(now, old_after_s))

    def view(
        self,
        policy: Policy,
        now: Now,
        *,
        journal_writable: bool = True,
        enforcing: bool = False,
        is_held: bool = False,
    ) -> View:
        """What a cycle takes as given at this moment."""
        node, gaps = self._node.read(now)
        namespaces, more_gaps = self._namespaces.read(now)
        if self._namespaces.is_old(now, policy.stale_after_s):
            namespaces = {}  # a rule that goes by their labels can't be told then, and its pods are left alone
        pods = self._pods.read(now)
        marked = self._terminating.mark(pods.pods, now)
        return View(
            pods=replace(pods, pods=marked, gaps=(*pods.gaps, *gaps, *more_gaps)),
            setting=Setting(policy=policy, node=node, own=self._own, namespaces=namespaces),
            conditions=Conditions(
                pods_stale=is_stale(pods, policy, now),
                journal_writable=journal_writable,
                maintenance=maintenance_of(node) is not None,
            ),
            enforcing=enforcing,
            is_held=is_held,
        )

    def objection(self, entry: PlanEntry, policy: Policy, now: Now) -> str | None:
        """What speaks against a signal for an action, by the pod, the rule and the policy of this moment.

        The pod may have been deleted or protected since. An old list says nothing of that either way.
        """
        view = self.view(policy, now)
        if view.conditions.maintenance:
            return "the GPUs came under maintenance meanwhile"
        present = {pod.uid: pod for pod in view.pods.pods}
        pod = present.get(entry.account.uid)
        if pod is None and view.pods.synced is not None:
            return "the pod had gone from the list of this node's pods by then"
        pod = pod or entry.assessment.pod
        rule = rule_of(pod, policy, view.setting.node, view.setting.namespaces)
        has_force = isinstance(rule, Rule) and any(step.do.is_force for step in rule.steps)
        if not isinstance(rule, Rule) or not has_force or observes(rule, now):
            return "its rule no longer allowed enforcement"
        protected = protection(pod, policy.protect, self._own, now)
        return None if protected is None else f"the pod was protected by then: {protected}"
