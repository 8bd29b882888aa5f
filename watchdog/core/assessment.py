"""The values of a cycle's first half: its inputs, and the results of attribution and assessment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from watchdog.core.model import Gap, Node, PinnedLimit, Place, Pod, PodList, ProcessKey
from watchdog.core.policy import Policy, Rule
from watchdog.core.rules import Namespaces

# The most that are reported and remembered per pod: a tenant could write a new annotation every second.
MOST_MISDECLARED: Final = 32

ContainerKey = tuple[str, str]  # the UID of its pod, and its ID


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributedUse:
    """What one process of a pod uses on one GPU, in bytes.

    `container` is "" if the container is not in the pod list; `unlisted` is then its ID as in the cgroup, if it has
    one. `mps`: whether it is an MPS client (None: unknown). `mps_server`: it has the name of an MPS server;
    `privileged`: it also has the rights of a privileged container. `gvisor`: it is the kernel of a gVisor sandbox.
    `ended`: it has ended, and its memory outlives it while its container has processes. `surely` are the bytes that it
    uses for certain where `used` is None.
    """

    key: ProcessKey
    uid: str
    container: str
    gpu: str
    used: int | None
    name: str = ""
    mps: bool | None = False
    mps_server: bool = False
    privileged: bool = False
    unlisted: str = ""
    gvisor: bool = False
    ended: bool = False
    surely: int = 0

    @property
    def used_at_least(self) -> int:
        """The bytes that it uses for certain."""
        return self.surely if self.used is None else self.used


class Reason(StrEnum):
    """Why memory belongs to no listed pod."""

    HOST = "host"
    GONE = "gone"
    ZOMBIE = "zombie"
    UNKNOWN_POD = "unknown_pod"
    SPOOFED = "spoofed"
    MPS_SERVER = "mps_server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattributed:
    """What a process that belongs to no listed pod uses on one GPU, with the reason.

    `mps` and `mps_server` as in `AttributedUse`; `uid` and `container` say where a trusted MPS server runs.
    """

    pid: int
    gpu: str
    used: int | None
    reason: Reason
    name: str = ""
    mps: bool | None = False
    mps_server: bool = False
    uid: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Every use of a snapshot, each in exactly one of the two tuples, so that no bytes are lost or counted twice."""

    attributed: tuple[AttributedUse, ...] = ()
    unattributed: tuple[Unattributed, ...] = ()


class Verdict(StrEnum):
    """How an account's use compares with what it is allowed, as far as both are known."""

    WITHIN = "within"
    OVER = "over"
    UNDECLARED = "undeclared"
    MISDECLARED = "misdeclared"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccountKey:
    """Identity of an account: a pod (UID), one container of it or all (None), on one GPU or over all (None)."""

    uid: str
    container: str | None = None
    gpu: str | None = None

    @property
    def is_part(self) -> bool:
        """Whether it covers less than its whole pod: one container or one GPU of it."""
        return self.container is not None or self.gpu is not None

    @property
    def sort_key(self) -> tuple[str, str, str]:
        """A total order in which None comes first."""
        return (self.uid, self.container or "", self.gpu or "")

    def covers(self, use: AttributedUse) -> bool:
        """Whether a use of its pod counts for the account."""
        return self.container in (None, use.container) and self.gpu in (None, use.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerShare:
    """A container's part of an account, for choosing the victim. `requested` ignores a limit above the request."""

    container: str
    used_at_least: int
    declared: int
    requested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeclaration:
    """A declaration that is wrong: where it is written, and what is wrong with it.

    `counts`: it still applies as written, since the scheduler has checked it. Otherwise it was skipped.
    """

    source: str
    why: str
    counts: bool = False


class MpsRole(StrEnum):
    """Why ending a process would break the work of other pods."""

    SERVER = "server"
    CLIENT = "client"
    HIDDEN = "hidden"  # it can't be determined now whether there is a client


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsHazard:
    """A process that must not be ended since other pods need it.

    Without `key` it is any process of `container`, without both any process of the pod.
    """

    role: MpsRole
    container: str | None = None
    key: ProcessKey | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDrains:
    """The MPS clients that control daemons can drain now, those that they have drained, and the servers they name."""

    drainable: frozenset[ProcessKey] = frozenset()
    drained: frozenset[ProcessKey] = frozenset()
    servers: frozenset[ProcessKey] = frozenset()


NO_DRAINS: Final = KnownDrains()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What is known of one account. Unknown numbers are None; `used_at_least` counts unknown bytes as 0.

    `behind`: the pod list lacks a container in which the pod runs, so the budget is the largest of any phase.
    `misdeclarations` include those that still count. `declared_by` is the resource, annotation or label key (several
    joined by `, `), or `default`. `protected` is a short reason why the pod is never acted on, or None. `requested` and
    `allowed_by_request` are what steps under pressure compare with if the tenant has set a limit above the request;
    None: as declared and as allowed. `observes`: the rule only observes now, whatever the policy's mode. `short` are
    its GPUs that are short of memory, determined only if some rule has a step under pressure. `rule_gap` is why the
    pod's rule can't be determined; it then has none, and its verdict is unknown. `limit_unknown` is why its limit can't
    be determined now, as a clause; empty if it can, or if nothing is declared. `mps` are the hazards of the whole
    pod, `to_drain` its MPS clients that are no hazard once they are drained.
    """

    account: AccountKey
    pod: Pod
    rule: Rule | None
    used: int | None
    used_at_least: int
    declared: int | None
    declared_by: str | None
    allowed: int | None
    verdict: Verdict
    protected: str | None
    uses: tuple[AttributedUse, ...] = ()
    shares: tuple[ContainerShare, ...] = ()
    misdeclarations: tuple[Misdeclaration, ...] = ()
    behind: bool = False
    requested: int | None = None
    allowed_by_request: int | None = None
    observes: bool = False
    short: frozenset[str] = frozenset()
    rule_gap: Gap | None = None
    limit_unknown: str = ""
    mps: tuple[MpsHazard, ...] = ()
    to_drain: tuple[MpsHazard, ...] = ()

    def used_on(self, card: str, container: str | None = None) -> int:
        """The known bytes in use on one GPU, by one container or by all (None)."""
        return sum(use.used_at_least for use in self.uses if use.gpu == card and container in (None, use.container))

    @property
    def allowed_under_pressure(self) -> int | None:
        """The bytes that it may use for steps under pressure; None if no declaration counts."""
        return self.allowed if self.allowed_by_request is None else self.allowed_by_request

    @property
    def is_conclusive(self) -> bool:
        """Whether it is certain that the account is within or over its limit."""
        return self.verdict in (Verdict.WITHIN, Verdict.OVER)

    @property
    def title(self) -> str:
        """The account as people write it: namespace/pod, with container and GPU where it has them."""
        container = f" container {self.account.container}" if self.account.container is not None else ""
        gpu = f" on {self.account.gpu}" if self.account.gpu is not None else ""
        return f"{self.pod.title}{container}{gpu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a cycle: the policy, the pods, the Node object, the namespaces, and the state of the daemon.

    `own` is where the daemon itself runs; `namespaces` has the labels of every known namespace. `overdue` are the
    containers that should be in the pod list by now and are not; `hidden` are the UIDs of the listed pods if any of
    them may use more than the reading shows (None: it shows everything). `acting` are the accounts with an action in
    progress or pending. `enforcing`: actions are carried out; `policy_unsettled`: no action begins for the moment,
    because the policy may be about to change; due steps stay due. `drains` are the MPS clients that can be drained or
    have been, `pinned` the limits of MPS clients, which are only reported. `listed` are the resources that the node
    listed at any time in a pod's life, by the pod's UID, as far as is known.
    """

    policy: Policy
    node: Node
    pods: PodList = field(default_factory=PodList)
    own: Place | None = None
    namespaces: Namespaces = field(default_factory=dict)
    overdue: frozenset[ContainerKey] = frozenset()
    pods_stale: bool = False
    journal_writable: bool = True
    maintenance: bool = False
    hidden: frozenset[str] | None = None
    acting: frozenset[AccountKey] = frozenset()
    enforcing: bool = False
    policy_unsettled: bool = False
    drains: KnownDrains = NO_DRAINS
    pinned: tuple[PinnedLimit, ...] = ()
    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_inconclusive(self) -> bool:
        """Whether a cycle counts no time, and an account that was not seen may still use memory."""
        return self.pods_stale or self.maintenance

    def has_same_objects(self, other: "Inputs") -> bool:
        """Whether the objects by which a pod is judged, beside the pod itself, are the same in other inputs."""
        return self.node == other.node and self.namespaces == other.namespaces

    def acts_on(self, assessment: Assessment) -> bool:
        """Whether an action on this account is carried out: neither the mode nor its rule only observes."""
        return self.enforcing and not assessment.observes
