"""The rows of the last deeds, as a daemon that starts reads them from its journal."""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from watchdog.export.journal_schema import COLUMNS
from watchdog.export.recent import EVENTS, KEPT_S, MOST_DEEDS

_NAMED: Final = ", ".join(f"'{event}'" for event in EVENTS)
# Two bounded looks instead of one over the whole day: a node can have thousands of occurrences in it. A deed has a
# handful of rows of these kinds, and a fork bomb's some twenty.
_SELECT: Final = (
    f"SELECT {', '.join(COLUMNS)} FROM occurrence WHERE wall_s > :since AND event IN ({_NAMED}) AND id IN ("
    "SELECT id FROM (SELECT id FROM occurrence WHERE deed IN "
    "(SELECT id FROM deed WHERE wall_s > :since ORDER BY id DESC LIMIT :most)) "
    "UNION ALL "
    f"SELECT id FROM (SELECT id FROM occurrence WHERE wall_s > :since AND deed IS NULL AND event IN ({_NAMED}) "
    "ORDER BY wall_s DESC LIMIT :most)"
    ") ORDER BY id"
)


def recent_of(connection: sqlite3.Connection, now_s: float) -> Iterator[dict[str, Any]]:
    """The rows of the deeds of the last day (before a Unix time), oldest first, as `Recent.take` reads them."""
    values = {"since": now_s - KEPT_S, "most": MOST_DEEDS}
    for row in connection.execute(_SELECT, values).fetchall():
        yield dict(zip(COLUMNS, row, strict=True))
