"""What must not be lost with the journal's file: whoever begins a new one while the daemon runs gives it all of this.

The file can be removed, or be found damaged and moved aside. The brakes must not forget because of that, a deed under
way must be found by the next daemon, and the number of a deed must never stand for another one.
"""

import sqlite3
from collections import Counter
from typing import Final

from watchdog.core.brakes import FORGOTTEN_AFTER_S, MOST_REMEMBERED, BrakeMemory, in_this_boot_s
from watchdog.core.model import Now
from watchdog.export.journal_brakes import (
    LOST,
    BegunRow,
    brake_memory,
    delete_begun,
    insert_begun,
    lost_row,
    moment_of,
    read_begun,
    turn_breaker,
)
from watchdog.export.journal_deeds import DeedRow, insert_deed, last_number, moments_of, read_unfinished, renumber

_MOST_ROWS: Final = 2 * MOST_REMEMBERED  # fewer are all kept, whatever their age: about 100 bytes each


class Kept:
    """The deeds that count for the brakes, those that are not over, and since when the breaker is open."""

    def __init__(self) -> None:
        self._begun: dict[int, BegunRow] = {}
        self._open: dict[int, DeedRow] = {}
        self._opened: Now | None = None
        self._last = 0
        self._read_at: Now | None = None

    def merge(self, connection: sqlite3.Connection) -> int:
        """Take over what a journal has, and write into it what it lacks, all in one transaction; how much it lacked."""
        self._last = max(self._last, last_number(connection))
        self._make_room(connection)
        rows, opened = read_begun(connection)
        theirs = {row[0]: row for row in rows}
        if LOST in theirs and LOST in self._begun:  # the later one holds longer
            self._begun[LOST] = max(theirs[LOST], self._begun[LOST], key=lambda row: row[-1])
            delete_begun(connection, [LOST])
        self._opened = self._opened or opened
        lacked = self.give_back(connection)
        self._begun = theirs | self._begun
        self._open |= {row[0]: row for row in read_unfinished(connection)}
        return lacked

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Give new numbers to the actions of a journal whose numbers stand for others here, perhaps in progress."""
        mine = {deed: row[4:6] for deed, row in self._begun.items() if deed != LOST}
        mine |= {deed: (row[7], row[8]) for deed, row in self._open.items()}
        for deed, boot_id, boottime_s in moments_of(connection) if mine else ():
            if mine.get(deed, (boot_id, boottime_s)) != (boot_id, boottime_s):
                self._last += 1
                renumber(connection, deed, self._last)

    def add(self, deed: DeedRow, begun: BegunRow) -> None:
        """A deed has begun."""
        self._begun[begun[0]] = begun
        self._open[deed[0]] = deed
        self._last = max(self._last, deed[0])

    def remove(self, deed: int) -> None:
        """A deed is over: nobody has to wait for it any more."""
        self._open.pop(deed, None)

    def withdraw(self, deed: int) -> None:
        """An action was withdrawn before it began: no brake counts it."""
        self.remove(deed)
        self._begun.pop(deed, None)

    def lose(self, now: Now) -> BegunRow:
        """Everything begun before this moment is lost; the row that says so."""
        self._begun[LOST] = lost_row(now)
        return self._begun[LOST]

    def forget(self, now: Now) -> tuple[int, ...]:
        """Drop the rows that no brake can need, where there are many; their numbers.

        A row is needed no more once no window and no back-off reaches back to it, or once its owner has as many later
        ones as any window counts. Numbers say nothing: those of withdrawn actions have no row.
        """
        if len(self._begun) <= _MOST_ROWS:
            return ()
        moments = {deed: in_this_boot_s(moment_of(row), now) for deed, row in self._begun.items()}
        of_owner: Counter[tuple[str, ...]] = Counter()
        needless: list[int] = []
        for place, deed in enumerate(sorted(moments, key=lambda deed: (-moments[deed], -deed))):
            of_owner[owner := self._begun[deed][1:4]] += 1
            is_old = moments[deed] < now.boottime_s - FORGOTTEN_AFTER_S
            if of_owner[owner] > MOST_REMEMBERED or (is_old and place >= _MOST_ROWS):
                needless.append(deed)
        for deed in needless:
            del self._begun[deed]
        return tuple(needless)

    def turn(self, opened: Now | None) -> None:
        """The breaker has opened, or closed (None)."""
        self._opened = opened

    @property
    def in_progress(self) -> frozenset[int]:
        """The actions that are not over."""
        return frozenset(self._open)

    @property
    def next_deed(self) -> int:
        """The number of the next deed; numbers are never used again."""
        return self._last + 1

    def memory(self, now: Now) -> BrakeMemory:
        """What the brakes remember of it, in the time of this boot."""
        self._read_at = self._read_at or now
        return brake_memory(self._begun.values(), self._opened, now, self._read_at)

    def give_back(self, connection: sqlite3.Connection) -> int:
        """Write into a journal what it lacks of this: rows of the brakes, actions in progress; how many they were."""
        lacked = sum([insert_deed(connection, deed) for deed in self._open.values()])
        lacked += sum([insert_begun(connection, row) for row in self._begun.values()])
        turn_breaker(connection, self._opened)
        return lacked
