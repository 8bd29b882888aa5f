"""The tables of the node's past, how they are written, and how they are kept small.

What is in the bodies is the matter of `watchdog.past`; here they are bytes with a time.
"""

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from watchdog.core.model import Now

# A span is a stretch of one daemon's life in which every pass was recorded, until `until_s`. `upto` adds up the bodies
# ever written, so that the size of those that are left is a difference of two numbers, and no sum over all rows.
PAST_TABLES: Final = """
    CREATE TABLE past_span (
        id INTEGER PRIMARY KEY AUTOINCREMENT, boot_id TEXT NOT NULL, from_s REAL NOT NULL, from_wall_s REAL NOT NULL,
        until_s REAL NOT NULL, until_wall_s REAL NOT NULL, UNIQUE (boot_id, from_s)
    ) STRICT;
    CREATE TABLE past (
        id INTEGER PRIMARY KEY AUTOINCREMENT, span INTEGER NOT NULL, is_full INTEGER NOT NULL,
        boottime_s REAL NOT NULL, wall_s REAL NOT NULL, upto INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX past_full_by_time ON past (wall_s) WHERE is_full;
    """

Statement = tuple[str, Mapping[str, Any]]

_SPAN: Final = (
    "INSERT INTO past_span (boot_id, from_s, from_wall_s, until_s, until_wall_s) "
    "VALUES (:boot_id, :from_s, :from_wall_s, :until_s, :until_wall_s) "
    "ON CONFLICT (boot_id, from_s) DO UPDATE SET until_s = excluded.until_s, until_wall_s = excluded.until_wall_s"
)
_OF_SPAN: Final = "(SELECT id FROM past_span WHERE boot_id = :boot_id AND from_s = :from_s)"
_BODY: Final = (
    "INSERT INTO past (span, is_full, boottime_s, wall_s, upto, body) "
    f"VALUES ({_OF_SPAN}, :is_full, :boottime_s, :wall_s, "
    "coalesce((SELECT upto FROM past ORDER BY id DESC LIMIT 1), 0) + length(:body) + :row, :body)"
)
_ROW: Final = 64  # what a row takes beside its body
_SIZE: Final = (
    "SELECT coalesce((SELECT upto FROM past ORDER BY id DESC LIMIT 1) - upto + length(body) + :row, 0) "
    "FROM past ORDER BY id LIMIT 1"
)
_OLD: Final = "DELETE FROM past WHERE id IN (SELECT id FROM past ORDER BY id LIMIT :batch) AND wall_s < :before"
_BEYOND: Final = (
    "DELETE FROM past WHERE id IN (SELECT id FROM past ORDER BY id LIMIT :batch) AND "
    "upto - length(body) - :row < (SELECT upto FROM past ORDER BY id DESC LIMIT 1) - :keep"
)
_SPANS: Final = "DELETE FROM past_span WHERE until_wall_s < :before AND id NOT IN (SELECT span FROM past)"


def span_statement(since: Now, until: Now) -> Statement:
    """What says until when the readings of a span held."""
    moments = {"from_s": since.boottime_s, "from_wall_s": since.wall_s}
    return _SPAN, {
        "boot_id": since.boot_id,
        **moments,
        "until_s": until.boottime_s,
        "until_wall_s": until.wall_s,
    }


def body_statement(since: Now, at: Now, body: bytes, *, is_full: bool) -> Statement:
    """What adds a body, which begins at a moment, to the span that began at `since`."""
    return _BODY, {
        "boot_id": since.boot_id,
        "from_s": since.boottime_s,
        "is_full": int(is_full),
        "boottime_s": at.boottime_s,
        "wall_s": at.wall_s,
        "body": body,
        "row": _ROW,
    }


def past_size(connection: sqlite3.Connection) -> int:
    """Bytes that the past takes, without the slack of half-filled pages."""
    row = connection.execute(_SIZE, {"row": _ROW}).fetchone()
    return int(row[0]) if row is not None else 0


def delete_past(connection: sqlite3.Connection, before_s: float, keep: int, batch: int) -> int:
    """Delete what is older than a Unix time or more than `keep` bytes, oldest first, at most a batch of rows."""
    connection.execute("BEGIN IMMEDIATE")
    removed = connection.execute(_OLD, {"before": before_s, "batch": batch}).rowcount
    removed += connection.execute(_BEYOND, {"keep": keep, "batch": batch, "row": _ROW}).rowcount
    if removed:
        connection.execute(_SPANS, {"before": before_s})
    connection.execute("COMMIT")
    return removed
