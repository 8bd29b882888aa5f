"""The journal's open file: transactions that land where a reader finds them, and its return after a failure."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from watchdog.export.journal_errors import CorruptError, JournalError, explain
from watchdog.export.journal_open import open_file
from watchdog.export.journal_schema import write_nothing

T = TypeVar("T")
LOST: Final = "lost, replaced or damaged"
CHANGED: Final = "changed by another program"
_BUSY_MS: Final = 1000
_PROBE_BUSY_MS: Final = 50


class JournalFile:
    """An open journal. `problem` says why the last write failed; empty where it succeeded.

    `notices` are sentences to be said loudly: that a damaged file was moved aside.
    """

    def __init__(self, path: Path) -> None:
        """Open or begin it; JournalError otherwise."""
        self.path = path
        self.problem = ""
        self._connection, self.notices = open_file(path)
        self._files = _identities(path)
        self._version = _data_version(self._connection)
        self._lost = False

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction and commit it to disk; JournalError where it did not get there for sure."""
        try:
            self._check_files()
            self._connection.execute("BEGIN IMMEDIATE")
            given = work(self._connection)
            self._connection.execute("COMMIT")
            # A file that was removed while this was written has it where nobody will find it.
            self._check_files()
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error
        self.problem = ""
        return given

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work`, which makes its own transactions; JournalError."""
        try:
            self._check_files()
            return work(self._connection)
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error

    def probe(self) -> str:
        """See whether somebody else changed it, and try again where the last write failed; JournalError if it does.

        Gives what was done to it; empty: nothing. One that was lost is begun again. Waits for no lock.
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
            self._lost = True  # whatever state this connection is in, a new one has a better one
        explained = explain(error, self.path) if isinstance(error, sqlite3.Error) else error
        self._lost = self._lost or isinstance(explained, CorruptError)
        self.problem = str(explained)
        return explained

    def _check_files(self) -> None:
        if not self._lost and _identities(self.path) == self._files:
            return
        self._lost = True
        raise JournalError(f"journal {self.path} was removed or replaced while it was open; it will be begun anew")

    def _reopen(self) -> None:
        # A new file must not inherit the WAL of the old one, which takes it along only where the file has not moved.
        self._connection.close()
        file, wal = _identities(self.path)
        if file != self._files[0] and wal == self._files[1]:
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._connection, notices = open_file(self.path)
        self.notices += notices
        self._files, self._lost = _identities(self.path), False


def _identities(path: Path) -> tuple[tuple[int, int] | None, ...]:
    # A file that was cut to nothing is no journal any more, though it is the same one.
    return _identity(path, least=1), _identity(path.with_name(f"{path.name}-wal"), least=0)


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that another one's commit changes, and none of this connection (sqlite.org/pragma.html)."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _identity(path: Path, *, least: int) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size >= least else None
