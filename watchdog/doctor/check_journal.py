"""The journal's place, its lock, the stop file, and the address of the endpoints."""

from collections.abc import Iterable
from typing import Final

import watchdog.doctor.topics_journal as topic
from watchdog.core.units import format_bytes
from watchdog.doctor.facts import JournalFacts, ListenFacts
from watchdog.doctor.finding import Finding

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
    yield topic.FILE.say(facts.kind, path=facts.path, detail=facts.detail)
    yield _lock(facts)
    stop = "unseen" if facts.stop_problem else "present" if facts.is_stopped else "absent"
    yield topic.STOP.say(stop, path=facts.stop_path, problem=facts.stop_problem)


def _folder(facts: JournalFacts) -> Finding:
    if facts.file_system in _MADE_UP:
        return topic.FOLDER.say("made_up", folder=facts.path.parent, kind=facts.file_system)
    cases = ("writable", "closed") if facts.folder_exists else ("to_make", "blocked")
    return topic.FOLDER.say(cases[bool(facts.folder_problem)], folder=facts.path.parent, problem=facts.folder_problem)


def _disk(facts: JournalFacts) -> Finding:
    kind = facts.file_system
    is_remote = kind in _REMOTE or kind.startswith("fuse.")
    case = "remote" if is_remote else "fleeting" if kind in _FLEETING else "local" if kind else "unknown"
    if facts.is_empty_dir:
        case = "of_pod"
    return topic.DISK.say(case, folder=facts.path.parent, kind=kind)


def _space(facts: JournalFacts, max_size: int) -> Iterable[Finding]:
    if facts.free is None:
        return
    growth = max(max_size - facts.size, 0)
    case = "full" if facts.free < _LEAST_FREE else "little" if facts.free < growth else "enough"
    yield topic.SPACE.say(
        case,
        free=format_bytes(facts.free),
        limit=format_bytes(max_size),
        growth=format_bytes(growth),
        folder=facts.path.parent,
    )


def _lock(facts: JournalFacts) -> Finding:
    holder = "of another PID namespace" if facts.holder is None else facts.holder
    return topic.LOCK.say(facts.lock, path=facts.lock_path, holder=holder, detail=facts.detail)


def check_listen(facts: ListenFacts) -> Iterable[Finding]:
    """Whether `run` could listen; it does not start where it can't."""
    said, _, remedy = facts.problem.rpartition(": ")
    yield topic.LISTEN.say(facts.state, listen=facts.listen, problem=facts.problem, said=said, remedy=remedy)
