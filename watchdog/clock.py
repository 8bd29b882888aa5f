"""The clocks, the bell with which threads wake the loop, and the selector in which the loop sleeps."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path

from watchdog.core.model import Now


def boot_id(procfs: Path = Path("/proc")) -> str:
    """The kernel's random name of this boot; empty if it can't be read (ages then come from the wall clock)."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


_BOOT_ID = boot_id()


def now() -> Now:
    """The present moment; only CLOCK_BOOTTIME both continues during suspend and never jumps (clock_gettime(2))."""
    return Now(boottime_s=time.clock_gettime(time.CLOCK_BOOTTIME), wall_s=time.time(), boot_id=_BOOT_ID)


class Bell:
    """Rung from any thread; readable until it is silenced. Several rings wake once."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._descriptor

    def ring(self) -> None:
        """Make the descriptor readable, which wakes a loop that waits for it."""
        with contextlib.suppress(OSError, ValueError):  # rung already, or closed
            os.eventfd_write(self._descriptor, 1)

    def silence(self) -> bool:
        """Make the descriptor unreadable; whether it had been rung since the last call."""
        try:
            os.eventfd_read(self._descriptor)
        except (OSError, ValueError):  # not rung, or closed
            return False
        return True

    def close(self) -> None:
        """Close the descriptor; from then on the other methods do nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Waiter:
    """Sleeps until one of its descriptors is readable, a signal arrives, or the time is up.

    Python runs signal handlers on the main thread only, and not while it is in C; a wakeup descriptor
    (signal.set_wakeup_fd) is written at once, so that a sleeping loop sees the signal within milliseconds.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
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
