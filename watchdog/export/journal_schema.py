"""The journal's tables and their migrations."""

import sqlite3
from pathlib import Path
from typing import Final

from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_past import PAST_TABLES

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
