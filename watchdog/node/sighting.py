"""One look at one process: who it is and where its cgroup puts it."""

from bisect import bisect_left
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from watchdog.core.model import UNREADABLE, ZOMBIE, GapReason, Place, PlaceKind, Process, ProcessKey
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.procfs import Procfs, Search, Stat, printable
from watchdog.node.troubles import Trouble, describe_error

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
        why = "its cgroup is not told in the kernel's form; look at its /proc/PID/cgroup"
        trouble = Trouble(GapReason.CGROUP, why)
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
    why = f"its leader has ended, and whether one of its {threads} threads lives is not known yet"
    return Trouble(GapReason.PROCFS, f"{why}; the next pass looks at more of them")


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
