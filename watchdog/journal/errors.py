"""What can be wrong with the journal, in words with the remedy."""

import errno
import sqlite3
from pathlib import Path
from typing import Final

from watchdog.core.errors import RecordError

_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class JournalError(RecordError):
    """The journal can't be read or written; the text names the file and the remedy."""


class NoJournalError(JournalError):
    """There is no such file."""


class CorruptError(JournalError):
    """The file was a journal and is damaged."""


def explain(error: sqlite3.Error, path: Path) -> JournalError:
    """Say what an error of SQLite means for the journal, with the remedy."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CORRUPT or "no such table" in str(error):
        return CorruptError(f"journal {path} is damaged ({error})")
    known = {
        sqlite3.SQLITE_FULL: "there is no space left: free some, or lower max_size under [journal]",
        sqlite3.SQLITE_BUSY: "another process keeps it locked: end that process (`fuser` names it)",
        sqlite3.SQLITE_LOCKED: "another process keeps it locked: end that process (`fuser` names it)",
        sqlite3.SQLITE_READONLY: "it is read-only: mount its folder writable",
        sqlite3.SQLITE_CANTOPEN: "it can't be opened: see that its folder exists and is writable",
        sqlite3.SQLITE_IOERR: "the disk gives errors: see `dmesg`, and that there is space left",
        sqlite3.SQLITE_PERM: "it may not be opened: run as the user that owns it",
    }
    remedy = known.get(code, "put it on a local file system with `--journal`")
    return JournalError(f"journal {path} can't be used ({error}): {remedy}")


def explain_os(error: OSError, path: Path) -> JournalError:
    """Say what an error of the operating system means for the journal, with the remedy."""
    remedies = {
        errno.EROFS: "mount its folder writable",
        errno.EACCES: "run as the user that owns it",
        errno.ENOSPC: "free some space",
        errno.ENOTDIR: "a file stands where its folder should be; choose another place with `--journal`",
        errno.EISDIR: "it is a folder; name a file with `--journal`",
    }
    remedy = remedies.get(error.errno or 0, "choose another place with `--journal`")
    return JournalError(f"journal {path} can't be opened: {error.strerror or error}: {remedy}")
