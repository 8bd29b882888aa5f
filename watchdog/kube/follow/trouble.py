"""Since when requests have failed, and whether that is worth a word: short interruptions are everyday life."""

import math
from typing import Final

# A watch that is cut is resumed within a second or two. What has not come back by then is worth telling.
PATIENCE_S: Final = 5.0


class Trouble:
    """The failures of one feed. Times are CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self._since_s = math.inf
        self._cut_short = 0
        self.sentence = ""

    def failed(self, at_s: float, sentence: str, *, was_accepted: bool) -> None:
        """A request failed that was begun, or a watch that had been accepted ended, at `at_s`."""
        self._since_s = min(self._since_s, at_s)
        self._cut_short += was_accepted
        self.sentence = sentence

    def accepted(self) -> None:
        """A watch has begun. That is the end of it, unless watches are accepted and cut short again and again."""
        if self._cut_short < 2:
            self._since_s = math.inf

    def proven(self) -> None:
        """A watch has lived: what fails after it is another matter."""
        self._since_s = math.inf
        self._cut_short = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing fails."""
        return self._since_s == math.inf

    def due_in_s(self, now_s: float) -> float:
        """Seconds until it is worth a word; 0 when it is, infinity while nothing fails."""
        return max(0.0, self._since_s + PATIENCE_S - now_s)
