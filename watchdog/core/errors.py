"""The errors that cross from one room into another."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and what helps, both without a full stop; as text, in one line."""

    cause: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}" if self.remedy else self.cause

    def of(self, what: str) -> "Problem":
        """The same problem of something that is named."""
        return Problem(f"{what}: {self.cause}", self.remedy)


class WatchdogError(Exception):
    """Something that the daemon expects to fail at times; its text names the place and the remedy."""


class RecordError(WatchdogError):
    """The journal can't be written. Nothing may be signalled of which no intention is on disk."""
