"""The lock next to the journal, which ensures one daemon per node."""

import fcntl
import os
from pathlib import Path
from typing import Literal

LockState = Literal["free", "held", "unreadable"]


def lock_path(journal: Path) -> Path:
    """The path of the lock for this journal."""
    return journal.with_name(journal.name + ".lock")


def check_lock(path: Path) -> tuple[LockState, str]:
    """Whether the lock is held, or why that can't be determined.

    It is taken shared and released at once; a daemon that finds it taken tries again later.
    """
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


class NodeLock:
    """An advisory lock (flock(2)) on `JOURNAL.lock`, held until the process ends, however it ends.

    `problem` is why the last attempt failed, with the remedy; empty while the lock is held. `refusals` is the number of
    consecutive attempts at which another process had it: a single one may be a command's check (`check_lock`).
    `had_file`: its file existed before it was taken, so an earlier daemon kept this journal.
    """

    def __init__(self, journal: Path) -> None:
        self.path = lock_path(journal)
        self.problem = ""
        self.refusals = 0
        self.had_file = False
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock, on the file that a second daemon would open."""
        return self._descriptor is not None and _is_same(self._descriptor, self.path)

    def acquire(self) -> bool:
        """Try once to take the lock, and write the PID into its file; True if it is held. Never waits."""
        if self.held:
            return True
        self.release()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            had_file = self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.refusals = 0
            self.problem = f"can't open the lock {self.path}: {error.strerror}; make its folder writable"
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_same(descriptor, self.path):
                raise FileNotFoundError
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.refusals = self.refusals + 1 if isinstance(error, BlockingIOError) else 0
            self.problem = self._explain(error)
            os.close(descriptor)
            return False
        self._descriptor, self.had_file = descriptor, had_file
        self.problem, self.refusals = "", 0
        return True

    def release(self) -> None:
        """Release the lock; the file stays, since removing it would let two daemons lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def holder(self) -> int | None:
        """The PID in the file, as of its writer's PID namespace; None if it can't be read."""
        try:
            text = self.path.read_bytes()[:32].decode("ascii", errors="replace").strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() else None

    def _explain(self, error: OSError) -> str:
        if isinstance(error, FileNotFoundError):
            return f"the lock {self.path} was removed while it was taken; trying again"
        if isinstance(error, BlockingIOError):
            holder = self.holder
            who = f"process {holder}" if holder is not None else "another process"
            return f"{who} holds the lock {self.path}: another watchdog runs on this node; stop one of the two"
        return f"can't take the lock {self.path}: {error.strerror}; put the journal on a local file system with room"


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
