"""Every process of a container, whether NVML knows it or not: what a kill of the container has to reach."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from watchdog.core.model import Gap, GapReason, PlaceKind, Process
from watchdog.node.pidfd import Handle, PidfdHandle, TicksHandle, open_pidfd
from watchdog.node.procfs import Procfs
from watchdog.node.sighting import sight
from watchdog.node.troubles import Troubles, describe_error

# A line of a cgroup v1 hierarchy (v2 has number 0), and one that names something below the root.
_V1: Final = re.compile(rb"^[1-9]", re.MULTILINE)
_V1_BELOW_ROOT: Final = re.compile(rb"^[1-9][0-9]*:[^:\n]*:/.", re.MULTILINE)


def container_members(
    procfs: Procfs, ids: frozenset[str], pods: frozenset[str], *, pidfds: bool = True, spare_servers: bool = False
) -> tuple[tuple[Handle, ...], tuple[Gap, ...]]:
    """Find all processes in these container IDs of the pod with one of these keys (UID, config hash), now.

    The handles are the caller's to close. Init, this daemon and what has ended are left out, and with `spare_servers`
    whatever is named like an MPS server. A gap means that there may be more: a process could not be read or held.
    """

    def belongs(process: Process) -> bool:
        place = process.place
        named = place.pod is None or place.pod in pods
        is_spared = spare_servers and process.mps_server
        return place.kind is PlaceKind.POD and place.container in ids and named and not is_spared

    troubles = Troubles()
    handles = []
    for pid in _candidates(procfs, ids, troubles):
        try:
            handle = hold(procfs, pid, belongs, pidfds=pidfds)
        except ProcessLookupError:
            continue
        except OSError as error:
            troubles.add(pid, describe_error(error, GapReason.PROCFS))
            continue
        if handle is not None:
            handles.append(handle)
    return tuple(handles), troubles.gaps()


def hold(procfs: Procfs, pid: int, accept: Callable[[Process], bool], *, pidfds: bool = True) -> Handle | None:
    """Hold a process if what is seen of it after taking hold is acceptable; OSError where it can't be held."""
    if not pidfds:
        process, _ = sight(procfs, pid)
        return (
            TicksHandle(process.key, lambda: _still(procfs, process, accept))
            if process.key and accept(process)
            else None
        )
    fd = open_pidfd(pid)
    try:
        process, _ = sight(procfs, pid)
        if process.key is not None and accept(process):
            handle = PidfdHandle(process.key, fd)
            if handle.alive():
                fd = -1
                return handle
        return None
    finally:
        if fd >= 0:
            os.close(fd)


def _still(procfs: Procfs, before: Process, accept: Callable[[Process], bool]) -> bool:
    try:
        process, _ = sight(procfs, before.pid)
    except OSError:
        return False
    return process.key == before.key and accept(process)


def _candidates(procfs: Procfs, ids: frozenset[str], troubles: Troubles) -> Iterator[int]:
    """PIDs whose cgroup text mentions one of the IDs: a cheap sieve, since most processes are of others."""
    needles = [container.encode() for container in sorted(ids)]
    for pid in sorted(procfs.pids()):
        if pid <= 1 or pid == os.getpid():
            continue
        try:
            text = procfs.cgroup_text(pid)
            if any(needle in text for needle in needles) or _hides_its_place(procfs, pid, text):
                yield pid
        except ProcessLookupError:
            continue
        except OSError as error:
            troubles.add(pid, describe_error(error, GapReason.CGROUP))


def _hides_its_place(procfs: Procfs, pid: int, text: bytes) -> bool:
    """Whether it is a process whose leader has ended while threads may live on: on v1 such a leader reads `/`."""
    return bool(_V1.search(text)) and not _V1_BELOW_ROOT.search(text) and procfs.stat(pid).exiting
