"""What can be found of Python, the kernel and this process's place and rights, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

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
        "gap": missing("{what} can't be read: {said}", "{remedy}"),
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
        "gap": missing("the cgroup of {what}: {said}. While it uses memory it may be anybody's", "{remedy}"),
    },
)
PIDFD: Final = Topic(
    name="pidfd",
    means="The pidfd calls work, by which a signal reaches the very process that was meant.",
    purposes=ENFORCING,
    cases={
        "there": ok("pidfd_open and pidfd_send_signal work"),
        "allowed": warning("{said}; the policy allows to signal without", "{remedy}"),
        "lacking": missing("{said}", "{remedy}; or [safety] signal_without_pidfd = true"),
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
TOPICS: Final = (
    *(PYTHON, SQLITE, CLOCK, BOOT_ID, WALL_CLOCK, TIME_ZONES),
    *(PID_NAMESPACE, PROCFS, PROCFS_OWN, PROCFS_OPEN, CGROUPS, PIDFD, CAP_KILL, DESCRIPTORS),
)
