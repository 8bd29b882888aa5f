"""Looking at the journal's place without leaving anything there."""

import contextlib
import os
import tempfile
from pathlib import Path

from watchdog.daemon.enforcement import stop_file
from watchdog.doctor.facts import JournalFacts
from watchdog.doctor.journal_content import look_at_content
from watchdog.doctor.mounts import mount_lines, mount_of
from watchdog.export.lock import NodeLock, look_at_lock


def look_at_journal(path: Path) -> JournalFacts:
    """Read all that concerns the journal; the one thing written is a file without a name or of a moment's life."""
    folder = path.parent
    place = nearest_folder(folder)
    exists = place == folder
    mount = mount_of(place, mount_lines())
    problem = write_problem(place) if exists else make_problem(place)
    kind, detail = look_at_content(path)
    lock = NodeLock(path)
    state, lock_detail = look_at_lock(lock.path)
    stopped, stop_problem = _is_there(stop_file(path))
    return JournalFacts(
        path=path,
        folder_exists=exists,
        folder_problem=problem,
        file_system="" if mount is None else mount.kind,
        is_empty_dir=mount is not None and mount.is_empty_dir,
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
