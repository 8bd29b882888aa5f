"""Log messages from the API threads, passed to the loop; a repeated message at most once per hour."""

import threading
from dataclasses import dataclass
from typing import Final

from watchdog.core.repeats import Repeats, count_repeats
from watchdog.kube.credentials import TOLERANCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """A sentence for the operator."""

    text: str
    is_problem: bool = False


REPEAT_S: Final = 3600.0
_MOST: Final = 50


class MessageQueue:
    """Sentences waiting to be logged. `add` may be called from any thread; times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._repeats = Repeats(REPEAT_S)

    def add(self, cause: str, sentence: str, now_s: float) -> None:
        """Log this, unless the same cause has been logged within the hour: then it is only counted."""
        with self._lock:
            suppressed = self._repeats.admit(cause, now_s)
            if suppressed is not None and len(self._waiting) < _MOST:
                self._waiting.append(f"{sentence}{count_repeats(suppressed)}")

    def take_new(self) -> tuple[str, ...]:
        """The sentences to be logged now."""
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), []
        return waiting


class ClockMessages:
    """Log messages about the two clocks: one when they diverge, one when they agree again."""

    def __init__(self) -> None:
        self._apart = False

    def take_new(self, offset: float | None) -> tuple[LogMessage, ...]:
        """The messages due now, given how far the server's clock was ahead at its last response."""
        if offset is None:
            return ()
        # Half the tolerance to agree again: otherwise a clock at the limit would be reported with each response.
        apart = abs(offset) > (TOLERANCE_S / 2 if self._apart else TOLERANCE_S)
        if apart is self._apart:
            return ()
        self._apart = apart
        if not apart:
            return (LogMessage(text="this node's clock and the API server's agree again"),)
        # Whole minutes: the server's Date has whole seconds, and the response took a while.
        which = "behind" if offset > 0 else "ahead of"
        text = (
            f"this node's clock is {_roughly(abs(offset))} {which} the API server's: certificates may be rejected, "
            "`active` hours of rules and deletion deadlines of pods are off, and the times in the journal "
            "and in Events are wrong; see which of the two is right (`date -u` on both), and set the other one"
        )
        return (LogMessage(text=text, is_problem=True),)


def _roughly(seconds: float) -> str:
    minutes = round(seconds / 60)
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes >= size:
            return f"about {minutes / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"about {minutes} min"
