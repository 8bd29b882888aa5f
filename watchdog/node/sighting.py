"""One look at one process: who it is and where its cgroup puts it."""

from pathlib import PurePosixPath
from typing import Final

from watchdog.core.model import UNREADABLE, ZOMBIE, GapReason, Place, PlaceKind, Process, ProcessKey
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.procfs import Procfs, printable
from watchdog.node.troubles import Trouble, describe_error

_MPS_SERVER: Final = b"nvidia-cuda-mps-server"
_COMM_LENGTH: Final = 15
_MOST_THREADS: Final = 256


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
        place, trouble = _place_of_exiting(procfs, pid, stat.state, place), None
    if place.kind is PlaceKind.UNREADABLE and trouble is None:
        why = "its cgroup is not told in the kernel's form; look at its /proc/PID/cgroup"
        trouble = Trouble(GapReason.CGROUP, why)
    process = Process(
        pid=pid,
        key=ProcessKey(pid=pid, start_ticks=stat.start_ticks),
        place=place,
        name=printable(stat.comm),
        mps_server=is_mps_server(procfs, pid, stat.comm),
    )
    return process, trouble


def _place_of_exiting(procfs: Procfs, pid: int, state: str, place: Place) -> Place:
    """Find the place of a process whose leader is dead or dying: that of a thread that lives on, if there is one."""
    for tid in _other_threads(procfs, pid):
        try:
            text = procfs.cgroup_text(pid, tid)
            if not procfs.stat(pid, tid).exiting:
                return parse_cgroup(text)
        except OSError:
            continue
    # What is left of it runs no code of its own. On v2 its place still shows while it takes its memory down.
    return place if place.kind is PlaceKind.POD and state not in "ZXx" else ZOMBIE


def _other_threads(procfs: Procfs, pid: int) -> list[int]:
    try:
        return [tid for tid in procfs.threads(pid) if tid != pid][:_MOST_THREADS]
    except PermissionError:
        return []


def is_mps_server(procfs: Procfs, pid: int, comm: bytes) -> bool:
    """Whether it is NVIDIA's MPS server, with whose death all its clients die: by its name and its first argument.

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
