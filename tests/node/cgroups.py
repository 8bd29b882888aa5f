"""Real cgroups for the tests, in every hierarchy that this machine has mounted."""

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.node.support import need_root, wait_until
from tests.rig.cgroups import Cgroups, Version


@contextlib.contextmanager
def cgroup(path: str, kind: Version) -> Iterator[list[Path]]:
    """Make this cgroup in each hierarchy of that kind; what was made is removed again, with what runs in it."""
    need_root()
    cgroups = Cgroups(kind)
    cgroups.need()
    try:
        yield cgroups.make(path)
    finally:
        for folder in cgroups.made:
            wait_until(functools.partial(is_empty, folder / "cgroup.procs"))
        cgroups.remove()


def is_empty(procs: Path) -> bool:
    """Whether a cgroup that a test has made has no process; what is left in it was started there and is killed."""
    pids = [int(pid) for pid in procs.read_text(encoding="ascii").split()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def enter(folders: list[Path], pid: int) -> None:
    """Put a process with all its threads into these cgroups."""
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
