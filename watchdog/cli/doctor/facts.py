"""The facts that doctor checks, as values; the container and its security modules are read here."""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from watchdog.config.load import PolicyProblem
from watchdog.core.assessment import Attribution
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, Node, PodList, Process
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces
from watchdog.daemon.enforcement import Environment
from watchdog.journal.lock import LockState
from watchdog.kube.credentials import Credentials, Peer
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import Right
from watchdog.node.devices import Library
from watchdog.node.driver import DriverReading

_MOUNTS: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount: its mount point, the folder of the file system that is mounted (`root`), and the file system's type."""

    point: str
    root: str
    kind: str

    @property
    def is_empty_dir(self) -> bool:
        """Whether it is an emptyDir, which the kubelet removes with its pod (k8s.io/kubernetes/pkg/volume/emptydir)."""
        return "/volumes/kubernetes.io~empty-dir/" in f"{self.root}/"


def mount_lines() -> list[str]:
    """The lines of this process's mountinfo; none if it can't be read."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def mount_of(path: Path, mounts: list[str]) -> Mount | None:
    """The innermost mount of a path, from the lines of mountinfo; None if unknown.

    Of several mounts at the same point the last is on top.
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
    """The text without the kernel's escapes."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


_ATTRIBUTES: Final = Path("/proc/self/attr")
_ENABLED: Final = Path("/sys/module/apparmor/parameters/enabled")
_APPARMOR: Final = re.compile(r"(?P<name>.+?)(?: \((?P<mode>[a-z]+)\))?")
_SELINUX: Final = re.compile(r"[^:\s]+:[^:\s]+:(?P<type>[^:\s]+)(?::.+)?")
# Profiles that only allow signals to processes under the same profile: those of container runtimes
# (containerd contrib/apparmor/template.go, moby profiles/apparmor/template.go, containers/common pkg/apparmor).
_OF_RUNTIMES: Final = re.compile(r"cri-containerd\.apparmor\.d|docker-default|crio-default|containers-default-.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What confines this process; empty where nothing does.

    `profile` is AppArmor's, without its mode; `is_of_runtime`: it is a container runtime's default. `selinux_type` is
    the third part of SELinux's label.
    """

    profile: str = ""
    is_of_runtime: bool = False
    selinux_type: str = ""


def read_confinement(attributes: Path = _ATTRIBUTES, enabled: Path = _ENABLED) -> Confinement:
    """The confinement of this process; none if neither module is active, or it can't be read."""
    # AppArmor has its own file since Linux 5.8; the other belongs to the main module (proc_pid_attr(5)).
    if own := _text(attributes / "apparmor" / "current"):
        return confinement_of(own)
    return confinement_of(_text(attributes / "current"), has_apparmor=_text(enabled) == "Y")


def confinement_of(text: str, *, has_apparmor: bool = True) -> Confinement:
    """Parse the text of such a file.

    AppArmor writes `NAME (MODE)`, or `unconfined`; stacked profiles are joined by `//&`, and each of them must allow a
    signal. In modes other than `enforce` and `kill` a profile denies nothing. Without AppArmor a bare name is another
    module's: SELinux with no policy loaded writes `kernel`
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
    """The text of a kernel file; empty if it can't be read: EINVAL if the module that owns it is off."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """What confines this process, and its mounts.

    `has_policy_mount`: the policy's file is on another mount than the root; it matters only `in_pod`.
    `temporary_problem` is why temporary files can't be created; empty if they can.
    """

    confinement: Confinement = field(default_factory=Confinement)
    in_pod: bool = False
    has_policy_mount: bool = False
    temporary_folder: str = "/tmp"
    temporary_problem: str = ""


def read_container(policy: Path, mounts: list[str]) -> ContainerFacts:
    """Gather these facts; the only thing written is a temporary file that Python creates to find the folder."""
    folder, problem = _temporary()
    mount = mount_of(policy, mounts)
    return ContainerFacts(
        confinement=read_confinement(),
        # The kubelet sets it in every container (rest.InClusterConfig of client-go uses it too).
        in_pod=bool(os.environ.get("KUBERNETES_SERVICE_HOST")),
        # An unknown mount is not reported as missing.
        has_policy_mount=mount is None or mount.point != "/",
        temporary_folder=folder,
        temporary_problem=problem,
    )


def _temporary() -> tuple[str, str]:
    """The folder for temporary files, or why there is none."""
    try:
        return tempfile.gettempdir(), ""
    except OSError as error:
        return "", error.strerror or str(error)


# How the queries ended: no configuration, no connection, a rejected certificate, a response that is not an API
# server's, rejected credentials, none sent, out of time; or everything was asked.
Ended = Literal["unconfigured", "unreachable", "certificate", "odd", "credentials", "anonymous", "late", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFacts:
    """What the API server answered. `problem` is why the queries ended early, with its remedy.

    `offset_s` is how far its clock is ahead of this node's. `rights` has the verbs that this account lacks for each
    right that was queried, `later` those that the policy would need to enforce; `rights_problem` is why not all could
    be queried. `exists`: whether the cluster has a node of this name, None if unknown; `similar` is an existing node
    that may have been meant. If it ended `late`, `waited_s` is how long it waited, and `asking` for what.
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
        """The resources needed by the policy that this account may not list."""
        return frozenset(right.resource for right, lacking in self.rights.items() if "list" in lacking)


DEFAULTS: Final = Policy(sha256="", source="")  # without a valid policy


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """One reading of the driver, and its library; `library` is None if reading hung before that.

    `maintenance` is why neither was read, if the node's GPUs are under maintenance. `windows` is the sign that the
    driver is that of Windows (empty: it is not), `vgpus` are the UUIDs of virtual GPUs. `has_capability_devices`:
    /dev/nvidia-caps has some of MIG's devices.
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
    """What Python and the kernel provide for this process."""

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
    environment: Environment
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
    """Kubernetes' objects, from files or the API; a path is None if none was given.

    `age_s` is how long ago the pod list was written, None if unknown. `by_api`: what no file was given for was read
    from the API, as far as the policy needs it; `unlisted` are the resources that this account may not list.
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
    """The location of the journal, and what is there.

    `folder_problem` is why the folder is not writable (or, if it does not exist, why it can't be created). `detail`
    belongs to `kind`. `stop_problem` is why the stop file can't be checked. `free` are the free bytes of the disk,
    `size` those of the journal.
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
    """The address of the endpoints: whether it is available, or who answers there. `problem` includes its remedy.

    `policy_sha256` is that of the policy of the daemon that answers; empty if unknown.
    """

    listen: str
    state: ListenState
    problem: str = ""
    policy_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts; `api` is None if the API is not used."""

    driver: DriverFacts
    system: SystemFacts
    processes: ProcessFacts
    policy: PolicyFacts
    cluster: ClusterFacts
    journal: JournalFacts
    listen: ListenFacts
    container: ContainerFacts = field(default_factory=ContainerFacts)
    api: ApiFacts | None = None
