"""Who a process is and where its cgroup puts it, in a look that is certain to concern one and the same process."""

import errno
import os
from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import GONE, UNREADABLE, ZOMBIE, Gap, GapReason, Place, PlaceKind, Process, ProcessKey
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.pidfd import poll_dead
from watchdog.node.procfs import Procfs, Search, Stat, printable


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something of a process could not be read; the same for each such process."""

    reason: GapReason
    problem: Problem


HIDDEN: Final = Trouble(
    GapReason.PROCFS,
    Problem("it runs but the proc file system hides it", "mount /proc without hidepid, or run as root"),
)
NO_DESCRIPTOR: Final = Trouble(
    GapReason.DESCRIPTORS,
    Problem("no file descriptor is left for it", "raise the limit of open files (LimitNOFILE, ulimit -n)"),
)


def describe_error(error: OSError, reason: GapReason) -> Trouble:
    """Say what stands in the way of reading or holding a process; `reason` where the error has no reason of its own."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NO_DESCRIPTOR
    if error.errno in (errno.EACCES, errno.EPERM):
        return Trouble(
            reason, Problem("it is out of reach", "mount /proc without hidepid, or run as root and without seccomp")
        )
    if error.errno == errno.ENAMETOOLONG:
        return Trouble(
            reason, Problem("its cgroup path is longer than the kernel writes", "look at what nested its cgroups")
        )
    return Trouble(
        reason, Problem(f"it can't be looked at: {error.strerror or error}", "it is tried again with every pass")
    )


class Troubles:
    """The troubles of one pass over processes."""

    def __init__(self) -> None:
        self._pids: dict[Trouble, list[int]] = {}

    def add(self, pid: int, trouble: Trouble) -> None:
        """Note that the process has this trouble."""
        self._pids.setdefault(trouble, []).append(pid)

    def gaps(self) -> tuple[Gap, ...]:
        """One gap for each trouble, naming the first of its processes."""
        ordered = sorted(self._pids.items(), key=lambda item: (item[0].reason, str(item[0].problem)))
        return tuple(
            Gap(reason=trouble.reason, what=_name(sorted(pids)), problem=trouble.problem) for trouble, pids in ordered
        )


def _name(pids: list[int]) -> str:
    listed = ", ".join(str(pid) for pid in pids[:5])
    if len(pids) == 1:
        return f"process {listed}"
    return f"processes {listed}" if len(pids) <= 5 else f"processes {listed} and {len(pids) - 5} more"


_MPS_SERVER: Final = b"nvidia-cuda-mps-server"
_COMM_LENGTH: Final = 15
_MOST_THREADS: Final = 2048  # of one process in one look: some 30 ms


def sight(procfs: Procfs, pid: int) -> tuple[Process, Trouble | None]:
    """Look at a process now; ProcessLookupError if there is none to see. What can't be read is said in the trouble.

    The cgroup is read first and vouched for by the status read after it: on cgroup v1 a process that is on its way
    out reads `/` everywhere, as if it belonged to the host (kernel/cgroup/cgroup.c, proc_cgroup_show).
    """
    trouble: Trouble | None = None
    try:
        place = parse_cgroup(procfs.cgroup_text(pid))
    except ProcessLookupError:
        raise
    except OSError as error:
        place, trouble = UNREADABLE, describe_error(error, GapReason.CGROUP)
    try:
        stat = procfs.stat(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        return Process(pid=pid, key=None, place=UNREADABLE), describe_error(error, GapReason.PROCFS)
    if stat.exiting:
        place, trouble = _place_of_exiting(procfs, pid, stat, place)
    if place.kind is PlaceKind.UNREADABLE and trouble is None:
        problem = Problem("its cgroup is not told in the kernel's form", "look at its /proc/PID/cgroup")
        trouble = Trouble(GapReason.CGROUP, problem)
    process = Process(
        pid=pid,
        key=ProcessKey(pid=pid, start_ticks=stat.start_ticks),
        place=place,
        name=printable(stat.comm),
    )
    if is_mps_server(procfs, pid, stat.comm):
        process = replace(process, mps_server=True, privileged=procfs.is_privileged(pid))
    return process, trouble


def _place_of_exiting(procfs: Procfs, pid: int, leader: Stat, place: Place) -> tuple[Place, Trouble | None]:
    """Find the place of a process whose leader is dead or dying: that of a thread that lives on, if there is one.

    Threads that are traced stay as zombies for as long as their tracer likes, in any number (ptrace(2)). So each look
    goes on where the last one ended, and begins with the thread that lived then.
    """
    threads = _other_threads(procfs, pid)
    search = procfs.searches.get((pid, leader.start_ticks)) or Search(left=len(threads))
    start = bisect_left(threads, search.tid)
    threads = threads[start:] + threads[:start]
    for tid in threads[:_MOST_THREADS]:
        try:
            if procfs.stat(pid, tid).exiting:
                continue
            text = procfs.cgroup_text(pid, tid)
            if not procfs.stat(pid, tid).exiting:
                procfs.note_search(pid, leader.start_ticks, Search(tid=tid, left=len(threads)))
                return parse_cgroup(text), None
        except OSError:
            continue
    if len(threads) > _MOST_THREADS:
        search = Search(tid=threads[_MOST_THREADS], left=search.left - _MOST_THREADS)
        procfs.note_search(pid, leader.start_ticks, search)
        if search.left > 0:  # on v2 the leader still shows where all of them are
            return (place, None) if place.kind is PlaceKind.POD else (UNREADABLE, _searching(len(threads)))
    # What is left of it runs no code of its own. On v2 its place still shows while it takes its memory down.
    return (place if place.kind is PlaceKind.POD and leader.state not in "ZXx" else ZOMBIE), None


def _searching(threads: int) -> Trouble:
    cause = f"its leader has ended, and whether one of its {threads} threads lives is not known yet"
    return Trouble(GapReason.PROCFS, Problem(cause, "the next pass looks at more of them"))


def _other_threads(procfs: Procfs, pid: int) -> list[int]:
    try:
        return sorted(tid for tid in procfs.threads(pid) if tid != pid)
    except PermissionError:
        return []


def is_mps_server(procfs: Procfs, pid: int, comm: bytes) -> bool:
    """Whether it has the name and the first argument of NVIDIA's MPS server, which any process can give itself.

    The control daemon has the same name after the kernel's cut. Where the arguments can't be read it counts as one.
    """
    if comm != _MPS_SERVER[:_COMM_LENGTH]:
        return False
    try:
        arguments = procfs.command_line(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return bool(arguments) and PurePosixPath(arguments[0]).name == _MPS_SERVER.decode()


def look_held(procfs: Procfs, fd: int, pid: int, before: Process | None, troubles: Troubles) -> Process:
    """Look at the process that the pidfd holds: what was read counts only if it still runs afterwards."""
    try:
        process, trouble = sight(procfs, pid)
    except ProcessLookupError:
        process, trouble = _unseen(pid), HIDDEN
    if poll_dead((fd,)):
        return look_ended(procfs, pid, before)
    if trouble is not None:
        troubles.add(pid, trouble)
    return process


def look_unheld(procfs: Procfs, pid: int, before: Process | None, troubles: Troubles) -> Process:
    """Look at a process without holding it: what was read counts only between two equal start times."""
    try:
        first = procfs.stat(pid)
        process, trouble = sight(procfs, pid)
        if process.key is not None and process.key.start_ticks != first.start_ticks:
            return gone(pid, before)
    except ProcessLookupError:
        if not _exists(pid):
            return gone(pid, before)
        process, trouble = _unseen(pid), HIDDEN
    except OSError as error:
        process, trouble = _unseen(pid), describe_error(error, GapReason.PROCFS)
    if trouble is not None:
        troubles.add(pid, trouble)
    return process


def look_ended(procfs: Procfs, pid: int, before: Process | None) -> Process:
    """Say what is left of a process that has ended: a zombie, or nothing any more."""
    try:
        stat = procfs.stat(pid)
    except OSError:
        return gone(pid, before)
    key = ProcessKey(pid=pid, start_ticks=stat.start_ticks)
    if stat.state not in "ZXx" or (before is not None and before.key not in (None, key)):
        return gone(pid, before)
    return Process(pid=pid, key=key, place=ZOMBIE, name=printable(stat.comm))


def gone(pid: int, before: Process | None) -> Process:
    """A PID without a process; it keeps the identity by which it was known."""
    return Process(pid=pid, key=None, place=GONE) if before is None else replace(before, place=GONE)


def is_still(procfs: Procfs, process: Process) -> bool:
    """Whether the PID has the start time of that process and is not on its way out."""
    try:
        stat = procfs.stat(process.pid)
    except OSError:
        return False
    return process.key == ProcessKey(pid=process.pid, start_ticks=stat.start_ticks) and not stat.exiting


def _unseen(pid: int) -> Process:
    return Process(pid=pid, key=None, place=UNREADABLE)


def _exists(pid: int) -> bool:
    """Ask the kernel by signal 0, which is none: permitted or not, there is a process."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
