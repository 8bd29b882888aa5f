"""What earlier daemons did lately, as a daemon that starts reads it from its journal: so no alert ends with them."""

import sqlite3
from typing import Final

from watchdog.export.last_actions import KEPT_S, MOST, LastAction
from watchdog.export.news_item import Event

_ENDS: Final = (Event.WARNED, Event.KILL_ENDED, Event.EVICT_ENDED, Event.EVICT_BLOCKED)
_NAMED: Final = ", ".join(f"'{event.value}'" for event in _ENDS)
# What stands there of a time that is still to come was written by a clock that was wrong.
_SELECT: Final = (
    "SELECT namespace, pod, coalesce(container, ''), do, result, rule, uid, wall_s FROM occurrence "
    f"WHERE wall_s BETWEEN :since AND :now AND event IN ({_NAMED}) AND result IS NOT NULL "
    "AND result <> 'withdrawn' AND namespace IS NOT NULL AND do IS NOT NULL AND rule IS NOT NULL "
    "ORDER BY id DESC LIMIT :most"
)


def actions_of(connection: sqlite3.Connection, now_s: float) -> tuple[LastAction, ...]:
    """What was done in the quarter of an hour before a moment (Unix time), oldest first, no more than MOST."""
    found = connection.execute(_SELECT, {"since": now_s - KEPT_S, "now": now_s, "most": MOST}).fetchall()
    return tuple(LastAction(labels=row[:6], uid=row[6], wall_s=row[7]) for row in reversed(found))
