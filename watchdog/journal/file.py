"""The journal's file: opening and checking it, replacing a damaged one, and writing to it in order."""

import os
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

from watchdog import clock
from watchdog.journal.actions import read_unfinished
from watchdog.journal.errors import CorruptError, JournalError, explain, explain_os
from watchdog.journal.rows import INSERT, base_row, bound
from watchdog.journal.schema import RECORDING, Statement, migrate, set_up, write_nothing
from watchdog.report.text import rfc3339

MAGIC: Final = b"SQLite format 3\x00"
_LEAST_SQLITE: Final = (3, 37, 0)  # STRICT tables
_BUSY_MS: Final = 1000
_PROBE_BUSY_MS: Final = 50
_CHECK_STEPS: Final = 2_000_000  # of SQLite's virtual machine: a longer check is aborted


def open_file(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open the journal for writing, or create it; JournalError otherwise.

    A damaged file is moved aside, never deleted, and replaced by a new one; the second value then has a notice.
    """
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        raise JournalError(f"SQLite {sqlite3.sqlite_version} is too old for the journal; 3.37 or newer is required")
    try:
        _prepare(path)
        try:
            return _connect(path), ()
        except CorruptError as error:
            aside = set_aside(path)
            return _connect(path), (f"{error}; it was moved to {aside} with its records, and a new one was started",)
    except OSError as error:
        raise explain_os(error, path) from error


def set_aside(path: Path) -> Path:
    """Rename a journal with its WAL, so that it can still be opened under its new name."""
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
    """Create the file, readable only by its owner; SQLite gives the WAL the same permissions."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    _check_header(path)
    with ExitStack() as on_failure:
        try:
            connection = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None)
            on_failure.callback(connection.close)
            if damage := quick_check(connection):
                raise CorruptError(f"journal {path} is damaged ({damage})")
            set_up(connection, path)
            migrate(connection, path)
            # All tables of this version must exist.
            connection.execute("SELECT 1 FROM occurrence, action, begun, breaker, past_span, past LIMIT 0")
            read_unfinished(connection)
        except sqlite3.Error as error:
            raise explain(error, path) from error
        on_failure.pop_all()
    return connection


def _check_header(path: Path) -> None:
    """Reject a file that never was a database: it belongs to something else, and must not be moved."""
    with path.open("rb") as file:
        head = file.read(512)
    if head and not head.startswith(MAGIC):
        if head.strip(b"\x00"):
            raise JournalError(f"{path} is not a journal but something else: name another file with `--journal`")
        raise CorruptError(f"journal {path} is damaged (it begins with zeros)")


def quick_check(connection: sqlite3.Connection) -> str:
    """What SQLite finds damaged in its file; empty if nothing, or if the check would take too long."""
    calls = iter(range(_CHECK_STEPS // 10_000))
    connection.set_progress_handler(lambda: int(next(calls, None) is None), 10_000)
    try:
        result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return ""
    finally:
        connection.set_progress_handler(None, 0)
    return "" if result == "ok" else result


T = TypeVar("T")
LOST: Final = "lost, replaced or damaged"
CHANGED: Final = "changed by another program"


class JournalFile:
    """An open journal. `problem` is why the last write failed; empty if it succeeded.

    `notices` are sentences to be logged as errors, such as that a damaged file was moved aside.
    """

    def __init__(self, path: Path) -> None:
        """Open or create it; JournalError otherwise."""
        self.path = path
        self.problem = ""
        self._connection, self.notices = open_file(path)
        self._files = _identities(path)
        self._version = _data_version(self._connection)
        self._lost = False

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction and commit it to disk; JournalError if that is not certain to have succeeded."""
        try:
            self._check_files()
            self._connection.execute("BEGIN IMMEDIATE")
            result = work(self._connection)
            self._connection.execute("COMMIT")
            # What was written to a file that was removed meanwhile is lost.
            self._check_files()
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error
        self.problem = ""
        return result

    def with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work`, which makes its own transactions; JournalError."""
        try:
            self._check_files()
            return work(self._connection)
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error

    def probe(self) -> str:
        """Check whether another process changed the file, and retry after a failed write; JournalError if that fails.

        Returns what was done to the file; empty: nothing. A lost file is created again. Does not wait for locks.
        """
        changed = ""
        try:
            if self._lost or _identities(self.path) != self._files:
                before = self._files[0]
                self._reopen()
                changed = LOST if self._files[0] != before else CHANGED
            version = _data_version(self._connection)
            if version != self._version:
                changed = changed or CHANGED
            elif not self.problem:
                return changed
            self._connection.execute(f"PRAGMA busy_timeout = {_PROBE_BUSY_MS}")
            write_nothing(self._connection)
            self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error
        self.problem, self._version = "", version
        return changed

    def close(self) -> None:
        """Close it; what is committed stays."""
        self._connection.close()

    def _failed(self, error: sqlite3.Error | JournalError) -> JournalError:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._lost = True  # the connection is in an unknown state, so a new one is opened
        explained = explain(error, self.path) if isinstance(error, sqlite3.Error) else error
        self._lost = self._lost or isinstance(explained, CorruptError)
        self.problem = str(explained)
        return explained

    def _check_files(self) -> None:
        if not self._lost and _identities(self.path) == self._files:
            return
        self._lost = True
        raise JournalError(f"journal {self.path} was removed or replaced while it was open; a new one will be started")

    def _reopen(self) -> None:
        # A new file must not inherit the WAL of the old one.
        self._connection.close()
        file, wal = _identities(self.path)
        if file != self._files[0] and wal == self._files[1]:
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._connection, notices = open_file(self.path)
        self.notices += notices
        self._files, self._lost = _identities(self.path), False


def _identities(path: Path) -> tuple[tuple[int, int] | None, ...]:
    # A file that was truncated to nothing is not a journal any more, though it has the same inode.
    return _identity(path, least=1), _identity(path.with_name(f"{path.name}-wal"), least=0)


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that changes with commits of other connections, not of this one (sqlite.org/pragma.html)."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _identity(path: Path, *, least: int) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_size >= least else None


_MOST_WAITING: Final = 1000  # statements kept in memory while the disk can't be written


class Queue:
    """Statements to be written in order, several in one transaction.

    Beyond the limit, statements are dropped and counted: the oldest occurrence, or without any, the oldest statement.
    """

    def __init__(self, file: JournalFile, node: str) -> None:
        self._file = file
        self._node = node
        self._waiting: deque[Statement] = deque()
        self._dropped = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._waiting and not self._dropped

    @property
    def waiting(self) -> str:
        """What waits to be written, by the names of the occurrences, most first; empty: nothing."""
        names = Counter(values["event"] for sql, values in self._waiting if sql == INSERT)
        names["recording"] = sum(sql in RECORDING for sql, _ in self._waiting)
        names["dropped before"] = self._dropped
        return ", ".join(f"{number} {name}" for name, number in names.most_common() if number)

    def put(self, statements: Iterable[Statement]) -> None:
        """Write these now, or once the disk can be written again."""
        self._waiting.extend(statements)
        while len(self._waiting) > _MOST_WAITING:
            # History is dropped first: the brakes and the next daemon need the results of actions.
            del self._waiting[next((place for place, (sql, _) in enumerate(self._waiting) if sql == INSERT), 0)]
            self._dropped += 1
        self.flush()

    def put_later(self, statements: Iterable[Statement]) -> None:
        """Queue these to be written together with the next statements."""
        self._waiting.extend(statements)

    def count_lost(self, number: int) -> None:
        """Count this many statements as dropped."""
        self._dropped += number

    def flush(self) -> None:
        """Write the queued statements, if the disk can be written."""
        if self._waiting and not self._file.problem:
            with suppress(JournalError):
                self._file.transaction(self._write)
                self._waiting.clear()
                self._dropped = 0

    def _write(self, connection: sqlite3.Connection) -> None:
        for sql, values in self._waiting:
            connection.execute(sql, values)
        if self._dropped:
            lost = f"{self._dropped} records before this one were lost while the journal could not be written."
            connection.execute(INSERT, bound(base_row("records_lost", self._node, clock.now(), lost)))
