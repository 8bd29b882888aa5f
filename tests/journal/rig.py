"""Builders and queries of a journal."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.report.build import entry
from tests.worlds import at
from watchdog.core.model import Owner, ProcessKey
from watchdog.core.policy import JournalLimits
from watchdog.core.utilization import CardSeconds, Spender
from watchdog.journal.journal import Journal
from watchdog.journal.read import history
from watchdog.journal.rows import INSERT, base_row, bound
from watchdog.journal.utilization import node_hours
from watchdog.report.card_hours import HOUR_S

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


def spent(path: Path, since_hour: int = 0, until_hour: int = 10**6) -> dict[Spender, CardSeconds]:
    """The card-seconds that another process reads, of each owner, from an hour to another."""
    rows = node_hours(path, "n1", since_hour * HOUR_S, until_hour * HOUR_S).owners
    return {
        (row.namespace, Owner(kind=row.kind, name=row.name)): CardSeconds(
            row.held * HOUR_S, row.used * HOUR_S, row.idle * HOUR_S, (row.unused or 0.0) * HOUR_S
        )
        for row in rows
    }


def begin(journal: Journal) -> int:
    """An action that has begun."""
    action = journal.intend(entry(), KEYS, at(31))
    journal.signalled(action, at(31), "SIGTERM", KEYS)
    return action


def write_many(journal: Journal, rows: int, second: float = 0) -> None:
    """Many rows of a kilobyte, in one transaction: a slow disk would take long for as many commits."""
    made = [base_row("started", "n1", at(second + number), "x" * 1000) for number in range(rows)]
    journal._queue.put([(INSERT, bound(row)) for row in made])
