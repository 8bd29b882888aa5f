"""What doctor knows of a node before it judges: values that were really read, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from watchdog.config.mistakes import Problem
from watchdog.core.assessment import Attribution
from watchdog.core.model import Gap, Node, PodList, Process
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces
from watchdog.daemon.enforcement import Footing
from watchdog.doctor.api_facts import ApiFacts
from watchdog.doctor.container import ContainerFacts
from watchdog.export.lock import LockState
from watchdog.node.driver import DriverReading
from watchdog.node.nvml_calls import Library

DEFAULTS: Final = Policy(sha256="", source="")  # where there is no policy that can be followed


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """One reading of the driver and the library that gave it; `library` is None where not even that came back.

    `maintenance` is why neither was asked for, where the node's GPUs are under maintenance. `windows` says by what it
    can be told that the driver is that of Windows (empty: it is not), `vgpus` are the UUIDs of virtual GPUs.
    `has_capability_devices` says that some of MIG's are in /dev/nvidia-caps.
    """

    library: Library | None
    reading: DriverReading
    searched: str
    maintenance: str | None = None
    windows: str = ""
    vgpus: tuple[str, ...] = ()
    has_capability_devices: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """What Python and the kernel give this process."""

    python: tuple[int, int]
    sqlite: str
    wall_s: float
    has_boot_clock: bool
    boot_id: str
    descriptors: int
    has_time_zones: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The proc file system, this process's place and rights in it, and the processes that the driver lists.

    `procfs_problem` is why it can't be listed, `init_problem` why PID 1 can't be read; both empty where they can.
    """

    procfs: Path
    procfs_problem: str
    init_problem: str
    footing: Footing
    in_first_user_namespace: bool
    listed: Mapping[int, Process] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    attribution: Attribution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The policy, or every mistake in it."""

    path: Path
    is_there: bool
    policy: Policy | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What stands in the files of Kubernetes' objects, or in the API; a path is None where none was named.

    `age_s` is how long ago the pod list was written, None where that is not known. `by_api` says that what no file was
    named for was asked of the API, as far as the policy needs it; `unlisted` are the resources that this account may
    not list.
    """

    node_name: str
    pods_path: Path | None
    pods: PodList
    age_s: float | None
    node_path: Path | None
    node: Node
    node_gaps: tuple[Gap, ...] = ()
    namespaces_path: Path | None = None
    namespaces: Namespaces = field(default_factory=dict)
    namespace_gaps: tuple[Gap, ...] = ()
    by_api: bool = False
    unlisted: frozenset[str] = frozenset()


JournalKind = Literal["absent", "empty", "journal", "newer", "foreign", "damaged", "folder", "unreadable", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """The place of the journal, and what lies there.

    `folder_problem` is why nothing can be written in the folder (or, where it does not exist, why it can't be made).
    `detail` belongs to `kind`. `stop_problem` is why it can't be seen whether there is a stop file. `free` are bytes
    left on the disk, `size` those that the journal has.
    """

    path: Path
    folder_exists: bool
    folder_problem: str = ""
    file_system: str = ""
    is_empty_dir: bool = False
    free: int | None = None
    size: int = 0
    kind: JournalKind = "absent"
    detail: str = ""
    lock: LockState = "free"
    lock_path: Path
    holder: int | None = None
    stop_path: Path
    is_stopped: bool = False
    stop_problem: str = ""


ListenState = Literal["free", "ours", "ours_sick", "taken", "unusable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFacts:
    """The address of the endpoints: whether it can be had, or who answers there. `problem` has its remedy in it.

    `policy_sha256` is of the policy by which the daemon that answers goes; empty where that is not known.
    """

    listen: str
    state: ListenState
    problem: str = ""
    policy_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that was read; `api` is None where the API is not used."""

    driver: DriverFacts
    system: SystemFacts
    processes: ProcessFacts
    policy: PolicyFacts
    cluster: ClusterFacts
    journal: JournalFacts
    listen: ListenFacts
    container: ContainerFacts = field(default_factory=ContainerFacts)
    api: ApiFacts | None = None
