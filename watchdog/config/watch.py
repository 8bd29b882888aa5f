"""The policy file while the daemon runs: when it has changed, and when a changed file is complete."""

import errno
import fcntl
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.config.load import load_policy
from watchdog.core.model import Now
from watchdog.core.policy import Policy
from watchdog.core.units import format_duration

SETTLING_S: Final = 3.0
HELD_S: Final = 60.0
_DATA: Final = "..data"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """The file that the path leads to: its `stat`, and where a ConfigMap's symlink points if it leads through one."""

    stat: tuple[int, int, int, int, int] | None
    changed_s: float = 0.0
    volume: str | None = None


class PolicyFile:
    """Tells when a policy file has changed, and when what has changed can be loaded.

    A ConfigMap is complete when its `..data` symlink is swapped (AtomicWriter in k8s.io/kubernetes/pkg/volume/util).
    Any other file may be written in place, with pauses: it has settled once it has stayed the same for `settling_s` and
    nobody has it open for writing. Until then enforcement is held for up to `held_s`; before the first settled version
    there is no policy to go on with, and it is held until there is one.
    """

    def __init__(self, path: Path, *, settling_s: float = SETTLING_S, held_s: float = HELD_S) -> None:
        self.path = path
        self.has_settled = False
        self.is_ready = False
        self._settling_s = settling_s
        self._held_s = held_s
        self._loaded: _Version | None = None
        self._seen: _Version | None = None
        self._seen_s = 0.0
        self._waiting_s: float | None = None
        self._looked_s = 0.0

    @property
    def is_unsettled(self) -> bool:
        """Whether the file has changed and has not settled within `held_s`."""
        return self._waiting_s is not None and self._looked_s - self._waiting_s >= self._held_s

    @property
    def holds(self) -> bool:
        """Whether no first signal and no SIGKILL may be sent, because the file has changed and is not loaded yet."""
        return not self.has_settled or (self._waiting_s is not None and not self.is_unsettled)

    @property
    def trouble(self) -> str:
        """Say that the file has not settled in time, and what helps; empty: nothing of the kind."""
        if not self.is_unsettled:
            return ""
        goes_on = "the policy in force stays" if self.has_settled else "nobody is acted on"
        return (
            f"the policy file {self.path} has not settled within {format_duration(self._held_s)}, and {goes_on}: it "
            "keeps changing, or a process has it open for writing; end what writes it, or send SIGHUP to load it as it "
            "is"
        )

    def begin(self, now: Now) -> Policy:
        """Load the file at startup; PolicyError if it is invalid. One that is older than the settling time has settled.

        Its age goes by the times that the kernel sets. A file from the future waits like a new one.
        """
        version = self._version()
        is_old = now.wall_s - version.changed_s >= self._settling_s and not _has_writer(self.path)
        self.has_settled = version.volume is not None or is_old
        self._loaded = version if self.has_settled else None
        return load_policy(self.path)

    def load(self) -> Policy:
        """Load the file as it is; PolicyError if it is invalid."""
        self._loaded, self._waiting_s = self._version(), None
        self.has_settled, self.is_ready = True, False
        return load_policy(self.path)

    def look(self, now: Now) -> None:
        """Look at the file again: `is_ready` says afterwards whether it has changed and can be loaded."""
        found = self._version()
        if self._waiting_s is not None and not self.is_unsettled:
            # Of the time in which nobody looked, the node suspended perhaps, no more than one settling time counts.
            self._waiting_s += max(now.boottime_s - self._looked_s - self._settling_s, 0.0)
        self._looked_s = now.boottime_s
        if found == self._loaded:
            self._seen, self._waiting_s, self.is_ready = None, None, False
            return
        if self._waiting_s is None:
            self._waiting_s = now.boottime_s
        if found != self._seen:
            self._seen, self._seen_s = found, now.boottime_s
        is_swapped = found.volume is not None and self._loaded is not None and found.volume != self._loaded.volume
        is_still = now.boottime_s - self._seen_s >= self._settling_s
        self.is_ready = is_swapped or (is_still and not _has_writer(self.path))

    def _version(self) -> _Version:
        volume = _volume(self.path)
        try:
            found = self.path.stat()
        except OSError:
            return _Version(stat=None, volume=volume)
        return _Version(
            stat=(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns),
            changed_s=max(found.st_mtime, found.st_ctime),
            volume=volume,
        )


def _volume(path: Path) -> str | None:
    """Where the `..data` symlink points that a path leads through; None: it leads through none."""
    for link in (path, *path.parents):
        try:
            if link.readlink().parts[:1] == (_DATA,):
                return str((link.parent / _DATA).readlink())
        except OSError:
            continue
    return None


def _has_writer(path: Path) -> bool:
    """Whether some process has a file open for writing; False where the kernel can't tell.

    A read lease is refused then (fcntl(2), F_SETLEASE). It is given back at once. Whoever opens the file meanwhile
    makes the kernel signal us: SIGIO, the default, would end the process, and SIGURG is ignored.
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
