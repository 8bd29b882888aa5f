"""The NVML library as this process finds it: which file it is, and whether the driver behind it answers."""

import contextlib
import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml

from watchdog.node.nvml_errors import NvmlCallError, ask
from watchdog.node.nvml_lists import entry_bytes

SONAME: Final = "libnvidia-ml.so.1"
# Where the GPU Operator's driver container, GKE, WSL and distributions put it; the loader does not look in all of them.
_FOLDERS: Final = (
    "run/nvidia/driver/usr/lib/*-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "usr/lib/wsl/lib",
    "usr/lib/*-linux-gnu",
    "usr/lib64",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library that was loaded from `path`, or why none was.

    Without a path `problem` has the loader's own words, and `elsewhere` the folders that hold one all the same.
    `failure` is why the driver behind it does not answer. `version` is NVML's own, `entry` the bytes of an entry of its
    process lists; both None where that is not known.
    """

    path: str | None = None
    problem: str = ""
    elsewhere: tuple[str, ...] = ()
    failure: NvmlCallError | None = None
    version: str | None = None
    entry: int | None = None


def look_at_library(root: Path = Path("/")) -> Library:
    """Load it as pynvml does and open a session, which stays open. To be called on the driver's thread: it can hang."""
    try:
        ctypes.CDLL(SONAME)
    except OSError as error:
        return Library(problem=str(error), elsewhere=tuple(find_library(root)))
    path = _mapped() or SONAME
    try:
        ask(pynvml.nvmlInit)
        version = ask(pynvml.nvmlSystemGetNVMLVersion)
    except NvmlCallError as error:
        return Library(path=path, failure=error)
    return Library(path=path, version=version, entry=entry_bytes())


def find_library(root: Path = Path("/")) -> Iterable[str]:
    """The usual folders that hold the library, whether the loader looks there or not."""
    for pattern in _FOLDERS:
        for folder in sorted(root.glob(pattern)):
            with contextlib.suppress(PermissionError):
                if (folder / SONAME).exists():
                    yield str(folder)


def _mapped() -> str | None:
    """The file behind the loaded library, as the kernel has it mapped: its name mostly tells its version."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return next((path for path in paths if path.startswith("/") and "libnvidia-ml.so" in path), None)
