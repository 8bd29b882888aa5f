"""A bell: how a thread wakes the loop, which waits for it among its other descriptors."""

import contextlib
import os


class Bell:
    """Rung from any thread; readable until it is silenced. However often it is rung, it is one waking."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._descriptor

    def ring(self) -> None:
        """Wake whoever waits."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._descriptor, 1)

    def silence(self) -> bool:
        """Whether it has been rung since the last time this was asked."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the descriptor back; nobody may ring any more."""
        os.close(self._descriptor)
