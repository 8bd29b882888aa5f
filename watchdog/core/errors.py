"""The errors that cross package boundaries, and problems with their remedies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and how to fix it; as text, on one line."""

    # Without a full stop, as is the remedy.
    cause: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}" if self.remedy else self.cause

    def of(self, what: str) -> "Problem":
        """The problem, prefixed with the name of the thing that has it."""
        return Problem(f"{what}: {self.cause}", self.remedy)


class WatchdogError(Exception):
    """An expected failure; its text says where, and how to fix it."""


class RecordError(WatchdogError):
    """The journal can't be written. Nothing may be signalled without an intention on disk."""
