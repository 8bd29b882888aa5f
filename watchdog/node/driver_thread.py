"""The driver's own thread, since a driver call can hang forever."""

import os
import queue
import signal
import threading
import time
from contextlib import suppress
from enum import Enum, auto

from watchdog.node.driver import Driver, DriverReading


class _Request(Enum):
    """The requests besides a reading."""

    RELEASE = auto()


class DriverBusyError(RuntimeError):
    """A request was made while another one is in progress, or after `close`."""


class DriverThread:
    """Owns a driver and reads it on a daemon thread, one reading at a time.

    The loop waits for `fileno()` with a timeout; a call that hangs in the driver blocks only this thread.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[frozenset[str] | _Request | None] = queue.SimpleQueue()
        self._reading: DriverReading | None = None
        self._busy_since: float | None = None
        self._closing = False
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a reading is in progress, or the driver is being released."""
        return self._busy_since is not None

    @property
    def busy_since(self) -> float | None:
        """When the request in progress was made, in seconds of time.monotonic(); None if there is none."""
        return self._busy_since

    def request(self, only: frozenset[str] | None = None) -> None:
        """Request a reading; DriverBusyError while one is in progress, or after `close`.

        A reading that has not been taken is dropped.
        """
        self._submit(only)

    def release(self) -> None:
        """Release the driver; a later reading reopens it. DriverBusyError as with `request`.

        It is done once the thread is no longer `busy`; the descriptor is readable then.
        """
        self._submit(_Request.RELEASE)

    def _submit(self, request: frozenset[str] | _Request | None) -> None:
        with self._lock:
            if self._closing:
                raise DriverBusyError("the driver is being closed")
            if self._busy_since is not None:
                raise DriverBusyError(f"a reading has been in progress for {time.monotonic() - self._busy_since:.1f} s")
            self._drop()
            self._busy_since = time.monotonic()
        self._requests.put(request)

    def fileno(self) -> int:
        """The file descriptor that becomes readable when a reading can be taken or the driver has been released."""
        return self._event

    def take(self) -> DriverReading | None:
        """Take the finished reading; None if there is none."""
        with self._lock:
            return self._drop()

    def close(self, timeout_s: float) -> bool:
        """Close the driver once the call in progress has ended; False if that takes longer than `timeout_s`.

        The driver is closed on its own thread, so never during a call. A stuck thread ends with the process.
        """
        with self._lock:
            first = not self._closing
            self._closing = True
        if first:
            self._requests.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False  # and the descriptor stays open: the thread may still write to it
        with self._lock:
            if self._event >= 0:
                os.close(self._event)
                self._event = -1
        return True

    def _drop(self) -> DriverReading | None:
        reading, self._reading = self._reading, None
        if self._event >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._event)
        return reading

    def _run(self) -> None:
        # Signals are for the main thread, which sleeps in a selector and must wake for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            request = self._requests.get()
            if self._closing:
                break
            reading = None
            if isinstance(request, _Request):
                self._driver.close()
            else:
                reading = self._driver.read(request)
            with self._lock:
                self._reading = reading
                self._busy_since = None
                os.eventfd_write(self._event, 1)
        self._driver.close()
