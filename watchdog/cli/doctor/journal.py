"""The journal's location and content: the facts about them, and the checks with their texts."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from watchdog.cli.doctor.facts import JournalFacts, JournalKind, ListenFacts, mount_lines, mount_of
from watchdog.cli.doctor.finding import ENFORCING, Finding, Topic, missing, ok, warning
from watchdog.core.units import format_bytes
from watchdog.daemon.enforcement import stop_file
from watchdog.journal.errors import CorruptError, JournalError, explain
from watchdog.journal.lock import NodeLock, check_lock
from watchdog.journal.schema import APPLICATION_ID, check_version

FOLDER: Final = Topic(
    name="journal_folder",
    means="The journal's folder is writable or can be created. (Every action is recorded before it is taken.)",
    purposes=ENFORCING,
    cases={
        "writable": ok("{folder} is writable"),
        "to_make": ok("{folder} does not exist yet and can be created"),
        "closed": missing(
            "{folder} is not writable: {problem}",
            "run as root, mount it writable, or give another path with --journal",
        ),
        "blocked": missing(
            "{folder} does not exist and can't be created: {problem}", "create it, or give another path with --journal"
        ),
        "virtual": missing(
            "{folder} is on a virtual file system of the kernel ({kind}): no file can be created there",
            "give another path with --journal",
        ),
    },
)
DISK: Final = Topic(
    name="journal_disk",
    means="The journal is on a local disk: SQLite's write-ahead log needs shared memory and locks, and every daemon of "
    "the node must see the lock.",
    purposes=ENFORCING,
    cases={
        "local": ok("{folder} is on a local file system ({kind})"),
        "unknown": ok("{folder} is on a file system of unknown type"),
        "remote": missing(
            "{folder} is on a network file system ({kind})", "put the journal on a local disk with --journal"
        ),
        "of_pod": missing(
            "{folder} is an emptyDir: it is deleted with the pod, so the brakes of the next pod do not know of earlier "
            "actions",
            "mount a folder of the host there (hostPath; in the chart journal.type: hostPath, and no other path in "
            "GPU_WATCHDOG_JOURNAL)",
        ),
        "volatile": warning(
            "{folder} is in memory or in the container's own layer ({kind}): the journal and the lock are lost with it",
            "mount a folder of the host there (hostPath)",
        ),
    },
)
SPACE: Final = Topic(
    name="journal_space",
    means="The disk has space for the journal, up to `[journal] max_size`.",
    purposes=ENFORCING,
    cases={
        "enough": ok("{free} are free for a journal of at most {limit}"),
        "little": warning(
            "{free} are free, but the journal may grow by {growth} (max_size is {limit})",
            "free some space, or lower max_size under [journal]",
        ),
        "full": missing("only {free} are free in {folder}", "free some space: on a full disk nothing can be recorded"),
    },
)
FILE: Final = Topic(
    name="journal_file",
    means="The file at the journal's path is a journal of this version, or there is none yet.",
    purposes=ENFORCING,
    cases={
        "absent": ok("{path} does not exist yet; the daemon creates it"),
        "empty": ok("{path} is empty; the daemon initialises it"),
        "journal": ok("{path} is an intact journal"),
        "unknown": warning(
            "{path} could not be checked completely: {detail}", "the daemon checks it when opening it; see its log"
        ),
        "damaged": warning(
            "{path} is damaged ({detail}): the daemon moves it aside and starts a new one, without history",
            "keep a copy if you need its contents, and check the disk (dmesg)",
        ),
        "newer": missing("{detail}", "use the newer version, or give another file with --journal"),
        "foreign": missing("{path} is not a journal", "give another file with --journal"),
        "folder": missing("{path} is a folder", "give a file with --journal"),
        "unreadable": missing("{path} can't be opened: {detail}", "run as the user that owns it"),
    },
)
LOCK: Final = Topic(
    name="journal_lock",
    means="The lock beside the journal is free, or held by a running daemon, which is as it should be.",
    purposes=ENFORCING,
    cases={
        "free": ok("no daemon is running with this journal"),
        "held": ok("a daemon is running: process {holder} holds {path}"),
        "unreadable": missing("the lock {path} can't be opened: {detail}", "run as the user that owns it"),
    },
)
STOP: Final = Topic(
    name="stop_file",
    means="No file `stop` beside the journal turns enforcement off.",
    purposes=ENFORCING,
    cases={
        "absent": ok("there is no file {path}"),
        "present": missing(
            "the file {path} turns enforcement off",
            "find out who created it and why, then run `gpu-watchdog resume`",
        ),
        "unseen": missing(
            "whether the file {path} exists can't be determined ({problem}), so it counts as present",
            "run as the user that owns its folder",
        ),
    },
)
LISTEN: Final = Topic(
    name="listen",
    means="The address of the endpoints is available, or our own daemon answers there.",
    cases={
        "free": ok("{listen} is available"),
        "ours": ok("a gpu-watchdog answers on {listen}"),
        "ours_sick": warning(
            "a gpu-watchdog answers on {listen} and reports: {problem}",
            "see `curl http://{listen}/readyz`; most likely a driver call hangs",
        ),
        "taken": missing("the endpoints: {said}", "{remedy}"),
        "unusable": missing("the endpoints: {said}", "{remedy}"),
    },
)
JOURNAL_TOPICS: Final = (FOLDER, DISK, SPACE, FILE, LOCK, STOP, LISTEN)


_MAGIC: Final = b"SQLite format 3\x00"
_STEPS: Final = 200  # of 10,000 instructions each: a check that would take long is left incomplete
_BUSY_S: Final = 1.0


def look_at_content(path: Path) -> tuple[JournalKind, str]:
    """What kind of file it is, with details for some kinds."""
    try:
        if not path.exists():
            return "absent", ""
        if path.is_dir():
            return "folder", ""
        head = _head(path)
    except OSError as error:
        return "unreadable", error.strerror or str(error)
    if not head.startswith(_MAGIC):
        return _judge_head(head)
    if not os.access(path, os.R_OK | os.W_OK):
        return "unreadable", "it is read-only for this account"
    return _look_inside(path)


def _judge_head(head: bytes) -> tuple[JournalKind, str]:
    if head.strip(b"\x00"):
        return "foreign", ""
    return ("damaged", "it begins with zeros") if head else ("empty", "")


def _head(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        return file.read(512)


def _look_inside(path: Path) -> tuple[JournalKind, str]:
    options = _options(path)
    if options is None:
        return "unknown", "it was not closed, and no daemon is running that could read what is in its write-ahead log"
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            return _judge(connection, path)
    except sqlite3.Error as error:
        explained = explain(error, path)
        return ("damaged", str(error)) if isinstance(explained, CorruptError) else ("unknown", str(error))


def _options(path: Path) -> str | None:
    """The options for opening it without SQLite creating a file; None if it would have to.

    With a write-ahead log it needs the shared-memory file, which a running daemon has created. Without one nothing
    writes to it, and it can be opened as immutable.
    """
    wal, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if shared.exists():
        return "mode=ro"
    try:
        return None if wal.stat().st_size else "immutable=1"
    except OSError:  # a daemon that closes the journal removes it
        return "immutable=1"


def _judge(connection: sqlite3.Connection, path: Path) -> tuple[JournalKind, str]:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return "foreign", ""
    try:
        check_version(connection, path)
    except JournalError as error:
        return "newer", str(error).rpartition(": ")[0]
    left = iter(range(_STEPS))
    connection.set_progress_handler(lambda: int(next(left, None) is None), 10_000)
    try:
        said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return "journal", ""
    return ("journal", "") if said == "ok" else ("damaged", str(said))


def look_at_journal(path: Path) -> JournalFacts:
    """Gather all facts about the journal; the only thing written is a temporary file, unnamed where possible."""
    folder = path.parent
    place = nearest_folder(folder)
    exists = place == folder
    mount = mount_of(place, mount_lines())
    problem = write_problem(place) if exists else make_problem(place)
    kind, detail = look_at_content(path)
    lock = NodeLock(path)
    state, lock_detail = check_lock(lock.path)
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
    """The folder, or its innermost existing parent; one that can't be checked counts as existing."""
    while not _is_there(folder)[0] and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_there(path: Path) -> tuple[bool, str]:
    """Whether the path exists, in the daemon's sense, and why that can't be determined, if it can't."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False, ""
    except OSError as error:
        return True, error.strerror or str(error)
    return True, ""


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
        return error.strerror or str(error)
    return ""


def make_problem(above: Path) -> str:
    """Why no folder can be created in a parent; empty if one can. Nothing is tried."""
    try:
        if not above.is_dir():
            return f"{above} is not a folder"
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


_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "glusterfs", "beegfs", "afs", "9p", "virtiofs"}
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs"})
# Virtual file systems of the kernel: even root, whom permission bits do not stop, can create no file there.
_VIRTUAL: Final = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "securityfs", "debugfs", "tracefs", "bpf", "pstore"}
    | {"configfs", "efivarfs", "fusectl", "binfmt_misc", "nsfs", "rpc_pipefs"}
)
_LEAST_FREE: Final = 4 * 2**20  # SQLite's write-ahead log grows to about that between two checkpoints


def check_journal(facts: JournalFacts, max_size: int) -> Iterable[Finding]:
    """Whether actions can be recorded before they are taken, by one daemon only."""
    yield _folder(facts)
    if not facts.folder_problem and facts.file_system not in _VIRTUAL:
        yield _disk(facts)
        yield from _space(facts, max_size)
    yield FILE.finding(facts.kind, path=facts.path, detail=facts.detail)
    yield _lock(facts)
    stop = "unseen" if facts.stop_problem else "present" if facts.is_stopped else "absent"
    yield STOP.finding(stop, path=facts.stop_path, problem=facts.stop_problem)


def _folder(facts: JournalFacts) -> Finding:
    if facts.file_system in _VIRTUAL:
        return FOLDER.finding("virtual", folder=facts.path.parent, kind=facts.file_system)
    cases = ("writable", "closed") if facts.folder_exists else ("to_make", "blocked")
    return FOLDER.finding(cases[bool(facts.folder_problem)], folder=facts.path.parent, problem=facts.folder_problem)


def _disk(facts: JournalFacts) -> Finding:
    kind = facts.file_system
    is_remote = kind in _REMOTE or kind.startswith("fuse.")
    case = "remote" if is_remote else "volatile" if kind in _VOLATILE else "local" if kind else "unknown"
    if facts.is_empty_dir:
        case = "of_pod"
    return DISK.finding(case, folder=facts.path.parent, kind=kind)


def _space(facts: JournalFacts, max_size: int) -> Iterable[Finding]:
    if facts.free is None:
        return
    growth = max(max_size - facts.size, 0)
    case = "full" if facts.free < _LEAST_FREE else "little" if facts.free < growth else "enough"
    yield SPACE.finding(
        case,
        free=format_bytes(facts.free),
        limit=format_bytes(max_size),
        growth=format_bytes(growth),
        folder=facts.path.parent,
    )


def _lock(facts: JournalFacts) -> Finding:
    holder = "in another PID namespace" if facts.holder is None else facts.holder
    return LOCK.finding(facts.lock, path=facts.lock_path, holder=holder, detail=facts.detail)


def check_listen(facts: ListenFacts) -> Iterable[Finding]:
    """Whether `run` can listen; it does not start if it can't."""
    said, _, remedy = facts.problem.rpartition(": ")
    yield LISTEN.finding(facts.state, listen=facts.listen, problem=facts.problem, said=said, remedy=remedy)
