"""What lies at the journal's place, found out without changing a byte of it or leaving a file beside it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from watchdog.doctor.facts import JournalKind
from watchdog.export.journal_errors import CorruptError, JournalError, explain
from watchdog.export.journal_schema import APPLICATION_ID, check_version

_MAGIC: Final = b"SQLite format 3\x00"
_STEPS: Final = 200  # of 10,000 instructions each: a check that would take long is left half done
_BUSY_S: Final = 1.0


def look_at_content(path: Path) -> tuple[JournalKind, str]:
    """What it is, and in which respect where that has to be said."""
    try:
        if not path.exists():
            return "absent", ""
        if path.is_dir():
            return "folder", ""
        head = _head(path)
    except OSError as error:
        return "unreadable", error.strerror or str(error)
    if not head.startswith(_MAGIC):
        return _judge_head(head)
    if not os.access(path, os.R_OK | os.W_OK):
        return "unreadable", "it is read-only for this account"
    return _look_inside(path)


def _judge_head(head: bytes) -> tuple[JournalKind, str]:
    if head.strip(b"\x00"):
        return "foreign", ""
    return ("damaged", "it begins with zeros") if head else ("empty", "")


def _head(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        return file.read(512)


def _look_inside(path: Path) -> tuple[JournalKind, str]:
    options = _options(path)
    if options is None:
        return "unknown", "it was not closed, and no daemon runs that could tell what is still in its write-ahead log"
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            return _judge(connection, path)
    except sqlite3.Error as error:
        explained = explain(error, path)
        return ("damaged", str(error)) if isinstance(explained, CorruptError) else ("unknown", str(error))


def _options(path: Path) -> str | None:
    """How to open it so that SQLite makes no file; None where it would have to.

    With a write-ahead log it needs the file of its shared memory, which a daemon that runs has made. Without one nobody
    writes to it, and it can be taken as it is.
    """
    wal, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if shared.exists():
        return "mode=ro"
    try:
        return None if wal.stat().st_size else "immutable=1"
    except OSError:  # a daemon that closes the journal takes it away
        return "immutable=1"


def _judge(connection: sqlite3.Connection, path: Path) -> tuple[JournalKind, str]:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return "foreign", ""
    try:
        check_version(connection, path)
    except JournalError as error:
        return "newer", str(error).rpartition(": ")[0]
    left = iter(range(_STEPS))
    connection.set_progress_handler(lambda: int(next(left, None) is None), 10_000)
    try:
        said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return "journal", ""
    return ("journal", "") if said == "ok" else ("damaged", str(said))
