"""What the brakes have to know after a restart: whose deeds were begun and when, and since when the breaker is open.

Kept apart from the records of deeds, which age and size may prune: a brake must not forget because the disk is small.
"""

import sqlite3
from typing import Final

from watchdog.core.brakes import MOST_REMEMBERED, Begun, BrakeMemory, in_this_boot_s, owner_of
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.export.journal_rows import storable

# Number of the deed, namespace, kind and name of the owner, boot, boot time and wall clock.
BegunRow = tuple[int, str, str, str, str, float, float]

# By number and not by age: a wall clock that is wrong for a moment must not make a brake forget.
MOST_ROWS: Final = 2 * MOST_REMEMBERED
_INSERT: Final = "INSERT OR IGNORE INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM begun WHERE deed <= ?"
_SELECT: Final = "SELECT * FROM begun ORDER BY deed"
_OPEN: Final = "INSERT OR REPLACE INTO breaker VALUES (1, ?, ?, ?)"
_CLOSE: Final = "DELETE FROM breaker"


def begun_row(deed: int, entry: PlanEntry, now: Now) -> BegunRow:
    """Whose deed this is."""
    namespace, kind, name = (str(storable(part) or "") for part in owner_of(entry.assessment.pod))
    return (deed, namespace, kind, name, now.boot_id, now.boottime_s, now.wall_s)


def insert_begun(connection: sqlite3.Connection, row: BegunRow) -> None:
    """Write down whose deed it is, in the transaction of its intention."""
    connection.execute(_INSERT, row)
    connection.execute(_FORGET, (row[0] - MOST_ROWS,))


def turn_breaker(connection: sqlite3.Connection, opened: Now | None) -> None:
    """Write down since when the breaker is open; None: it is closed."""
    if opened is None:
        connection.execute(_CLOSE)
    else:
        connection.execute(_OPEN, (opened.boot_id, opened.boottime_s, opened.wall_s))


def read_begun(connection: sqlite3.Connection) -> tuple[list[BegunRow], Now | None]:
    """The deeds that count, oldest first, and since when the breaker is open."""
    row = connection.execute("SELECT boot_id, boottime_s, wall_s FROM breaker").fetchone()
    opened = None if row is None else Now(boot_id=row[0], boottime_s=row[1], wall_s=row[2])
    return connection.execute(_SELECT).fetchall(), opened


def brake_memory(rows: list[BegunRow], opened: Now | None, now: Now) -> BrakeMemory:
    """What the brakes remember of that, in the time of this boot."""
    memory = BrakeMemory.of(
        ((namespace, kind, name), Begun(in_this_boot_s(Now(boot_id=boot, boottime_s=boottime_s, wall_s=wall_s), now)))
        for _, namespace, kind, name, boot, boottime_s, wall_s in rows
    )
    at = None if opened is None else Begun(in_this_boot_s(opened, now))
    return BrakeMemory(begun=memory.begun, opened=at)
