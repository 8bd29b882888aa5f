"""The cgroup of the tests' own that a kubelet puts its pods below."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.leftovers import note_cgroup

# What the kubelet wants to find enabled where there is v2 alone (pkg/kubelet/cm, cgroup_v2_manager_linux.go).
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids", "hugetlb")


class CgroupRoot:
    """A cgroup of one name in every hierarchy of this machine, v1 and v2; all of it goes at the end.

    Processes of containers are in all of them, so that they are looked for in the first one alone.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        mounts = _mounts()
        self._folders = [mount / name for mount in mounts]
        for folder in self._folders:
            if len(mounts) == 1:
                _enable_controllers(folder.parent)
            folder.mkdir()
            note_cgroup(folder)
            # A v1 cpuset takes no process before it has processors and memory nodes.
            for given in ("cpuset.cpus", "cpuset.mems"):
                if (folder.parent / given).exists() and (folder / given).exists():
                    (folder / given).write_text((folder.parent / given).read_text(encoding="ascii"), encoding="ascii")
            if len(mounts) == 1:
                _enable_controllers(folder)

    @property
    def path(self) -> str:
        """Its path from the top of each hierarchy."""
        return f"/{self.name}"

    def members(self) -> dict[int, str]:
        """Every process below it, by PID, with its cgroup's path from here."""
        return _members(self._folders[0])

    def close(self) -> None:
        """End every process in it, then remove it from all hierarchies."""
        kill_all(lambda: [pid for top in self._folders for pid in _members(top)])
        for top in self._folders:
            _remove(top, time.monotonic() + 10)


def _members(top: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for folder, _, files in os.walk(top):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError):
                pids = Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
                found.update((int(pid), str(Path(folder).relative_to(top))) for pid in pids)
    return found


def kill_all(members: Callable[[], Iterable[int]]) -> None:
    """Kill processes until there are none, for ten seconds."""
    deadline = time.monotonic() + 10
    while (pids := members()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _mounts() -> list[Path]:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if line[2] in ("cgroup", "cgroup2")]
    # First the one of `memory`: systemd's and an unused v2 need not have what runc starts.
    return [Path(line[1]) for line in sorted(found, key=lambda line: "memory" not in line[3].split(","))]


def _enable_controllers(folder: Path) -> None:
    available = folder / "cgroup.controllers"
    if available.exists():
        for controller in set(available.read_text(encoding="ascii").split()) & set(_CONTROLLERS):
            # Refused where a process sits in the cgroup itself; then the kubelet reports what it misses.
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _remove(top: Path, deadline: float) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        while True:
            try:
                Path(folder).rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                # Busy until its last process has been reaped.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
