"""The pipe directories of MPS control daemons: which of them only root can have made, and who listens there."""

import errno
import glob
import os
import select
import socket
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from watchdog.core.errors import Problem, WatchdogError
from watchdog.core.model import PlaceKind
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.procfs import Procfs, printable

_MOST_PIPES: Final = 64
# The daemon's sockets in its pipe directory. Root's control program uses the second one if it is there (driver 535).
_SOCKETS: Final = ("control", "control_privileged")
_KINDS: Final = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM)  # NVIDIA's are of the first kind
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: PID, user, group (unix(7))
_SO_PEERPIDFD: Final = 77  # include/uapi/asm-generic/socket.h, since Linux 6.5


class MpsError(WatchdogError):
    """A control daemon can't be used; `problem` has the cause and the remedy."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        self.problem = Problem(cause, remedy)
        super().__init__(str(self.problem))


class SilentError(MpsError):
    """The daemon was not reached or did not answer in time; whether a command was carried out is unknown."""


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
    """What is behind a pipe's name."""

    # By device and inode.
    directory: tuple[int, int]
    # By device and inode, and when each was last changed: giving the name to another socket and back changes it.
    sockets: tuple[tuple[int, int, int], ...]


def check_pipe(path: str, trusted_uid: int = 0) -> PipeIdentity:
    """Check that only root can have made the daemon's sockets; UntrustedPipeError or NoPipeError otherwise.

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
        sockets: list[tuple[int, int, int]] = []
        for name in _SOCKETS:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                if sockets and error.errno == errno.ENOENT:
                    break  # an older daemon has only the first one
                raise _unreachable(path, error) from error
            _check_part(f"{path}/{name}", status, trusted_uid, is_directory=False)
            sockets.append(_identity(status))
    finally:
        os.close(fd)
    return PipeIdentity((directory.st_dev, directory.st_ino), tuple(sockets))


def _identity(control: os.stat_result) -> tuple[int, int, int]:
    return control.st_dev, control.st_ino, control.st_ctime_ns


def check_listener(path: str, identity: PipeIdentity, procfs: Procfs, trusted_uid: int = 0) -> None:
    """Check that no tenant listens on the daemon's sockets; UntrustedPipeError, or SilentError if nothing listens.

    A container that runs as root and has mounted the directory can put a socket of its own there. The kernel keeps who
    began to listen (SO_PEERCRED, unix(7)). That must be a process of root on the host or in a privileged container, as
    NVIDIA's are, and in the node's PID namespace: otherwise the PIDs that it names are not those of the driver.
    """
    for name, expected in zip(_SOCKETS, identity.sockets, strict=False):
        try:
            why = _why_no_listener(f"{path}/{name}", expected, procfs, trusted_uid)
        except OSError as error:
            raise SilentError(
                f"the MPS control daemon of {path} was not reached: {error.strerror or error}", "check that it runs"
            ) from error
        if why is None:
            raise SilentError(f"the MPS control daemon of {path} was replaced", "it is asked again")
        if why:
            raise UntrustedPipeError(
                f"the MPS pipe is not trusted: the process that listens on {path}/{name} {why}",
                "run the control daemon as root on the host, or in a privileged container with hostPID, and with -f if "
                "its process has ended; if it runs so, find the pod that has mounted the directory and replaced the "
                "socket",
            )


def _why_no_listener(name: str, expected: tuple[int, int, int], procfs: Procfs, trusted_uid: int) -> str | None:
    """Why the process that listens on a socket is not trusted; empty if it is, None if it is another socket."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _identity(os.fstat(fd)) != expected:
            return None
        with _connected(f"/proc/self/fd/{fd}") as connection:
            pid, uid, _ = _CREDENTIALS.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )
            return "runs as another user" if uid not in (0, trusted_uid) else _why_distrusted(connection, pid, procfs)
    finally:
        os.close(fd)


def _connected(address: str) -> socket.socket:
    for kind in _KINDS:
        connection = socket.socket(socket.AF_UNIX, kind)
        try:
            connection.settimeout(0)
            connection.connect(address)
        except OSError as error:
            connection.close()
            if error.errno != errno.EPROTOTYPE or kind is _KINDS[-1]:
                raise
        else:
            return connection
    raise AssertionError("the last kind returns or raises")


def _why_distrusted(connection: socket.socket, pid: int, procfs: Procfs) -> str:
    """Why the process that listens is not trusted; empty if it is."""
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            return "has ended"
        return _why_distrusted_by_pid(pid, procfs)  # an older kernel, where only the PID is known
    try:
        why = _why_distrusted_by_pid(pid, procfs)
        return "has ended" if select.select([pidfd], [], [], 0)[0] else why
    finally:
        os.close(pidfd)


def _why_distrusted_by_pid(pid: int, procfs: Procfs) -> str:
    try:
        is_host = parse_cgroup(procfs.cgroup_text(pid)).kind is PlaceKind.HOST
        stat = procfs.stat(pid)
        if stat.exiting:  # on cgroup v1 such a process shows `/`, as if it belonged to the host
            return "has ended or can't be read"
        name = f"({pid} {printable(stat.comm)})"
        is_foreign = not procfs.shares_pid_namespace(pid)
    except OSError:
        return "has ended or can't be read"
    if not is_host and not procfs.is_privileged(pid):
        return f"{name} is in a container that is not privileged"
    return f"{name} is in a PID namespace of its own" if is_foreign else ""


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
