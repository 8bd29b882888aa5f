"""What the brakes have to know after a restart: whose deeds were begun and when, and since when the breaker is open.

Kept apart from the records of deeds, which age and size may prune: a brake must not forget because the disk is small.
"""

import json
import sqlite3
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from watchdog.core.brakes import Begun, BrakeMemory, in_this_boot_s, owner_of
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.export.journal_rows import storable

# Number of the deed, namespace, kind and name of the owner, boot, boot time and wall clock.
BegunRow = tuple[int, str, str, str, str, float, float]

# The number of no action: from its moment on it is not known what was begun earlier (a journal that was lost).
LOST: Final = 0
_INSERT: Final = "INSERT OR IGNORE INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM begun WHERE deed IN (SELECT value FROM json_each(?))"
_SELECT: Final = "SELECT * FROM begun ORDER BY deed"
_OPEN: Final = "INSERT OR REPLACE INTO breaker VALUES (1, ?, ?, ?)"
_CLOSE: Final = "DELETE FROM breaker"


def begun_row(deed: int, entry: PlanEntry, now: Now) -> BegunRow:
    """Whose deed this is."""
    namespace, kind, name = (str(storable(part) or "") for part in owner_of(entry.assessment.pod))
    return (deed, namespace, kind, name, now.boot_id, now.boottime_s, now.wall_s)


def lost_row(now: Now) -> BegunRow:
    """That everything begun before this moment is lost."""
    return (LOST, "", "", "", now.boot_id, now.boottime_s, now.wall_s)


def moment_of(row: BegunRow) -> Now:
    """When it was begun."""
    return Now(boot_id=row[4], boottime_s=row[5], wall_s=row[6])


def insert_begun(connection: sqlite3.Connection, row: BegunRow) -> bool:
    """Write down whose deed it is, in the transaction of its intention; whether it was not there yet."""
    return connection.execute(_INSERT, row).rowcount > 0


def delete_begun(connection: sqlite3.Connection, deeds: Collection[int]) -> None:
    """Forget deeds that no brake needs any more."""
    if deeds:
        connection.execute(_FORGET, (json.dumps([*deeds]),))


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


def brake_memory(rows: Collection[BegunRow], opened: Now | None, now: Now, read_at: Now) -> BrakeMemory:
    """What the brakes remember of that, in the time of this boot.

    The age of what an earlier boot left is what the wall clock made it at `read_at`, when this daemon first read it.
    """

    def in_s(moment: Now) -> float:
        return in_this_boot_s(moment, now if moment.boot_id == now.boot_id else read_at)

    moments = {row[0]: in_s(moment_of(row)) for row in rows}
    lost_s = moments.pop(LOST, None)
    memory = BrakeMemory.of((row[1:4], Begun(moments[row[0]])) for row in rows if row[0] != LOST)
    return replace(memory, opened=None if opened is None else Begun(in_s(opened)), lost_s=lost_s)
