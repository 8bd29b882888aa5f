"""What the journal has of recent actions and of those in progress, for a daemon that begins."""

import sqlite3
from collections.abc import Iterator
from typing import Final

from watchdog.journal.rows import Row
from watchdog.journal.schema import COLUMNS
from watchdog.report.changes import BLOCKED, ENDED, ChangeKind
from watchdog.report.recent import EVENTS, KEPT_S, LAST_KEPT_S, MOST, MOST_ACTIONS, LastAction

_ENDS: Final = (ChangeKind.WARNED, *ENDED, *BLOCKED)
_NAMED: Final = ", ".join(f"'{event.value}'" for event in _ENDS)
# A row with a time in the future was written with a wrong clock.
_SELECT_LAST: Final = (
    "SELECT namespace, pod, coalesce(container, ''), do, result, rule, uid, wall_s FROM occurrence "
    f"WHERE wall_s BETWEEN :since AND :now AND event IN ({_NAMED}) AND result IS NOT NULL "
    "AND result <> 'withdrawn' AND namespace IS NOT NULL AND do IS NOT NULL AND rule IS NOT NULL "
    "ORDER BY id DESC LIMIT :most"
)
_ALL_COLUMNS: Final = ", ".join(COLUMNS)
_NAMED_RECENT: Final = ", ".join(f"'{event}'" for event in EVENTS)
# Two bounded queries instead of one over the whole day, which can have thousands of occurrences. An action has a
# handful of rows of these kinds, one on a fork bomb some twenty.
_SELECT_RECENT: Final = (
    f"SELECT {_ALL_COLUMNS} FROM occurrence WHERE wall_s > :since AND event IN ({_NAMED_RECENT}) AND id IN ("
    "SELECT id FROM (SELECT id FROM occurrence WHERE action_id IN "
    "(SELECT id FROM action WHERE wall_s > :since ORDER BY id DESC LIMIT :most)) "
    "UNION ALL "
    "SELECT id FROM (SELECT id FROM occurrence "
    f"WHERE wall_s > :since AND action_id IS NULL AND event IN ({_NAMED_RECENT}) "
    "ORDER BY wall_s DESC LIMIT :most)"
    ") ORDER BY id"
)
_SELECT_INTENTION: Final = f"SELECT {_ALL_COLUMNS} FROM occurrence WHERE action_id = ? AND event = 'intended'"


def read_last(connection: sqlite3.Connection, now_s: float) -> tuple[LastAction, ...]:
    """The actions on pods in the last 15 minutes before a Unix time, oldest first."""
    values = {"since": now_s - LAST_KEPT_S, "now": now_s, "most": MOST}
    rows = connection.execute(_SELECT_LAST, values).fetchall()
    return tuple(LastAction(labels=row[:6], uid=row[6], wall_s=row[7]) for row in reversed(rows))


def read_recent(connection: sqlite3.Connection, now_s: float) -> Iterator[Row]:
    """The rows of the latest actions of the last day before a Unix time, oldest first."""
    values = {"since": now_s - KEPT_S, "most": MOST_ACTIONS}
    return (dict(zip(COLUMNS, row, strict=True)) for row in connection.execute(_SELECT_RECENT, values))


def read_intention(connection: sqlite3.Connection, action: int) -> Row:
    """The row of an action's intention; empty if there is none."""
    row = connection.execute(_SELECT_INTENTION, (action,)).fetchone()
    return dict(zip(COLUMNS, row, strict=True)) if row is not None else {}
