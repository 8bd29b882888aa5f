"""The policy file while the daemon runs: when it has changed, and when a changed file is complete."""

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.config.load import load_policy
from watchdog.core.model import Now
from watchdog.core.policy import SETTLING_S, Policy
from watchdog.core.units import format_duration

HELD_S: Final = 60.0
_DATA: Final = "..data"


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileVersion:
    """The file behind the path."""

    # Of `stat`, what shows that it is the same file, unchanged; None: it can't be read.
    stat: tuple[int, int, int, int, int] | None
    changed_s: float = 0.0
    # The target of a ConfigMap's symlink; None: the path leads through none.
    volume: str | None = None


class PolicyFile:
    """Detects when a policy file has changed, and when the changed file can be loaded.

    A ConfigMap is complete when its `..data` symlink is swapped (AtomicWriter in k8s.io/kubernetes/pkg/volume/util).
    Any other file may be written in place, with pauses. It has settled once it has not changed for `settling_s` and no
    process has it open for writing. Until then enforcement is held for up to `held_s`; before the first valid version
    that has settled there is no policy to fall back to, and enforcement is held until there is one.
    """

    def __init__(self, path: Path, *, settling_s: float = SETTLING_S, held_s: float = HELD_S) -> None:
        self.path = path
        self.has_settled = False
        self.is_ready = False
        self._settling_s = settling_s
        self._held_s = held_s
        self._loaded: _FileVersion | None = None
        self._latest: _FileVersion | None = None
        self._unchanged_since_s = 0.0
        self._waiting_s: float | None = None
        self._checked_s = 0.0

    @property
    def is_loaded(self) -> bool:
        """Whether the file was the one that is loaded, and had settled, when it was last checked."""
        return self.has_settled and self._waiting_s is None

    @property
    def is_unsettled(self) -> bool:
        """Whether the file has changed and has not settled within `held_s`."""
        return self._waiting_s is not None and self._checked_s - self._waiting_s >= self._held_s

    @property
    def holds(self) -> bool:
        """Whether first signals and SIGKILL are held because the file has changed and is not loaded yet."""
        return not self.has_settled or (self._waiting_s is not None and not self.is_unsettled)

    @property
    def problem(self) -> str:
        """A sentence with a remedy if the file has not settled in time, otherwise empty."""
        if not self.is_unsettled:
            return ""
        meanwhile = "the current policy stays" if self.has_settled else "no action is taken"
        return (
            f"the policy file {self.path} is still being written after {format_duration(self._held_s)}, and "
            f"{meanwhile}: it keeps changing, or a process has it open for writing; stop what writes it, or send "
            "SIGHUP to load it as it is"
        )

    def begin(self, now: Now, load: Callable[[Path], Policy] = load_policy) -> Policy:
        """Load the file at startup; PolicyError if it is invalid. A file older than the settling time has settled.

        Its age is that of its mtime and ctime. A file from the future waits like a new one.
        """
        version = self._version()
        is_old = now.wall_s - version.changed_s >= self._settling_s and not _has_writer(self.path)
        self.has_settled = version.volume is not None or is_old
        self._loaded = version if self.has_settled else None
        return load(self.path)

    def load(self) -> Policy:
        """Load the file as it is; PolicyError if it is invalid."""
        self._loaded, self._waiting_s = self._version(), None
        self.is_ready = False
        policy = load_policy(self.path)
        self.has_settled = True
        return policy

    def check(self, now: Now) -> None:
        """Check the file again: afterwards `is_ready` says whether it has changed and can be loaded."""
        version = self._version()
        if self._waiting_s is not None and not self.is_unsettled:
            # Of the time without checks, perhaps while the node was suspended, at most one settling time counts.
            self._waiting_s += max(now.boottime_s - self._checked_s - self._settling_s, 0.0)
        self._checked_s = now.boottime_s
        if version == self._loaded:
            self._latest, self._waiting_s, self.is_ready = None, None, False
            return
        if self._waiting_s is None:
            self._waiting_s = now.boottime_s
        if version != self._latest:
            self._latest, self._unchanged_since_s = version, now.boottime_s
        is_swapped = version.volume is not None and self._loaded is not None and version.volume != self._loaded.volume
        is_still = now.boottime_s - self._unchanged_since_s >= self._settling_s
        self.is_ready = is_swapped or (is_still and not _has_writer(self.path))

    def _version(self) -> _FileVersion:
        volume = _volume(self.path)
        try:
            status = self.path.stat()
        except OSError:
            return _FileVersion(stat=None, volume=volume)
        return _FileVersion(
            stat=(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
            changed_s=max(status.st_mtime, status.st_ctime),
            volume=volume,
        )


def _volume(path: Path) -> str | None:
    """The target of the `..data` symlink that a path leads through; None if it leads through none."""
    for link in (path, *path.parents):
        try:
            if link.readlink().parts[:1] == (_DATA,):
                return str((link.parent / _DATA).readlink())
        except OSError:
            continue
    return None


def _has_writer(path: Path) -> bool:
    """Whether some process has a file open for writing; False where the kernel can't determine it.

    The kernel then refuses a read lease (fcntl(2), F_SETLEASE). A granted one is returned at once. If the file is
    opened meanwhile, the kernel signals us: SIGIO, the default, would end the process, and SIGURG is ignored.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(fd)
    return False
