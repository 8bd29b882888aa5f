"""The journal's tables, and those of the recording in it."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from watchdog.core.model import Now
from watchdog.journal.errors import JournalError

# A span is a stretch of one daemon's life in which every cycle was recorded, until `until_s`. `upto` adds up the bodies
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


APPLICATION_ID: Final = 0x67707764  # "gpwd"
COLUMNS: Final = (
    *("event", "node", "boot_id", "boottime_s", "wall_s", "namespace", "pod", "uid", "container", "gpu"),
    *("owner_kind", "owner_name", "rule", "step", "do", "scope", "mark", "used", "used_at_least", "declared"),
    *("declared_by", "allowed", "policy", "deed", "result", "reason", "detail", "sentence"),
)
# Each entry takes the file from one user_version to the next; entries that have been released never change.
MIGRATIONS: Final = (
    """
    CREATE TABLE occurrence (
        id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, node TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL,
        namespace TEXT, pod TEXT, uid TEXT, container TEXT, gpu TEXT, owner_kind TEXT, owner_name TEXT,
        rule TEXT, step INTEGER, do TEXT, scope TEXT, mark TEXT,
        used INTEGER, used_at_least INTEGER, declared INTEGER, declared_by TEXT, allowed INTEGER,
        policy TEXT, deed INTEGER, result TEXT, reason TEXT, detail TEXT, sentence TEXT NOT NULL
    ) STRICT;
    CREATE INDEX occurrence_by_time ON occurrence (wall_s);
    CREATE INDEX occurrence_by_deed ON occurrence (deed) WHERE deed IS NOT NULL;
    CREATE TABLE deed (
        id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, container TEXT, gpu TEXT,
        step INTEGER NOT NULL, victim TEXT NOT NULL, targets TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL,
        result TEXT, ended_s REAL, released_s REAL, release_s REAL
    ) STRICT;
    """,
    """
    CREATE TABLE begun (
        deed INTEGER PRIMARY KEY, namespace TEXT NOT NULL, owner_kind TEXT NOT NULL, owner_name TEXT NOT NULL,
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    CREATE TABLE breaker (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        boot_id TEXT NOT NULL, boottime_s REAL NOT NULL, wall_s REAL NOT NULL
    ) STRICT;
    """,
    PAST_TABLES,
)


def set_up(connection: sqlite3.Connection, path: Path) -> None:
    """Make a connection safe and a new file a journal; JournalError for a database of something else."""
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


def see_tables(connection: sqlite3.Connection) -> None:
    """See that no table is missing that the version says is there: sqlite3.Error."""
    connection.execute("SELECT 1 FROM occurrence, deed, begun, breaker, past_span, past LIMIT 0")


def is_blank(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever written to a journal: its tables have given no number and the brakes no row."""
    used = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence) OR EXISTS (SELECT 1 FROM begun)"
    return not connection.execute(used).fetchone()[0]


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables; JournalError if a newer watchdog made them."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise JournalError(
            f"journal {path} was written by a newer gpu-watchdog (tables {version}, this one knows {len(MIGRATIONS)}): "
            "use that version, or name another file with `--journal`"
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the tables to this version, and see that the file takes writes."""
    version = check_version(connection, path)
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        # executescript commits what is open before it begins; the transaction is therefore part of the script.
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
    write_nothing(connection)


def write_nothing(connection: sqlite3.Connection) -> None:
    """Write something that changes nothing, through to the disk."""
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
