"""The values of a cycle's first half: its inputs, and the results of attribution and assessment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from watchdog.core.hazards import Hazard
from watchdog.core.model import Gap, MpsSigns, Node, PinnedLimit, Place, Pod, PodList, ProcessKey
from watchdog.core.policy import Policy, Rule
from watchdog.core.rules import Namespaces

# The most that are reported and remembered per pod: a tenant could write a new annotation every second.
MOST_MISDECLARED: Final = 32

ContainerKey = tuple[str, str]  # the UID of its pod, and its ID


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributedUse:
    """What one process of a pod uses on one GPU, in bytes."""

    key: ProcessKey
    # The UID of its pod.
    uid: str
    # The name of its container; "" if it is not in the pod list.
    container: str
    # A UUID.
    gpu: str
    # None if it is unknown.
    used: int | None
    name: str = ""
    # What shows it to be an MPS client or server; None: nothing does.
    mps: MpsSigns | None = None
    # If its container is not in the pod list, the container ID in its cgroup; "" if it has none there.
    unlisted: str = ""
    # Whether it is the kernel of a gVisor sandbox.
    gvisor: bool = False
    # Whether it has ended; its memory outlives it while its container has processes.
    ended: bool = False
    # The bytes that it uses for certain where `used` is None.
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
    """What a process that belongs to no listed pod uses on one GPU, with the reason."""

    pid: int
    # A UUID.
    gpu: str
    # Bytes; None if unknown.
    used: int | None
    reason: Reason
    name: str = ""
    # As in `AttributedUse`.
    mps: MpsSigns | None = None
    # The UID of the pod in which a trusted MPS server runs; else "".
    uid: str = ""
    # The name of the container in which it runs; else "".
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


class AccountKey(NamedTuple):
    """Identity of an account, which may be a part of its pod: one container, one GPU, or both.

    It is a tuple because it is hashed several times in each cycle for each account, which takes a dataclass four times
    as long. A `Holder` with the same parts is equal to it.
    """

    # The UID of the pod.
    uid: str
    # The name of the container; None: all containers.
    container: str | None = None
    # The UUID of the GPU; None: all GPUs.
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
    """A container's part of an account, in bytes, for choosing the victim."""

    container: str
    used_at_least: int
    declared: int
    # As `declared`, but without a limit above the request.
    requested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeclaration:
    """A declaration that is wrong."""

    # Where it is written: its keys, and in which container.
    source: str
    # What is wrong with it.
    why: str
    # The first of its keys.
    key: str = ""
    # Whether it still applies as written, since the scheduler has checked it; otherwise it was skipped.
    counts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDrains:
    """What control daemons have said of their MPS clients."""

    # The clients that can be drained now.
    drainable: frozenset[ProcessKey] = frozenset()
    drained: frozenset[ProcessKey] = frozenset()
    # The servers that the daemons name.
    servers: frozenset[ProcessKey] = frozenset()


NO_DRAINS: Final = KnownDrains()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPart:
    """A part of a claim that other accounts hold too."""

    # The namespace, the name of the claim, the device, and which share of it.
    key: tuple[str, str, str, str]
    # Its bytes.
    size: int
    # What the account uses of it for certain: what does not fit into all else that it may use.
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What is known of one account. Amounts are bytes."""

    account: AccountKey
    pod: Pod
    # The rule that applies to the pod; None: none does, or which one can't be determined.
    rule: Rule | None
    # None if some of it is unknown.
    used: int | None
    # As `used`, with unknown bytes as 0.
    used_at_least: int
    # None if no declaration counts, or its amount can't be determined.
    declared: int | None
    # The resource, annotation or label key, or `claim NAME/REQUEST` (several joined by `, `); or `default`.
    declared_by: str | None
    # `declared` with the allowance; None if that is None.
    allowed: int | None
    verdict: Verdict
    # A short reason why the pod is never acted on; None: it is not protected.
    protected: str | None
    uses: tuple[AttributedUse, ...] = ()
    # Each container's part, for choosing the victim.
    shares: tuple[ContainerShare, ...] = ()
    # Those that still count are included.
    misdeclarations: tuple[Misdeclaration, ...] = ()
    # Whether the pod list lacks a container in which the pod runs, so that the budget is the largest of any phase.
    behind: bool = False
    # What steps under pressure compare with if the tenant has set a limit above the request; None: as declared.
    requested: int | None = None
    # `requested` with the allowance; None: as allowed.
    allowed_by_request: int | None = None
    # What claims gave on each card, by its UUID.
    declared_by_gpu: Mapping[str, int] = field(default_factory=dict)
    # What gave it a share of a card without an amount, so that the default or nothing applies: `claim NAME/REQUEST`.
    # Empty: nothing did, or something else declares.
    open_share: str = ""
    # The parts of claims that other accounts hold too.
    shared: tuple[SharedPart, ...] = ()
    # Its containers that hold a part of a claim together with others, so that none may be above what it holds.
    joint: frozenset[str] = frozenset()
    # The most that others use of one of the shared parts for certain, which counts together with its own use.
    beside: int = 0
    # Whether that is all that they use.
    is_beside_known: bool = True
    # The pod that comes before it: that uses more of the part, or is being ended; "": there is none.
    behind_pod: str = ""
    # Whether the rule only observes now, whatever the policy's mode.
    observes: bool = False
    # Its GPUs that are short of memory, determined only if some rule has a step under pressure.
    short: frozenset[str] = frozenset()
    # Why the pod's rule can't be determined. It then has none, and its verdict is unknown.
    rule_gap: Gap | None = None
    # Why its limit can't be determined now, as a clause; empty if it can, or if nothing is declared.
    limit_unknown: str = ""
    # What of the whole pod must not be ended.
    hazards: tuple[Hazard, ...] = ()
    # Its clients that are no hazard once they are drained.
    to_drain: tuple[Hazard, ...] = ()

    @property
    def compared(self) -> int:
        """The known bytes that are compared with what it may use."""
        return self.used_at_least + self.beside

    @property
    def is_compared_known(self) -> bool:
        """Whether that is all that it can be."""
        return self.used is not None and self.is_beside_known

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


def without_parts(assessments: Iterable[Assessment]) -> list[Assessment]:
    """The accounts that together cover each use once.

    With a total beside claims, an account over all GPUs has those on each of them as its parts, which are left out.
    """
    every = list(assessments)
    in_parts = {each.account.uid for each in every if each.account.gpu is not None}  # of few pods
    of_these = [each.account for each in every if each.account.uid in in_parts]
    whole = {(account.uid, account.container) for account in of_these if account.gpu is None}
    return [
        each for each in every if each.account.gpu is None or (each.account.uid, each.account.container) not in whole
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a cycle takes as given: the policy, the objects of the cluster, and the state of the daemon."""

    policy: Policy
    node: Node
    pods: PodList = field(default_factory=PodList)
    # Where the daemon itself runs; None if unknown.
    own: Place | None = None
    # The labels of every known namespace.
    namespaces: Namespaces = field(default_factory=dict)
    # The containers that should be in the pod list by now and are not.
    overdue: frozenset[ContainerKey] = frozenset()
    # Whether the pod list is too old to act on.
    pods_stale: bool = False
    journal_writable: bool = True
    # Whether the Node object requests that the driver be released.
    maintenance: bool = False
    # The UIDs of the listed pods if any of them may use more than the reading shows; None: it shows everything.
    hidden: frozenset[str] | None = None
    # The UIDs of the listed pods whose declaration waits to be read.
    unread: frozenset[str] = frozenset()
    # The accounts with an action in progress or pending; and those of them with one in progress.
    acting: frozenset[AccountKey] = frozenset()
    ending: frozenset[AccountKey] = frozenset()
    # Whether actions are carried out.
    enforcing: bool = False
    # Whether no action begins for the moment, because the policy may be about to change. Due steps stay due.
    policy_unsettled: bool = False
    # The MPS clients that can be drained or have been.
    drains: KnownDrains = NO_DRAINS
    # The limits of MPS clients, which are only reported.
    pinned: tuple[PinnedLimit, ...] = ()
    # By the pod's UID, the resources that the node listed at any time in the pod's life, as far as is known.
    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_inconclusive(self) -> bool:
        """Whether a cycle counts no time, and an account that was not seen may still use memory."""
        return self.pods_stale or self.maintenance

    def as_read_in(self, own: "Inputs") -> "Inputs":
        """The same with what the reading and the ledger of a cycle with these inputs gave."""
        return replace(
            self, overdue=own.overdue, hidden=own.hidden, unread=own.unread, acting=own.acting, ending=own.ending
        )

    def has_same_objects(self, other: "Inputs") -> bool:
        """Whether the objects by which a pod is judged, beside the pod itself, are the same in other inputs."""
        return self.node == other.node and self.namespaces == other.namespaces

    def acts_on(self, assessment: Assessment) -> bool:
        """Whether an action on this account is carried out: neither the mode nor its rule only observes."""
        return self.enforcing and not assessment.observes
