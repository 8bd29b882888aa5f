"""The errors of the journal, each with its remedy."""

import errno
import sqlite3
from pathlib import Path
from typing import Final

from watchdog.core.errors import RecordError

_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class JournalError(RecordError):
    """The journal can't be read or written; the text names the file and the remedy."""


class NoJournalError(JournalError):
    """The journal's file does not exist."""


class EmptyJournalError(JournalError):
    """The journal's file exists, but no daemon has written to it yet."""


class CorruptError(JournalError):
    """The journal's file is damaged."""


class RowError(sqlite3.DatabaseError):
    """A row has a value that was never written, although SQLite finds nothing wrong with it."""


_SAY_DAMAGED: Final = ("no such table", "Could not decode to UTF-8")


def explain(error: sqlite3.Error, path: Path) -> JournalError:
    """An SQLite error as an error of the journal, with the remedy."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if isinstance(error, RowError) or code in _CORRUPT or any(words in str(error) for words in _SAY_DAMAGED):
        return CorruptError(f"journal {path} is damaged ({error})")
    known = {
        sqlite3.SQLITE_FULL: "there is no space left: free some, or lower max_size under [journal]",
        sqlite3.SQLITE_BUSY: "another process holds a lock on it: end that process (`fuser` finds it)",
        sqlite3.SQLITE_LOCKED: "another process holds a lock on it: end that process (`fuser` finds it)",
        sqlite3.SQLITE_READONLY: "it is read-only: mount its folder writable",
        sqlite3.SQLITE_CANTOPEN: "it can't be opened: check that its folder exists and is writable",
        sqlite3.SQLITE_IOERR: "the disk reports errors: check `dmesg` and the free space",
        sqlite3.SQLITE_PERM: "permission denied: run as the user that owns it",
    }
    remedy = known.get(code, "put it on a local file system with `--journal`")
    return JournalError(f"journal {path} can't be used ({error}): {remedy}")


def explain_os(error: OSError, path: Path) -> JournalError:
    """An error of the operating system as an error of the journal, with the remedy."""
    remedies = {
        errno.EROFS: "mount its folder writable",
        errno.EACCES: "run as the user that owns it",
        errno.ENOSPC: "free some space",
        errno.ENOTDIR: "there is a file in place of its folder; choose another place with `--journal`",
        errno.EISDIR: "it is a folder; name a file with `--journal`",
    }
    remedy = remedies.get(error.errno or 0, "choose another place with `--journal`")
    return JournalError(f"journal {path} can't be opened: {error.strerror or error}: {remedy}")
