"""The journal's open file: transactions that land where a reader finds them, and its return after a failure."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from watchdog.export.journal_errors import CorruptError, JournalError, explain
from watchdog.export.journal_open import open_file
from watchdog.export.journal_schema import write_nothing

T = TypeVar("T")
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

    def probe(self) -> None:
        """Try whether it can be written again, without waiting for locks; JournalError if not."""
        try:
            if self._lost:
                self._reopen()
            self._connection.execute(f"PRAGMA busy_timeout = {_PROBE_BUSY_MS}")
            write_nothing(self._connection)
            self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        except (sqlite3.Error, JournalError) as error:
            raise self._failed(error) from error
        self.problem = ""

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
        # First the old one, which takes a WAL that lies about with it: a new file must not inherit it.
        self._connection.close()
        self._connection, notices = open_file(self.path)
        self.notices += notices
        self._files, self._lost = _identities(self.path), False


def _identities(path: Path) -> tuple[tuple[int, int] | None, ...]:
    return tuple(_identity(path.with_name(path.name + suffix)) for suffix in ("", "-wal"))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
