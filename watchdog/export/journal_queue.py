"""What waits to be written to the journal: up to a bound it is kept while the disk takes nothing."""

import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from watchdog import clock
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_file import JournalFile
from watchdog.export.journal_rows import INSERT, base_row, bound

_MOST_WAITING: Final = 1000  # statements kept in memory while the disk takes none
Statement = tuple[str, Mapping[str, Any]]


class Queue:
    """Statements in their order, written together.

    What is beyond the bound is dropped and counted: the oldest occurrence, or where there is none the oldest of all.
    """

    def __init__(self, file: JournalFile, node: str) -> None:
        self._file = file
        self._node = node
        self._waiting: deque[Statement] = deque()
        self._dropped = 0

    def put(self, statements: Iterable[Statement]) -> None:
        """Write these, now or once the disk takes them."""
        self._waiting.extend(statements)
        while len(self._waiting) > _MOST_WAITING:
            # History goes first: what came of an action is what the brakes and the next daemon go by.
            del self._waiting[next((place for place, (sql, _) in enumerate(self._waiting) if sql == INSERT), 0)]
            self._dropped += 1
        self.flush()

    def later(self, statements: Iterable[Statement]) -> None:
        """Keep these to be written together with whatever is written next."""
        self._waiting.extend(statements)

    def lose(self, number: int) -> None:
        """Count so many statements as dropped."""
        self._dropped += number

    def flush(self) -> None:
        """Write what waits, if the disk takes it."""
        if self._waiting and not self._file.problem:
            with suppress(JournalError):
                self._file.transaction(self._write)
                self._waiting.clear()
                self._dropped = 0

    def _write(self, connection: sqlite3.Connection) -> None:
        for sql, values in self._waiting:
            connection.execute(sql, values)
        if self._dropped:
            lost = f"{self._dropped} records before this one were lost while the journal could not be written."
            connection.execute(INSERT, bound(base_row("records_lost", self._node, clock.now(), lost)))
