"""The results of attribution and assessment: who uses what, and how that compares with what is allowed."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watchdog.core.model import Gap, Pod, ProcessKey
from watchdog.core.policy import Rule

# So many a pod are told and remembered: whoever may write annotations could write another one each second for ever.
MOST_MISDECLARED: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributedUse:
    """What one process of a pod uses on one GPU. `container` is "" where the pod is known and the container is not.

    `mps` says whether it is an MPS client (None: not known), `mps_server` that it has the name of an MPS server, and
    `serves_others` that it also runs where servers for other pods do.
    `unlisted` then is the ID of that container as the cgroup has it, if it has one.
    """

    key: ProcessKey
    uid: str
    container: str
    gpu: str
    used: int | None
    name: str = ""
    mps: bool | None = False
    mps_server: bool = False
    serves_others: bool = False
    unlisted: str = ""


class Reason(StrEnum):
    """Why bytes belong to no pod of the list."""

    HOST = "host"
    GONE = "gone"
    ZOMBIE = "zombie"
    UNKNOWN_POD = "unknown_pod"
    SPOOFED = "spoofed"
    MPS_SERVER = "mps_server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattributed:
    """What a process of no pod of the list uses on one GPU, with the reason.

    `mps` and `mps_server` are those of `AttributedUse`; `uid` and `container` say where a trusted MPS server runs.
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
    """Every use of a snapshot, in exactly one of the two: bytes are conserved."""

    attributed: tuple[AttributedUse, ...] = ()
    unattributed: tuple[Unattributed, ...] = ()


class Verdict(StrEnum):
    """How an account stands."""

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
    def sort_key(self) -> tuple[str, str, str]:
        """A total order in which None comes first."""
        return (self.uid, self.container or "", self.gpu or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerShare:
    """A container's part of an account: what the choice of a victim looks at. `requested` is without a named limit."""

    container: str
    used_at_least: int
    declared: int
    requested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeclaration:
    """A declaration with something wrong about it: where it stands and what that is.

    `counts` says that it holds all the same, as written: the scheduler has checked it, or its number can't be read and
    no smaller one takes its place. Otherwise it was skipped.
    """

    source: str
    why: str
    counts: bool = False


class MpsRole(StrEnum):
    """Why the end of something would break the work of other pods."""

    SERVER = "server"
    CLIENT = "client"
    HIDDEN = "hidden"  # whether there is a client can't be seen now


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsHazard:
    """What other pods' work would break with: a process of a pod; without `key` a container, without that any."""

    role: MpsRole
    container: str | None = None
    key: ProcessKey | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How one account stands. Unknown numbers are None; `used_at_least` counts unknown bytes as 0.

    `behind` says that the pod list lacks a container in which the pod runs: the bytes of such a container are not known
    to count, and the budget is the largest of any phase. `misdeclarations` are also those that hold all the same.
    `declared_by` is the resource, annotation or label key (several joined by `, `), or `default`. `protected` says in
    a few words why the pod is never acted on, or is None. `requested` and `allowed_by_request` are what steps under
    pressure compare with where a tenant may name a limit above the request; None: as declared and as allowed.
    `observes` says that the rule only observes now, whatever the policy's mode. `short` are those of its GPUs that are
    short of memory, looked at only where the rule has a step under pressure. `rule_gap` says what is not known for
    naming the pod's rule; it then has none, and its verdict is unknown. `mps` are the hazards of the whole pod.
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
    mps: tuple[MpsHazard, ...] = ()

    @property
    def is_conclusive(self) -> bool:
        """Whether the reading says for sure on which side of allowed the account is."""
        return self.verdict in (Verdict.WITHIN, Verdict.OVER)

    @property
    def title(self) -> str:
        """The account as people write it: namespace/pod, with container and GPU where it has them."""
        container = f" container {self.account.container}" if self.account.container is not None else ""
        gpu = f" on {self.account.gpu}" if self.account.gpu is not None else ""
        return f"{self.pod.title}{container}{gpu}"
