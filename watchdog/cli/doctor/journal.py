"""Checks of the journal, its lock, the stop file and the address of the endpoints."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_enforce, to_observe, warning
from watchdog.core.plan import StopNote
from watchdog.core.units import format_bytes
from watchdog.journal.lock import lock_path
from watchdog.options import stop_file as stop_path
from watchdog.report.sentences.node import reason_given

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


def _is_writable(facts: Facts) -> bool:
    return not facts.journal.folder_problem and facts.journal.file_system not in _VIRTUAL


@to_enforce()
def journal_folder(facts: Facts) -> Iterator[CheckResult]:
    """The journal's folder is writable or can be created: every action is recorded before it is taken."""
    folder, kind, problem = facts.options.journal.parent, facts.journal.file_system, facts.journal.folder_problem
    if kind in _VIRTUAL:
        yield missing(
            f"{folder} is on a virtual file system of the kernel ({kind}): no file can be created there",
            "give another path with --journal",
        )
    elif not problem and facts.journal.folder_exists:
        yield ok(f"{folder} is writable")
    elif not problem:
        yield ok(f"{folder} does not exist yet and can be created")
    elif facts.journal.folder_exists:
        yield missing(
            f"{folder} is not writable: {problem}",
            "run as root, mount it writable, or give another path with --journal",
        )
    else:
        yield missing(
            f"{folder} does not exist and can't be created: {problem}",
            "create it, or give another path with --journal",
        )


@to_enforce(given=_is_writable)
def journal_disk(facts: Facts) -> Iterator[CheckResult]:
    """The journal is on a local disk.

    SQLite's write-ahead log needs shared memory and locks, and every daemon of the node must see the lock.
    """
    folder, kind = facts.options.journal.parent, facts.journal.file_system
    if facts.journal.is_empty_dir:
        yield missing(
            f"{folder} is an emptyDir: it is deleted with the pod, so the brakes of the next pod do not know of "
            "earlier actions",
            "mount a folder of the host there (hostPath; in the chart journal.type: hostPath, and no other path in "
            "GPU_WATCHDOG_JOURNAL)",
        )
    elif kind in _REMOTE or kind.startswith("fuse."):
        yield missing(
            f"{folder} is on a network file system ({kind})", "put the journal on a local disk with --journal"
        )
    elif kind in _VOLATILE:
        yield warning(
            f"{folder} is in memory or in the container's own layer ({kind}): the journal and the lock are lost with "
            "it",
            "mount a folder of the host there (hostPath)",
        )
    elif kind:
        yield ok(f"{folder} is on a local file system ({kind})")
    else:
        yield ok(f"{folder} is on a file system of unknown type")


@to_enforce(given=_is_writable)
def journal_space(facts: Facts) -> Iterator[CheckResult]:
    """The disk has space for the journal, up to `[journal] max_size`."""
    folder, available, max_size = facts.options.journal.parent, facts.journal.free, facts.known_policy.journal.max_size
    if available is None:
        return
    max_growth = max(max_size - facts.journal.size, 0)
    free, growth, limit = format_bytes(available), format_bytes(max_growth), format_bytes(max_size)
    if available < _LEAST_FREE:
        yield missing(f"only {free} are free in {folder}", "free some space: on a full disk nothing can be recorded")
    elif available < max_growth:
        yield warning(
            f"{free} are free, but the journal may grow by {growth} (max_size is {limit})",
            "free some space, or lower max_size under [journal]",
        )
    else:
        yield ok(f"{free} are free for a journal of at most {limit}")


@to_enforce()
def journal_file(facts: Facts) -> Iterator[CheckResult]:
    """The file at the journal's path is a journal of this version, or there is none yet."""
    path, detail = facts.options.journal, facts.journal.detail
    match facts.journal.kind:
        case "absent":
            yield ok(f"{path} does not exist yet; the daemon creates it")
        case "empty":
            yield ok(f"{path} is empty; the daemon initialises it")
        case "journal":
            yield ok(f"{path} is an intact journal")
        case "unknown":
            yield warning(
                f"{path} could not be checked completely: {detail}",
                "the daemon checks it when opening it; see its log",
            )
        case "damaged":
            yield warning(
                f"{path} is damaged ({detail}): the daemon moves it aside and starts a new one, without history",
                "keep a copy if you need its contents, and check the disk (dmesg)",
            )
        case "newer":
            yield missing(detail, "use the newer version, or give another file with --journal")
        case "foreign":
            yield missing(f"{path} is not a journal", "give another file with --journal")
        case "folder":
            yield missing(f"{path} is a folder", "give a file with --journal")
        case "unreadable":
            yield missing(f"{path} can't be opened: {detail}", "run as the user that owns it")


@to_enforce()
def journal_lock(facts: Facts) -> Iterator[CheckResult]:
    """The lock next to the journal is free, or held by a running daemon; both are fine."""
    path, detail = lock_path(facts.options.journal), facts.journal.detail
    if facts.journal.lock == "free":
        yield ok("no daemon is running with this journal")
    elif facts.journal.lock == "held":
        holder = "in another PID namespace" if facts.journal.holder is None else facts.journal.holder
        yield ok(f"a daemon is running: process {holder} holds {path}")
    else:
        yield missing(f"the lock {path} can't be opened: {detail}", "run as the user that owns it")


@to_enforce()
def stop_file(facts: Facts) -> Iterator[CheckResult]:
    """No file `stop` next to the journal turns enforcement off."""
    path, problem = stop_path(facts.options.journal), facts.journal.stop_problem
    if problem:
        yield missing(
            f"whether the file {path} exists can't be determined ({problem}), so it counts as present",
            "run as the user that owns its folder",
        )
    elif facts.journal.is_stopped:
        why = reason_given(facts.journal.stop or StopNote(switch="stop_file"), facts.options.node)
        yield missing(
            f"the file {path} turns enforcement off ({why})",
            "if that is no longer needed, run `gpu-watchdog resume`",
        )
    else:
        yield ok(f"there is no file {path}")


@to_observe()
def listen(facts: Facts) -> Iterator[CheckResult]:
    """The address of the endpoints is available, or our own daemon answers there."""
    address, problem = facts.options.listen, facts.listen.problem
    match facts.listen.state:
        case "free":
            yield ok(f"{address} is available")
        case "ours":
            yield ok(f"a gpu-watchdog answers on {address}")
        case "ours_sick":
            yield warning(
                f"a gpu-watchdog answers on {address} and reports: {problem}",
                f"see `curl http://{address}/readyz`; most likely a driver call hangs",
            )
        case "taken" | "unusable":
            cause, _, remedy = problem.rpartition(": ")
            yield missing(f"the endpoints: {cause}", remedy)
