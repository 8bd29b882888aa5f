"""The table of processes that NVML lists, each held by a pidfd and read from /proc once; finds those of a container."""

import math
import os
import re
import resource
import select
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.model import UNREADABLE, Gap, GapReason, Place, PlaceKind, Process, ProcessKey
from watchdog.node.process import (
    NO_DESCRIPTOR,
    BriefHandle,
    Handle,
    PidfdHandle,
    ReadFailures,
    TicksHandle,
    describe_error,
    gone,
    is_same_process,
    is_still_named,
    open_pidfd,
    poll_dead,
    read_held,
    read_process,
    read_unheld,
)
from watchdog.node.procfs import Procfs, printable
from watchdog.node.survivors import Survivors

# A line of a cgroup v1 hierarchy (v2 has number 0), and one that names something below the root.
_V1: Final = re.compile(rb"^[1-9]", re.MULTILINE)
_V1_BELOW_ROOT: Final = re.compile(rb"^[1-9][0-9]*:[^:\n]*:/.", re.MULTILINE)


class Allotment:
    """How many descriptors the processes of all actions may take and have taken, so that nothing else lacks them."""

    def __init__(self, most: float = 0) -> None:
        self.most = most
        self.taken = 0

    def take_one(self) -> bool:
        """Take one; False if none is left, so that the process must be held only while something is done with it."""
        has_room = self.taken < self.most
        self.taken += has_room
        return has_room

    def give_back(self) -> None:
        """Count a descriptor as free again."""
        self.taken -= 1


_UNLIMITED: Final = Allotment(math.inf)


def hold(
    procfs: Procfs,
    pid: int,
    accept: Callable[[Process], bool],
    failures: ReadFailures,
    *,
    pidfds: bool = True,
    allotment: Allotment = _UNLIMITED,
) -> Handle | None:
    """Hold a process if what is read of it while held is acceptable; OSError if it can't be held.

    `failures` gets why it could not be read, if it still runs. Once the `allotment` is spent it is held only while
    something is done with it.
    """
    if not pidfds:
        process, failure = read_process(procfs, pid)
        if failure is not None:
            failures.add(pid, failure)
        if process.key is None or not accept(process):
            return None
        return TicksHandle(process.key, partial(_is_still_accepted, procfs, process, accept))
    fd = open_pidfd(pid)
    try:
        process, failure = read_process(procfs, pid)
        if poll_dead((fd,)):
            return None
        if failure is not None:
            failures.add(pid, failure)
        if process.key is None or not accept(process):
            return None
        still_same = partial(_is_still_accepted, procfs, process, accept)
        if not allotment.take_one():
            return BriefHandle(procfs, process.key, still_same)
        handle, fd = PidfdHandle(process.key, fd, still_same, allotment.give_back), -1
    finally:
        if fd >= 0:
            os.close(fd)
    return handle


def _is_still_accepted(procfs: Procfs, before: Process, accept: Callable[[Process], bool]) -> bool:
    try:
        process, _ = read_process(procfs, before.pid)
    except OSError:
        return False
    return process.key == before.key and accept(process)


def _candidates(procfs: Procfs, ids: frozenset[str], failures: ReadFailures) -> Iterator[int]:
    """PIDs whose cgroup text mentions one of the IDs: a cheap filter, since most processes belong to others.

    Also those whose leader has ended while other threads may still live: on v1 such a leader reads `/`.
    """
    needles = [container.encode() for container in ids]
    for pid in sorted(procfs.pids()):
        if pid <= 1 or pid == os.getpid():
            continue
        try:
            text = procfs.cgroup_text(pid)
            is_at_v1_root = _V1.search(text) and not _V1_BELOW_ROOT.search(text)
            if any(needle in text for needle in needles) or (is_at_v1_root and procfs.stat(pid).exiting):
                yield pid
        except ProcessLookupError:
            continue
        except OSError as error:
            failures.add(pid, describe_error(error, GapReason.CGROUP))


# Descriptors reserved for everything else, such as NVML, the journal and HTTP.
_RESERVE: Final = 256
# Checking a name takes some 10 us.
_MOST_NAMES: Final = 64
_SHORT: Final = Gap(
    reason=GapReason.DESCRIPTORS,
    what="processes of kills",
    problem=Problem(
        "file descriptors are short, so only some of them are held all the time, and the others for each signal",
        NO_DESCRIPTOR.problem.remedy,
    ),
)


@dataclass(slots=True)
class _KnownProcess:
    """A listed process."""

    process: Process
    # Its pidfd; None: it is not held.
    fd: int | None
    # Whether its place can't change any more while it runs.
    settled: bool
    # The place in a container where it was when it ended; None: it runs, or was not held until it ended.
    left: Place | None = None


def _lives(procfs: Procfs, key: ProcessKey) -> bool:
    return is_same_process(procfs, Process(pid=key.pid, key=key, place=UNREADABLE))


_ENDED: Final = (PlaceKind.GONE, PlaceKind.ZOMBIE)


def _place_left(before: _KnownProcess | None, after: _KnownProcess, *, was_held: bool) -> Place | None:
    """The container in which a process was when it ended, if it was held until then."""
    is_same = before is not None and before.process.key is not None and after.process.key == before.process.key
    if before is None or not is_same or after.process.place.kind not in _ENDED:
        return None
    place = before.process.place
    is_in_container = place.kind is PlaceKind.POD and place.container is not None
    return place if was_held and is_in_container else before.left


class ProcessTable:
    """Processes by PID, kept from cycle to cycle.

    With `pidfds` False, or when no descriptor is left, a process is known by its start time, which is read every cycle.
    """

    def __init__(self, procfs: Procfs, *, pidfds: bool = True) -> None:
        self._procfs = procfs
        self._pidfds = pidfds
        self._entries: dict[int, _KnownProcess] = {}
        self._room = 0
        self._of_actions = Allotment()
        self._is_short = False
        self._turn = 0  # the place of the process whose name is checked next
        self._exits = select.epoll()  # readable once a held process has ended
        self._survivors = Survivors(partial(_lives, procfs))
        self._are_settled = True

    def update(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        """The process of each listed PID; those that are known and still run are not read again.

        Processes that are no longer listed are released.
        """
        wanted = set(pids)
        for pid in self._entries.keys() - wanted:
            self._release(self._entries.pop(pid))
        self.has_renamed()
        self._survivors.forget_except({entry.left for entry in self._entries.values() if entry.left is not None})
        processes = self._read_all(wanted, reread=False)
        self._are_settled = all(entry.fd is not None and entry.settled for entry in self._entries.values())
        return processes

    def reread(self, pids: Iterable[int]) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        """Read start time and cgroup of these PIDs again, known or not: the check right before an action."""
        return self._read_all(set(pids), reread=True)

    def is_unchanged(self) -> bool:
        """Whether every process of the last update is held, still runs, and can't have changed its place.

        It is one system call, however many there are, and may be called from any thread.
        """
        return self._are_settled and not self._exits.poll(0, 1)

    def has_renamed(self) -> bool:
        """Whether a process has renamed itself; the next update reads it again. Checks a number of them, by turns.

        With its name a process may have changed what it counts as.
        """
        turn, self._turn = self._turn, self._turn + _MOST_NAMES
        if turn >= len(self._entries):
            turn, self._turn = 0, _MOST_NAMES
        checked = [entry for entry in islice(self._entries.values(), turn, self._turn) if entry.settled]
        renamed = [entry for entry in checked if not is_still_named(self._procfs, entry.process)]
        for entry in renamed:
            entry.settled = False
        return bool(renamed)

    def container_members(
        self, ids: frozenset[str], pods: frozenset[str], spares: Callable[[Process], bool] = lambda _: False
    ) -> tuple[tuple[Handle, ...], tuple[Gap, ...]]:
        """Find all living processes, listed or not, in these containers (IDs) of a pod by its keys (UID, config hash).

        The caller closes the handles. Init, this daemon and ended processes are left out, and those that `spares` is
        true of. A gap means that there may be more: a process could not be read or held.
        """
        failures = ReadFailures()
        handles = tuple(self._members(ids, pods, spares, failures))
        return handles, failures.gaps()

    def _first_member(self, place: Place) -> ProcessKey | None:
        """A living process of the container of a place; None if none was found."""
        ids, pods = frozenset({place.container or ""}), frozenset({place.pod or ""})
        handle = next(self._members(ids, pods, lambda _: False, ReadFailures()), None)
        if handle is None:
            return None
        handle.close()
        return handle.key

    def _members(
        self, ids: frozenset[str], pods: frozenset[str], spares: Callable[[Process], bool], failures: ReadFailures
    ) -> Iterator[Handle]:
        def belongs(process: Process) -> bool:
            place = process.place
            is_named = place.pod is None or place.pod in pods
            return place.kind is PlaceKind.POD and place.container in ids and is_named and not spares(process)

        self._of_actions.most = self._free() // 2  # the other half is for processes that the driver lists later
        for pid in _candidates(self._procfs, ids, failures):
            try:
                handle = hold(self._procfs, pid, belongs, failures, pidfds=self._pidfds, allotment=self._of_actions)
            except ProcessLookupError:
                continue
            except OSError as error:
                failures.add(pid, describe_error(error, GapReason.PROCFS))
                continue
            if handle is not None:
                self._is_short = self._is_short or isinstance(handle, BriefHandle)
                yield handle

    def take_shortage(self) -> tuple[Gap, ...]:
        """A gap if processes of an action could not all be held at once since the last call; they are all known."""
        is_short, self._is_short = self._is_short, False
        return (_SHORT,) if is_short else ()

    def leads_container(self, pid: int) -> bool:
        """Whether a process was started from outside its container, so that its end may end the container.

        The kernel ends the processes of a PID namespace with its first one (pid_namespaces(7)), and containerd those
        that are left without such a namespace. True if it can't be determined.
        """
        try:
            parent = self._procfs.stat(pid).parent
            places = [read_process(self._procfs, each)[0].place for each in (pid, parent)]
        except OSError:
            return True
        is_known = all(place.kind in (PlaceKind.POD, PlaceKind.HOST) for place in places)
        return not is_known or places[0].container != places[1].container

    def describe(self, pid: int) -> str:
        """PID, name and user of a process for logs, as far as they can be read.

        Never its command line, which may contain tokens and passwords.
        """
        try:
            return f"{pid} {printable(self._procfs.stat(pid).comm)} (user {self._procfs.user(pid)})"
        except OSError:
            return str(pid)

    def close(self) -> None:
        """Release every process."""
        for entry in self._entries.values():
            self._release(entry)
        self._entries.clear()
        self._exits.close()

    def _free(self) -> int:
        """How many descriptors are left for the processes of actions, and for further ones that the driver lists."""
        held = sum(entry.fd is not None for entry in self._entries.values())
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return limit - min(_RESERVE, limit // 4) - held

    def _read_all(self, pids: set[int], *, reread: bool) -> tuple[dict[int, Process], tuple[Gap, ...]]:
        held = sum(entry.fd is not None for entry in self._entries.values())
        dead = {fd for fd, _ in self._exits.poll(0, held)} if held else set()
        self._room = self._free() - self._of_actions.taken
        failures = ReadFailures()
        processes = {}
        for pid in pids:
            entry = self._entries.get(pid)
            if reread or entry is None or entry.fd is None or entry.fd in dead or not entry.settled:
                before, was_held = entry, entry is not None and entry.fd is not None
                if entry is not None and entry.fd in dead:
                    self._release(entry)
                entry = self._entries[pid] = self._renew(pid, entry, failures, reread=reread)
                entry.left = _place_left(before, entry, was_held=was_held)
            processes[pid] = self._as_listed(entry)
        return processes, failures.gaps()

    def _as_listed(self, entry: _KnownProcess) -> Process:
        """A process for the snapshot: one that has ended is where it was for as long as its container has processes.

        A child can have inherited what keeps the memory of its parent allocated, and the driver goes on listing the
        parent's PID for it (measured with driver 580.159).
        """
        if entry.left is None or not self._survivors.exist(entry.left, self._first_member):
            return entry.process
        return replace(entry.process, place=entry.left, ended=True)

    def _renew(self, pid: int, entry: _KnownProcess | None, failures: ReadFailures, *, reread: bool) -> _KnownProcess:
        """Read a process that is new, has ended or is not settled; it is held before anything is read."""
        before = None if entry is None else entry.process
        fd = None if entry is None else entry.fd
        try:
            fd = self._open(pid, failures) if fd is None else fd
        except ProcessLookupError:
            return _KnownProcess(gone(pid, before), None, settled=False)
        if fd is not None:
            process = read_held(self._procfs, fd, pid, before, failures)
        elif entry is not None and entry.settled and not reread and is_same_process(self._procfs, entry.process):
            return entry
        else:
            process = read_unheld(self._procfs, pid, before, failures)
        place = process.place
        renewed = _KnownProcess(process, fd, settled=place.kind is PlaceKind.HOST or place.container is not None)
        if place.kind in _ENDED:
            self._release(renewed)
        return renewed

    def _open(self, pid: int, failures: ReadFailures) -> int | None:
        """Open a pidfd; None if the process must be known by its start time; ProcessLookupError if it is gone."""
        if not self._pidfds:
            return None
        if self._room <= 0:
            failures.add(pid, NO_DESCRIPTOR)
            return None
        fd = -1
        try:
            fd = open_pidfd(pid)
            self._exits.register(fd, select.EPOLLIN)  # limited by fs.epoll.max_user_watches
        except ProcessLookupError:
            raise
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            failures.add(pid, describe_error(error, GapReason.DESCRIPTORS))
            return None
        self._room -= 1
        return fd

    def _release(self, entry: _KnownProcess) -> None:
        fd, entry.fd = entry.fd, None
        if fd is not None:
            self._exits.unregister(fd)  # a handle may share it, and would keep it registered
            os.close(fd)
