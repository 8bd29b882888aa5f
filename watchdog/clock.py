"""The clocks, the bell with which threads wake the loop, and the selector in which the loop sleeps."""

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchdog.core.model import Now


def boot_id(procfs: Path = Path("/proc")) -> str:
    """The kernel's random name of this boot; empty if it can't be read (ages then come from the wall clock)."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


_BOOT_ID = boot_id()
# macOS, where people's commands run, has neither this clock nor eventfd.
_CLOCK = time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC
_ONE: Final = (1).to_bytes(8, sys.byteorder)  # what is written to an eventfd; to a pipe anything may be
_LARGEST_READ: Final = 4096
_WORK_S: Final = 0.001
_REST: Final = 4.0  # times as long as the work


def now() -> Now:
    """The present moment; only CLOCK_BOOTTIME both continues during suspend and never jumps (clock_gettime(2))."""
    return Now(boottime_s=time.clock_gettime(_CLOCK), wall_s=time.time(), boot_id=_BOOT_ID)


class Breather:
    """Called by a thread between parts of its work, it sleeps so that the work takes only a fifth of the time.

    Python has one lock for all threads, which the loop would have to wait for.
    """

    def __init__(self) -> None:
        self._rested_s: float | None = None

    def __call__(self) -> None:
        """Sleep if a millisecond of work has been done since the last time."""
        worked_s = 0.0 if self._rested_s is None else time.thread_time() - self._rested_s
        if worked_s >= _WORK_S:
            time.sleep(worked_s * _REST)
        if self._rested_s is None or worked_s >= _WORK_S:
            self._rested_s = time.thread_time()


class Bell:
    """Rung from any thread; readable until it is silenced. Several rings wake once."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            descriptor: int = os.eventfd(0)
            os.set_blocking(descriptor, False)
            self._read = self._write = descriptor
        else:
            self._read, self._write = _pipe()

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._read

    def ring(self) -> None:
        """Make the descriptor readable, which wakes a loop that waits for it."""
        with contextlib.suppress(OSError, ValueError):  # rung already, or closed
            os.write(self._write, _ONE)

    def silence(self) -> bool:
        """Make the descriptor unreadable; whether it had been rung since the last call."""
        was_rung = False
        with contextlib.suppress(OSError, ValueError):  # not rung, or closed
            while True:
                read = len(os.read(self._read, _LARGEST_READ))
                was_rung = True
                if read < _LARGEST_READ:  # all of an eventfd, or of a pipe
                    break
        return was_rung

    def close(self) -> None:
        """Close the descriptors; from then on the other methods do nothing."""
        descriptors, self._read, self._write = {self._read, self._write}, -1, -1
        for each in descriptors - {-1}:
            os.close(each)


def _pipe() -> tuple[int, int]:
    """The ends of a pipe that block nobody, the one to read from first; no other program inherits them."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


class Waiter:
    """Sleeps until one of its descriptors is readable, a signal arrives, or the time is up.

    Python runs signal handlers on the main thread only, and not while it is in C; a wakeup descriptor
    (signal.set_wakeup_fd) is written at once, so that a sleeping loop sees the signal within milliseconds.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._read, self._write = _pipe()
        self._selector.register(self._read, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def watch(self, descriptor: int) -> None:
        """Also wake up when this descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def on(self, number: signal.Signals, act: Callable[[], None]) -> None:
        """Run `act` on the main thread when this signal arrives."""
        signal.signal(number, lambda _number, _frame: act())

    def wait(self, seconds: float) -> None:
        """Sleep for at most this long."""
        self._selector.select(max(seconds, 0.0))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Unset the wakeup descriptor, and close everything."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        os.close(self._read)
        os.close(self._write)
