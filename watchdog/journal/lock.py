"""One daemon a node: a lock beside the journal."""

import fcntl
import os
from pathlib import Path
from typing import Literal

LockState = Literal["free", "held", "unreadable"]


def lock_path(journal: Path) -> Path:
    """The lock of whoever keeps this journal."""
    return journal.with_name(journal.name + ".lock")


def look_at_lock(path: Path) -> tuple[LockState, str]:
    """Whether somebody holds the lock, and why that can't be told.

    Asked for as a reader and given back at once: a daemon tries again by itself.
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

    `problem` says in a sentence why the last try failed, with the remedy; empty while the lock is held. `refusals` are
    the tries in a row at which somebody else had it: at a single one that may be who only looks (`look_at_lock`).
    `was_there` says that its file lay there already when it was taken: an earlier daemon kept this journal.
    """

    def __init__(self, journal: Path) -> None:
        self.path = lock_path(journal)
        self.problem = ""
        self.refusals = 0
        self.was_there = False
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock, on the very file that a second daemon would find."""
        return self._descriptor is not None and _is_same(self._descriptor, self.path)

    def acquire(self) -> bool:
        """Try once to take the lock, and write the PID into its file; True where it is held. Never waits."""
        if self.held:
            return True
        self.release()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            was_there = self.path.exists()
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
        self._descriptor, self.was_there = descriptor, was_there
        self.problem, self.refusals = "", 0
        return True

    def retry(self) -> bool:
        """Try again: the other daemon may have ended. The same as `acquire`."""
        return self.acquire()

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would let two daemons lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def holder(self) -> int | None:
        """The PID written in the file, as its writer's PID namespace counts; None if there is none to read."""
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
