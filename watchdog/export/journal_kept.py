"""What must not be lost with the journal's file: whoever begins a new one while the daemon runs gives it all of this.

The file can be removed, or be found damaged and moved aside. The brakes must not forget because of that, a deed under
way must be found by the next daemon, and the number of a deed must never stand for another one.
"""

import sqlite3
from collections import deque
from typing import Any, Final

from watchdog.core.brakes import BrakeMemory
from watchdog.core.model import Now
from watchdog.export.journal_brakes import MOST_ROWS, BegunRow, brake_memory, insert_begun, read_begun, turn_breaker
from watchdog.export.journal_deeds import DeedRow, insert_deed, read_unfinished

_NUMBERED: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'deed'"


class Kept:
    """The deeds that count for the brakes, those that are not over, and since when the breaker is open."""

    def __init__(self) -> None:
        self._begun: deque[BegunRow] = deque(maxlen=MOST_ROWS)
        self._open: dict[int, DeedRow] = {}
        self._opened: Now | None = None
        self._last = 0

    def read(self, connection: sqlite3.Connection) -> None:
        """Take over what a journal has, when it has been opened."""
        rows, self._opened = read_begun(connection)
        self._begun.extend(rows)
        self._open = {row[0]: row for row in read_unfinished(connection)}
        numbered: tuple[Any] | None = connection.execute(_NUMBERED).fetchone()
        self._last = int(numbered[0]) if numbered is not None else 0

    def add(self, deed: DeedRow, begun: BegunRow) -> None:
        """A deed has begun."""
        self._begun.append(begun)
        self._open[deed[0]] = deed
        self._last = max(self._last, deed[0])

    def remove(self, deed: int) -> None:
        """A deed is over: nobody has to wait for it any more."""
        self._open.pop(deed, None)

    def turn(self, opened: Now | None) -> None:
        """The breaker has opened, or closed (None)."""
        self._opened = opened

    @property
    def next_deed(self) -> int:
        """The number of the next deed; numbers are never used again."""
        return self._last + 1

    def memory(self, now: Now) -> BrakeMemory:
        """What the brakes remember of it, in the time of this boot."""
        return brake_memory(list(self._begun), self._opened, now)

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Write all of it into a journal that may have none of it; what it has of it stays."""
        for deed in self._open.values():
            insert_deed(connection, deed)
        for row in self._begun:
            insert_begun(connection, row)
        turn_breaker(connection, self._opened)
