"""A file that others rewrite while it is read: read again when it has changed."""

import os
import stat
from pathlib import Path
from typing import Final

# A file changed this recently may change again without its times showing it (they move in steps of a clock tick).
_SETTLED_AFTER_S: Final = 2.0
_LARGEST: Final = 256 * 2**20

Signature = tuple[int, int, int, int, int]


class FollowedFile:
    """A regular file, followed by path through symlink swaps as ConfigMaps make them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Signature | None = None
        self._noticed: Signature | None = None

    def has_changed(self) -> bool:
        """Whether it is another version than the last one that was read or told of here; False where it is missing."""
        try:
            found = _sign(self.path.stat())
        except OSError:
            return False
        before, self._noticed = self._noticed, found
        return found != before

    def read_if_changed(self, wall_s: float) -> bytes | None:
        """Its bytes if they may be others than at the last call, else None; OSError or ValueError if unreadable.

        `wall_s` is the present Unix time.
        """
        status = self.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        if status.st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST // 2**20} MiB")
        if _sign(status) == self._seen:
            return None
        with self.path.open("rb") as file:
            before = os.fstat(file.fileno())
            text = file.read(_LARGEST)
            after = os.fstat(file.fileno())
        self._noticed = _sign(after)
        age_s = wall_s - max(after.st_mtime, after.st_ctime)
        if _sign(before) == _sign(after) and not 0 <= age_s < _SETTLED_AFTER_S:
            self._seen = _sign(after)
        return text


def _sign(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
