"""Checks of the kernel, this process's capabilities and its container, with their texts."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import ContainerFacts, PolicyFacts, ProcessFacts, SystemFacts
from watchdog.cli.doctor.finding import ENFORCING, Finding, Topic, missing, ok, remedied, warning
from watchdog.core.model import Gap, GapReason, Place, PlaceKind
from watchdog.core.policy import Safety
from watchdog.report.text import rfc3339

PYTHON: Final = Topic(
    name="python",
    means="Python is 3.11 or newer.",
    cases={
        "new": ok("Python {version}"),
        "old": missing("Python {version} is too old", "install gpu-memory-watchdog with Python 3.11 or newer"),
    },
)
SQLITE: Final = Topic(
    name="sqlite",
    means="Python's SQLite is 3.37 or newer, which the journal needs.",
    purposes=ENFORCING,
    cases={
        "new": ok("SQLite {version}"),
        "old": missing("SQLite {version} is too old for the journal", "use a Python built with SQLite 3.37 or newer"),
    },
)
CLOCK: Final = Topic(
    name="boot_clock",
    means="The kernel has CLOCK_BOOTTIME, which every timer uses.",
    cases={
        "there": ok("CLOCK_BOOTTIME works"),
        "lacking": missing(
            "CLOCK_BOOTTIME can't be read", "run on Linux 2.6.39 or newer, without a sandbox that blocks it"
        ),
    },
)
BOOT_ID: Final = Topic(
    name="boot_id",
    means="The kernel identifies this boot. Without that, ages across a restart of the daemon use the wall clock.",
    cases={
        "there": ok("this boot has the ID {boot_id}"),
        "lacking": warning(
            "/proc/sys/kernel/random/boot_id can't be read: a restart of the daemon counts as a reboot",
            "make it readable in the container",
        ),
    },
)
WALL_CLOCK: Final = Topic(
    name="wall_clock",
    means="The wall clock is not obviously wrong. Whether it is exact can't be checked from here.",
    cases={
        "sane": ok("the wall clock shows {now}"),
        "wrong": warning(
            "the wall clock shows {now}, which is before this program was written: the hours of rules, the journal's "
            "times and the deletion deadlines of pods will be wrong",
            "set it (chronyd, systemd-timesyncd)",
        ),
    },
)
TIME_ZONES: Final = Topic(
    name="time_zones",
    means="There is time zone data, which rules with `active` need.",
    cases={
        "there": ok("time zone data is installed"),
        "lacking": warning("there is no time zone data: a policy with `active` hours is rejected", "install tzdata"),
    },
)
PID_NAMESPACE: Final = Topic(
    name="pid_namespace",
    means="This runs in the host's PID namespace. Elsewhere drivers report PIDs that belong to other processes here, "
    "or omit those that are invisible from here, so that every pod seems to be within its limit.",
    cases={
        "host": ok("this is the host's PID namespace"),
        "allowed": warning(
            "this is not the host's PID namespace, which the policy allows",
            "set hostPID: true, and remove foreign_pid_namespace from [safety], unless this is a test",
        ),
        "foreign": missing(
            "this is not the host's PID namespace: processes outside it are invisible",
            "set hostPID: true; only if this is intended, set foreign_pid_namespace = true under [safety]",
        ),
    },
)
PROCFS: Final = Topic(
    name="procfs",
    means="There is a proc file system at the path of `--procfs`.",
    cases={
        "there": ok("{path} is a proc file system"),
        "lacking": missing("{path} can't be read as a proc file system: {problem}", "give the node's with --procfs"),
    },
)
PROCFS_OWN: Final = Topic(
    name="procfs_own",
    means="That proc file system belongs to this process's own PID namespace; otherwise a signal to a PID read there "
    "would reach another process.",
    cases={
        "own": ok("{path} belongs to this PID namespace"),
        "foreign": missing(
            "{path} belongs to another PID namespace than this process",
            "mount the /proc of the daemon's own PID namespace: with hostPID: true that is the container's /proc",
        ),
    },
)
PROCFS_OPEN: Final = Topic(
    name="procfs_open",
    means="The proc file system shows the processes of other users.",
    cases={
        "open": ok("processes of other users are readable in {path}"),
        "hidden": missing(
            "{path} hides processes of other users: {problem}", "mount it without hidepid, or run as root"
        ),
        "gap": missing("{what} can't be read: {problem}", "{remedy}"),
    },
)
CGROUPS: Final = Topic(
    name="cgroups",
    means="The cgroups of GPU processes identify pods.",
    cases={
        "pods": ok("GPU processes: {pods} in the cgroup of a pod, {hosts} of the host itself"),
        "none": warning(
            "none of the GPU processes ({count}) is in the cgroup of a pod: all count as the host's",
            "if they do belong to pods, report the text of /proc/PID/cgroup of one, such as {pid}",
        ),
        "strange": warning(
            "the cgroups of process {pid} contradict each other", "find out what it is: no container runtime does this"
        ),
        "gap": missing("the cgroup of {what}: {problem}. While it uses memory it may belong to any pod", "{remedy}"),
    },
)
PIDFD: Final = Topic(
    name="pidfd",
    means="The pidfd calls work, which make sure that a signal reaches the intended process.",
    purposes=ENFORCING,
    cases={
        "there": ok("pidfd_open and pidfd_send_signal work"),
        "allowed": warning("{problem}; the policy allows signalling without them", "{remedy}"),
        "lacking": missing("{problem}", "{remedy}; or set signal_without_pidfd = true under [safety]"),
    },
)
CAP_KILL: Final = Topic(
    name="cap_kill",
    means="This account may signal processes of other users. (CAP_SYS_PTRACE is not needed.)",
    purposes=ENFORCING,
    cases={
        "there": ok("CAP_KILL is present"),
        "lacking": missing(
            "CAP_KILL is missing: a pod with processes of another user can't be killed",
            "run as root with this capability; in a container add KILL",
        ),
        "namespaced": missing(
            "this is a separate user namespace, where CAP_KILL does not reach the processes of pods",
            "run as root of the host: no rootless container, no hostUsers: false",
        ),
    },
)
DESCRIPTORS: Final = Topic(
    name="descriptors",
    means="The limit of open files is high enough: each GPU process needs one.",
    cases={
        "enough": ok("the limit of open files is {limit}"),
        "few": warning(
            "the limit of open files is only {limit} (GPU processes: {count}): beyond it a process is identified by "
            "its start time only",
            "raise the hard limit (LimitNOFILE, ulimit -Hn) to {wanted} or more",
        ),
    },
)
SYSTEM_TOPICS: Final = (
    *(PYTHON, SQLITE, CLOCK, BOOT_ID, WALL_CLOCK, TIME_ZONES),
    *(PID_NAMESPACE, PROCFS, PROCFS_OWN, PROCFS_OPEN, CGROUPS, PIDFD, CAP_KILL, DESCRIPTORS),
)


APPARMOR: Final = Topic(
    name="apparmor",
    means="No AppArmor profile blocks signals to the processes of pods. Those of container runtimes only allow signals "
    "to processes under the same profile. Testing with signal 0 may succeed where SIGTERM and SIGKILL are denied, so a "
    "pod could be killed only in part.",
    purposes=ENFORCING,
    cases={
        "free": ok("no AppArmor profile confines this process"),
        "default": missing(
            "this process runs under the AppArmor profile {profile}: a pod that is privileged, unconfined or has its "
            "own profile can't be killed, or only in part",
            "set securityContext.appArmorProfile to type: Unconfined, as the chart does; with Docker "
            "--security-opt apparmor=unconfined",
        ),
        "own": warning(
            "this process runs under the AppArmor profile {profile}; whether that allows signals can't be determined",
            "check that it has the rule `signal,`, or set securityContext.appArmorProfile to type: Unconfined",
        ),
    },
)
SELINUX: Final = Topic(
    name="selinux",
    means="SELinux does not confine this process the way it confines the containers of pods.",
    purposes=ENFORCING,
    cases={
        "free": ok("SELinux does not confine this process as a container"),
        "container": warning(
            "this process has the SELinux type {type}, like a container: if SELinux is enforcing, it probably can't "
            "signal other pods' processes or write to a folder of the node",
            "give it the type spc_t: securityContext.seLinuxOptions, in the chart seLinuxOptions.type=spc_t",
        ),
    },
)
POLICY_MOUNT: Final = Topic(
    name="policy_mount",
    means="In a pod the policy comes from outside the image. The image has one at the same path, which only observes: "
    "a daemon uses it if the mount of the ConfigMap is missing. A policy that enforces, in an image of your own, "
    "counts as intended.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this does not run in a pod"),
        "mounted": ok("the policy's folder {folder} is mounted"),
        "image": missing(
            "the policy's folder {folder} is not mounted: the policy is the image's own",
            "mount the ConfigMap with the policy there, as a whole folder; or give the right file with --policy",
        ),
        "baked": warning(
            "the policy's folder {folder} is not mounted: the daemon enforces by the image's own policy",
            "unless this is intended, mount the ConfigMap with the policy there, as a whole folder",
        ),
    },
)
TEMPORARY: Final = Topic(
    name="temporary_folder",
    means="There is a folder for temporary files. SQLite uses it for large sorts, and a journal that can't be read in "
    "place is copied there.",
    purposes=ENFORCING,
    cases={
        "there": ok("temporary files can be created in {folder}"),
        "lacking": warning("no folder for temporary files: {problem}", "mount an emptyDir at /tmp"),
    },
)
POD_UID: Final = Topic(
    name="pod_uid",
    means="The daemon knows which pod it runs in, so that it never acts on that: from its cgroup or, if a private "
    "cgroup namespace hides that, from the UID that the manifest passes in.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this does not run in a pod"),
        "known": ok("this runs in the pod with the UID {uid}"),
        "unknown": warning(
            "which pod this runs in is unknown: its cgroup does not show it, and the manifest does not pass its UID; "
            "the daemon may act on the other containers of its own pod",
            "set GPU_WATCHDOG_POD_UID by the downward API (fieldRef: metadata.uid), as the chart does",
        ),
    },
)
CONTAINER_TOPICS: Final = (APPARMOR, SELINUX, POLICY_MOUNT, TEMPORARY, POD_UID)


_LEAST_PYTHON: Final = (3, 11)
_LEAST_SQLITE: Final = (3, 37)
_EARLIEST_S: Final = 1735689600.0  # 2025-01-01, before the first version
# What the daemon keeps for everything else (node/processes.py), and for pods that start meanwhile.
_SPARE: Final = 512


def check_system(facts: SystemFacts) -> Iterable[Finding]:
    """What Python and the kernel provide."""
    version = f"{facts.python[0]}.{facts.python[1]}"
    yield PYTHON.finding("new" if facts.python >= _LEAST_PYTHON else "old", version=version)
    sqlite = tuple(int(part) for part in facts.sqlite.split(".")[:2])
    yield SQLITE.finding("new" if sqlite >= _LEAST_SQLITE else "old", version=facts.sqlite)
    yield CLOCK.finding("there" if facts.has_boot_clock else "lacking")
    yield BOOT_ID.finding("there" if facts.boot_id else "lacking", boot_id=facts.boot_id)
    yield WALL_CLOCK.finding("sane" if facts.wall_s >= _EARLIEST_S else "wrong", now=rfc3339(facts.wall_s))
    yield TIME_ZONES.finding("there" if facts.has_time_zones else "lacking")


def check_processes(facts: ProcessFacts, safety: Safety, descriptors: int) -> Iterable[Finding]:
    """Which processes this one can read, and signal."""
    foreign = "allowed" if safety.foreign_pid_namespace else "foreign"
    path = facts.procfs
    if facts.procfs_problem:
        yield PROCFS.finding("lacking", path=path, problem=facts.procfs_problem)
    else:
        yield PROCFS.finding("there", path=path)
        if facts.environment.procfs_is_own:
            yield PID_NAMESPACE.finding("host" if facts.environment.in_host_pid_namespace else foreign)
        yield PROCFS_OWN.finding("own" if facts.environment.procfs_is_own else "foreign", path=path)
        yield from _open(facts)
        yield from _cgroups(facts)
    yield from _signals(facts, safety)
    wanted = len(facts.listed) + _SPARE
    enough = descriptors >= wanted
    yield DESCRIPTORS.finding("enough" if enough else "few", limit=descriptors, count=len(facts.listed), wanted=wanted)


def _open(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.PROCFS]
    for gap in gaps:
        yield PROCFS_OPEN.finding("gap", what=gap.what, **_split(gap))
    if facts.init_problem:
        yield PROCFS_OPEN.finding("hidden", path=facts.procfs, problem=facts.init_problem)
    elif not gaps:
        yield PROCFS_OPEN.finding("open", path=facts.procfs)


def _cgroups(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.CGROUP]
    for gap in gaps:
        yield CGROUPS.finding("gap", what=gap.what, **_split(gap))
    strange = [process for process in facts.listed.values() if process.place.kind is PlaceKind.CONTRADICTORY]
    for process in strange:
        yield CGROUPS.finding("strange", pid=process.pid)
    placed = [each for each in facts.listed.values() if each.place.kind in (PlaceKind.POD, PlaceKind.HOST)]
    pods = sum(process.place.kind is PlaceKind.POD for process in placed)
    if pods:
        yield CGROUPS.finding("pods", pods=pods, hosts=len(placed) - pods)
    elif placed:
        yield CGROUPS.finding("none", count=len(placed), pid=min(process.pid for process in placed))


def _signals(facts: ProcessFacts, safety: Safety) -> Iterable[Finding]:
    missing = facts.environment.pidfd_missing
    if missing is None:
        yield PIDFD.finding("there")
    else:
        case = "allowed" if safety.signal_without_pidfd else "lacking"
        yield PIDFD.finding(case, **remedied(missing, "check the kernel and the sandbox"))
    if not facts.environment.may_signal_others:
        yield CAP_KILL.finding("lacking")
    else:
        yield CAP_KILL.finding("there" if facts.in_first_user_namespace else "namespaced")


def _split(gap: Gap) -> dict[str, str]:
    return remedied(gap.problem, "run as root")


def check_container(facts: ContainerFacts, policy: PolicyFacts, own: Place | None) -> Iterable[Finding]:
    """Whether security modules may block signals, the mounts are as intended, and the `own` pod is known."""
    confinement = facts.confinement
    case = "free" if not confinement.profile else "default" if confinement.is_of_runtime else "own"
    yield APPARMOR.finding(case, profile=confinement.profile)
    # container_t, container_init_t, container_engine_t and the like (container-selinux); spc_t is unconfined.
    is_container = confinement.selinux_type.startswith(("container_", "svirt_lxc_"))
    yield SELINUX.finding("container" if is_container else "free", type=confinement.selinux_type)
    of_image = "baked" if policy.policy is not None and policy.policy.mode == "enforce" else "image"
    mount = "outside" if not facts.in_pod else "mounted" if facts.has_policy_mount else of_image
    yield POLICY_MOUNT.finding(mount, folder=policy.path.parent)
    lacking = bool(facts.temporary_problem)
    yield TEMPORARY.finding(
        "lacking" if lacking else "there", folder=facts.temporary_folder, problem=facts.temporary_problem
    )
    uid = own.pod if own is not None else None
    yield POD_UID.finding("known" if uid else "unknown" if facts.in_pod else "outside", uid=uid or "")
