"""A container as the kernel shows it, and what the tests of its processes share."""

from pathlib import Path
from typing import Final

import pytest

from watchdog.core.model import Place, PlaceKind
from watchdog.node.procfs import Procfs

UID: Final = "8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"
ID: Final = "a1" * 32
PLACE: Final = Place(kind=PlaceKind.POD, pod=UID, container=ID)
POD: Final = f"2:pids:/kubepods/pod{UID}/{ID}\n0::/\n"
ROOT: Final = "2:pids:/\n0::/\n"
REAL: Final = Procfs()
ways: Final = pytest.mark.parametrize("pidfds", [True, False])


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def real_stat(pid: int) -> bytes:
    """The line of /proc/PID/stat of a real process."""
    return Path(f"/proc/{pid}/stat").read_bytes()
