"""The journal's tables, those of the recording in it, and how old rows are deleted."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from watchdog.core.model import Now
from watchdog.core.policy import JournalLimits
from watchdog.journal.errors import JournalError
from watchdog.report.text import rfc3339

# A span is a time in which one daemon recorded every cycle, until `until_s`. `upto` is the running total of all bodies
# written, so that the size of those left is a difference of two numbers instead of a sum over all rows.
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
# The statements of the recording.
RECORDING: Final = frozenset({_SPAN, _BODY})
_ROW: Final = 64  # bytes of a row besides its body
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
    """The statement that extends a span, begun at `since`, until a moment."""
    return _SPAN, {
        "boot_id": since.boot_id,
        "from_s": since.boottime_s,
        "from_wall_s": since.wall_s,
        "until_s": until.boottime_s,
        "until_wall_s": until.wall_s,
    }


def body_statement(since: Now, at: Now, body: bytes, *, is_full: bool) -> Statement:
    """The statement that adds a body, which begins at `at`, to the span that began at `since`."""
    return _BODY, {
        "boot_id": since.boot_id,
        "from_s": since.boottime_s,
        "is_full": int(is_full),
        "boottime_s": at.boottime_s,
        "wall_s": at.wall_s,
        "body": body,
        "row": _ROW,
    }


def recording_size(connection: sqlite3.Connection) -> int:
    """The size of the recording in bytes, without the slack of half-filled pages."""
    row = connection.execute(_SIZE, {"row": _ROW}).fetchone()
    return int(row[0]) if row is not None else 0


def delete_recording(connection: sqlite3.Connection, before_s: float, keep: int, batch: int) -> int:
    """Delete what is older than a Unix time or beyond `keep` bytes, oldest first, at most a batch of rows."""
    connection.execute("BEGIN IMMEDIATE")
    removed = connection.execute(_OLD, {"before": before_s, "batch": batch}).rowcount
    removed += connection.execute(_BEYOND, {"keep": keep, "batch": batch, "row": _ROW}).rowcount
    if removed:
        connection.execute(_SPANS, {"before": before_s})
    connection.execute("COMMIT")
    return removed


# Bytes of a row of `card_seconds`, with its part of half-filled pages.
_CARD_SECONDS_ROW: Final = 40
_OLD_HOURS: Final = (
    "DELETE FROM card_seconds WHERE (hour, spender) IN "
    "(SELECT hour, spender FROM card_seconds WHERE hour <= :last OR hour > :next ORDER BY hour LIMIT :batch)"
)
_SPENDERS: Final = "DELETE FROM spender WHERE id NOT IN (SELECT spender FROM card_seconds)"


def delete_card_seconds(
    connection: sqlite3.Connection, before_s: float, batch: int, *, after_s: float = float("inf")
) -> int:
    """Delete card-seconds of hours that ended before a Unix time or begin after one, at most a batch of rows.

    The oldest go first.
    """
    connection.execute("BEGIN IMMEDIATE")
    hours = {"last": before_s / 3600 - 1, "next": after_s / 3600}
    removed = connection.execute(_OLD_HOURS, hours | {"batch": batch}).rowcount
    if removed:
        connection.execute(_SPENDERS)
    connection.execute("COMMIT")
    return removed


def _excess_card_seconds(connection: sqlite3.Connection, keep: int) -> int:
    """How many rows of card-seconds there are beyond `keep` bytes."""
    rows = int(connection.execute("SELECT count(*) FROM card_seconds").fetchone()[0])
    return max(rows - keep // _CARD_SECONDS_ROW, 0)


APPLICATION_ID: Final = 0x67707764  # "gpwd"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One occurrence in the journal; columns that do not apply are None. Bytes are integers."""

    event: str
    node: str
    boot_id: str
    boottime_s: float
    wall_s: float
    namespace: str | None
    pod: str | None
    uid: str | None
    container: str | None
    gpu: str | None
    owner_kind: str | None
    owner_name: str | None
    rule: str | None
    step: int | None
    do: str | None
    scope: str | None
    threshold: str | None
    used: int | None
    used_at_least: int | None
    declared: int | None
    declared_by: str | None
    allowed: int | None
    policy: str | None
    action_id: int | None
    result: str | None
    reason: str | None
    detail: str | None
    sentence: str
    # These are missing in journals of older daemons.
    account: str | None = None
    used_beside: int | None = None

    @property
    def at(self) -> str:
        """The time, as RFC 3339 in UTC."""
        return rfc3339(self.wall_s)


COLUMNS: Final = tuple(column.name for column in fields(HistoryRow))
# Each entry takes the file from one user_version to the next; entries that have been released never change.
MIGRATIONS: Final = (
    """
    CREATE TABLE occurrence (
        id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, node TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL,
        namespace TEXT, pod TEXT, uid TEXT, container TEXT, gpu TEXT, owner_kind TEXT, owner_name TEXT,
        rule TEXT, step INTEGER, do TEXT, scope TEXT, threshold TEXT,
        used INTEGER, used_at_least INTEGER, declared INTEGER, declared_by TEXT, allowed INTEGER,
        policy TEXT, action_id INTEGER, result TEXT, reason TEXT, detail TEXT, sentence TEXT NOT NULL
    ) STRICT;
    CREATE INDEX occurrence_by_time ON occurrence (wall_s);
    CREATE INDEX occurrence_by_action ON occurrence (action_id) WHERE action_id IS NOT NULL;
    CREATE TABLE action (
        id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, container TEXT, gpu TEXT,
        step INTEGER NOT NULL, victim TEXT NOT NULL, targets TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL,
        result TEXT, ended_s REAL, released_s REAL, release_s REAL
    ) STRICT;
    """,
    """
    CREATE TABLE begun (
        action_id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner_name TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    CREATE TABLE breaker (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    """,
    PAST_TABLES,
    # The container of the account, empty if unknown; NULL if the account is the whole pod.
    "ALTER TABLE occurrence ADD COLUMN account TEXT;",
    # When the maintenance in progress began; `seen` is 0 if it may have begun earlier.
    """
    CREATE TABLE maintenance (
        only INTEGER PRIMARY KEY CHECK (only = 1), seen INTEGER NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    """,
    # Pods that have gone from the API server while processes of their containers may run.
    "CREATE TABLE left_pod (uid TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;",
    # Resources that pods request and the node listed in their lives.
    """
    CREATE TABLE listed (
        uid TEXT NOT NULL, resource TEXT NOT NULL, PRIMARY KEY (uid, resource)
    ) STRICT, WITHOUT ROWID;
    """,
    # Since when bytes of an owner's pods have counted as unknown because they may have changed hands, and which (JSON).
    """
    CREATE TABLE transfer (
        namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner_name TEXT NOT NULL, transfers TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL,
        PRIMARY KEY (namespace, owner_kind, owner_name)
    ) STRICT;
    """,
    # What others use of a claim that they share with the account; NULL if there is none.
    "ALTER TABLE occurrence ADD COLUMN used_beside INTEGER;",
    # Card-seconds by Unix hour, in thousandths, and whose they are; and for how long accounts had computed nothing.
    # Whole numbers, and a number for each owner, make a row of some 30 bytes.
    """
    CREATE TABLE spender (
        id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner_name TEXT NOT NULL,
        UNIQUE (namespace, owner_kind, owner_name)
    ) STRICT;
    CREATE TABLE card_seconds (
        hour INTEGER NOT NULL, spender INTEGER NOT NULL,
        held INTEGER NOT NULL, computing INTEGER NOT NULL, idle INTEGER NOT NULL, unused INTEGER NOT NULL,
        PRIMARY KEY (hour, spender)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE idle (
        uid TEXT NOT NULL, container TEXT, gpu TEXT, idle_s REAL NOT NULL, reported INTEGER NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    """,
)


def set_up(connection: sqlite3.Connection, path: Path) -> None:
    """Configure a connection, and make a new file a journal; JournalError for another program's database."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and tables:
        raise JournalError(f"{path} is the database of something else: name another file with `--journal`")
    if not tables:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise JournalError(f"journal {path} is on a file system without shared memory: choose a local one")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {4 * 2**20}")


def is_blank(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever written to a journal: no number has been assigned, and the brakes have no row."""
    used = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence) OR EXISTS (SELECT 1 FROM begun)"
    return not connection.execute(used).fetchone()[0]


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables; JournalError if a newer version of the watchdog made them."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise JournalError(
            f"journal {path} was written by a newer gpu-watchdog (tables {version}, this one knows {len(MIGRATIONS)}): "
            "use that version, or name another file with `--journal`"
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the tables to this version, and check that the file can be written."""
    version = check_version(connection, path)
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        # executescript first commits an open transaction, so the transaction is part of the script.
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
    write_nothing(connection)


def write_nothing(connection: sqlite3.Connection) -> None:
    """Test that the disk can be written, without changing anything."""
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


_BATCH: Final = 1000  # rows per transaction: a long one would delay actions
_MOST_BATCHES: Final = 10  # per call: intentions wait meanwhile, and the next call continues
_FREE_PAGES: Final = 4096  # per call
# No wait for memory lasts this long: an action unfinished after it belongs to a daemon that never restarted.
_UNFINISHED_S: Final = 86400.0
_DAY_S: Final = 86400.0

UNFINISHED: Final = "(result IS NULL OR (result IN ('done', 'interrupted') AND released_s IS NULL))"
# Within a boot the wall clock does not count: when it jumps, neither history nor unfinished actions may be deleted.
_OPEN: Final = f"SELECT id FROM action WHERE {UNFINISHED} AND (boot_id = :boot_id OR wall_s >= :open)"
_OLDEST: Final = (
    "DELETE FROM occurrence WHERE id IN (SELECT id FROM occurrence "
    "WHERE wall_s < :before AND (boot_id <> :boot_id OR boottime_s < :booted_before) AND "
    f"(action_id IS NULL OR action_id NOT IN ({_OPEN})) "
    "ORDER BY wall_s, id LIMIT :batch)"
)
_WITHOUT_ROWS: Final = (
    f"DELETE FROM action WHERE id NOT IN ({_OPEN}) AND "
    "NOT EXISTS (SELECT 1 FROM occurrence WHERE occurrence.action_id = action.id)"
)


def prune(connection: sqlite3.Connection, limits: JournalLimits, now: Now) -> None:
    """Delete what is beyond the limits, and free the space; sqlite3.Error."""
    moment: dict[str, Any] = {"boot_id": now.boot_id, "open": now.wall_s - max(_UNFINISHED_S, limits.max_age_s)}
    aged: dict[str, Any] = {
        "before": now.wall_s - limits.max_age_s,
        "booted_before": now.boottime_s - limits.max_age_s,
    }
    unaged: dict[str, Any] = {"before": float("inf"), "booted_before": float("inf")}
    deleted = 0
    for delete in (
        partial(_delete, connection, moment | aged, _BATCH),
        partial(delete_recording, connection, aged["before"], limits.max_size * 3 // 4, _BATCH),
        partial(delete_card_seconds, connection, aged["before"], _BATCH, after_s=_wrong_after_s(now)),
    ):
        for _ in range(_MOST_BATCHES):
            removed = delete()
            deleted += removed
            if removed < _BATCH:
                break
    for _ in range(_MOST_BATCHES):
        _free_pages(connection)
        excess = 1 - limits.max_size / size(connection)
        if excess <= 0:
            break
        # Actions matter more than readings: the recording is deleted first, down to a quarter of the size, and then
        # card-seconds, down to an eighth.
        keep = max(recording_size(connection) + limits.max_size - size(connection), limits.max_size // 4)
        excess_rows = _excess_card_seconds(connection, limits.max_size // 8)
        if removed := (
            delete_recording(connection, -float("inf"), keep, _BATCH)
            or delete_card_seconds(connection, float("inf"), min(excess_rows, _BATCH))
        ):
            deleted += removed
            continue
        rows = connection.execute("SELECT count(*) FROM occurrence").fetchone()[0]
        removed = _delete(connection, moment | unaged, min(int(rows * excess) + 1, _BATCH))
        deleted += removed
        if not removed:
            break
    if deleted:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _wrong_after_s(now: Now) -> float:
    """The Unix time after which an hour can only have been counted with a wrong clock; infinite if it may be right.

    A clock that is wrong when the node starts has been set a day later. Before that it may be the one that is behind.
    """
    return now.wall_s + _DAY_S if now.boottime_s >= _DAY_S else float("inf")


def size(connection: sqlite3.Connection) -> int:
    """Bytes of the journal's pages."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _delete(connection: sqlite3.Connection, limits: dict[str, Any], batch: int) -> int:
    values = limits | {"batch": batch}
    connection.execute("BEGIN IMMEDIATE")
    removed = connection.execute(_OLDEST, values).rowcount
    connection.execute(_WITHOUT_ROWS, values)
    connection.execute("COMMIT")
    return removed


def _free_pages(connection: sqlite3.Connection) -> None:
    # Each step of the statement frees one page; `execute` runs only one step of a statement without columns.
    connection.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES});")
