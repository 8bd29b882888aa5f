"""The signals that end the demo: noted, never fatal, so that it always cleans up."""

import signal
from types import TracebackType
from typing import Any, Final, Self

from watchdog.clock import Waiter

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """Takes SIGINT, SIGTERM and SIGHUP until it is left, and wakes whoever waits."""

    def __init__(self) -> None:
        self.is_wanted = False

    def __enter__(self) -> Self:
        self._before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
        self._waiter = Waiter()
        for number in _SIGNALS:
            # A program started by nohup(1) or in a shell's background is to go on ignoring what it ignores.
            if self._before[number] is not signal.SIG_IGN:
                self._waiter.on(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)
        self._waiter.close()

    def wait(self, seconds: float) -> None:
        """Sleep at most so long, less if a signal comes."""
        if not self.is_wanted:
            self._waiter.wait(seconds)

    def _note(self) -> None:
        self.is_wanted = True
