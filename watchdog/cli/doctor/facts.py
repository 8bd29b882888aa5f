"""The facts that doctor checks, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from watchdog.config.load import PolicyProblem
from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, Node, PodList, Process
from watchdog.core.plan import StopNote
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces
from watchdog.daemon.enforcement import Environment
from watchdog.journal.lock import LockState
from watchdog.kube.credentials import Credentials, Peer
from watchdog.kube.kinds import Piece, Right
from watchdog.kube.reviews import ApiAccount
from watchdog.node.drivers.devices import Library
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.mps_control import MpsInspection
from watchdog.options import Options
from watchdog.report.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """One reading of the driver, and its library."""

    # None if reading hung before it was known.
    library: Library | None
    reading: DriverReading
    searched: str
    # Why neither was read, if the node's GPUs are under maintenance; None: they are not.
    maintenance: str | None = None
    # The sign that the driver is that of Windows; empty: it is not.
    windows: str = ""
    # The UUIDs of virtual GPUs.
    vgpus: tuple[str, ...] = ()
    # Whether /dev/nvidia-caps has some of MIG's devices.
    has_capability_devices: bool = True

    @property
    def answer(self) -> DriverReading | None:
        """The reading, if the library was loaded and the driver answered."""
        library = self.library
        is_loaded = library is not None and library.path is not None and library.failure is None
        return self.reading if is_loaded and not self.reading.blind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """What Python and the kernel provide for this process."""

    # Major and minor version.
    python: tuple[int, int]
    # The version of the library.
    sqlite: str
    # Unix time.
    wall_s: float
    # Whether there is CLOCK_BOOTTIME.
    has_boot_clock: bool
    boot_id: str
    # How many file descriptors this process may have.
    descriptors: int
    # Whether time zones are known by their names.
    has_time_zones: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The proc file system, this process's place and rights in it, and the processes that the driver lists."""

    # Why it can't be listed; empty if it can.
    procfs_problem: str
    # Why PID 1 can't be read; empty if it can.
    init_problem: str
    environment: Environment
    in_first_user_namespace: bool
    listed: Mapping[int, Process] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    attribution: Attribution | None = None
    # What a comparison of the GPUs with the Node object shows.
    card_gaps: tuple[Gap, ...] = ()
    # As `CardCount.offered`, by that comparison.
    cards_offered: str = ""
    # Those by the policy.
    assessments: tuple[Assessment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What confines this process; empty if nothing does."""

    # AppArmor's, without its mode.
    profile: str = ""
    # Whether that is a container runtime's default.
    is_of_runtime: bool = False
    # The third part of SELinux's label.
    selinux_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """What confines this process, and its mounts."""

    confinement: Confinement = field(default_factory=Confinement)
    in_pod: bool = False
    # Whether the policy's file is on another mount than the root; it matters only `in_pod`.
    has_policy_mount: bool = False
    temporary_folder: str = "/tmp"
    # Why temporary files can't be created; empty if they can.
    temporary_problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The policy, or every mistake in it."""

    is_there: bool
    policy: Policy | None
    problems: tuple[PolicyProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A change that the admission policy of a piece of rights must reject, requested as a dry run."""

    piece: Piece
    what: str
    # None if the answer does not show it.
    rejected: bool | None
    # That answer.
    problem: Problem = field(default_factory=lambda: Problem(""))


# How the queries ended: the API is not used, no configuration, no connection, a rejected certificate, a response that
# is not an API server's, rejected credentials, none sent, out of time; or everything was asked.
Ended = Literal[
    "unused", "unconfigured", "unreachable", "certificate", "odd", "credentials", "anonymous", "late", "asked"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """What the API server answered."""

    ended: Ended = "unused"
    host: str = ""
    # Why the queries ended early, with its remedy.
    problem: Problem = field(default_factory=lambda: Problem(""))
    version: str = ""
    # How far its clock is ahead of this node's; None if unknown.
    offset_s: float | None = None
    now_s: float = 0.0
    peer: Peer = field(default_factory=Peer)
    credentials: Credentials = field(default_factory=Credentials)
    account: ApiAccount = field(default_factory=ApiAccount)
    # The verbs that this account lacks, for each right that was queried.
    rights: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    # The verbs that the policy would need to enforce.
    later: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    # Why not all rights could be queried; None: they could.
    rights_problem: Problem | None = None
    # Whether the cluster has a node of this name; None if unknown.
    exists: bool | None = None
    # An existing node that may have been meant.
    similar: str = ""
    # They concern the rights that the account has, needed or not.
    probes: tuple[Probe, ...] = ()
    # If it ended `late`, what it waited for.
    asking: str = ""
    # If it ended `late`, how long it waited.
    waited_s: float = 0.0

    @property
    def is_used(self) -> bool:
        """Whether the API server is queried, because some kind of object comes from no file."""
        return self.ended != "unused"

    @property
    def unlisted(self) -> frozenset[str]:
        """The resources needed by the policy that this account may not list."""
        return frozenset(right.resource for right, lacking in self.rights.items() if "list" in lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Kubernetes' objects, from files or the API, as far as the policy needs them."""

    pods: PodList
    # How long ago the file of the pods was written; None if unknown.
    age_s: float | None
    node: Node
    node_gaps: tuple[Gap, ...] = ()
    namespaces: Namespaces = field(default_factory=dict)
    namespace_gaps: tuple[Gap, ...] = ()
    # How many running pods have a claim; what is not known of claims; and whether no published device has a UUID.
    claiming: int = 0
    claim_gaps: tuple[Gap, ...] = ()
    lacks_uuids: bool = False


JournalKind = Literal["absent", "empty", "journal", "newer", "foreign", "damaged", "folder", "unreadable", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """The journal's folder, and the files in it."""

    folder_exists: bool
    # Why the folder is not writable (or, if it does not exist, why it can't be created).
    folder_problem: str = ""
    file_system: str = ""
    is_empty_dir: bool = False
    # The free bytes of the disk; None if unknown.
    free: int | None = None
    # The bytes of the journal.
    size: int = 0
    kind: JournalKind = "absent"
    # It belongs to `kind`.
    detail: str = ""
    lock: LockState = "free"
    holder: int | None = None
    is_stopped: bool = False
    # Why the stop file can't be checked.
    stop_problem: str = ""
    # What is known of a stop file; None: nothing.
    stop: StopNote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFacts:
    """The address of the endpoints: whether it is available, or who answers there."""

    state: Literal["free", "ours", "ours_sick", "taken", "unusable"]
    # Includes its remedy.
    problem: str = ""
    # That of the daemon that answers; None if unknown.
    status: Status | None = None

    @property
    def policy_sha256(self) -> str:
        """The checksum of the policy of the daemon that answers; empty if unknown."""
        return "" if self.status is None else self.status.policy.sha256


DEFAULTS: Final = Policy(sha256="", source="")  # without a valid policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts, and the options that say where they were looked for."""

    options: Options
    driver: DriverFacts
    system: SystemFacts
    processes: ProcessFacts
    policy: PolicyFacts
    cluster: ClusterFacts
    journal: JournalFacts
    listen: ListenFacts
    container: ContainerFacts = field(default_factory=ContainerFacts)
    api: ApiFacts = field(default_factory=ApiFacts)
    mps: MpsInspection | None = None  # None: the policy has no [mps]

    @property
    def known_policy(self) -> Policy:
        """The policy; the defaults without a valid one."""
        return self.policy.policy or DEFAULTS
