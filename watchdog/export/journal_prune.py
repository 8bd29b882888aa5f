"""Keeping the journal small: by age, then by size, oldest first; never a deed that is not finished."""

import sqlite3
from typing import Final

from watchdog.core.model import Now
from watchdog.core.policy import JournalLimits
from watchdog.export.journal_past import delete_past, past_size

_BATCH: Final = 1000  # rows a transaction: a long one would keep deeds waiting
_MOST_BATCHES: Final = 10  # a call: intentions wait meanwhile, and the next call goes on
_FREE_PAGES: Final = 4096  # a call
# No wait for memory lasts so long: what is unfinished after it belongs to a daemon that never came back.
_UNFINISHED_S: Final = 86400.0

UNFINISHED: Final = "(result IS NULL OR (result IN ('done', 'interrupted') AND released_s IS NULL))"
# Within a boot the wall clock has no say: a jump of it must take neither the history nor what is waited for.
_OPEN: Final = f"SELECT id FROM deed WHERE {UNFINISHED} AND (boot_id = :boot_id OR wall_s >= :open)"
_OLDEST: Final = (
    "DELETE FROM occurrence WHERE id IN (SELECT id FROM occurrence "
    "WHERE wall_s < :before AND (boot_id <> :boot_id OR boottime_s < :booted_before) AND "
    f"(deed IS NULL OR deed NOT IN ({_OPEN})) "
    "ORDER BY wall_s, id LIMIT :batch)"
)
_DEEDS: Final = (
    f"DELETE FROM deed WHERE id NOT IN ({_OPEN}) AND "
    "NOT EXISTS (SELECT 1 FROM occurrence WHERE occurrence.deed = deed.id)"
)


def prune(connection: sqlite3.Connection, limits: JournalLimits, now: Now) -> int:
    """Delete what is too old or too much, and give the space back; the number of rows deleted. sqlite3.Error."""
    moment: dict[str, str | float] = {"boot_id": now.boot_id, "open": now.wall_s - max(_UNFINISHED_S, limits.max_age_s)}
    aged: dict[str, str | float] = {
        "before": now.wall_s - limits.max_age_s,
        "booted_before": now.boottime_s - limits.max_age_s,
    }
    whatever: dict[str, str | float] = {"before": float("inf"), "booted_before": float("inf")}
    deleted = 0
    for _ in range(_MOST_BATCHES):
        removed = _delete(connection, moment | aged, _BATCH)
        deleted += removed
        if removed < _BATCH:
            break
    for _ in range(_MOST_BATCHES):
        removed = delete_past(connection, now.wall_s - limits.max_age_s, limits.max_size * 3 // 4, _BATCH)
        deleted += removed
        if removed < _BATCH:
            break
    for _ in range(_MOST_BATCHES):
        _give_back(connection)
        excess = 1 - limits.max_size / size(connection)
        if excess <= 0:
            break
        # What was done is worth more than what was seen: the past goes first, as long as it has more than a quarter.
        keep = max(past_size(connection) + limits.max_size - size(connection), limits.max_size // 4)
        if removed := delete_past(connection, -float("inf"), keep, _BATCH):
            deleted += removed
            continue
        rows = connection.execute("SELECT count(*) FROM occurrence").fetchone()[0]
        removed = _delete(connection, moment | whatever, min(int(rows * excess) + 1, _BATCH))
        deleted += removed
        if not removed:
            break
    if deleted:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return deleted


def size(connection: sqlite3.Connection) -> int:
    """Bytes of the journal's pages."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _delete(connection: sqlite3.Connection, limits: dict[str, str | float], batch: int) -> int:
    values = {**limits, "batch": batch}
    connection.execute("BEGIN IMMEDIATE")
    removed = connection.execute(_OLDEST, values).rowcount
    connection.execute(_DEEDS, values)
    connection.execute("COMMIT")
    return removed


def _give_back(connection: sqlite3.Connection) -> None:
    # Each step of the statement frees one page; `execute` takes a single step of one that has no columns.
    connection.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES});")
