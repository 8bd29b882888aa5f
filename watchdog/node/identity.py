"""A look at a process that is sure to be about one and the same process."""

import os
from dataclasses import replace

from watchdog.core.model import GONE, UNREADABLE, ZOMBIE, GapReason, Process, ProcessKey
from watchdog.node.pidfd import poll_dead
from watchdog.node.procfs import Procfs, printable
from watchdog.node.sighting import sight
from watchdog.node.troubles import HIDDEN, Troubles, describe_error


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
