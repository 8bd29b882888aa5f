"""The journal's place and content: what is gathered about them, and what may be wrong with them."""

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
from watchdog.journal.lock import NodeLock, look_at_lock
from watchdog.journal.schema import APPLICATION_ID, check_version

FOLDER: Final = Topic(
    name="journal_folder",
    means="The journal's folder can be written, or can be made. (Nothing is acted on that is not written down first.)",
    purposes=ENFORCING,
    cases={
        "writable": ok("{folder} can be written"),
        "to_make": ok("{folder} is not there yet and can be made"),
        "closed": missing(
            "{folder} can't be written: {problem}",
            "run as root, mount it writable, or name another place with --journal",
        ),
        "blocked": missing(
            "{folder} is not there and can't be made: {problem}", "make it, or name another place with --journal"
        ),
        "made_up": missing(
            "{folder} is on a file system that the kernel makes up ({kind}): no file can be made there",
            "name another place with --journal",
        ),
    },
)
DISK: Final = Topic(
    name="journal_disk",
    means="The journal is on a local disk: SQLite's write-ahead log takes shared memory and locks, and every daemon of "
    "the node has to see the lock.",
    purposes=ENFORCING,
    cases={
        "local": ok("{folder} is on a local file system ({kind})"),
        "unknown": ok("{folder} is on a file system of a kind that can't be seen"),
        "remote": missing(
            "{folder} is on a file system of the network ({kind})", "put the journal on a local disk with --journal"
        ),
        "of_pod": missing(
            "{folder} is an emptyDir: it goes with the pod, and a new pod's brakes know of nothing that was done",
            "mount a folder of the host there (hostPath; in the chart journal.type: hostPath, and no other place in "
            "GPU_WATCHDOG_JOURNAL)",
        ),
        "fleeting": warning(
            "{folder} is in memory or in the container's own layer ({kind}): the journal and the lock are gone with it",
            "mount a folder of the host there (hostPath)",
        ),
    },
)
SPACE: Final = Topic(
    name="journal_space",
    means="The disk has room for the journal, up to `[journal] max_size`.",
    purposes=ENFORCING,
    cases={
        "enough": ok("{free} are free for a journal of at most {limit}"),
        "little": warning(
            "{free} are free, and the journal may grow by {growth} (max_size is {limit})",
            "free some space, or lower max_size under [journal]",
        ),
        "full": missing("only {free} are free in {folder}", "free some space: without any nothing can be written down"),
    },
)
FILE: Final = Topic(
    name="journal_file",
    means="What lies at the journal's place is a journal of this version, or nothing.",
    purposes=ENFORCING,
    cases={
        "absent": ok("{path} is not there yet; the daemon begins it"),
        "empty": ok("{path} is empty; the daemon begins it"),
        "journal": ok("{path} is a sound journal"),
        "unknown": warning(
            "{path} could not be looked at whole: {detail}", "the daemon looks at it when it opens it; see its log"
        ),
        "damaged": warning(
            "{path} is damaged ({detail}): the daemon moves it aside and begins a new one, without a past",
            "keep a copy if you need what is in it, and look at the disk (dmesg)",
        ),
        "newer": missing("{detail}", "use the newer version, or name another file with --journal"),
        "foreign": missing("{path} is something else than a journal", "name another file with --journal"),
        "folder": missing("{path} is a folder", "name a file with --journal"),
        "unreadable": missing("{path} can't be opened: {detail}", "run as the user that owns it"),
    },
)
LOCK: Final = Topic(
    name="journal_lock",
    means="The lock beside the journal is free, or a daemon that runs holds it, which is as it should be.",
    purposes=ENFORCING,
    cases={
        "free": ok("no daemon runs with this journal"),
        "held": ok("a daemon runs: process {holder} holds {path}"),
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
            "`gpu-watchdog resume` removes it, when you know who put it there and why",
        ),
        "unseen": missing(
            "whether there is a file {path} can't be seen ({problem}), and so it counts as there",
            "run as the user that owns its folder",
        ),
    },
)
LISTEN: Final = Topic(
    name="listen",
    means="The address of the endpoints can be had, or our own daemon answers there.",
    cases={
        "free": ok("{listen} can be listened on"),
        "ours": ok("a gpu-watchdog answers on {listen}"),
        "ours_sick": warning(
            "a gpu-watchdog answers on {listen}, and says: {problem}",
            "see `curl http://{listen}/readyz`; most likely a call into the driver hangs",
        ),
        "taken": missing("the endpoints: {said}", "{remedy}"),
        "unusable": missing("the endpoints: {said}", "{remedy}"),
    },
)
JOURNAL_TOPICS: Final = (FOLDER, DISK, SPACE, FILE, LOCK, STOP, LISTEN)


_MAGIC: Final = b"SQLite format 3\x00"
_STEPS: Final = 200  # of 10,000 instructions each: a check that would take long is left half done
_BUSY_S: Final = 1.0


def look_at_content(path: Path) -> tuple[JournalKind, str]:
    """What it is, and in which respect where that has to be said."""
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
        return "unknown", "it was not closed, and no daemon runs that could tell what is still in its write-ahead log"
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as connection:
            return _judge(connection, path)
    except sqlite3.Error as error:
        explained = explain(error, path)
        return ("damaged", str(error)) if isinstance(explained, CorruptError) else ("unknown", str(error))


def _options(path: Path) -> str | None:
    """How to open it so that SQLite makes no file; None where it would have to.

    With a write-ahead log it needs the file of its shared memory, which a daemon that runs has made. Without one nobody
    writes to it, and it can be taken as it is.
    """
    wal, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if shared.exists():
        return "mode=ro"
    try:
        return None if wal.stat().st_size else "immutable=1"
    except OSError:  # a daemon that closes the journal takes it away
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


_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "glusterfs", "beegfs", "afs", "9p", "virtiofs"}
)
_FLEETING: Final = frozenset({"tmpfs", "ramfs", "overlay", "aufs"})
# File systems that the kernel makes up: even root, whom permission bits do not stop, can put nothing of its own there.
_MADE_UP: Final = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "securityfs", "debugfs", "tracefs", "bpf", "pstore"}
    | {"configfs", "efivarfs", "fusectl", "binfmt_misc", "nsfs", "rpc_pipefs"}
)
_LEAST_FREE: Final = 4 * 2**20  # SQLite's write-ahead log grows to about that between two checkpoints


def check_journal(facts: JournalFacts, max_size: int) -> Iterable[Finding]:
    """Whether what is done can be written down first, by one daemon alone."""
    yield _folder(facts)
    if not facts.folder_problem and facts.file_system not in _MADE_UP:
        yield _disk(facts)
        yield from _space(facts, max_size)
    yield FILE.say(facts.kind, path=facts.path, detail=facts.detail)
    yield _lock(facts)
    stop = "unseen" if facts.stop_problem else "present" if facts.is_stopped else "absent"
    yield STOP.say(stop, path=facts.stop_path, problem=facts.stop_problem)


def _folder(facts: JournalFacts) -> Finding:
    if facts.file_system in _MADE_UP:
        return FOLDER.say("made_up", folder=facts.path.parent, kind=facts.file_system)
    cases = ("writable", "closed") if facts.folder_exists else ("to_make", "blocked")
    return FOLDER.say(cases[bool(facts.folder_problem)], folder=facts.path.parent, problem=facts.folder_problem)


def _disk(facts: JournalFacts) -> Finding:
    kind = facts.file_system
    is_remote = kind in _REMOTE or kind.startswith("fuse.")
    case = "remote" if is_remote else "fleeting" if kind in _FLEETING else "local" if kind else "unknown"
    if facts.is_empty_dir:
        case = "of_pod"
    return DISK.say(case, folder=facts.path.parent, kind=kind)


def _space(facts: JournalFacts, max_size: int) -> Iterable[Finding]:
    if facts.free is None:
        return
    growth = max(max_size - facts.size, 0)
    case = "full" if facts.free < _LEAST_FREE else "little" if facts.free < growth else "enough"
    yield SPACE.say(
        case,
        free=format_bytes(facts.free),
        limit=format_bytes(max_size),
        growth=format_bytes(growth),
        folder=facts.path.parent,
    )


def _lock(facts: JournalFacts) -> Finding:
    holder = "of another PID namespace" if facts.holder is None else facts.holder
    return LOCK.say(facts.lock, path=facts.lock_path, holder=holder, detail=facts.detail)


def check_listen(facts: ListenFacts) -> Iterable[Finding]:
    """Whether `run` could listen; it does not start where it can't."""
    said, _, remedy = facts.problem.rpartition(": ")
    yield LISTEN.say(facts.state, listen=facts.listen, problem=facts.problem, said=said, remedy=remedy)
