"""Waiting: for a descriptor, a signal or a moment, whichever comes first."""

import contextlib
import os
import selectors
import signal
from collections.abc import Callable
from types import FrameType


class Waiter:
    """Sleeps until one of its descriptors is readable, a signal has come, or the time is over.

    Python runs signal handlers on the main thread only, and not while it is in C; a wakeup descriptor
    (signal.set_wakeup_fd) is written at once, so that a sleeping loop sees the signal within milliseconds.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._read, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def watch(self, descriptor: int) -> None:
        """Wake up for this descriptor too."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def on(self, number: signal.Signals, act: Callable[[], None]) -> None:
        """Run `act` on the main thread when this signal comes."""

        def handler(_number: int, _frame: FrameType | None) -> None:
            act()

        signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        """Sleep at most so long."""
        self._selector.select(max(seconds, 0.0))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        os.close(self._read)
        os.close(self._write)
