"""Changes to files, as inotify(7) reports them, so that a resting loop need not check the files again and again."""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_IN_MODIFY, _IN_ATTRIB, _IN_CLOSE_WRITE = 0x2, 0x4, 0x8
_IN_MOVED, _IN_CREATE, _IN_DELETE = 0xC0, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
# What is written inside a folder does not count: the journal's own writes would wake the loop. The files themselves are
# watched too, since a write through another name of a file (a bind mount of it alone) is no event of this folder.
_FOLDER: Final = _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF
_FILE: Final = _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_DELETE_SELF | _IN_MOVE_SELF
# The kernel reports no change that another machine makes, or a server in user space: NFS, SMB, 9p, FUSE.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "overlay"})
_MOST: Final = 40  # links that the kernel follows


class FileEvents:
    """Readable once one of these files, or a folder or link that its path leads through, has changed.

    `are_complete`: every change is reported; otherwise the files have to be checked periodically. `renew` follows the
    paths again, which is necessary after every change, since they may lead to other files then.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.are_complete = False
        self._files = tuple(files)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.renew()

    def fileno(self) -> int:
        """The descriptor that becomes readable; -1 if the kernel allows no more (fs.inotify.max_user_instances)."""
        return self._descriptor

    def silence(self) -> bool:
        """Whether anything has changed since the last call."""
        has_changed = False
        with contextlib.suppress(BlockingIOError):
            while self._descriptor >= 0 and os.read(self._descriptor, 65536):
                has_changed = True
        return has_changed

    def renew(self) -> None:
        """Watch what the paths lead to now."""
        local = _local_devices()
        self.are_complete = True
        for file in self._files:
            folders, last = _resolve(file)
            are_watched = [self._watch(path, _FOLDER, local) for path in folders]
            with contextlib.suppress(FileNotFoundError):  # its folder reports when it is created
                are_watched.append(self._watch(last, _FILE, local))
            self.are_complete &= all(are_watched) and len(folders) < _MOST

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _watch(self, path: Path, mask: int, local: frozenset[int]) -> bool:
        """Watch a file or folder; whether all its changes are reported. FileNotFoundError for a missing file."""
        try:
            device = path.stat().st_dev
        except OSError as error:
            if mask == _FILE and isinstance(error, FileNotFoundError):
                raise
            return False
        watch: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        return watch >= 0 and device in local


def _resolve(file: Path) -> tuple[list[Path], Path]:
    """The folders of the links that a path leads through and of the file itself, and the file."""
    folders: list[Path] = []
    left = list(reversed(file.absolute().parts[1:]))
    at = Path("/")
    while left and len(folders) < _MOST:
        part = left.pop()
        entry = at.parent if part == ".." else at / part
        try:
            target = entry.readlink()
        except OSError:  # no link
            at = entry
            continue
        folders.append(at)
        at = Path("/") if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return [*folders, at.parent], at


def _local_devices() -> frozenset[int]:
    """The devices (st_dev) of the mounted file systems whose every change the kernel sees (proc(5), mountinfo)."""
    devices = set()
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            fields, _, after = line.partition(" - ")
            major, _, minor = fields.split()[2].partition(":")
            if after.split()[0] in _LOCAL:
                devices.add(os.makedev(int(major), int(minor)))
    return frozenset(devices)
