"""What is known of a node at one moment: immutable values that the stages of a cycle pass on.

Bytes are integers, an unknown amount is None (never 0), times are seconds. A process is never a bare PID.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from watchdog.core.errors import Problem

# USER_HZ of the kernel, in which /proc counts on x86-64 and arm64 (proc(5)).
_TICKS_PER_S: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controller of a pod, as the pod's own object names it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """One moment on both clocks; the loop reads it, and the core only gets it passed."""

    # CLOCK_BOOTTIME within the boot `boot_id`: it continues in suspend and never jumps.
    boottime_s: float
    # Unix time.
    wall_s: float
    boot_id: str


def elapsed_s(since: Now, now: Now) -> float:
    """Seconds from one moment to another, never negative; across boots by the wall clock."""
    if since.boot_id == now.boot_id:
        return max(now.boottime_s - since.boottime_s, 0.0)
    return max(now.wall_s - since.wall_s, 0.0)


def began_at_s(since: Now, now: Now) -> float:
    """An earlier moment as Unix time by the clock of now, which may have been set since then; never later than now."""
    return now.wall_s - elapsed_s(since, now)


# The reason of a suspension while the driver is released. Unlike the other reasons it resets nothing: what is due is
# withheld as by a brake.
MAINTENANCE: Final = "maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStart:
    """When maintenance of the GPUs began."""

    at: Now
    # Whether it was seen to begin; otherwise it was first seen then, and may be older.
    seen: bool


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ProcessKey:
    """Identity of a process: a bare PID may be another process a moment later."""

    pid: int
    # Its start in clock ticks since boot (`/proc/PID/stat`, field 22).
    start_ticks: int

    @property
    def started_s(self) -> float:
        """Its start as CLOCK_BOOTTIME."""
        return self.start_ticks / _TICKS_PER_S


def is_signal(name: str) -> bool:
    """Whether what was sent is a signal to processes; something else may stand for the first one, such as DRAIN."""
    return name.startswith("SIG")


# What stands in a signal's place if a process was asked to be drained first.
DRAIN: Final = "DRAIN"


class PlaceKind(StrEnum):
    """Where a process belongs, according to its cgroup text."""

    POD = "pod"
    HOST = "host"
    GONE = "gone"
    ZOMBIE = "zombie"
    CONTRADICTORY = "contradictory"  # its lines name different pods or containers
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The pod and container in the cgroup text of a process: a claim, to be checked against the pod list."""

    kind: PlaceKind
    # A pod UID or a static pod's config hash, compared exactly as the API server's; None where the text (a sibling seen
    # from a private cgroup namespace) names a container alone.
    pod: str | None = None
    # A 64-digit container ID.
    container: str | None = None
    # For a process of the host, such an ID in a path that leads to no pod; nothing is attributed by it.
    outside: str | None = None


HOST: Final = Place(kind=PlaceKind.HOST)
GONE: Final = Place(kind=PlaceKind.GONE)
ZOMBIE: Final = Place(kind=PlaceKind.ZOMBIE)
CONTRADICTORY: Final = Place(kind=PlaceKind.CONTRADICTORY)
UNREADABLE: Final = Place(kind=PlaceKind.UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsSigns:
    """What shows that a process is an MPS server, or a client of one."""

    # Whether the driver lists it as a client; None: unknown.
    client: bool | None = False
    # Whether it has the name of NVIDIA's MPS server, which alone proves nothing.
    server: bool = False
    # Whether it has that name, and /proc shows the rights of a privileged container or of the host (CAP_SYS_ADMIN). A
    # tenant can fake that in a user namespace; of a use in a pod it is set only if the pod's spec says so too.
    privileged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    # None if it was gone before its start time could be read.
    key: ProcessKey | None
    place: Place
    name: str = ""
    # What /proc shows of MPS, which is a server's name; None: nothing.
    mps: MpsSigns | None = None
    # Whether it calls itself the kernel of a gVisor sandbox, which any process can; only texts depend on it.
    gvisor: bool = False
    # Whether it has ended, was held until then, and its container still has processes; `place` is then where it was.
    ended: bool = False


MigPlacement = tuple[int, int]  # the ID of a GPU instance's profile, and the first memory slice that it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A schedulable device: a card without MIG, or a MIG instance. Amounts are bytes; None if unknown."""

    uuid: str
    index: int
    name: str
    # The UUID of the card, of a MIG instance only, as are the next three; None for a card.
    parent: str | None = None
    # The ID of the GPU instance.
    gi: int | None = None
    # The ID of the compute instance.
    ci: int | None = None
    # The MIG profile: `1g.10gb`.
    profile: str | None = None
    # Where the GPU instance is on its card; None: the driver does not say.
    placement: MigPlacement | None = None
    # False when it has stopped answering.
    up: bool = True
    # Whether its processes are known in this snapshot.
    listed: bool = True
    total: int | None = None
    # All that is not free, `reserved` included.
    used: int | None = None
    reserved: int | None = None

    @property
    def size(self) -> int | None:
        """The bytes that tenants can use: total minus reserved; None if the total is unknown."""
        return None if self.total is None else self.total - (self.reserved or 0)

    @property
    def memory(self) -> tuple[str, int | None]:
        """Equal for all devices that share one memory: the compute instances of one GPU instance."""
        return (self.uuid, None) if self.parent is None or self.gi is None else (self.parent, self.gi)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigParent:
    """A card in MIG mode, which is not a schedulable device itself and only has a `gpu_info` series."""

    uuid: str
    index: int
    name: str
    # Bytes of the whole card, `reserved` included; None if unknown.
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one process uses on one GPU, as the driver reports it."""

    # A UUID.
    gpu: str
    pid: int
    # Bytes; None if the driver does not report them.
    used: int | None
    # Whether the driver lists the process as a client of an MPS server; None if unknown.
    client: bool | None = False

    @property
    def of_another(self) -> "Use":
        """The use if its PID may belong to another process than the one listed: nothing of it is known."""
        return replace(self, used=None, client=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLimit:
    """How much memory MPS lets one client pin on one GPU, in bytes; the smaller of two limits holds."""

    key: ProcessKey
    # A UUID.
    gpu: str
    # What its server allows each client; None: there is no limit, or it is unknown.
    by_server: int | None = None
    # What its own environment asks for; None: likewise.
    by_client: int | None = None
    # Whether both were determined.
    is_complete: bool = False

    @property
    def limit(self) -> int | None:
        """The limit that holds, as far as it is known."""
        return min((limit for limit in (self.by_server, self.by_client) if limit is not None), default=None)


class GapReason(StrEnum):
    """Why something is unknown: the label of `scan_gaps_total`."""

    DRIVER_UNAVAILABLE = "nvml_unavailable"  # no library, no driver, or their versions differ
    DRIVER_TIMEOUT = "nvml_timeout"
    GPU_LOST = "gpu_lost"
    GPU_ERROR = "gpu_error"
    PROCESSES = "processes"  # a process list could not be read
    PROCESS_MEMORY = "process_memory"  # processes are listed without their memory: WSL2, some vGPU guests
    CONTRADICTION = "contradiction"  # a reading contradicts itself and is rejected as a whole
    MIG = "mig"
    MEMORY = "memory"
    PROCFS = "procfs"
    CGROUP = "cgroup"
    PODS = "pods"
    CONTAINER = "container"  # a running container that stays missing from the pod list
    OUTSIDE = "outside"  # a container in the pod list runs outside its pod's cgroup
    NODE = "node"  # the node's own object
    NAMESPACES = "namespaces"  # the labels of namespaces
    CLAIMS = "claims"  # what resource claims gave
    DESCRIPTORS = "descriptors"  # no file descriptor left for a pidfd
    MAINTENANCE = "maintenance"  # the driver is released while its GPUs are under maintenance
    CYCLE_LATE = "cycle_late"  # a cycle took longer than `interval`
    TRANSFER = "transfer"  # memory that may have gone from one pod to another by CUDA IPC
    RESIDUAL = "residual"  # much of a card is in use by no process
    MPS = "mps"  # MPS clients run, and no control daemon that can drain them is usable
    LEFT = "left"  # a pod has gone from the API server, and processes of its containers run on


# The gaps in what is known of Kubernetes' objects, by the API or from files.
OBJECT_GAPS: Final = frozenset({GapReason.PODS, GapReason.NODE, GapReason.NAMESPACES, GapReason.CLAIMS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that is unknown."""

    reason: GapReason
    # A name for it.
    what: str
    # The cause and the remedy.
    problem: Problem
    # The UUID of the GPU concerned; None: no GPU in particular.
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The result of one reading of the node: the driver's, joined with /proc."""

    at: Now
    # The driver's version; None if it is not known.
    driver: str | None
    # What the driver was read through, as people know it: NVML.
    interface: str
    # The schedulable devices: cards without MIG, and MIG instances.
    gpus: tuple[Gpu, ...]
    # The cards in MIG mode.
    parents: tuple[MigParent, ...] = ()
    # One for each process and GPU. A process known from an earlier reading, on a GPU that can't be listed now, is kept
    # with `used=None`.
    uses: tuple[Use, ...] = ()
    # The process of each PID in `uses`.
    processes: Mapping[int, Process] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    # Whether the driver did not answer at all, so that nothing is known of any GPU.
    blind: bool = False
    # GPUs whose processes have never been listed since the daemon started, or may not all be listed (WSL, a vGPU in use
    # without any listed process): anything may run there.
    unseen: frozenset[str] = frozenset()
    # Devices that the driver counts and that have never been read since the daemon started: nothing is known about
    # them.
    missing: frozenset[str] = frozenset()

    @property
    def has_servers(self) -> bool:
        """Whether it shows processes that others share, or depend on one that others share: MPS servers and clients."""
        processes = self.processes
        return any(use.client or (use.pid in processes and processes[use.pid].mps is not None) for use in self.uses)


class ContainerKind(StrEnum):
    """The kinds of containers in a pod's spec."""

    MAIN = "main"
    INIT = "init"
    SIDECAR = "sidecar"  # an init container with restartPolicy: Always
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod."""

    name: str
    kind: ContainerKind = ContainerKind.MAIN
    # Its current and last container IDs.
    ids: frozenset[str] = frozenset()
    running: bool = True
    # Its quantities as written.
    resources: Mapping[str, str] = field(default_factory=dict)
    # The resource claims that it uses, by their entries in the pod: `gpu` for all of one, `gpu/a` for its request `a`.
    claims: tuple[str, ...] = ()
    # Whether its securityContext gives it CAP_SYS_ADMIN.
    privileged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevice:
    """A device that a resource claim has been given, or a share of one."""

    # The request that it was given for: `gpu`, or `gpu/small` of a list of alternatives.
    request: str
    # Which it is, for messages: `gpu.nvidia.com/node1/gpu-0`.
    name: str
    # Its UUID, and of a MIG instance its card's; None: the slices have none.
    uuid: str | None = None
    parent: str | None = None
    # The MIG profile; None: it is no MIG instance.
    profile: str | None = None
    # Where that instance is on its card, or is made when its pod starts; None: its driver does not say.
    placement: MigPlacement | None = None
    # The bytes of its memory that the claim consumes; None: none are named.
    memory: int | None = None
    # Whether others may be given shares of it too; otherwise the claim has all of it.
    is_shared: bool = False
    # Which share of it this is; "": not known, or none.
    share: str = ""
    # How many of its shares this is, and how many it has, where its driver counts them; None: it does not.
    shares: int | None = None
    shares_in_all: int | None = None
    # The bytes that each MPS client may pin there, as the claim configures it; None: it does not.
    pinned_limit: int | None = None
    # Its memory as its driver published it, which need not be what NVML reports; None: unknown.
    size: int | None = None
    # Whether the slices of this node list it, and whether they list any device of its driver.
    is_listed: bool = True
    is_driver_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A resource claim of a pod, and what it was given."""

    # The name of the ResourceClaim; "" if it has not been made.
    name: str
    # The name of the template that it is made from; "": of none.
    template: str = ""
    devices: tuple[ClaimedDevice, ...] = ()
    # Why it is not known what it was given, as a clause; "" if it is known.
    unknown: str = "claims are not read"
    # Other pods of this node that have it, a few of them, as `namespace/name`.
    shared_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodKeys:
    """Keys of pods, in which `{container}` stands for the name of each container, and patterns of keys."""

    annotations: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    # The resources of which a 0 says something; one of the others with a 0 requests nothing.
    zeros: frozenset[str] = frozenset()

    def __or__(self, other: "PodKeys") -> "PodKeys":
        return PodKeys(
            annotations=self.annotations | other.annotations,
            labels=self.labels | other.labels,
            resources=self.resources | other.resources,
            zeros=self.zeros | other.zeros,
        )

    def cover(self, other: "PodKeys") -> bool:
        """Whether these keys include all of the other ones."""
        return self is other or (
            other.annotations <= self.annotations
            and other.labels <= self.labels
            and other.resources <= self.resources
            and other.zeros <= self.zeros
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node, as far as the watchdog needs it."""

    namespace: str
    name: str
    # `metadata.uid`.
    uid: str
    containers: tuple[Container, ...]
    # The annotation `kubernetes.io/config.hash`, which is what a static pod's cgroup carries.
    config_hash: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # Its controller; None: it has none.
    owner: Owner | None = None
    # `spec.priority`; None: it has none.
    priority: int | None = None
    # Whether the kubelet made it from a file of its own.
    static: bool = False
    # Whether its phase says that all containers have ended, for good, or it has left; a process may still run.
    is_finished: bool = False
    # The keys that were read of a pod with too many annotations, labels or resources to keep; None: all were kept.
    keys: PodKeys | None = None
    # Whether some that may count were not read, of these or of its containers.
    is_cut: bool = False
    # The Unix time until which a terminating pod may run; None: it is not terminating.
    deletion_deadline_s: float | None = None
    # When this daemon first saw it terminating; None: at this moment.
    terminating_since: Now | None = None
    # When it was found to have left (core/left); None: it is in the list.
    left_since: Now | None = None
    # Its resource claims by their entries in the pod; the one for extended resources by "".
    claims: Mapping[str, Claim] = field(default_factory=dict)
    # The grace period of its spec, which its containers have if it leaves without having been seen terminating.
    grace_s: float = 30.0  # SetDefaults_PodSpec in k8s.io/kubernetes/pkg/apis/core/v1

    @property
    def has_started(self) -> bool:
        """Whether a container of it has started, at some time."""
        return any(container.ids for container in self.containers)

    @property
    def title(self) -> str:
        """`namespace/name`, as people write it."""
        return f"{self.namespace}/{self.name}"

    @property
    def workload(self) -> Owner:
        """The pod's controller; where it has none, the pod itself, by its name."""
        return self.owner or Owner(kind="Pod", name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The Node object, as far as it is needed."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # `status.capacity`, with quantities as written.
    capacity: Mapping[str, str] = field(default_factory=dict)
    # It changes when the object is recreated.
    uid: str = ""
    # Whether the object is known; if not, only its name is set.
    known: bool = True
    # Whether it has a source, which has not provided it yet.
    awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The pods of this node."""

    pods: tuple[Pod, ...] = ()
    # When the list was last known to be current; None: it was never read.
    synced: Now | None = None
    gaps: tuple[Gap, ...] = ()
    # Whether they come from a file that another program writes, and not from the API server.
    by_file: bool = False
    # The UIDs of pods that the API server has deleted lately.
    gone: frozenset[str] = frozenset()
