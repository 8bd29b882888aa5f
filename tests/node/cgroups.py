"""Real cgroups for the tests, in every hierarchy that this machine has mounted."""

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.node.support import cannot_run, need_root, wait_until


def hierarchies(kind: str) -> list[Path]:
    """Where the v1 (`cgroup`) or v2 (`cgroup2`) hierarchies are mounted."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] == kind and not mount[1].endswith("cpuset")]


@contextlib.contextmanager
def cgroup(path: str, kind: str) -> Iterator[list[Path]]:
    """Make this cgroup in each hierarchy of that kind; it is removed with its parents and with what runs in it."""
    need_root()
    mounts = hierarchies(kind)
    if not mounts:
        cannot_run(f"no {kind} hierarchy is mounted")
    try:
        for mount in mounts:
            (mount / path).mkdir(parents=True)
        yield [mount / path for mount in mounts]
    finally:
        for mount in mounts:
            remove(mount, path)


def remove(mount: Path, path: str) -> None:
    """Remove a cgroup with all that is below it, and its parents."""
    top = mount / path.split("/", maxsplit=1)[0]
    if not top.is_dir():
        return
    for folder, _, _ in os.walk(top, topdown=False):
        procs = Path(folder) / "cgroup.procs"
        wait_until(functools.partial(is_empty, procs))
        Path(folder).rmdir()


def is_empty(procs: Path) -> bool:
    """Whether a cgroup of a test has no process; what is left in it was started there and is killed."""
    pids = [int(pid) for pid in procs.read_text(encoding="ascii").split()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def enter(folders: list[Path], pid: int) -> None:
    """Put a process with all its threads into these cgroups."""
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
