"""What the doctor goes by, as values: the container it runs in, the API's answers, and everything else it gathered."""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from watchdog.config.mistakes import PolicyProblem
from watchdog.core.assessment import Attribution
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, Node, PodList, Process
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces
from watchdog.daemon.enforcement import Footing
from watchdog.journal.lock import LockState
from watchdog.kube.credentials import Credentials, Peer
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import Right
from watchdog.node.driver import DriverReading
from watchdog.node.nvml_calls import Library

_MOUNTS: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where something is mounted (`point`), which folder of the file system that is (`root`), and its kind."""

    point: str
    root: str
    kind: str

    @property
    def is_empty_dir(self) -> bool:
        """Whether the kubelet made it for a pod and removes it with that (k8s.io/kubernetes/pkg/volume/emptydir)."""
        return "/volumes/kubernetes.io~empty-dir/" in f"{self.root}/"


def mount_lines() -> list[str]:
    """The lines of this process's mountinfo; none where it can't be read."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def mount_of(path: Path, mounts: list[str]) -> Mount | None:
    """The innermost mount that a path is on, from the lines of mountinfo; None where it is not told.

    Of several mounts at one place the last lies on top.
    """
    found: Mount | None = None
    real = os.path.realpath(path)
    for line in mounts:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _plain(fields[4])
        inside = point in ("/", real) or real.startswith(f"{point}/")
        if inside and (found is None or len(point) >= len(found.point)):
            found = Mount(point=point, root=_plain(fields[3]), kind=after.split(" ")[0])
    return found


def _plain(text: str) -> str:
    """Undo the kernel's escapes."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


_ATTRIBUTES: Final = Path("/proc/self/attr")
_ENABLED: Final = Path("/sys/module/apparmor/parameters/enabled")
_APPARMOR: Final = re.compile(r"(?P<name>.+?)(?: \((?P<mode>[a-z]+)\))?")
_SELINUX: Final = re.compile(r"[^:\s]+:[^:\s]+:(?P<type>[^:\s]+)(?::.+)?")
# Profiles that let signals through to processes under the same profile alone: those that runtimes give to containers
# (containerd contrib/apparmor/template.go, moby profiles/apparmor/template.go, containers/common pkg/apparmor).
_OF_RUNTIMES: Final = re.compile(r"cri-containerd\.apparmor\.d|docker-default|crio-default|containers-default-.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What holds this process: names, empty where there is nothing that does.

    `profile` is of AppArmor, without its mode; `is_of_runtime` says that a container runtime gives it to whoever has
    none. `selinux_type` is the third part of SELinux's label.
    """

    profile: str = ""
    is_of_runtime: bool = False
    selinux_type: str = ""


def look_at_confinement(attributes: Path = _ATTRIBUTES, enabled: Path = _ENABLED) -> Confinement:
    """Read what this process runs under; nothing where neither module runs, or where it can't be read."""
    # AppArmor's own file is of Linux 5.8; the other is that of whichever module is the main one (proc_pid_attr(5)).
    if own := _text(attributes / "apparmor" / "current"):
        return confinement_of(own)
    return confinement_of(_text(attributes / "current"), has_apparmor=_text(enabled) == "Y")


def confinement_of(text: str, *, has_apparmor: bool = True) -> Confinement:
    """Understand the text of such a file.

    AppArmor writes `NAME (MODE)`, or `unconfined`; profiles that lie on top of each other are joined by `//&`, and each
    of them must let a signal through. In modes other than `enforce` and `kill` a profile denies nothing. Without
    AppArmor a bare name is another module's: SELinux with no policy loaded writes `kernel`
    (security_sid_to_context_core in security/selinux/ss/services.c), Smack a label such as `_`.
    """
    label = text.strip("\0\n ")
    found = _SELINUX.fullmatch(label)
    if found and " (" not in label and "//" not in label:
        return Confinement(selinux_type=found["type"])
    matched = _APPARMOR.fullmatch(label)
    if matched is None or matched["mode"] in ("complain", "unconfined") or not (matched["mode"] or has_apparmor):
        return Confinement()
    names = [name for name in matched["name"].split("//&") if name.rpartition(":")[2] != "unconfined"]
    return Confinement(profile="//&".join(names), is_of_runtime=any(map(_OF_RUNTIMES.fullmatch, names)))


def _text(path: Path) -> str:
    """What a file of the kernel says; empty where it can't be read: EINVAL where the module that owns it is off."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """What holds this process, and what is mounted for it.

    `has_policy_mount` says that the policy's file is on another mount than the root; it counts only `in_pod`.
    `temporary_problem` is why temporary files can be made nowhere; empty where they can.
    """

    confinement: Confinement = field(default_factory=Confinement)
    in_pod: bool = False
    has_policy_mount: bool = False
    temporary_folder: str = "/tmp"
    temporary_problem: str = ""


def look_at_container(policy: Path, mounts: list[str]) -> ContainerFacts:
    """Read all of it; the one thing written is a file of a moment's life, which Python makes to find the folder."""
    folder, problem = _temporary()
    mount = mount_of(policy, mounts)
    return ContainerFacts(
        confinement=look_at_confinement(),
        # The kubelet gives it to every container of every pod (rest.InClusterConfig of client-go goes by it too).
        in_pod=bool(os.environ.get("KUBERNETES_SERVICE_HOST")),
        # What can't be seen is not complained of.
        has_policy_mount=mount is None or mount.point != "/",
        temporary_folder=folder,
        temporary_problem=problem,
    )


def _temporary() -> tuple[str, str]:
    """The folder for temporary files, and why there is none where there is none."""
    try:
        return tempfile.gettempdir(), ""
    except OSError as error:
        return "", error.strerror or str(error)


# Where the questions ended: no way, no answer, a certificate that is not accepted, an answer that is none of an API
# server, credentials that are not accepted, none that were sent, no time left; or all was asked.
Ended = Literal["no_way", "unreachable", "certificate", "odd", "credentials", "anonymous", "late", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """All that was asked of the API server, as far as it went. `problem` is why it went no further, with its remedy.

    `offset_s` is how far its clock is ahead of this node's. `rights` are the verbs that this account lacks of each
    right that was asked for, `later` those of rights that the policy would need to enforce; `rights_problem` is why
    not all could be asked. `exists` is whether the cluster has a node of
    this name, None where that can't be seen; `similar` is a node's name that is there and was perhaps meant.
    `waited_s` is how long was waited where it ended `late`, and `asking` for what.
    """

    ended: Ended
    kubeconfig: Path | None = None
    host: str = ""
    problem: Problem | None = None
    version: str = ""
    offset_s: float | None = None
    now_s: float = 0.0
    peer: Peer = field(default_factory=Peer)
    credentials: Credentials = field(default_factory=Credentials)
    account: ApiAccount = field(default_factory=ApiAccount)
    rights: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    later: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    rights_problem: Problem | None = None
    exists: bool | None = None
    similar: str = ""
    asking: str = ""
    waited_s: float = 0.0

    @property
    def unlisted(self) -> frozenset[str]:
        """The resources that this account may not list, of those that the policy needs."""
        return frozenset(right.resource for right, lacking in self.rights.items() if "list" in lacking)


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
    problems: tuple[PolicyProblem, ...] = ()


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
