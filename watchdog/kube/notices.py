"""What threads that use the API have to log: the loop takes it from here, the same trouble once an hour."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What an operator should know, in a sentence."""

    text: str
    is_problem: bool = False


REPEAT_S: Final = 3600.0
_MOST: Final = 50


class Notices:
    """Sentences that wait to be said. `note` comes from any thread; moments are seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._told: OrderedDict[str, float] = OrderedDict()
        self._since: dict[str, int] = {}

    def note(self, cause: str, sentence: str, now_s: float) -> None:
        """Have this said, unless the same cause has been told within the hour: then it is only counted."""
        with self._lock:
            told_s = self._told.get(cause)
            if told_s is not None and now_s - told_s < REPEAT_S:
                self._since[cause] = self._since.get(cause, 0) + 1
                return
            again = self._since.pop(cause, 0)
            self._told[cause] = now_s
            self._told.move_to_end(cause)
            if len(self._told) > _MOST:
                oldest, _ = self._told.popitem(last=False)
                self._since.pop(oldest, None)
            if len(self._waiting) < _MOST:
                self._waiting.append(f"{sentence} ({again + 1} times since this was last said)" if again else sentence)

    def take(self) -> tuple[str, ...]:
        """What is to be said now."""
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), []
        return waiting
