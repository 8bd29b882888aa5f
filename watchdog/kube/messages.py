"""Messages of the threads that use the API for the log: the loop takes them, a repeated one at most once an hour."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final


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
        self._logged_s: OrderedDict[str, float] = OrderedDict()
        self._repeats: dict[str, int] = {}

    def add(self, cause: str, sentence: str, now_s: float) -> None:
        """Log this, unless the same cause has been logged within the hour: then it is only counted."""
        with self._lock:
            logged_s = self._logged_s.get(cause)
            if logged_s is not None and now_s - logged_s < REPEAT_S:
                self._repeats[cause] = self._repeats.get(cause, 0) + 1
                return
            repeats = self._repeats.pop(cause, 0)
            self._logged_s[cause] = now_s
            self._logged_s.move_to_end(cause)
            if len(self._logged_s) > _MOST:
                oldest, _ = self._logged_s.popitem(last=False)
                self._repeats.pop(oldest, None)
            if len(self._waiting) < _MOST:
                count = f" ({repeats + 1} times since this was last logged)" if repeats else ""
                self._waiting.append(f"{sentence}{count}")

    def take(self) -> tuple[str, ...]:
        """The sentences to be logged now."""
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), []
        return waiting
