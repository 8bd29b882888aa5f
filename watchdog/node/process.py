"""One process: the pidfd that holds it, its identity, and the pod and container in its cgroup.

A pidfd is taken before anything is read, so a signal reaches the process that was read or none.
"""

import contextlib
import errno
import os
import resource
import select
import signal
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final, Protocol

from watchdog.core.errors import Problem
from watchdog.core.model import (
    GONE,
    UNREADABLE,
    ZOMBIE,
    Gap,
    GapReason,
    MpsSigns,
    Place,
    PlaceKind,
    Process,
    ProcessKey,
)
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.procfs import Procfs, Stat, ThreadSearch, printable


class Handle(Protocol):
    """A process to act on.

    `signal` raises ProcessLookupError if it is gone, PermissionError if this daemon may not signal it, BlockingIOError
    if no descriptor is left for it.
    """

    @property
    def key(self) -> ProcessKey:
        """Its PID and start time."""

    def alive(self) -> bool:
        """Whether the process still runs. A zombie with no living thread does not."""

    def is_still_accepted(self) -> bool:
        """Whether the process still runs and is what it was held for, read again."""

    def signal(self, number: int) -> None:
        """Send the signal to this process and no other; 0 only tests whether it could be sent."""

    def close(self) -> None:
        """Release it."""


class PidfdHandle:
    """A process held by a pidfd, which this owns: no other process can take its place.

    `released` is called once, when the descriptor has been closed.
    """

    __slots__ = ("_fd", "_released", "_still_same", "key")

    def __init__(
        self,
        key: ProcessKey,
        fd: int,
        still_same: Callable[[], bool] = lambda: True,
        released: Callable[[], None] = lambda: None,
    ) -> None:
        self.key = _signalable(key)
        self._fd = fd
        self._still_same = still_same
        self._released = released

    def alive(self) -> bool:
        """Whether the process still runs; False once the handle is closed."""
        return self._fd >= 0 and not poll_dead((self._fd,))

    def is_still_accepted(self) -> bool:
        """Whether the process is still what it was held for; what was read counts only if it runs afterwards."""
        return self._still_same() and self.alive()

    def signal(self, number: int) -> None:
        """Send the signal; ProcessLookupError if it has ended (the kernel silently accepts signals for a zombie)."""
        if not self.alive():
            raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended")
        signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            self._released()


class BriefHandle:
    """A process that is held by a pidfd only while something is done with it, where descriptors are short.

    Its start time is read while the pidfd holds it, so a signal reaches this process or none. While no descriptor is
    left at all it counts as alive, and `signal` raises BlockingIOError.
    """

    __slots__ = ("_procfs", "_still_same", "key")

    def __init__(self, procfs: Procfs, key: ProcessKey, still_same: Callable[[], bool] = lambda: True) -> None:
        self.key = _signalable(key)
        self._procfs: Procfs | None = procfs
        self._still_same = still_same

    def alive(self) -> bool:
        """Whether the process still runs; False once the handle is closed."""
        try:
            if self._read().exiting:  # threads of it may still run
                with self._held():
                    pass
        except ProcessLookupError:
            return False
        except BlockingIOError:
            return True
        return True

    def is_still_accepted(self) -> bool:
        """Whether the process is still what it is held for; what was read counts only if it runs afterwards."""
        return self._still_same() and self.alive()

    def signal(self, number: int) -> None:
        """Hold it and send the signal; ProcessLookupError if it has ended or the PID belongs to another process."""
        with self._held() as fd:
            signal.pidfd_send_signal(fd, number)

    def close(self) -> None:
        """Release it; from now on it counts as ended."""
        self._procfs = None

    def _read(self) -> Stat:
        """Its state; ProcessLookupError if the PID belongs to another process or none, BlockingIOError if unknown."""
        try:
            stat = None if self._procfs is None else self._procfs.stat(self.key.pid)
        except ProcessLookupError:
            stat = None
        except OSError as error:
            raise BlockingIOError(error.errno, f"process {self.key.pid}: {error.strerror}") from error
        if stat is None or stat.start_ticks != self.key.start_ticks:
            raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended or is another one")
        return stat

    @contextlib.contextmanager
    def _held(self) -> Iterator[int]:
        """A pidfd of this process, closed afterwards; errors as `_read`."""
        try:
            fd = open_pidfd(self.key.pid)
        except ProcessLookupError:
            raise
        except OSError as error:
            raise BlockingIOError(error.errno, f"process {self.key.pid}: {error.strerror}") from error
        try:
            self._read()
            if poll_dead((fd,)):
                raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended")
            yield fd
        finally:
            os.close(fd)


class TicksHandle:
    """A process known only by PID and start time, for kernels and sandboxes without the pidfd calls.

    `still_same` checks, right before every signal, that the PID is still that process (start time, cgroup). Between
    that check and the signal the PID can in theory be given to another process.
    """

    __slots__ = ("_still_same", "key")

    def __init__(self, key: ProcessKey, still_same: Callable[[], bool]) -> None:
        self.key = _signalable(key)
        self._still_same: Callable[[], bool] | None = still_same

    def alive(self) -> bool:
        """Whether the PID is still that process."""
        return self._still_same is not None and self._still_same()

    def is_still_accepted(self) -> bool:
        """Whether the PID is still that process, by start time and cgroup."""
        return self.alive()

    def signal(self, number: int) -> None:
        """Check, then send the signal; ProcessLookupError if the PID belongs to another process or none."""
        if not self.alive():
            raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended or is another one")
        os.kill(self.key.pid, number)

    def close(self) -> None:
        """Release it; from now on it counts as ended."""
        self._still_same = None


def _signalable(key: ProcessKey) -> ProcessKey:
    """Raise ValueError for PIDs that kill(2) takes for a group or for all processes, for init, and for this daemon."""
    if key.pid <= 1 or key.pid == os.getpid():
        raise ValueError(f"process {key.pid} is never signalled: it is a process group, init or the watchdog itself")
    return key


def open_pidfd(pid: int) -> int:
    """Open a pidfd; ProcessLookupError if no process has that PID, OSError for the rest (EMFILE, EPERM, ENOSYS).

    EINVAL and ENOENT mean that the number now belongs to a thread of another process (pidfd_open(2)), so the process is
    gone.
    """
    try:
        return os.pidfd_open(pid)
    except OverflowError:
        raise ProcessLookupError(errno.ESRCH, f"{pid} is no PID") from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            raise ProcessLookupError(errno.ESRCH, f"{pid} is no process") from error
        raise


def poll_dead(fds: Iterable[int]) -> set[int]:
    """The pidfds whose process has ended with all its threads, found in one system call."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(0)}


def pidfd_supported() -> Problem | None:
    """Try both pidfd calls on this process; None if they work."""
    # A Python built against kernel headers older than 5.3 lacks the functions on every kernel.
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return Problem(
            "pidfd_open: this build of Python does not have it", "use the distribution's or the image's Python"
        )
    call, fd = "pidfd_open", -1
    try:
        fd = os.pidfd_open(os.getpid())
        call = "pidfd_send_signal"
        signal.pidfd_send_signal(fd, 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return Problem(f"{call}: the kernel does not have it", "Linux 5.3 or newer is needed")
        if error.errno in (errno.EPERM, errno.EACCES):
            remedy = "use a seccomp profile that allows it, like RuntimeDefault of a current runtime"
            return Problem(f"{call}: not permitted", remedy)
        return Problem(f"{call}: {error.strerror}")
    finally:
        if fd >= 0:
            os.close(fd)
    return None


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, since every watched process takes one; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why a process could not be read or held; equal for all processes with the same cause."""

    reason: GapReason
    problem: Problem


HIDDEN: Final = ReadFailure(
    GapReason.PROCFS,
    Problem("it runs but the proc file system hides it", "mount /proc without hidepid, or run as root"),
)
NO_DESCRIPTOR: Final = ReadFailure(
    GapReason.DESCRIPTORS,
    Problem("no file descriptor is left for it", "raise the limit of open files (LimitNOFILE, ulimit -n)"),
)


_DENIED: Final = Problem("access is denied", "mount /proc without hidepid, or run as root and without seccomp")
_TOO_LONG: Final = Problem("its cgroup path is longer than the kernel writes", "find out what nests its cgroups")
_PROBLEMS: Final = {errno.EACCES: _DENIED, errno.EPERM: _DENIED, errno.ENAMETOOLONG: _TOO_LONG}


def describe_error(error: OSError, reason: GapReason) -> ReadFailure:
    """The failure behind an error; `reason` is used if the error does not imply one."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NO_DESCRIPTOR
    unknown = Problem(f"it can't be read: {error.strerror or error}", "it is retried every cycle")
    return ReadFailure(reason, _PROBLEMS.get(error.errno or 0, unknown))


class ReadFailures:
    """The failures of one walk over processes, grouped by cause."""

    def __init__(self) -> None:
        self._pids: dict[ReadFailure, list[int]] = {}

    def add(self, pid: int, failure: ReadFailure) -> None:
        """Record that a process could not be read or held."""
        self._pids.setdefault(failure, []).append(pid)

    def gaps(self) -> tuple[Gap, ...]:
        """One gap per cause, naming the first of its processes."""
        gaps = []
        for failure, pids in sorted(self._pids.items(), key=lambda item: (item[0].reason, str(item[0].problem))):
            listed = ", ".join(str(pid) for pid in sorted(pids)[:5])
            more = f" and {len(pids) - 5} more" if len(pids) > 5 else ""
            what = f"{'process' if len(pids) == 1 else 'processes'} {listed}{more}"
            gaps.append(Gap(reason=failure.reason, what=what, problem=failure.problem))
        return tuple(gaps)


_MPS_SERVER: Final = b"nvidia-cuda-mps-server"
_COMM_LENGTH: Final = 15
# The kernel (sentry) of a gVisor sandbox: `createSandboxProcess` in runsc/sandbox/sandbox.go sets its first argument,
# and starts /proc/self/exe or a program of runsc/gvisorbinaries, from which the kernel takes its name.
_GVISOR: Final = b"runsc-sandbox"
_GVISOR_NAMES: Final = (b"exe", b"gvisor_sentry", b"gvisor_sentry_plugin_stack"[:_COMM_LENGTH])
_MOST_THREADS: Final = 2048  # of one process at a time: some 30 ms


def read_process(procfs: Procfs, pid: int) -> tuple[Process, ReadFailure | None]:
    """Read a process, and report what could not be read; ProcessLookupError if no such process is visible.

    The cgroup is read first and confirmed by the status read after it. On cgroup v1 an exiting process shows `/`
    everywhere, as if it belonged to the host (kernel/cgroup/cgroup.c, proc_cgroup_show).
    """
    failure: ReadFailure | None = None
    try:
        place = parse_cgroup(procfs.cgroup_text(pid))
    except ProcessLookupError:
        raise
    except OSError as error:
        place, failure = UNREADABLE, describe_error(error, GapReason.CGROUP)
    try:
        stat = procfs.stat(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        return Process(pid=pid, key=None, place=UNREADABLE), describe_error(error, GapReason.PROCFS)
    if stat.exiting:
        place, failure = _place_of_exiting(procfs, pid, stat, place)
    if place.kind is PlaceKind.UNREADABLE and failure is None:
        problem = Problem("its cgroup file is not in the kernel's format", "see its /proc/PID/cgroup")
        failure = ReadFailure(GapReason.CGROUP, problem)
    process = Process(
        pid=pid,
        key=ProcessKey(pid=pid, start_ticks=stat.start_ticks),
        place=place,
        name=printable(stat.comm),
    )
    if _is_mps_server(procfs, pid, stat.comm):
        process = replace(process, mps=MpsSigns(server=True, privileged=procfs.is_privileged(pid)))
    elif stat.comm in _GVISOR_NAMES and _is_gvisor(procfs, pid):
        process = replace(process, gvisor=True, name=_GVISOR.decode())
    return process, failure


def is_still_named(procfs: Procfs, process: Process) -> bool:
    """Whether a process still has the name that it was read with; True if that can't be read."""
    try:
        comm = procfs.comm(process.pid)
    except OSError:
        return True
    return comm in _GVISOR_NAMES if process.gvisor else printable(comm) == process.name


def _place_of_exiting(procfs: Procfs, pid: int, leader: Stat, place: Place) -> tuple[Place, ReadFailure | None]:
    """Find the place of a process whose leader is dead or dying: that of any thread that is still alive.

    Traced threads stay zombies for as long as their tracer wants, in any number (ptrace(2)). So each search continues
    where the last one ended, starting with the thread that was alive then.
    """
    try:
        threads = sorted(tid for tid in procfs.threads(pid) if tid != pid)
    except ProcessLookupError:
        raise
    except OSError as error:  # on v2 the leader still shows the place of all threads
        return (place, None) if place.kind is PlaceKind.POD else (UNREADABLE, describe_error(error, GapReason.PROCFS))
    search = procfs.searches.get((pid, leader.start_ticks)) or ThreadSearch(left=len(threads))
    start = bisect_left(threads, search.tid)
    threads = threads[start:] + threads[:start]
    for tid in threads[:_MOST_THREADS]:
        try:
            if procfs.stat(pid, tid).exiting:
                continue
            text = procfs.cgroup_text(pid, tid)
            if not procfs.stat(pid, tid).exiting:
                procfs.remember_search(pid, leader.start_ticks, ThreadSearch(tid=tid, left=len(threads)))
                return parse_cgroup(text), None
        except OSError:
            continue
    if len(threads) > _MOST_THREADS:
        search = ThreadSearch(tid=threads[_MOST_THREADS], left=search.left - _MOST_THREADS)
        procfs.remember_search(pid, leader.start_ticks, search)
        if search.left > 0:
            if place.kind is PlaceKind.POD:
                return place, None
            cause = f"its leader has ended, and whether one of its {len(threads)} threads lives is not known yet"
            return UNREADABLE, ReadFailure(GapReason.PROCFS, Problem(cause, "the next cycle checks more of them"))
    # What is left of it runs no user code. On v2 its place is still visible while the kernel frees its memory.
    return (place if place.kind is PlaceKind.POD and leader.state not in "ZXx" else ZOMBIE), None


def _is_mps_server(procfs: Procfs, pid: int, comm: bytes) -> bool:
    """Whether it has the name and first argument of NVIDIA's MPS server, which any process can give itself.

    The kernel's truncated name is the same for the control daemon. If the argument can't be read, it counts as
    a server.
    """
    if comm != _MPS_SERVER[:_COMM_LENGTH]:
        return False
    try:
        program = procfs.first_argument(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return PurePosixPath(program).name == _MPS_SERVER.decode()


def _is_gvisor(procfs: Procfs, pid: int) -> bool:
    """Whether it has the first argument of gVisor's kernel, which any process can give itself."""
    try:
        return procfs.first_argument(pid) == _GVISOR.decode()
    except OSError:
        return False


def read_held(procfs: Procfs, fd: int, pid: int, before: Process | None, failures: ReadFailures) -> Process:
    """Read the process that the pidfd holds: what was read counts only if it still runs afterwards."""
    try:
        process, failure = read_process(procfs, pid)
    except ProcessLookupError:
        process, failure = _unread(pid), HIDDEN
    if poll_dead((fd,)):
        return read_ended(procfs, pid, before)
    if failure is not None:
        failures.add(pid, failure)
    return process


def read_unheld(procfs: Procfs, pid: int, before: Process | None, failures: ReadFailures) -> Process:
    """Read a process without holding it: what was read counts only between two equal start times."""
    try:
        first = procfs.stat(pid)
        process, failure = read_process(procfs, pid)
        if process.key is not None and process.key.start_ticks != first.start_ticks:
            return gone(pid, before)
    except ProcessLookupError:
        if not _exists(pid):
            return gone(pid, before)
        process, failure = _unread(pid), HIDDEN
    except OSError as error:
        process, failure = _unread(pid), describe_error(error, GapReason.PROCFS)
    if failure is not None:
        failures.add(pid, failure)
    return process


def read_ended(procfs: Procfs, pid: int, before: Process | None) -> Process:
    """A process that has ended: a zombie, or gone."""
    try:
        stat = procfs.stat(pid)
    except OSError:
        return gone(pid, before)
    key = ProcessKey(pid=pid, start_ticks=stat.start_ticks)
    if stat.state not in "ZXx" or (before is not None and before.key not in (None, key)):
        return gone(pid, before)
    return Process(pid=pid, key=key, place=ZOMBIE, name=printable(stat.comm))


def gone(pid: int, before: Process | None) -> Process:
    """A PID without a process; it keeps the identity it was known by."""
    return Process(pid=pid, key=None, place=GONE) if before is None else replace(before, place=GONE)


def is_same_process(procfs: Procfs, process: Process) -> bool:
    """Whether the PID has the start time of that process and is not exiting."""
    try:
        stat = procfs.stat(process.pid)
    except OSError:
        return False
    return process.key == ProcessKey(pid=process.pid, start_ticks=stat.start_ticks) and not stat.exiting


def _unread(pid: int) -> Process:
    return Process(pid=pid, key=None, place=UNREADABLE)


def _exists(pid: int) -> bool:
    """Whether the kernel knows a process with this PID; signal 0 tests that without sending anything."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
