"""The processes that NVML lists and those of a container, held by a pidfd from first sight, read from /proc once."""

import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gap, GapReason, PlaceKind, Process, ProcessKey
from watchdog.node.identity import (
    NO_DESCRIPTOR,
    Troubles,
    describe_error,
    gone,
    is_still,
    look_held,
    look_unheld,
    sight,
)
from watchdog.node.pidfd import Handle, PidfdHandle, TicksHandle, open_pidfd, poll_dead, signalable
from watchdog.node.procfs import Procfs

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


# Descriptors kept for everything else: NVML, the journal, HTTP, the members of a container that is to be killed.
_RESERVE: Final = 256


@dataclass(slots=True)
class _Entry:
    """A listed process, its pidfd if it is held, and whether its place is known for good as long as it runs."""

    process: Process
    fd: int | None
    settled: bool


class ProcessTable:
    """Processes by PID, from one look to the next.

    With `pidfds` False, or where no descriptor is left, a process is known by its start time, read at each look.
    """

    def __init__(self, procfs: Procfs, *, pidfds: bool = True) -> None:
        self._procfs = procfs
        self._pidfds = pidfds
        self._entries: dict[int, _Entry] = {}
        self._room = 0

    def look(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        """Say of each listed PID what it is; what is known and runs is not read again, the unlisted are let go."""
        wanted = set(pids)
        for pid in self._entries.keys() - wanted:
            _let_go(self._entries.pop(pid))
        return self._update(wanted, again=False)

    def fresh(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        """Read start time and cgroup of these PIDs again, whatever is known of them: the look before force."""
        return self._update(set(pids), again=True)

    def handle(self, key: ProcessKey) -> Handle | None:
        """A handle of a listed process, the caller's to close; None if it has ended, is another one, or is not listed.

        OSError where it can't be held, ValueError for what is never signalled: init and this daemon.
        """
        entry = self._entries.get(key.pid)
        if entry is None or entry.process.key != key:
            return None
        if entry.fd is not None:
            handle = PidfdHandle(signalable(key), os.dup(entry.fd))
            if handle.alive():
                return handle
            handle.close()
            return None
        place = entry.process.place
        try:
            return hold(self._procfs, key.pid, lambda now: now.key == key and now.place == place, pidfds=self._pidfds)
        except ProcessLookupError:
            return None

    def container_members(
        self, ids: frozenset[str], pods: frozenset[str], *, spare_servers: bool = False
    ) -> tuple[tuple[Handle, ...], tuple[Gap, ...]]:
        """All processes of these containers of this pod, listed or not: see the function `container_members`."""
        return container_members(self._procfs, ids, pods, pidfds=self._pidfds, spare_servers=spare_servers)

    def describe(self, pid: int) -> str:
        """Say for people what a process is: PID, name and user, as far as they can be read.

        Never its command line: people put tokens and passwords there, and this goes into logs.
        """
        try:
            return f"{pid} {self._procfs.name(pid)} (user {self._procfs.user(pid)})"
        except OSError:
            return str(pid)

    def close(self) -> None:
        """Let go of everything."""
        for entry in self._entries.values():
            _let_go(entry)
        self._entries.clear()

    def _update(self, pids: set[int], *, again: bool) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        held = [entry.fd for entry in self._entries.values() if entry.fd is not None]
        dead = poll_dead(held)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = limit - min(_RESERVE, limit // 4) - len(held)
        troubles = Troubles()
        found = {}
        for pid in pids:
            entry = self._entries.get(pid)
            if again or entry is None or entry.fd is None or entry.fd in dead or not entry.settled:
                if entry is not None and entry.fd in dead:
                    _let_go(entry)
                entry = self._entries[pid] = self._renew(pid, entry, troubles, again=again)
            found[pid] = entry.process
        return found, troubles.gaps()

    def _renew(self, pid: int, entry: _Entry | None, troubles: Troubles, *, again: bool) -> _Entry:
        """Look at a process that is new, has ended or is not settled; take hold of it before anything is read."""
        before = None if entry is None else entry.process
        fd = None if entry is None else entry.fd
        try:
            fd = self._open(pid, troubles) if fd is None else fd
        except ProcessLookupError:
            return _Entry(gone(pid, before), None, settled=False)
        if fd is not None:
            process = look_held(self._procfs, fd, pid, before, troubles)
        elif entry is not None and entry.settled and not again and is_still(self._procfs, entry.process):
            return entry
        else:
            process = look_unheld(self._procfs, pid, before, troubles)
        place = process.place
        renewed = _Entry(process, fd, settled=place.kind is PlaceKind.HOST or place.container is not None)
        if place.kind in (PlaceKind.GONE, PlaceKind.ZOMBIE):
            _let_go(renewed)
        return renewed

    def _open(self, pid: int, troubles: Troubles) -> int | None:
        """Open a pidfd; None where the process has to be known by its start time; ProcessLookupError if it is gone."""
        if not self._pidfds:
            return None
        if self._room <= 0:
            troubles.add(pid, NO_DESCRIPTOR)
            return None
        try:
            fd = open_pidfd(pid)
        except ProcessLookupError:
            raise
        except OSError as error:
            troubles.add(pid, describe_error(error, GapReason.DESCRIPTORS))
            return None
        self._room -= 1
        return fd


def _let_go(entry: _Entry) -> None:
    fd, entry.fd = entry.fd, None
    if fd is not None:
        os.close(fd)
