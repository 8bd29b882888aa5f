"""Checks of the kernel, of Python, and of access to other processes."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_enforce, to_observe, warning
from watchdog.core.model import GapReason, PlaceKind
from watchdog.report.text import rfc3339

_EARLIEST_S: Final = 1735689600.0  # 2025-01-01, before the first version
# What the daemon keeps for everything else (node/process.py), and for pods that start meanwhile.
_SPARE_DESCRIPTORS: Final = 512


@to_observe()
def python(facts: Facts) -> Iterator[CheckResult]:
    """Python is 3.11 or newer."""
    version = ".".join(map(str, facts.system.python))
    if facts.system.python >= (3, 11):
        yield ok(f"Python {version}")
    else:
        yield missing(f"Python {version} is too old", "install gpu-memory-watchdog with Python 3.11 or newer")


@to_enforce()
def sqlite(facts: Facts) -> Iterator[CheckResult]:
    """Python's SQLite is 3.37 or newer, which the journal needs."""
    version = facts.system.sqlite
    if tuple(int(part) for part in version.split(".")[:2]) >= (3, 37):
        yield ok(f"SQLite {version}")
    else:
        yield missing(f"SQLite {version} is too old for the journal", "use a Python built with SQLite 3.37 or newer")


@to_observe()
def boot_clock(facts: Facts) -> Iterator[CheckResult]:
    """The kernel has CLOCK_BOOTTIME, which every timer uses."""
    if facts.system.has_boot_clock:
        yield ok("CLOCK_BOOTTIME works")
    else:
        yield missing("CLOCK_BOOTTIME can't be read", "run on Linux 2.6.39 or newer, without a sandbox that blocks it")


@to_observe()
def boot_id(facts: Facts) -> Iterator[CheckResult]:
    """The kernel identifies this boot. Without that, ages across a restart of the daemon use the wall clock."""
    if facts.system.boot_id:
        yield ok(f"this boot has the ID {facts.system.boot_id}")
    else:
        yield warning(
            "/proc/sys/kernel/random/boot_id can't be read: a restart of the daemon counts as a reboot",
            "make it readable in the container",
        )


@to_observe()
def wall_clock(facts: Facts) -> Iterator[CheckResult]:
    """The wall clock is not obviously wrong. Whether it is exact can't be checked from here."""
    now = rfc3339(facts.system.wall_s)
    if facts.system.wall_s >= _EARLIEST_S:
        yield ok(f"the wall clock shows {now}")
    else:
        yield warning(
            f"the wall clock shows {now}, which is before this program was written: the hours of rules, the journal's "
            "times and the deletion deadlines of pods will be wrong",
            "set it (chronyd, systemd-timesyncd)",
        )


@to_observe()
def time_zones(facts: Facts) -> Iterator[CheckResult]:
    """There is time zone data, which rules with `active` need."""
    if facts.system.has_time_zones:
        yield ok("time zone data is installed")
    else:
        yield warning("there is no time zone data: a policy with `active` hours is rejected", "install tzdata")


def _has_procfs(facts: Facts) -> bool:
    return not facts.processes.procfs_problem


@to_observe()
def procfs(facts: Facts) -> Iterator[CheckResult]:
    """There is a proc file system at the path of `--procfs`."""
    path, problem = facts.options.procfs, facts.processes.procfs_problem
    if problem:
        yield missing(f"{path} can't be read as a proc file system: {problem}", "give the node's with --procfs")
    else:
        yield ok(f"{path} is a proc file system")


@to_observe(given=lambda facts: _has_procfs(facts) and facts.processes.environment.procfs_is_own)
def pid_namespace(facts: Facts) -> Iterator[CheckResult]:
    """Doctor runs in the host's PID namespace.

    Elsewhere drivers report PIDs that belong to other processes here, or omit those that are invisible from here, so
    that every pod seems to be within its limit.
    """
    if facts.processes.environment.in_host_pid_namespace:
        yield ok("this is the host's PID namespace")
    elif facts.known_policy.safety.foreign_pid_namespace:
        yield warning(
            "this is not the host's PID namespace, which the policy allows",
            "set hostPID: true, and remove foreign_pid_namespace from [safety], unless this is a test",
        )
    else:
        yield missing(
            "this is not the host's PID namespace: processes outside it are invisible",
            "set hostPID: true; only if this is intended, set foreign_pid_namespace = true under [safety]",
        )


@to_observe(given=_has_procfs)
def procfs_own(facts: Facts) -> Iterator[CheckResult]:
    """That proc file system belongs to this process's own PID namespace.

    Otherwise a signal to a PID read there would reach another process.
    """
    path = facts.options.procfs
    if facts.processes.environment.procfs_is_own:
        yield ok(f"{path} belongs to this PID namespace")
    else:
        yield missing(
            f"{path} belongs to another PID namespace than this process",
            "mount the /proc of the daemon's own PID namespace: with hostPID: true that is the container's /proc",
        )


@to_observe(given=_has_procfs)
def procfs_open(facts: Facts) -> Iterator[CheckResult]:
    """The proc file system shows the processes of other users."""
    path, problem = facts.options.procfs, facts.processes.init_problem
    gaps = [gap for gap in facts.processes.gaps if gap.reason is GapReason.PROCFS]
    for gap in gaps:
        yield missing(f"{gap.what} can't be read: {gap.problem.cause}", gap.problem.remedy or "run as root")
    if problem:
        yield missing(f"{path} hides processes of other users: {problem}", "mount it without hidepid, or run as root")
    elif not gaps:
        yield ok(f"processes of other users are readable in {path}")


@to_observe(given=_has_procfs)
def cgroups(facts: Facts) -> Iterator[CheckResult]:
    """The cgroups of GPU processes identify pods."""
    for gap in (gap for gap in facts.processes.gaps if gap.reason is GapReason.CGROUP):
        yield missing(
            f"the cgroup of {gap.what}: {gap.problem.cause}. While it uses memory it may belong to any pod",
            gap.problem.remedy or "run as root",
        )
    pids: dict[PlaceKind, list[int]] = {kind: [] for kind in PlaceKind}
    for process in facts.processes.listed.values():
        pids[process.place.kind].append(process.pid)
    for pid in pids[PlaceKind.CONTRADICTORY]:
        yield warning(
            f"the cgroups of process {pid} contradict each other",
            "find out what it is: no container runtime does this",
        )
    in_pods, of_host = len(pids[PlaceKind.POD]), len(pids[PlaceKind.HOST])
    if in_pods:
        yield ok(f"GPU processes: {in_pods} in the cgroup of a pod, {of_host} of the host itself")
    elif of_host:
        pid = min(pids[PlaceKind.HOST])
        yield warning(
            f"none of the GPU processes ({of_host}) is in the cgroup of a pod: all count as the host's",
            f"if they do belong to pods, report the text of /proc/PID/cgroup of one, such as {pid}",
        )


@to_enforce()
def pidfd(facts: Facts) -> Iterator[CheckResult]:
    """The pidfd calls work, which make sure that a signal reaches the intended process."""
    problem = facts.processes.environment.pidfd_missing
    if problem is None:
        yield ok("pidfd_open and pidfd_send_signal work")
        return
    remedy = problem.remedy or "check the kernel and the sandbox"
    if facts.known_policy.safety.signal_without_pidfd:
        yield warning(f"{problem.cause}; the policy allows signalling without them", remedy)
    else:
        yield missing(problem.cause, f"{remedy}; or set signal_without_pidfd = true under [safety]")


@to_enforce()
def cap_kill(facts: Facts) -> Iterator[CheckResult]:
    """The account may signal processes of other users. CAP_SYS_PTRACE is not needed."""
    if not facts.processes.environment.may_signal_others:
        yield missing(
            "CAP_KILL is missing: a pod with processes of another user can't be killed",
            "run as root with this capability; in a container add KILL",
        )
    elif not facts.processes.in_first_user_namespace:
        yield missing(
            "this is a separate user namespace, where CAP_KILL does not reach the processes of pods",
            "run as root of the host: no rootless container, no hostUsers: false",
        )
    else:
        yield ok("CAP_KILL is present")


@to_observe()
def descriptors(facts: Facts) -> Iterator[CheckResult]:
    """The limit of open files is high enough: each GPU process needs one."""
    limit, count = facts.system.descriptors, len(facts.processes.listed)
    wanted = count + _SPARE_DESCRIPTORS
    if limit >= wanted:
        yield ok(f"the limit of open files is {limit}")
    else:
        yield warning(
            f"the limit of open files is only {limit} (GPU processes: {count}): beyond it a process is identified by "
            "its start time only",
            f"raise the hard limit (LimitNOFILE, ulimit -Hn) to {wanted} or more",
        )
