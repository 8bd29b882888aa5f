"""Opening the journal's file: new, old, damaged, or somebody else's."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.export.journal_errors import CorruptError, JournalError, explain, explain_os
from watchdog.export.journal_schema import migrate, see_tables, set_up
from watchdog.export.phrases import rfc3339

_MAGIC: Final = b"SQLite format 3\x00"
_LEAST_SQLITE: Final = (3, 37, 0)  # STRICT tables
_BUSY_S: Final = 1.0
_CHECK_STEPS: Final = 2_000_000  # of SQLite's virtual machine: a check that would take long is left half done


def open_file(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open the journal for writing, new or old; JournalError otherwise.

    A damaged file is moved aside, never deleted, and a new one begun; the second value says so.
    """
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        raise JournalError(f"SQLite {sqlite3.sqlite_version} is too old for the journal; it takes 3.37 or newer")
    try:
        _prepare(path)
        try:
            return _connect(path), ()
        except CorruptError as error:
            aside = set_aside(path)
            return _connect(path), (f"{error}; it was moved to {aside} and a new one begun: what it held is there",)
    except OSError as error:
        raise explain_os(error, path) from error


def set_aside(path: Path) -> Path:
    """Rename a journal with what belongs to it, so that it can still be opened under its new name."""
    stamp = rfc3339(clock.now().wall_s).replace(":", "").replace(".", "")
    for attempt in range(1000):
        aside = path.with_name(f"{path.name}.corrupt-{stamp}" + (f"-{attempt}" if attempt else ""))
        if not aside.exists():
            break
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    _prepare(path)
    return aside


def _prepare(path: Path) -> None:
    """Make the file, readable for its owner alone; SQLite gives its WAL the same rights."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    _look_at_head(path)
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    try:
        _check(connection, path)
        set_up(connection, path)
        migrate(connection, path)
        see_tables(connection)
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error
    except JournalError:
        connection.close()
        raise
    return connection


def _look_at_head(path: Path) -> None:
    """Refuse a file that never was a database: it is somebody else's, and must not be moved."""
    with path.open("rb") as file:
        head = file.read(512)
    if head and not head.startswith(_MAGIC):
        if head.strip(b"\x00"):
            raise JournalError(f"{path} is not a journal but something else: name another file with `--journal`")
        raise CorruptError(f"journal {path} is damaged (it begins with zeros)")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    calls = iter(range(_CHECK_STEPS // 10_000))
    connection.set_progress_handler(lambda: int(next(calls, None) is None), 10_000)
    try:
        said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if said != "ok":
        raise CorruptError(f"journal {path} is damaged ({said})")
