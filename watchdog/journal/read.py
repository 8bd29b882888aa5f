"""Reading the journal from another process, while the daemon writes it or long after."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from watchdog.journal.errors import JournalError, NoJournalError, explain, explain_os
from watchdog.journal.schema import APPLICATION_ID, COLUMNS, HistoryRow, check_version

__all__ = ["HistoryRow", "history", "pods_in", "reading"]

_BUSY_S: Final = 5.0


def history(path: Path, pod: str | None, since_s: float) -> list[HistoryRow]:
    """The occurrences since a moment (Unix time), oldest first, of one pod (`namespace/name`) or of all.

    Nothing is written to the journal. JournalError names the file and the remedy.
    """
    sql = (
        "SELECT * FROM occurrence WHERE wall_s >= :since AND (:pod IS NULL OR namespace || '/' || pod = :pod) "
        "ORDER BY wall_s, id"
    )
    with reading(path) as connection:
        cursor = connection.execute(sql, {"since": since_s, "pod": pod})
        names = [column[0] for column in cursor.description]
        return [HistoryRow(**{n: value for n, value in zip(names, row, strict=True) if n in COLUMNS}) for row in cursor]


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to a journal; JournalError names the file and the remedy."""
    try:
        with _opened(path) as connection:
            yield connection
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        raise explain_os(error, path) from error


def pods_in(path: Path) -> list[str]:
    """Every pod in the journal, as `namespace/name`; JournalError names the file and the remedy."""
    sql = "SELECT DISTINCT namespace || '/' || pod FROM occurrence WHERE namespace IS NOT NULL AND pod IS NOT NULL"
    with reading(path) as connection:
        return [str(title) for (title,) in connection.execute(sql)]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise NoJournalError(f"there is no journal {path}: name its file with `--journal`")
    with path.open("rb"):
        pass  # raises the reason why it can't be read, which SQLite does not report
    try:
        connection = _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        # A WAL needs a writable place for its shared memory, which a read-only mount does not have.
        with (
            _readable_copy(path) as copy,
            closing(_connect(copy, "immutable=1" if copy == path else "mode=rw")) as other,
        ):
            yield _checked(other, path)
        return
    with closing(connection):
        yield _checked(connection, path)


@contextmanager
def _readable_copy(path: Path) -> Iterator[Path]:
    """The file itself if its WAL is empty, or else a copy of it with the WAL."""
    wal = path.with_name(path.name + "-wal")
    if not wal.exists() or wal.stat().st_size == 0:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-") as folder:
        copy = Path(folder) / "journal.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(wal, copy.with_name("journal.db-wal"))
        yield copy


def _connect(path: Path, options: str) -> sqlite3.Connection:
    # Path.absolute keeps a symbolic link as it is; `?` and `#` in a name must not end the URI's path.
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True, timeout=_BUSY_S)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _checked(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise JournalError(f"{path} is not a journal but something else: name another file with `--journal`")
    if check_version(connection, path) == 0:
        raise JournalError(f"journal {path} is empty: no daemon has written to it yet")
    return connection
