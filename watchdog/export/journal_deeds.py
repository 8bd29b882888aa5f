"""Deeds in the journal: their numbers, their targets, and those that a daemon left unfinished."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.export.journal_prune import UNFINISHED
from watchdog.export.journal_queue import Statement
from watchdog.export.journal_rows import Row, storable
from watchdog.export.journal_schema import COLUMNS

# Number, UID, container, GPU, step, victim, targets as JSON, boot, boot time, wall clock, result.
DeedRow = tuple[Any, ...]

_INSERT: Final = (
    "INSERT OR IGNORE INTO deed "
    "(id, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_UNFINISHED: Final = (
    "SELECT id, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result "
    f"FROM deed WHERE {UNFINISHED} ORDER BY id"
)
# Of an AUTOINCREMENT table the sequence has the highest number that was ever inserted, but not one given later.
_LAST: Final = (
    "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'deed'), 0), "
    "coalesce((SELECT max(id) FROM deed), 0), coalesce((SELECT max(deed) FROM begun), 0))"
)
_MOMENTS: Final = "SELECT id, boot_id, boottime_s FROM deed UNION SELECT deed, boot_id, boottime_s FROM begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedDeed:
    """A deed whose end or release the journal does not have: what a daemon finds when it starts again."""

    deed: int
    uid: str
    account: AccountKey
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    began: Now
    result: Result | None


def deed_row(deed: int, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> DeedRow:
    """A deed that is about to begin."""
    account = [storable(part) for part in (entry.account.uid, entry.account.container, entry.account.gpu)]
    moment = (now.boot_id, now.boottime_s, now.wall_s)
    return (deed, *account, entry.step, storable(entry.victim), encode(keys), *moment, None)


def insert_deed(connection: sqlite3.Connection, row: DeedRow) -> bool:
    """Write a deed down; whether it was not there yet."""
    return connection.execute(_INSERT, row).rowcount > 0


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number that an action ever had; 0: there was none."""
    return int(connection.execute(_LAST).fetchone()[0])


def moments_of(connection: sqlite3.Connection) -> list[tuple[int, str, float]]:
    """The actions with their numbers, and when each was begun: the boot and its time."""
    return connection.execute(_MOMENTS).fetchall()


def renumber(connection: sqlite3.Connection, deed: int, number: int) -> None:
    """Give an action another number, wherever it stands."""
    for table, column in (("deed", "id"), ("begun", "deed"), ("occurrence", "deed")):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (number, deed))


def withdrawn(deed: int, now: Now) -> tuple[Statement, ...]:
    """What makes an intended action one that never began; the brakes forget it in the same transaction."""
    values = {"deed": deed, "at": now.wall_s, "result": Result.WITHDRAWN.value}
    return (
        ("UPDATE deed SET result = :result, ended_s = :at WHERE id = :deed", values),
        ("DELETE FROM begun WHERE deed = :deed", values),
    )


def read_unfinished(connection: sqlite3.Connection) -> list[DeedRow]:
    """Deeds without an end, or without the release that is to come, oldest first."""
    return connection.execute(_SELECT_UNFINISHED).fetchall()


def unfinished_deeds(connection: sqlite3.Connection) -> list[tuple[UnfinishedDeed, Row]]:
    """Deeds without an end, or without the release that is to come, oldest first, each with its intention's row."""
    return [(_unfinished(row), _read_context(connection, row[0])) for row in read_unfinished(connection)]


def encode(keys: tuple[ProcessKey, ...]) -> str:
    """Processes as JSON: pairs of PID and start ticks."""
    return json.dumps([[key.pid, key.start_ticks] for key in keys])


def _read_context(connection: sqlite3.Connection, deed: int) -> Row:
    sql = f"SELECT {', '.join(COLUMNS)} FROM occurrence WHERE deed = ? AND event = 'intended'"
    row = connection.execute(sql, (deed,)).fetchone()
    return dict(zip(COLUMNS, row, strict=True)) if row is not None else {}


def _unfinished(row: tuple[Any, ...]) -> UnfinishedDeed:
    deed, uid, container, gpu, step, victim, targets, boot_id, boottime_s, wall_s, result = row
    return UnfinishedDeed(
        deed=deed,
        uid=uid,
        account=AccountKey(uid=uid, container=container, gpu=gpu),
        step=step,
        victim=victim,
        targets=tuple(ProcessKey(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(targets)),
        began=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id),
        result=Result(result) if result is not None else None,
    )
