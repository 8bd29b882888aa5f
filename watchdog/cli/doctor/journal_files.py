"""Inspects the journal's folder and files, without changing them."""

import contextlib
import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from watchdog.cli.doctor.facts import JournalFacts, JournalKind
from watchdog.daemon.enforcement import StopFile
from watchdog.journal.errors import CorruptError, JournalError, explain
from watchdog.journal.file import MAGIC, quick_check
from watchdog.journal.lock import NodeLock, check_lock
from watchdog.journal.schema import APPLICATION_ID, check_version
from watchdog.options import stop_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount."""

    # The mount point.
    point: str
    # The folder of the file system that is mounted.
    root: str
    # The type of the file system.
    kind: str

    @property
    def is_empty_dir(self) -> bool:
        """Whether it is an emptyDir, which the kubelet removes with its pod (k8s.io/kubernetes/pkg/volume/emptydir)."""
        return "/volumes/kubernetes.io~empty-dir/" in f"{self.root}/"


def mount_lines() -> list[str]:
    """The lines of this process's mountinfo; none if it can't be read."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def mount_of(path: Path, mounts: list[str]) -> Mount | None:
    """The innermost mount of a path, from the lines of mountinfo; None if unknown.

    Of several mounts at the same point the last is on top.
    """
    innermost: Mount | None = None
    real = os.path.realpath(path)
    for line in mounts:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        root, point = map(_unescape, fields[3:5])
        is_inside = point in ("/", real) or real.startswith(f"{point}/")
        if is_inside and (innermost is None or len(point) >= len(innermost.point)):
            innermost = Mount(point=point, root=root, kind=after.split(" ")[0])
    return innermost


def _unescape(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def read_journal(path: Path) -> JournalFacts:
    """Gather all facts about the journal; the only thing written is a temporary file, unnamed where possible."""
    folder = path.parent
    while not exists(folder)[0] and folder != folder.parent:
        folder = folder.parent
    folder_exists = folder == path.parent
    mount = mount_of(folder, mount_lines())
    kind, detail = journal_kind(path)
    lock = NodeLock(path)
    state, lock_detail = check_lock(lock.path)
    is_stopped, stop_problem = exists(stop_file(path))
    return JournalFacts(
        folder_exists=folder_exists,
        folder_problem=write_problem(folder) if folder_exists else create_problem(folder),
        file_system="" if mount is None else mount.kind,
        is_empty_dir=mount is not None and mount.is_empty_dir,
        free=_free(folder),
        size=_size(path),
        kind=kind,
        detail=detail or lock_detail,
        lock=state,
        holder=lock.holder if state == "held" else None,
        is_stopped=is_stopped,
        stop_problem=stop_problem,
        stop=StopFile(stop_file(path)).read_note() if is_stopped else None,
    )


def exists(path: Path) -> tuple[bool, str]:
    """Whether the path exists, even as a dangling link; True with the reason if that can't be determined."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False, ""
    except OSError as error:
        return True, os_text(error)
    return True, ""


def os_text(error: OSError) -> str:
    """The text of an error, without the path."""
    return error.strerror or str(error)


def write_problem(folder: Path) -> str:
    """Why no file can be created in a folder; empty if one can: it is tried, and nothing is left behind."""
    try:
        if not folder.is_dir():
            return "it is not a folder"
        # Unnamed if the file system supports that (O_TMPFILE), otherwise removed at once.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return os_text(error)
    return ""


def create_problem(parent: Path) -> str:
    """Why no folder can be created in a parent; empty if one can. Nothing is tried."""
    try:
        if not parent.is_dir():
            return f"{parent} is not a folder"
    except OSError as error:
        return f"{parent}: {os_text(error)}"
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{parent} is read-only for this account"
    return ""


def _free(folder: Path) -> int | None:
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _size(path: Path) -> int:
    size = 0
    for suffix in ("", "-wal"):
        with contextlib.suppress(OSError):
            size += path.with_name(path.name + suffix).lstat().st_size
    return size


_BUSY_S: Final = 1.0


def journal_kind(path: Path) -> tuple[JournalKind, str]:
    """What kind of file it is, with details for some kinds."""
    try:
        if not path.exists():
            return "absent", ""
        if path.is_dir():
            return "folder", ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            head = file.read(512)
    except OSError as error:
        return "unreadable", os_text(error)
    if not head.strip(b"\x00"):
        return ("damaged", "it begins with zeros") if head else ("empty", "")
    if not head.startswith(MAGIC):
        return "foreign", ""
    is_accessible = os.access(path, os.R_OK | os.W_OK)
    return _database_kind(path) if is_accessible else ("unreadable", "it is read-only for this account")


def _database_kind(path: Path) -> tuple[JournalKind, str]:
    """What kind of database it is, opened without SQLite creating a file."""
    # With a write-ahead log SQLite needs the shared-memory file, which a running daemon has created. Without one
    # nothing writes to it, and it can be opened as immutable.
    wal, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    options = "mode=ro" if shared.exists() else "immutable=1"
    with contextlib.suppress(OSError):  # a daemon that closes the journal removes the log
        if options != "mode=ro" and wal.stat().st_size:
            return (
                "unknown",
                "it was not closed, and no daemon is running that could read what is in its write-ahead log",
            )
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            return _check_database(connection, path)
    except sqlite3.Error as error:
        return ("damaged" if isinstance(explain(error, path), CorruptError) else "unknown"), str(error)


def _check_database(connection: sqlite3.Connection, path: Path) -> tuple[JournalKind, str]:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return "foreign", ""
    try:
        check_version(connection, path)
    except JournalError as error:
        return "newer", str(error).rpartition(": ")[0]
    damage = quick_check(connection)
    return ("damaged", damage) if damage else ("journal", "")
