"""The sources of the pods, the Node object and the namespaces, and the inputs that a cycle gets from them."""

import math
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from watchdog.clock import Bell
from watchdog.core.amount import CardCount
from watchdog.core.assessment import Assessment, ContainerKey, Inputs
from watchdog.core.attribute import outside_gaps, outsiders, overdue_gaps
from watchdog.core.errors import Problem
from watchdog.core.keys import keys_of
from watchdog.core.left import LeftPods, left_gaps
from watchdog.core.model import Gap, GapReason, Node, Now, Place, Pod, PodKeys, PodList, Snapshot
from watchdog.core.plan import Moment, PlanEntry
from watchdog.core.policy import Policy, Rule
from watchdog.core.rules import (
    Namespaces,
    Switches,
    maintenance_of,
    observes,
    protection,
    rule_of,
    switches,
)
from watchdog.kube.claims import NOT_READ, ClaimReader, DeviceKey, Devices, MissingClaim, ReadClaims
from watchdog.kube.files import ClaimFile
from watchdog.kube.kinds import NAMESPACES, NODE, PODS, SLICES, WATCHED_KINDS, FileT, InformerT, WatchedKind
from watchdog.options import Options, flag

if TYPE_CHECKING:
    from watchdog.daemon.cluster import Cluster


_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it in every container
NO_PODS: Final = (
    "there is no source of pods, so every process of a pod counts as unknown_pod; "
    "give --kubeconfig FILE, run in a pod of the cluster, or give --pods FILE"
)
_NO_ACTION: Final = (
    "the policy {does}, but the Kubernetes API is not used: each {noun} fails with the reason `no API`; give "
    "--kubeconfig FILE or run in a pod of the cluster, without --pods, or use `kill`"
)
_NO_CAPACITY: Final = (
    "[capacity] needs the Kubernetes API, which is not used, so nothing is advertised on the node; "
    "give --kubeconfig FILE or run in a pod of the cluster, without --pods"
)


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """Where the pods of this node, its Node object or the namespaces come from."""

    def read(self, now: Now) -> T_co:
        """What is known at this moment."""

    def has_changed(self) -> bool:
        """Whether `read` would return something new."""

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Whether it can't be updated, and was last known to be current longer ago than this."""


class PodSource(Source[PodList], Protocol):
    """Where the pods come from."""

    def want(self, keys: PodKeys) -> None:
        """Read these keys of every pod from now on, whatever else it carries."""

    def find(self, missing: Iterable[Pod]) -> None:
        """Find out whether these pods, which it lacks, are gone; returns at once."""


# What is known, and the gaps in it; the pod list has its own gaps, and its own age.
NodeSource = Source[tuple[Node, tuple[Gap, ...]]]
NamespaceSource = Source[tuple[Namespaces, tuple[Gap, ...]]]


class SliceSource(Source[tuple[Devices, tuple[Gap, ...]]], Protocol):
    """Where the devices that claims can be given come from."""

    def want(self, strangers: Collection[DeviceKey]) -> None:
        """Read those of no node too while there are such devices."""


class ClaimSource(Source[tuple[ReadClaims, tuple[Gap, ...]]], Protocol):
    """Where it comes from what claims gave."""

    def want(self, missing: Sequence[MissingClaim]) -> None:
        """Read these claims, and no others any more; returns at once."""


class NoSource(Generic[T]):
    """A fixed value, for when no source is configured."""

    def want(self, wanted: object) -> None:
        """Nothing: there is nothing to read."""

    def find(self, missing: Iterable[Pod]) -> None:
        """Nothing: there is nothing to ask."""

    def __init__(self, known: T) -> None:
        self._known = known

    def read(self, now: Now) -> T:
        """The fixed value."""
        return self._known

    def has_changed(self) -> bool:
        """Never."""
        return False

    def is_old(self, now: Now, limit_s: float) -> bool:
        """Never: there is nothing that could become old."""
        return False


NO_NAMESPACES: Final[NamespaceSource] = NoSource[tuple[Namespaces, tuple[Gap, ...]]](({}, ()))
NO_SLICES: Final[SliceSource] = NoSource[tuple[Devices, tuple[Gap, ...]]]((NOT_READ, ()))
_UNREAD: Final = ReadClaims(lacking=Problem("claims are not read", "give --claims FILE and --slices FILE"))
NO_CLAIMS: Final[ClaimSource] = NoSource[tuple[ReadClaims, tuple[Gap, ...]]]((_UNREAD, ()))


def uses_api(options: Options) -> bool:
    """Whether the Kubernetes API is used: there is no file of pods, and the API is reachable by the options."""
    return options.pods is None and (options.kubeconfig is not None or _IN_CLUSTER in os.environ)


def open_cluster(options: Options, bell: Bell) -> "Cluster | None":
    """The connection to the cluster, if the API is used; otherwise its client is not even loaded (8 MiB)."""
    if not uses_api(options):
        return None
    from watchdog.daemon.cluster import Cluster

    return Cluster(options, bell)


def missing_sources(options: Options, policy: Policy) -> tuple[str, ...]:
    """Warnings about what a policy needs and no source provides, one sentence each."""
    if uses_api(options):
        return ()
    from watchdog.kube.rights import actions_by_api  # 0.2 MiB, for this alone

    unmatched = (
        f"the labels of {kind.resource} are not available (rules {', '.join(rules)}): give --kubeconfig FILE, or "
        f"{flag(kind.option)} FILE with --pods; a pod that one of these rules may match has no rule and is left alone"
        for kind in WATCHED_KINDS
        if (rules := kind.rules_by_label(policy)) and kind.path(options) is None
    )
    failing = (_NO_ACTION.format(does=do.verb.does, noun=do.verb.noun) for do in actions_by_api(policy))
    return (*unmatched, *([_NO_CAPACITY] if policy.capacity is not None else []), *failing)


def with_gaps(
    pods: PodList,
    assessments: Sequence[Assessment],
    overdue: frozenset[ContainerKey] = frozenset(),
    snapshot: Snapshot | None = None,
    node: Node | None = None,
) -> PodList:
    """The pod list with gaps for undetermined rules, pods that have left, containers that it lacks, and cards.

    Containers whose cgroup is elsewhere, and cards, need the reading and the Node object.
    """
    rule_gaps = (assessment.rule_gap for assessment in assessments)
    gaps = dict.fromkeys(gap for gap in rule_gaps if gap is not None)
    missing = overdue_gaps(assessments, overdue) if overdue else ()
    new = [*gaps, *missing, *left_gaps(assessments)]
    if snapshot is not None:
        new += outside_gaps(outsiders(snapshot.processes, pods.pods))
    if snapshot is not None and node is not None and node.known:
        new += card_gaps(snapshot, node)
    return replace(pods, gaps=(*pods.gaps, *new)) if new else pods


_LOST_CARD: Final = "look for the card with nvidia-smi on the node; if it is there, correct the label or the capacity"
_UNLABELLED: Final = "run GPU feature discovery, or set the labels nvidia.com/gpu.count and nvidia.com/gpu.replicas"


def card_gaps(snapshot: Snapshot, node: Node) -> tuple[Gap, ...]:
    """A gap if the Node object shows more cards than the driver lists, or may do so."""
    count = CardCount.of(snapshot, node)
    cause, remedy = (count.missing, _LOST_CARD) if count.missing else (count.uncertain, _UNLABELLED)
    if snapshot.blind or not cause:
        return ()
    return (Gap(reason=GapReason.NODE, what=f"GPUs of node {node.name}", problem=Problem(cause, remedy)),)


def is_stale(pods: PodList, policy: Policy, now: Now) -> bool:
    """Whether a pod list is too old to act on, or was never read."""
    synced = pods.synced
    if synced is None or synced.boot_id != now.boot_id:
        return True
    return now.boottime_s - synced.boottime_s > policy.stale_after_s


def _source(
    kind: WatchedKind[FileT, InformerT], options: Options, cluster: "Cluster | None", otherwise: T
) -> FileT | InformerT | T:
    """Where this kind of objects comes from: its file, else the API, else nowhere."""
    path = kind.path(options)
    if path is not None:
        return kind.open_file(path, options.node)
    return otherwise if cluster is None else cluster.informer(kind)


class Sources:
    """The configured sources, read again on each call; `files` are those that are files.

    Without a source of pods every process of a pod is `unknown_pod`; without the Node object only its name is known.
    `own` is where the daemon itself runs; `left` remembers the pods that have left.
    """

    def __init__(
        self, options: Options, own: Place | None, cluster: "Cluster | None" = None, left: LeftPods | None = None
    ) -> None:
        self._own = own
        self.left = left or LeftPods()
        kinds = (kind.path(options) for kind in WATCHED_KINDS)
        self.files = tuple(filter(None, (*kinds, options.claims)))
        no_node = NoSource[tuple[Node, tuple[Gap, ...]]]((Node(name=options.node, known=False), ()))
        self.pods: PodSource = _source(PODS, options, cluster, NoSource(PodList()))
        self.node: NodeSource = _source(NODE, options, cluster, no_node)
        self.namespaces: NamespaceSource = _source(NAMESPACES, options, cluster, NO_NAMESPACES)
        self.slices: SliceSource = _source(SLICES, options, cluster, NO_SLICES)
        without: ClaimSource = NO_CLAIMS if cluster is None else cluster.claims
        self.claims = without if options.claims is None else ClaimFile(options.claims)
        self._cluster = cluster
        self._claim_reader = ClaimReader()
        self._policy: Policy | None = None

    def _follow(self, policy: Policy) -> None:
        """Have the pods read for this policy."""
        if policy is not self._policy:
            self._policy = policy
            self.pods.want(keys_of(policy))

    @property
    def have_changed(self) -> bool:
        """Whether the pods, the node or the namespaces have changed since they were last read."""
        every = (self.pods, self.node, self.namespaces, self.claims, self.slices)
        return any(source.has_changed() for source in every)

    def switches(self, now: Now, old_after_s: float = math.inf) -> Switches:
        """The switches of the Node object; `unseen` if it is older than this.

        Its age counts only while it can't be updated.
        """
        current = switches(*self.node.read(now))
        return replace(current, unseen=current.unseen or self.node.is_old(now, old_after_s))

    def inputs(
        self,
        policy: Policy,
        now: Now,
        *,
        journal_writable: bool = True,
        enforcing: bool = False,
        policy_unsettled: bool = False,
    ) -> Inputs:
        """The inputs of a cycle at this moment."""
        self._follow(policy)
        node, node_gaps = self.node.read(now)
        namespaces, namespace_gaps = self.namespaces.read(now)
        if self.namespaces.is_old(now, policy.stale_after_s):
            namespaces = {}  # rules that match by their labels can't be determined then, and their pods are left alone
        pods = self._with_claims(self.left.with_left(self.pods.read(now), keys_of(policy), now), policy, now)
        self.pods.find(self.left.unproven)
        return Inputs(
            policy=policy,
            node=node,
            pods=replace(pods, gaps=(*pods.gaps, *node_gaps, *namespace_gaps)),
            own=self._own,
            namespaces=namespaces,
            pods_stale=is_stale(pods, policy, now),
            journal_writable=journal_writable,
            maintenance=maintenance_of(node) is not None,
            enforcing=enforcing,
            policy_unsettled=policy_unsettled,
        )

    def _with_claims(self, pods: PodList, policy: Policy, now: Now) -> PodList:
        """The pods with what their claims gave them, if that is known and the policy reads it."""
        if not policy.reads_claims:
            self.claims.want(())
            return pods
        (claims, claim_gaps), (devices, slice_gaps) = self.claims.read(now), self.slices.read(now)
        known = self._claim_reader.with_claims(pods.pods, claims, devices)
        self.slices.want(self._claim_reader.strangers)
        if self._claim_reader.strangers and self.slices.has_changed():  # they have just been listed
            devices, slice_gaps = self.slices.read(now)
            known = self._claim_reader.with_claims(pods.pods, claims, devices)
        self.claims.want(self._claim_reader.missing)
        if self._cluster is not None and self._claim_reader.has_claims:
            self._cluster.follow_claims()
        gaps = (*claim_gaps, *slice_gaps, *self._claim_reader.gaps)
        return pods if known is pods.pods and not gaps else replace(pods, pods=known, gaps=(*pods.gaps, *gaps))

    def objection(self, entry: PlanEntry, policy: Policy, now: Now, moment: Moment) -> str | None:
        """Why no signal may be sent for an action, by the pod, its rule and the policy at this moment; None if it may.

        The pod may have been deleted or protected since the plan was made. An old list shows neither. That it was
        deleted after a kill has begun changes nothing.
        """
        has_begun = moment is Moment.GRACE
        inputs = self.inputs(policy, now)
        if inputs.maintenance:
            return "the GPUs came under maintenance meanwhile"
        planned = entry.assessment.pod
        pod = next((pod for pod in inputs.pods.pods if pod.uid == planned.uid), None)
        if pod is None and inputs.pods.synced is not None and not has_begun:
            return "the pod had gone from the list of this node's pods by then"
        pod = pod or planned
        if pod.left_since is not None and planned.left_since is None and not has_begun:
            return "the pod had been deleted by then"
        rule = rule_of(pod, policy, inputs.node, inputs.namespaces)
        enforces = isinstance(rule, Rule) and any(step.do.enforces for step in rule.steps)
        if not isinstance(rule, Rule) or not enforces or observes(rule, now):
            return "its rule no longer allowed enforcement"
        pod = replace(pod, deletion_deadline_s=None) if has_begun else pod
        protected = protection(pod, policy.protect, self._own, now)
        return None if protected is None else f"the pod had become protected: {protected}"
