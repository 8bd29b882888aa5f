"""Builders and queries of a journal."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.report.build import entry
from tests.worlds import at
from watchdog.core.model import ProcessKey
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.read import history
from watchdog.journal.rows import INSERT, base_row, bound

KEYS = (ProcessKey(pid=101, start_ticks=1010), ProcessKey(pid=102, start_ticks=1020))
LIMITS = JournalLimits()


def events(path: Path, pod: str | None = None) -> list[str]:
    """The events that another process reads."""
    return [row.event for row in history(path, pod, 0)]


def sql(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Do this with the file behind the journal's back; what the last statement gives."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def sound(path: Path) -> bool:
    """Whether SQLite finds nothing wrong in the file."""
    return sql(path, "PRAGMA integrity_check") == [("ok",)]


def begin(journal: Journal) -> int:
    """An action that has begun."""
    action = journal.intend(entry(), KEYS, at(31))
    journal.signalled(action, at(31), "SIGTERM", KEYS)
    return action


def write_many(journal: Journal, rows: int, second: float = 0) -> None:
    """Many rows of a kilobyte, in one transaction: a slow disk would take long for as many commits."""
    made = [base_row("started", "n1", at(second + number), "x" * 1000) for number in range(rows)]
    journal._queue.put([(INSERT, bound(row)) for row in made])
