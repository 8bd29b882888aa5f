"""The pipe directories of MPS control daemons, and which of them only root can have made."""

import errno
import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from watchdog.core.errors import Problem, WatchdogError

_MOST_PIPES: Final = 64
_SOCKET: Final = "control"  # the daemon's socket in its pipe directory


class MpsError(WatchdogError):
    """A control daemon can't be used; `problem` has the cause and the remedy."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        self.problem = Problem(cause, remedy)
        super().__init__(str(self.problem))


class NoPipeError(MpsError):
    """There is no pipe directory, or no daemon has its socket there."""


class UntrustedPipeError(MpsError):
    """Someone other than root could have made or replaced the pipe."""


def no_daemon(patterns: Iterable[str]) -> Problem:
    """MPS clients run, but no control daemon listens where the policy says."""
    return Problem(
        f"no MPS control daemon was found: none listens in {', '.join(patterns) or 'any folder'}",
        "mount the folder with the pipe directories (in the chart mps.mounts), or correct `pipe` under [mps]",
    )


def find_pipes(patterns: Iterable[str]) -> tuple[str, ...]:
    """The pipe directories that exist. A folder `*` also matches a resource with its domain: `nvidia.com/gpu`.

    NVIDIA's device plugin makes them as ROOT/RESOURCE/pipe (cmd/mps-control-daemon/mps/root.go).
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        doubled = str(PurePosixPath(*("*/*" if part == "*" else part for part in parts[:-1]), *parts[-1:]))
        for variant in dict.fromkeys((str(PurePosixPath(pattern)), doubled)):
            found.update(dict.fromkeys(sorted(glob.glob(variant))))  # noqa: PTH207 - patterns are absolute
    return tuple(found)[:_MOST_PIPES]


@dataclass(frozen=True, slots=True)
class PipeIdentity:
    """The directory and socket behind a pipe's name, by device and inode."""

    directory: tuple[int, int]
    socket: tuple[int, int]


def check_pipe(path: str, trusted_uid: int = 0) -> PipeIdentity:
    """Check that only root can have made the daemon's socket; UntrustedPipeError or NoPipeError otherwise.

    Every part of the path belongs to root, is no link, and is writable by root alone, or sticky like /tmp. So as long
    as it exists, only root can replace it, and the name can be used afterwards. Each part is opened below the one
    before it and checked by its descriptor.
    """
    if not path.startswith("/"):
        raise UntrustedPipeError(f"the pipe directory {path!r} is not an absolute path", "correct `pipe` under [mps]")
    parts = PurePosixPath(path).parts
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_part("/", os.fstat(fd), trusted_uid, is_directory=True)
        for number, part in enumerate(parts[1:], 2):
            name = str(PurePosixPath(*parts[:number]))
            below = _open_below(fd, part, name)
            os.close(fd)
            fd = below
            _check_part(name, os.fstat(fd), trusted_uid, is_directory=True)
        directory = os.fstat(fd)
        try:
            socket = os.stat(_SOCKET, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            raise _unreachable(path, error) from error
        _check_part(f"{path}/{_SOCKET}", socket, trusted_uid, is_directory=False)
    finally:
        os.close(fd)
    return PipeIdentity((directory.st_dev, directory.st_ino), (socket.st_dev, socket.st_ino))


def _open_below(fd: int, part: str, name: str) -> int:
    try:
        return os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except OSError as error:
        raise _unreachable(name, error) from error


def _unreachable(path: str, error: OSError) -> MpsError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NoPipeError(f"no MPS control daemon listens in {path}", "start it there, or correct `pipe` under [mps]")
    return UntrustedPipeError(f"{path} can't be checked: {error.strerror}", "run the watchdog as root")


def _check_part(name: str, status: os.stat_result, trusted_uid: int, *, is_directory: bool) -> None:
    mode, is_there = status.st_mode, stat.S_ISDIR if is_directory else stat.S_ISSOCK
    if not is_there(mode):
        what = "a link" if stat.S_ISLNK(mode) else "no directory" if is_directory else "no socket"
        raise UntrustedPipeError(f"the MPS pipe is not trusted: {name} is {what}", "name the real path under [mps]")
    if status.st_uid not in (0, trusted_uid):
        raise UntrustedPipeError(
            f"the MPS pipe is not trusted: {name} belongs to user {status.st_uid}",
            "run the control daemon as root, with a pipe directory whose whole path belongs to root",
        )
    if is_directory and mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise UntrustedPipeError(
            f"the MPS pipe is not trusted: {name} is writable by other users",
            f"chmod go-w {name}, or use a directory that only root can write to",
        )
