"""Cgroups of a test, in every hierarchy of one version that this machine has mounted."""

import contextlib
import functools
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.leftovers import note_cgroup
from tests.node.support import cannot_run

Version = Literal["cgroup", "cgroup2"]
# Set on what tests have made. Tests that run at the same time share a parent such as `kubepods`; the last one removes
# it. One that the machine had before has no such mark, and stays.
_OURS: Final = "trusted.gpu-watchdog-tests"


def mounts(version: Version) -> list[Path]:
    """Where the v1 (`cgroup`) or v2 (`cgroup2`) hierarchies are mounted; cpuset takes no process unprepared."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return [Path(line[1]) for line in lines if line[2] == version and not line[1].endswith("cpuset")]


def mounted() -> Version:
    """The version that this machine has mounted, v1 where it has both: for what does not depend on the version."""
    return "cgroup" if mounts("cgroup") else "cgroup2"


@functools.cache
def _own_v1() -> list[Path]:
    """A hierarchy of v1 without controllers, which a kernel makes beside v2 too; it lasts as long as this process."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "cgroup", "-o", "none,name=gpu-watchdog-tests", "cgroup", folder]
        if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            return []
        held = os.open(folder, os.O_PATH)
        subprocess.run(["umount", "--lazy", folder], check=True)  # no path leads there any more but that of the file
    return [Path(f"/proc/{os.getpid()}/fd/{held}")]


class Cgroups:
    """Makes cgroups and removes those that it made; what runs in them must have been ended before."""

    def __init__(self, version: Version) -> None:
        """All hierarchies of that version; of v1, where none is mounted, one that is made for the tests."""
        self._version = version
        self._mounts = mounts(version) or (_own_v1() if version == "cgroup" else [])
        self._made: list[Path] = []

    @property
    def are_there(self) -> bool:
        """Whether this machine has hierarchies of that version."""
        return bool(self._mounts)

    def need(self) -> None:
        """Skip where there are none; in CI too on a kernel that has no such version, which no set-up could change."""
        if not self.are_there:
            if f"\t{self._version}\n" not in Path("/proc/filesystems").read_text(encoding="ascii"):
                pytest.skip(f"this kernel has no {self._version}")
            cannot_run(f"no {self._version} hierarchy is mounted")

    @property
    def made(self) -> tuple[Path, ...]:
        """The folders that were made here and are still there, the innermost first."""
        return tuple(folder for folder in reversed(self._made) if folder.is_dir())

    def make(self, path: str) -> list[Path]:
        """Make the cgroup of this path in each hierarchy."""
        for mount in self._mounts:
            self._make(mount / path)
        return [mount / path for mount in self._mounts]

    def enter(self, path: str, pid: int) -> None:
        """Put a process with all its threads into the cgroup of this path, made where it is missing."""
        for folder in self.make(path):
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def read(self, path: str) -> str:
        """The PIDs in the cgroup of this path, in the first hierarchy."""
        return (self._mounts[0] / path / "cgroup.procs").read_text(encoding="ascii")

    def remove(self) -> None:
        """Remove what was made, the innermost first, and parents that no test uses any more."""
        for folder in reversed(self._made):
            _remove(folder)
            for parent in folder.parents:
                with contextlib.suppress(OSError):  # in use, or not of the tests
                    os.getxattr(parent, _OURS)
                    parent.rmdir()
        self._made.clear()

    def _make(self, folder: Path) -> None:
        while not folder.exists():
            self._make(folder.parent)
            # Another test may make it at the same moment, or remove its parent.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                folder.mkdir()
                os.setxattr(folder, _OURS, b"")
                note_cgroup(folder)
                self._made.append(folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        # A cgroup is busy until its last process has been reaped.
        with contextlib.suppress(OSError):
            folder.rmdir()
            break
        with contextlib.suppress(FileNotFoundError):
            if any(child.is_dir() for child in folder.iterdir()):
                break
        time.sleep(0.01)
