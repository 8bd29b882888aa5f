"""What the brakes have to know after a restart: whose deeds were begun and when, and since when the breaker is open.

Kept apart from the records of deeds, which age and size may prune: a brake must not forget because the disk is small.
"""

import sqlite3
from dataclasses import replace
from typing import Final

from watchdog.core.brakes import MOST_REMEMBERED, Begun, BrakeMemory, in_this_boot_s, owner_of
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.export.journal_rows import storable

# By number and not by age: a wall clock that is wrong for a moment must not make a brake forget.
_MOST_ROWS: Final = 2 * MOST_REMEMBERED
_INSERT: Final = "INSERT INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM begun WHERE deed <= ?"
_SELECT: Final = "SELECT namespace, owner_kind, owner_name, boot_id, boottime_s, wall_s FROM begun ORDER BY deed"
OPEN_BREAKER: Final = "INSERT OR REPLACE INTO breaker VALUES (1, :boot_id, :boottime_s, :wall_s)"
CLOSE_BREAKER: Final = "DELETE FROM breaker"


def insert_begun(connection: sqlite3.Connection, deed: int, entry: PlanEntry, now: Now) -> None:
    """Write down whose deed this is, in the transaction of its intention."""
    owner = [storable(part) or "" for part in owner_of(entry.assessment.pod)]
    connection.execute(_INSERT, (deed, *owner, now.boot_id, now.boottime_s, now.wall_s))
    connection.execute(_FORGET, (deed - _MOST_ROWS,))


def read_brakes(connection: sqlite3.Connection, now: Now) -> BrakeMemory:
    """What the brakes remember, in the time of this boot."""
    found = []
    for namespace, kind, name, boot_id, boottime_s, wall_s in connection.execute(_SELECT):
        then = Now(boot_id=boot_id, boottime_s=boottime_s, wall_s=wall_s)
        found.append(((namespace, kind, name), Begun(in_this_boot_s(then, now))))
    memory = BrakeMemory.of(found)
    row = connection.execute("SELECT boot_id, boottime_s, wall_s FROM breaker").fetchone()
    if row is None:
        return memory
    opened = Now(boot_id=row[0], boottime_s=row[1], wall_s=row[2])
    return replace(memory, opened=Begun(in_this_boot_s(opened, now)))
