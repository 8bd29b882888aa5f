"""Checks of the kernel, the process's capabilities and its container, each with what it says."""

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
    means="Python's SQLite is 3.37 or newer: the journal takes it.",
    purposes=ENFORCING,
    cases={
        "new": ok("SQLite {version}"),
        "old": missing(
            "SQLite {version} is too old for the journal", "use a Python that was built with SQLite 3.37 or newer"
        ),
    },
)
CLOCK: Final = Topic(
    name="boot_clock",
    means="The kernel has CLOCK_BOOTTIME, by which every timer runs.",
    cases={
        "there": ok("CLOCK_BOOTTIME runs"),
        "lacking": missing(
            "CLOCK_BOOTTIME can't be read", "run on Linux 2.6.39 or newer, without a sandbox that hides it"
        ),
    },
)
BOOT_ID: Final = Topic(
    name="boot_id",
    means="The kernel names this boot. Without it ages across a restart of the daemon come from the wall clock.",
    cases={
        "there": ok("this boot has the ID {boot_id}"),
        "lacking": warning(
            "/proc/sys/kernel/random/boot_id can't be read: a restart of the daemon counts as a reboot",
            "let the container read it",
        ),
    },
)
WALL_CLOCK: Final = Topic(
    name="wall_clock",
    means="The wall clock is not obviously wrong. Whether it is exact can't be seen from here.",
    cases={
        "sane": ok("the wall clock says {now}"),
        "wrong": warning(
            "the wall clock says {now}, which is before this program was written: hours of rules, the journal's times "
            "and deletion deadlines of pods will be wrong",
            "set it (chronyd, systemd-timesyncd)",
        ),
    },
)
TIME_ZONES: Final = Topic(
    name="time_zones",
    means="There is time zone data, which rules with `active` take.",
    cases={
        "there": ok("time zone data is there"),
        "lacking": warning("there is no time zone data: a policy with `active` hours is refused", "install tzdata"),
    },
)
PID_NAMESPACE: Final = Topic(
    name="pid_namespace",
    means="It runs in the host's PID namespace. Elsewhere drivers speak of PIDs that mean other processes here, or "
    "leave out those that can't be seen from here, so that everybody looks within his limit.",
    cases={
        "host": ok("this is the host's PID namespace"),
        "allowed": warning(
            "this is not the host's PID namespace, and the policy allows that",
            "set hostPID: true, and take foreign_pid_namespace out of [safety], unless this is a test",
        ),
        "foreign": missing(
            "this is not the host's PID namespace: processes outside of it are invisible",
            "set hostPID: true; only if it is meant so: [safety] foreign_pid_namespace = true",
        ),
    },
)
PROCFS: Final = Topic(
    name="procfs",
    means="There is a proc file system where `--procfs` says.",
    cases={
        "there": ok("{path} is a proc file system"),
        "lacking": missing(
            "{path} can't be read as a proc file system: {problem}", "name the one of the node with --procfs"
        ),
    },
)
PROCFS_OWN: Final = Topic(
    name="procfs_own",
    means="That proc file system is of this process's own PID namespace; otherwise a PID read there is another process "
    "to a signal.",
    cases={
        "own": ok("{path} is of this PID namespace"),
        "foreign": missing(
            "{path} is of another PID namespace than this process",
            "mount the /proc of the daemon's own PID namespace: with hostPID: true that is the container's /proc",
        ),
    },
)
PROCFS_OPEN: Final = Topic(
    name="procfs_open",
    means="The proc file system shows the processes of other users.",
    cases={
        "open": ok("processes of other users can be read in {path}"),
        "hidden": missing(
            "{path} hides processes of other users: {problem}", "mount it without hidepid, or run as root"
        ),
        "gap": missing("{what} can't be read: {problem}", "{remedy}"),
    },
)
CGROUPS: Final = Topic(
    name="cgroups",
    means="The cgroups of processes on the GPUs lead to pods.",
    cases={
        "pods": ok("processes on the GPUs: {pods} in the cgroup of a pod, {hosts} of the host itself"),
        "none": warning(
            "none of the processes on the GPUs ({count}) stands in the cgroup of a pod: all count as the host's",
            "if they are pods' all the same, look at /proc/PID/cgroup of one, like {pid}, and report its text",
        ),
        "strange": warning(
            "the cgroups of process {pid} contradict each other", "look at what runs there: no runtime does that"
        ),
        "gap": missing("the cgroup of {what}: {problem}. While it uses memory it may be anybody's", "{remedy}"),
    },
)
PIDFD: Final = Topic(
    name="pidfd",
    means="The pidfd calls work, by which a signal reaches the very process that was meant.",
    purposes=ENFORCING,
    cases={
        "there": ok("pidfd_open and pidfd_send_signal work"),
        "allowed": warning("{problem}; the policy allows to signal without", "{remedy}"),
        "lacking": missing("{problem}", "{remedy}; or [safety] signal_without_pidfd = true"),
    },
)
CAP_KILL: Final = Topic(
    name="cap_kill",
    means="This account may signal processes of other users. (CAP_SYS_PTRACE is not needed.)",
    purposes=ENFORCING,
    cases={
        "there": ok("CAP_KILL is there"),
        "lacking": missing(
            "CAP_KILL is missing: a pod with processes of another user can't be killed",
            "run as root with it; in a container add the capability KILL",
        ),
        "namespaced": missing(
            "this is a user namespace of its own, where CAP_KILL does not reach the processes of pods",
            "run as root of the host: no rootless container, no hostUsers: false",
        ),
    },
)
DESCRIPTORS: Final = Topic(
    name="descriptors",
    means="Enough files may be open: each process on a GPU takes one.",
    cases={
        "enough": ok("{limit} files may be open"),
        "few": warning(
            "only {limit} files may be open (processes on GPUs: {count}): beyond the limit a process is known by its "
            "start time alone",
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
    means="No AppArmor profile keeps signals from the processes of pods. Those that container runtimes give let them "
    "through to processes under the same profile alone. Asking whether a signal is allowed (signal 0) may pass where "
    "SIGTERM and SIGKILL are denied, so a pod may be killed by halves.",
    purposes=ENFORCING,
    cases={
        "free": ok("no AppArmor profile confines this process"),
        "default": missing(
            "this process is under the AppArmor profile {profile}: a pod that is privileged, unconfined or has its own "
            "profile can't be killed, or only in part",
            "set securityContext.appArmorProfile to type: Unconfined, as the chart does; with Docker "
            "--security-opt apparmor=unconfined",
        ),
        "own": warning(
            "this process is under the AppArmor profile {profile}, and whether that lets signals through can't be seen",
            "see that it has the rule `signal,`, or set securityContext.appArmorProfile to type: Unconfined",
        ),
    },
)
SELINUX: Final = Topic(
    name="selinux",
    means="SELinux does not hold this process as it holds the containers of pods.",
    purposes=ENFORCING,
    cases={
        "free": ok("SELinux does not hold this process as a container"),
        "container": warning(
            "this process has the SELinux type {type}, as containers have: where SELinux is enforcing it can hardly "
            "signal other pods' processes or write to a folder of the node",
            "give it the type spc_t: securityContext.seLinuxOptions, in the chart seLinuxOptions.type=spc_t",
        ),
    },
)
POLICY_MOUNT: Final = Topic(
    name="policy_mount",
    means="In a pod the policy comes from outside of the image. The image has one at the same place. As it ships, a "
    "daemon only observes by it where the ConfigMap's mount is forgotten; who puts one that enforces into an image of "
    "their own means it.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this is no container of a pod"),
        "mounted": ok("the policy's folder {folder} is mounted"),
        "image": missing(
            "the policy's folder {folder} is not mounted: the policy is the image's own",
            "mount the ConfigMap with the policy there, the folder as a whole; or name the right file with --policy",
        ),
        "baked": warning(
            "the policy's folder {folder} is not mounted: the daemon enforces by the image's own policy",
            "if that is not meant, mount the ConfigMap with the policy there, the folder as a whole",
        ),
    },
)
TEMPORARY: Final = Topic(
    name="temporary_folder",
    means="There is a folder for temporary files. SQLite sorts there what memory does not hold, and a journal that "
    "can't be read where it lies is copied there.",
    purposes=ENFORCING,
    cases={
        "there": ok("temporary files can be made in {folder}"),
        "lacking": warning("temporary files can be made nowhere: {problem}", "mount an emptyDir at /tmp"),
    },
)
POD_UID: Final = Topic(
    name="pod_uid",
    means="In a pod it is known which one that is, so that the daemon never acts on it: by its cgroup, or, where a "
    "private cgroup namespace hides that, by the UID that the manifest passes in.",
    purposes=ENFORCING,
    cases={
        "outside": ok("this is no container of a pod"),
        "known": ok("this runs in the pod with the UID {uid}"),
        "unknown": warning(
            "which pod this runs in is not known: its cgroup does not show it, and the manifest does not tell its UID; "
            "the daemon does not spare the other containers of its own pod",
            "set GPU_WATCHDOG_POD_UID by the downward API (fieldRef: metadata.uid), as the chart does",
        ),
    },
)
CONTAINER_TOPICS: Final = (APPARMOR, SELINUX, POLICY_MOUNT, TEMPORARY, POD_UID)


_LEAST_PYTHON: Final = (3, 11)
_LEAST_SQLITE: Final = (3, 37)
_EARLIEST_S: Final = 1735689600.0  # 2025-01-01, before the first version
# What the daemon keeps for everything else (node/processes.py), and pods that come in the meantime.
_SPARE: Final = 512


def check_system(facts: SystemFacts) -> Iterable[Finding]:
    """What Python and the kernel give to any process."""
    version = f"{facts.python[0]}.{facts.python[1]}"
    yield PYTHON.say("new" if facts.python >= _LEAST_PYTHON else "old", version=version)
    sqlite = tuple(int(part) for part in facts.sqlite.split(".")[:2])
    yield SQLITE.say("new" if sqlite >= _LEAST_SQLITE else "old", version=facts.sqlite)
    yield CLOCK.say("there" if facts.has_boot_clock else "lacking")
    yield BOOT_ID.say("there" if facts.boot_id else "lacking", boot_id=facts.boot_id)
    yield WALL_CLOCK.say("sane" if facts.wall_s >= _EARLIEST_S else "wrong", now=rfc3339(facts.wall_s))
    yield TIME_ZONES.say("there" if facts.has_time_zones else "lacking")


def check_processes(facts: ProcessFacts, safety: Safety, descriptors: int) -> Iterable[Finding]:
    """What this process sees of others, and may do to them."""
    foreign = "allowed" if safety.foreign_pid_namespace else "foreign"
    path = facts.procfs
    if facts.procfs_problem:
        yield PROCFS.say("lacking", path=path, problem=facts.procfs_problem)
    else:
        yield PROCFS.say("there", path=path)
        if facts.footing.procfs_is_own:
            yield PID_NAMESPACE.say("host" if facts.footing.in_host_pid_namespace else foreign)
        yield PROCFS_OWN.say("own" if facts.footing.procfs_is_own else "foreign", path=path)
        yield from _open(facts)
        yield from _cgroups(facts)
    yield from _signals(facts, safety)
    wanted = len(facts.listed) + _SPARE
    enough = descriptors >= wanted
    yield DESCRIPTORS.say("enough" if enough else "few", limit=descriptors, count=len(facts.listed), wanted=wanted)


def _open(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.PROCFS]
    for gap in gaps:
        yield PROCFS_OPEN.say("gap", what=gap.what, **_split(gap))
    if facts.init_problem:
        yield PROCFS_OPEN.say("hidden", path=facts.procfs, problem=facts.init_problem)
    elif not gaps:
        yield PROCFS_OPEN.say("open", path=facts.procfs)


def _cgroups(facts: ProcessFacts) -> Iterable[Finding]:
    gaps = [gap for gap in facts.gaps if gap.reason is GapReason.CGROUP]
    for gap in gaps:
        yield CGROUPS.say("gap", what=gap.what, **_split(gap))
    strange = [process for process in facts.listed.values() if process.place.kind is PlaceKind.CONTRADICTORY]
    for process in strange:
        yield CGROUPS.say("strange", pid=process.pid)
    placed = [each for each in facts.listed.values() if each.place.kind in (PlaceKind.POD, PlaceKind.HOST)]
    pods = sum(process.place.kind is PlaceKind.POD for process in placed)
    if pods:
        yield CGROUPS.say("pods", pods=pods, hosts=len(placed) - pods)
    elif placed:
        yield CGROUPS.say("none", count=len(placed), pid=min(process.pid for process in placed))


def _signals(facts: ProcessFacts, safety: Safety) -> Iterable[Finding]:
    missing = facts.footing.pidfd_missing
    if missing is None:
        yield PIDFD.say("there")
    else:
        case = "allowed" if safety.signal_without_pidfd else "lacking"
        yield PIDFD.say(case, **remedied(missing, "look at the kernel and its sandbox"))
    if not facts.footing.may_signal_others:
        yield CAP_KILL.say("lacking")
    else:
        yield CAP_KILL.say("there" if facts.in_first_user_namespace else "namespaced")


def _split(gap: Gap) -> dict[str, str]:
    return remedied(gap.problem, "run as root")


def check_container(facts: ContainerFacts, policy: PolicyFacts, own: Place | None) -> Iterable[Finding]:
    """Whether a security module may swallow signals, what is mounted is what is meant, and the `own` pod is known."""
    confinement = facts.confinement
    case = "free" if not confinement.profile else "default" if confinement.is_of_runtime else "own"
    yield APPARMOR.say(case, profile=confinement.profile)
    # container_t, container_init_t, container_engine_t and the like (container-selinux); spc_t is held by nothing.
    is_container = confinement.selinux_type.startswith(("container_", "svirt_lxc_"))
    yield SELINUX.say("container" if is_container else "free", type=confinement.selinux_type)
    of_image = "baked" if policy.policy is not None and policy.policy.mode == "enforce" else "image"
    mount = "outside" if not facts.in_pod else "mounted" if facts.has_policy_mount else of_image
    yield POLICY_MOUNT.say(mount, folder=policy.path.parent)
    lacking = bool(facts.temporary_problem)
    yield TEMPORARY.say(
        "lacking" if lacking else "there", folder=facts.temporary_folder, problem=facts.temporary_problem
    )
    uid = own.pod if own is not None else None
    yield POD_UID.say("known" if uid else "unknown" if facts.in_pod else "outside", uid=uid or "")
