"""What memory was held for, in the journal: card-seconds by hour and owner, and for how long accounts are idle."""

import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Final

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, Owner
from watchdog.core.utilization import CardSeconds, IdleTimes, Spender, SpentByHour
from watchdog.journal.errors import JournalError
from watchdog.journal.read import reading
from watchdog.journal.rows import storable_text
from watchdog.report.card_hours import HOUR_S, NodeHours, owner_hours
from watchdog.report.status import Moment

# Steps of SQLite's virtual machine after which it is asked whether to go on.
_STEPS: Final = 10_000
# Card-seconds are stored as thousandths.
_PARTS: Final = 1000
_INSERT_SPENDER: Final = "INSERT OR IGNORE INTO spender (namespace, owner_kind, owner_name) VALUES (?, ?, ?)"
_ADD: Final = (
    "INSERT INTO card_seconds SELECT ?, id, ?, ?, ?, ? FROM spender "
    "WHERE namespace = ? AND owner_kind = ? AND owner_name = ? "
    "ON CONFLICT (hour, spender) DO UPDATE SET held = held + excluded.held, "
    "computing = computing + excluded.computing, idle = idle + excluded.idle, unused = unused + excluded.unused"
)
_SELECT: Final = (
    "SELECT namespace, owner_kind, owner_name, sum(held), sum(computing), sum(idle), sum(unused) "
    "FROM card_seconds JOIN spender ON id = spender WHERE hour BETWEEN ? AND ? GROUP BY spender"
)


def add_card_seconds(connection: sqlite3.Connection, spent: SpentByHour) -> None:
    """Add card-seconds to those of their hours."""
    for hour, by_spender in spent.items():
        for (namespace, owner), parts in by_spender.items():
            names = tuple(storable_text(name) for name in (namespace, owner.kind, owner.name))
            connection.execute(_INSERT_SPENDER, names)
            connection.execute(_ADD, (hour, *(round(_PARTS * part) for part in astuple(parts)), *names))


def write_idle(connection: sqlite3.Connection, idle: IdleTimes) -> None:
    """Write for how long these accounts have computed nothing, and no others."""
    at = idle.at
    connection.execute("DELETE FROM idle")
    for account, seconds in idle.seconds.items():
        parts = account.uid, account.container, account.gpu
        key = (None if part is None else storable_text(part) for part in parts)
        values = (*key, seconds, account in idle.reported, at.boot_id, at.boottime_s, at.wall_s)
        connection.execute("INSERT INTO idle VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def read_idle(connection: sqlite3.Connection) -> IdleTimes | None:
    """For how long accounts had computed nothing when that was last noted; None: none had. sqlite3.Error."""
    rows = connection.execute("SELECT * FROM idle").fetchall()
    if not rows:
        return None
    *_, boot_id, boottime_s, wall_s = rows[0]
    keyed = [(AccountKey(uid=row[0], container=row[1], gpu=row[2]), *row[3:5]) for row in rows]
    return IdleTimes(
        at=Now(boottime_s=boottime_s, wall_s=wall_s, boot_id=boot_id),
        seconds={account: idle_s for account, idle_s, _ in keyed},
        reported=frozenset(account for account, _, is_reported in keyed if is_reported),
    )


def node_hours(path: Path, node: str, since_s: float, until_s: float, *, within_s: float = math.inf) -> NodeHours:
    """The card-hours of a node between the hours of two Unix times, from its journal; JournalError.

    Later hours were counted with a wrong clock. It is given up after `within_s`.
    """
    since_hour, until_hour = int(since_s // HOUR_S), int(until_s // HOUR_S)
    deadline_s = time.monotonic() + within_s
    with reading(path) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline_s, _STEPS)
        try:
            first, spent = _first_hour(connection, until_hour), [*_card_seconds(connection, since_hour, until_hour)]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                why = f"journal {path} can't be read within {within_s:.0f} s: ask again once the node is less busy"
                raise JournalError(why) from error
            if "no such table" in str(error):
                why = f"journal {path} was written by an older gpu-watchdog, which did not count card-seconds"
                raise JournalError(f"{why}: ask again once its daemon is of this version") from error
            raise
    owners = owner_hours(spent)
    return NodeHours(
        node=node,
        since=Moment(since_hour * HOUR_S),
        until=Moment(until_s),
        begins=None if first is None else Moment(first * HOUR_S),
        owners=tuple(owners),
        owners_in_all=len(owners),
    )


def _first_hour(connection: sqlite3.Connection, until_hour: int) -> int | None:
    found = connection.execute("SELECT min(hour) FROM card_seconds WHERE hour <= ?", (until_hour,))
    hour: int | None = found.fetchone()[0]
    return hour


def _card_seconds(
    connection: sqlite3.Connection, since_hour: int, until_hour: int
) -> Iterator[tuple[Spender, CardSeconds]]:
    for namespace, kind, name, *parts in connection.execute(_SELECT, (since_hour, until_hour)):
        yield (namespace, Owner(kind=kind, name=name)), CardSeconds(*(part / _PARTS for part in parts))
