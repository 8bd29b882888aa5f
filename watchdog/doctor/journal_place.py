"""Looking at the journal's place without leaving anything there."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final

from watchdog.doctor.facts import JournalFacts, LockState
from watchdog.doctor.journal_content import look_at_content
from watchdog.enforcement import stop_file
from watchdog.export.lock import NodeLock

_MOUNTS: Final = Path("/proc/self/mountinfo")


def look_at_journal(path: Path) -> JournalFacts:
    """Read all that concerns the journal; the one thing written is a file without a name or of a moment's life."""
    folder = path.parent
    place = nearest_folder(folder)
    exists = place == folder
    file_system = file_system_of(place, mount_lines())
    problem = write_problem(place) if exists else make_problem(place)
    kind, detail = look_at_content(path)
    lock = NodeLock(path)
    state, lock_detail = _lock_state(lock.path)
    stopped, stop_problem = _is_there(stop_file(path))
    return JournalFacts(
        path=path,
        folder_exists=exists,
        folder_problem=problem,
        file_system=file_system,
        free=_free(place),
        size=_size(path),
        kind=kind,
        detail=detail or lock_detail,
        lock=state,
        lock_path=lock.path,
        holder=lock.holder if state == "held" else None,
        stop_path=stop_file(path),
        is_stopped=stopped,
        stop_problem=stop_problem,
    )


def nearest_folder(folder: Path) -> Path:
    """The folder, or the innermost one above it that is there; one that can't be seen counts as there."""
    while not _is_there(folder)[0] and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_there(path: Path) -> tuple[bool, str]:
    """Whether there is something of this name, as the daemon takes it; and why that can't be seen, where it can't."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False, ""
    except OSError as error:
        return True, error.strerror or str(error)
    return True, ""


def write_problem(folder: Path) -> str:
    """Why no file can be made in a folder; empty where one can: it is tried, and nothing stays."""
    try:
        if not folder.is_dir():
            return "it is no folder"
        # Nameless where the file system can (O_TMPFILE), otherwise removed at once.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def make_problem(above: Path) -> str:
    """Why no folder can be made in the one above; empty where one can. Nothing is tried."""
    try:
        if not above.is_dir():
            return f"{above} is no folder"
    except OSError as error:
        return f"{above}: {error.strerror or error}"
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{above} is read-only for this account"
    return ""


def file_system_of(path: Path, mounts: list[str]) -> str:
    """The kind of file system that a path is on, from the lines of /proc/self/mountinfo; empty where it is not told.

    Of several mounts at one place the last lies on top.
    """
    found, length = "", -1
    real = os.path.realpath(path)
    for line in mounts:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = point in ("/", real) or real.startswith(f"{point}/")
        if inside and len(point) >= length:
            found, length = after.split(" ")[0], len(point)
    return found


def mount_lines() -> list[str]:
    """The lines of this process's mountinfo; none where it can't be read."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


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


def _lock_state(path: Path) -> tuple[LockState, str]:
    """Whether somebody holds the lock. Asked for as a reader and given back at once: a daemon tries again by itself."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return "free", ""
    except OSError as error:
        return "unreadable", error.strerror or str(error)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held", ""
    except OSError as error:
        return "unreadable", error.strerror or str(error)
    finally:
        os.close(descriptor)
    return "free", ""
