"""Reading the journal from another process, while the daemon writes it or long after."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from watchdog import clock
from watchdog.journal.errors import EmptyJournalError, JournalError, NoJournalError, explain, explain_os
from watchdog.journal.schema import APPLICATION_ID, COLUMNS, HistoryRow, check_version

__all__ = ["HistoryRow", "JournalTail", "history", "pods_in", "reading"]

_BUSY_S: Final = 5.0
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'occurrence'"
# The clock of file times advances every few milliseconds: what is written just after a reading may have the same time.
_SETTLED_S: Final = 0.1


def history(path: Path, pod: str | None, since_s: float, actions: Sequence[str] = ()) -> list[HistoryRow]:
    """The occurrences since a moment (Unix time), oldest first, of one pod (`namespace/name`) or of all.

    `actions`: only those of these actions. Nothing is written to the journal. JournalError names the file and the
    remedy.
    """
    with reading(path) as connection:
        return _rows(connection, "wall_s >= :first", "wall_s, id", since_s, pod, actions)


def _rows(
    connection: sqlite3.Connection, which: str, order: str, first: float, pod: str | None, actions: Sequence[str]
) -> list[HistoryRow]:
    sql = (
        f"SELECT * FROM occurrence WHERE {which} AND (:pod IS NULL OR namespace || '/' || pod = :pod) "
        f"AND (:actions = '[]' OR do IN (SELECT value FROM json_each(:actions))) ORDER BY {order}"
    )
    cursor = connection.execute(sql, {"first": first, "pod": pod, "actions": json.dumps(actions)})
    names = [column[0] for column in cursor.description]
    return [HistoryRow(**{n: value for n, value in zip(names, row, strict=True) if n in COLUMNS}) for row in cursor]


class JournalTail:
    """The occurrences of a journal as they come, of a file that takes its place too.

    No file is held open between two readings, and only one that was written to is opened.
    """

    def __init__(self, path: Path, pod: str | None, since_s: float, actions: Sequence[str] = ()) -> None:
        self._path, self._pod, self._since_s, self._actions = path, pod, since_s, actions
        # The state of its files when they were last read; empty: they are to be read.
        self._seen: tuple[tuple[int, ...], ...] = ()
        # The device and inode of the file that was last read.
        self._file: tuple[int, ...] = ()
        # The number of the last occurrence that was read; None: none was.
        self._last: int | None = None
        # How often another file took the place of the one before.
        self.replaced = 0

    @property
    def was_read(self) -> bool:
        """Whether it could be read so far."""
        return self._last is not None

    def read(self) -> list[HistoryRow]:
        """What was written since the last reading, or first, since the moment asked for; JournalError as `history`."""
        try:
            seen = _file_states(self._path)
        except NoJournalError:
            self._file = ()  # what comes is another one, although it may get the same inode
            raise
        if seen == self._seen:
            return []
        self._seen, file = (), seen[0][:2]
        with reading(self._path) as connection:
            connection.execute("BEGIN")  # the daemon may write meanwhile
            last = connection.execute(_LAST).fetchone()[0]
            # A file that is written over another one has its inode, but fewer occurrences.
            is_other = self._last is not None and (file != self._file or last < self._last)
            if self._last is None or is_other:
                rows = _rows(connection, "wall_s >= :first", "wall_s, id", self._since_s, self._pod, self._actions)
            else:
                rows = _rows(connection, "id > :first", "id", self._last, self._pod, self._actions)
        self._last, self._file, self.replaced = last, file, self.replaced + is_other
        if clock.now().wall_s - max(modified_ns for *_, modified_ns in seen) / 1e9 > _SETTLED_S:
            self._seen = seen
        return rows


def _file_states(path: Path) -> tuple[tuple[int, ...], ...]:
    """Device, inode, size and time (ns) of a journal's file and of its WAL, if it has one; JournalError."""
    try:
        found = [path.stat()]
        with suppress(FileNotFoundError):
            found.append(_wal(path).stat())
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise explain_os(error, path) from error
    return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


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
        raise _missing(path)
    try:
        connection = _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # Raises the reason why it can't be read, which SQLite does not report. Not before: closing the file takes the
        # locks of a daemon that reads its own journal (sqlite.org/howtocorrupt.html, section 2.2).
        with path.open("rb"):
            pass
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
    wal = _wal(path)
    if not wal.exists() or wal.stat().st_size == 0:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpu-watchdog-") as folder:
        copy = Path(folder) / "journal.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(wal, copy.with_name("journal.db-wal"))
        yield copy


def _missing(path: Path) -> NoJournalError:
    return NoJournalError(f"there is no journal {path}: name its file with `--journal`")


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


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
        raise EmptyJournalError(f"journal {path} is empty: no daemon has written to it yet")
    return connection
