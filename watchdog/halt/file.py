"""The stop file itself: that it is there is all that counts; what stands in it is for people."""

import contextlib
import errno
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.core.errors import WatchdogError
from watchdog.export.lock import look_at_lock
from watchdog.export.phrases import date_time, inert
from watchdog.unreached import to_run_inside

_LONGEST: Final = 1000  # characters of a reason
_MOST_READ: Final = 4096  # bytes
_NAME_JOURNAL: Final = "name the journal with --journal, as the watchdog has it"
_REMEDIES: Final = {
    errno.EACCES: "this account may not change it: run this as root",
    errno.EPERM: "this account may not change it, or the folder is immutable (`lsattr`): run this as root",
    errno.ENOSPC: "its disk is full: free some space",
    errno.EDQUOT: "the quota of its disk is used up: free some space",
    errno.ENOTDIR: f"a file stands where a folder should be: {_NAME_JOURNAL}",
    errno.ENAMETOOLONG: f"the name is too long: {_NAME_JOURNAL}",
}


class StopError(WatchdogError):
    """The file can't be made or removed; the text names it and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop file. `is_default`: it is where a daemon looks that was given no journal of its own.

    `lock` is held by a daemon that looks for this very file; None: which daemon that would be is not known.
    """

    path: Path
    is_default: bool
    lock: Path | None = None

    def put(self, why: str) -> bool:
        """Make the file; False where something of that name was there already. StopError."""
        # Made in one step, and in force from then on: what is written into it afterwards is no condition.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o644)
        except OSError as error:
            if os.path.lexists(self.path):
                return False
            raise StopError(self._explain(error, "stop")) from error
        try:
            # A full disk takes the name, and not the text; the name is enough.
            with contextlib.suppress(OSError):
                os.write(descriptor, f"{_signed(why)}\n".encode("utf-8", errors="replace"))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._keep()
        return True

    def take_away(self) -> bool:
        """Remove the file; False where there was none. StopError."""
        # Looked for first: on a read-only disk, removing what is not there fails as removing what is there does.
        if self._is_absent():
            return False
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except IsADirectoryError as error:
            raise StopError(f"{self.path} is a folder, and counts too: remove it (`rmdir`)") from error
        except OSError as error:
            raise StopError(self._explain(error, "resume")) from error
        self._keep()
        return True

    def is_looked_for(self) -> bool:
        """Whether a daemon keeps the journal beside which this file lies, so that it looks for the file."""
        return self.lock is not None and look_at_lock(self.lock)[0] == "held"

    def changed_s(self) -> float:
        """When the file was made, or last changed (Unix time); now, where that can't be seen."""
        try:
            return self.path.lstat().st_ctime
        except OSError:
            return clock.now().wall_s

    def note(self) -> str:
        """When the file was made, by whom and why, as far as it says so; empty where it is not there."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            found = os.fstat(descriptor)
            text = os.read(descriptor, _MOST_READ) if stat.S_ISREG(found.st_mode) else b""
        except OSError:
            return ""
        finally:
            os.close(descriptor)
        written = " ".join(text.decode("utf-8", errors="replace").split())
        return inert(f"{date_time(found.st_mtime)}{f', {written}' if written else ''}", _LONGEST)

    def _keep(self) -> None:
        """Let the change outlive a power cut, where the file system takes that."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _is_absent(self) -> bool:
        """Whether there is nothing of this name; where that can't be seen, it is not said."""
        try:
            self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def _explain(self, error: OSError, command: str) -> str:
        folder = self.path.parent
        if error.errno == errno.ENOENT and not folder.exists():
            return (
                f"there is no folder {folder}, so no watchdog keeps its journal there: name that with --journal, or "
                f"run {to_run_inside(command)}"
            )
        if error.errno == errno.EROFS:
            return f"{self.path}: {error.strerror}: it is read-only: mount it writable, or run {to_run_inside(command)}"
        remedy = _REMEDIES.get(error.errno or 0, _NAME_JOURNAL)
        return f"{self.path}: {error.strerror or error}: {remedy}"


def _signed(why: str) -> str:
    """Who made it, and why."""
    by = os.environ.get("SUDO_USER", "")
    if not by:
        try:
            by = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            by = str(os.getuid())
    reason = inert(" ".join(why.split()), _LONGEST)
    return f"by {inert(by, 64)}{f': {reason}' if reason else ''}"
