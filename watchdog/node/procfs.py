"""Processes under /proc: reading and parsing, with the root as an argument."""

import errno
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_EFFECTIVE: Final = re.compile(rb"^CapEff:\s*([0-9a-f]{1,16})$", re.MULTILINE)
_BOUNDING: Final = re.compile(rb"^CapBnd:\s*([0-9a-f]{1,16})$", re.MULTILINE)
_NAMESPACE_PIDS: Final = re.compile(rb"^NSpid:\s*(.*)$", re.MULTILINE)
_SYS_ADMIN: Final = 21  # include/uapi/linux/capability.h
_ALL_USERS: Final = [b"0", b"0", b"4294967295"]  # the map of the initial user namespace: every ID onto itself
_HOST_PID_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_PF_EXITING: Final = 0x4  # include/linux/sched.h
_MOST_SEARCHES: Final = 4096
_LONGEST_ENVIRON: Final = 2**20
_LONGEST_PATH: Final = 4096  # PATH_MAX, include/uapi/linux/limits.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """Fields of `/proc/PID/stat`."""

    # Its PID.
    parent: int
    # Clock ticks since boot.
    start_ticks: int
    # A letter.
    state: str
    exiting: bool
    # The name. The process itself sets it, to any bytes but NUL; the kernel cuts it to 15.
    comm: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSearch:
    """A search for a living thread."""

    # The thread ID at which it continues.
    tid: int = 0
    # How many threads are left to check.
    left: int


def parse_stat(raw: bytes) -> Stat:
    """Parse `/proc/PID/stat`; ValueError if it is not in the kernel's format.

    The name may contain spaces, parentheses and newlines; what follows it contains none, so the last parenthesis ends
    it.
    """
    start, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 1 :].split(maxsplit=20)
    if start < 0 or end < start or len(fields) < 20 or len(fields[0]) != 1:
        raise ValueError(f"no process status: {raw[:80]!r}")
    state = fields[0].decode("latin-1")
    return Stat(
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        state=state,
        exiting=state in "ZXx" or bool(int(fields[6]) & _PF_EXITING),
        comm=raw[start + 1 : end],
    )


def printable(raw: bytes | str) -> str:
    """Printable text from what a process wrote about itself: control characters and broken UTF-8 as escapes."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Procfs:
    """A proc file system. Every method on a PID raises ProcessLookupError if no such process is visible.

    If a process exists but can't be read, they raise another OSError: PermissionError, ENAMETOOLONG for a cgroup path
    longer than the kernel writes, or EBADMSG for content not in the kernel's format. A mount with `hidepid` hides the
    processes of other users: only a pidfd or signal 0 distinguishes a hidden process from one that is gone.

    `searches` holds the searches for a living thread, of processes whose leader has ended.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._root = str(root)
        self.searches: dict[tuple[int, int], ThreadSearch] = {}

    def stat(self, pid: int, tid: int | None = None) -> Stat:
        """Start time, state and name of a process or of one thread."""
        raw = self._read(f"{_folder(pid, tid)}/stat")
        try:
            return parse_stat(raw)
        except ValueError as error:
            raise OSError(errno.EBADMSG, str(error)) from error

    def comm(self, pid: int) -> bytes:
        """The name of a process alone, at a fifth of the cost of `stat`."""
        return self._read(f"{pid}/comm").removesuffix(b"\n")

    def cgroup_text(self, pid: int, tid: int | None = None) -> bytes:
        """The cgroups of a process or thread in every hierarchy, as the kernel writes them."""
        return self._read(f"{_folder(pid, tid)}/cgroup")

    def remember_search(self, pid: int, start_ticks: int, search: ThreadSearch) -> None:
        """Remember how far a search for a living thread has come; all are forgotten once there are too many."""
        if len(self.searches) >= _MOST_SEARCHES:
            self.searches.clear()
        self.searches[pid, start_ticks] = search

    def threads(self, pid: int) -> list[int]:
        """The thread IDs of a process, its leader included."""
        try:
            return self._numbers(f"{pid}/task")
        except FileNotFoundError as error:
            raise ProcessLookupError(errno.ESRCH, f"{self._root}/{pid}/task: no such process") from error

    def pids(self) -> list[int]:
        """All visible PIDs; OSError if there is no proc file system at the root."""
        return self._numbers("")

    def environ(self, pid: int) -> bytes:
        """The environment with which a process started, at most 1 MiB of it; needs the right to trace it."""
        return self._read(f"{pid}/environ", most=_LONGEST_ENVIRON)

    def first_argument(self, pid: int) -> str:
        """Its first argument in printable form, cut if it is longer than any path; empty for a zombie.

        A process can rewrite its arguments, and make them as long as its address space (PR_SET_MM in prctl(2)).
        """
        return printable(self._read(f"{pid}/cmdline", most=_LONGEST_PATH).split(b"\0", 1)[0])

    def user(self, pid: int) -> str:
        """The name of its real user, or the number if this machine has no name for it."""
        before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, self._root
        try:
            return printable(psutil.Process(pid).username())
        except psutil.NoSuchProcess as error:
            raise ProcessLookupError(errno.ESRCH, str(error)) from error
        except psutil.AccessDenied as error:
            raise PermissionError(errno.EACCES, str(error)) from error
        finally:
            psutil.PROCFS_PATH = before

    def in_host_pid_namespace(self) -> bool:
        """Whether the daemon is in the host's PID namespace, so that NVML's PIDs apply; False if that can't be read."""
        return self._link("self/ns/pid") == _HOST_PID_NAMESPACE

    def own_pid(self) -> int | None:
        """The PID of the daemon itself in this proc file system; None if it has none."""
        link = self._link("self")
        return int(link) if link.isascii() and link.isdecimal() else None

    def has_capability(self, number: int) -> bool:
        """Whether the daemon itself has an effective capability (capabilities(7)); False if that can't be read."""
        try:
            return _has_bit(_EFFECTIVE.search(self._read("self/status")), number)
        except OSError:
            return False

    def is_privileged(self, pid: int) -> bool:
        """Whether a process may have CAP_SYS_ADMIN on this host, as in a privileged container under any user.

        Capabilities within a separate user namespace do not count, unless all users are mapped into it: to tell that
        from the host's takes CAP_SYS_PTRACE. False if it can't be read.
        """
        try:
            may_administer = _has_bit(_BOUNDING.search(self._read(f"{pid}/status")), _SYS_ADMIN)
            return may_administer and self._read(f"{pid}/uid_map").split() == _ALL_USERS
        except OSError:
            return False

    def shares_pid_namespace(self, pid: int) -> bool:
        """Whether a process is in the PID namespace of this proc file system, and not in one below it."""
        pids = _NAMESPACE_PIDS.search(self._read(f"{pid}/status"))
        return pids is None or len(pids[1].split()) == 1

    def _link(self, path: str) -> str:
        """The target of a symbolic link; empty if it can't be read."""
        try:
            return os.readlink(f"{self._root}/{path}")  # noqa: PTH115 - a path object resolves nothing here
        except OSError:
            return ""

    def _numbers(self, folder: str) -> list[int]:
        with os.scandir(f"{self._root}/{folder}") as entries:
            return [int(entry.name) for entry in entries if entry.name.isascii() and entry.name.isdigit()]

    def _read(self, path: str, most: int = sys.maxsize) -> bytes:
        """Read bytes: text mode would turn a carriage return, which a cgroup's name may contain, into a newline."""
        try:
            fd = os.open(f"{self._root}/{path}", os.O_RDONLY)
        except FileNotFoundError as error:
            raise ProcessLookupError(errno.ESRCH, f"{self._root}/{path}: no such process") from error
        try:
            parts = []
            while most > 0 and (part := os.read(fd, min(most, 65536))):
                parts.append(part)
                most -= len(part)
            return b"".join(parts)
        finally:
            os.close(fd)


def _folder(pid: int, tid: int | None) -> str:
    return str(pid) if tid is None else f"{pid}/task/{tid}"


def _has_bit(mask: re.Match[bytes] | None, number: int) -> bool:
    return mask is not None and bool(int(mask[1], 16) >> number & 1)
