"""Processes held by a pidfd: from the first sight on, a signal reaches that very process or none."""

import contextlib
import errno
import os
import resource
import select
import signal
from collections.abc import Callable, Iterable
from typing import Protocol

from watchdog.core.errors import Problem
from watchdog.core.model import ProcessKey


class Handle(Protocol):
    """A process to act on: `signal` raises ProcessLookupError if it is gone, PermissionError if it is out of reach."""

    @property
    def key(self) -> ProcessKey:
        """Its PID and start time."""

    def alive(self) -> bool:
        """Whether it still runs; a zombie whose threads have all ended does not."""

    def signal(self, number: int) -> None:
        """Send the signal to this very process; 0 only tests whether it could be sent."""

    def close(self) -> None:
        """Let go of it."""


class PidfdHandle:
    """A process held by a pidfd, which it owns: no other process can ever take its place."""

    __slots__ = ("_fd", "key")

    def __init__(self, key: ProcessKey, fd: int) -> None:
        self.key = signalable(key)
        self._fd = fd

    def __repr__(self) -> str:
        return f"PidfdHandle({self.key.pid}, {self.key.start_ticks})"

    def alive(self) -> bool:
        """Whether it still runs; a closed handle holds nothing."""
        return self._fd >= 0 and not poll_dead((self._fd,))

    def signal(self, number: int) -> None:
        """Send the signal; ProcessLookupError if it has ended (the kernel accepts signals for a zombie in silence)."""
        if not self.alive():
            raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended")
        signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class TicksHandle:
    """A process known by PID and start time alone, for kernels and sandboxes without the pidfd calls.

    `still_same` looks again, right before every signal, whether the PID is still that process (start time, cgroup);
    between that look and the signal the PID can in theory be given to another process.
    """

    __slots__ = ("_still_same", "key")

    def __init__(self, key: ProcessKey, still_same: Callable[[], bool]) -> None:
        self.key = signalable(key)
        self._still_same: Callable[[], bool] | None = still_same

    def __repr__(self) -> str:
        return f"TicksHandle({self.key.pid}, {self.key.start_ticks})"

    def alive(self) -> bool:
        """Whether the PID is still that process."""
        return self._still_same is not None and self._still_same()

    def signal(self, number: int) -> None:
        """Look again, then send the signal; ProcessLookupError if the PID is another process or none."""
        if not self.alive():
            raise ProcessLookupError(errno.ESRCH, f"process {self.key.pid} has ended or is another one")
        os.kill(self.key.pid, number)

    def close(self) -> None:
        """Let go of it; it counts as ended from now on."""
        self._still_same = None


def signalable(key: ProcessKey) -> ProcessKey:
    """Refuse the PIDs that kill(2) takes for a group or for everybody, init, and this daemon."""
    if key.pid <= 1 or key.pid == os.getpid():
        raise ValueError(f"process {key.pid} is never signalled: it is a process group, init or the watchdog itself")
    return key


def open_pidfd(pid: int) -> int:
    """Open a pidfd; ProcessLookupError if no process has that PID, OSError for the rest (EMFILE, EPERM, ENOSYS).

    EINVAL and ENOENT mean that the number now is a thread of another process (pidfd_open(2)): its process is gone.
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
    """Those of the pidfds whose process has ended, all its threads included, in one system call."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(0)}


def pidfd_supported() -> Problem | None:
    """Try both pidfd calls on oneself; None if they work."""
    # A Python built against kernel headers older than 5.3 lacks the functions on every kernel.
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return Problem(
            "pidfd_open: this build of Python does not have it", "use the distribution's or the image's Python"
        )
    try:
        fd = os.pidfd_open(os.getpid())
    except OSError as error:
        return _missing("pidfd_open", error)
    try:
        signal.pidfd_send_signal(fd, 0)
    except OSError as error:
        return _missing("pidfd_send_signal", error)
    finally:
        os.close(fd)
    return None


def _missing(call: str, error: OSError) -> Problem:
    if error.errno == errno.ENOSYS:
        return Problem(f"{call}: the kernel does not have it", "Linux 5.3 or newer is needed")
    if error.errno in (errno.EPERM, errno.EACCES):
        remedy = "use a seccomp profile that allows it, like RuntimeDefault of a current runtime"
        return Problem(f"{call}: not permitted", remedy)
    return Problem(f"{call}: {error.strerror}")


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, since every watched process takes one; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
