"""What this process can see of NVIDIA's driver: device files, the library, and whether it is the Windows driver."""

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml

from watchdog.node.drivers.nvml_calls import NvmlCallError, ask, entry_layout

# Under another driver root, as with the GPU Operator's driver container, it is further down the path.
_DEVICE: Final = "/dev/nvidia"


def open_devices(proc: Path = Path("/proc/self")) -> tuple[str, ...]:
    """Paths of NVIDIA's device files that this process has open or mapped; OSError if that can't be read.

    Any of them blocks a reset of the GPU and the replacement of the driver. A mapping keeps its file open after the
    descriptor has been closed (mmap(2)).
    """
    mapped = (path for path in _mapped_paths(proc) if _DEVICE in path)
    return tuple(dict.fromkeys((*descriptors(proc).values(), *mapped)))


def descriptors(proc: Path = Path("/proc/self")) -> dict[int, str]:
    """The open descriptors for NVIDIA's device files, with their paths; OSError if that can't be read."""
    paths: dict[int, str] = {}
    for entry in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # already closed, like the one that lists the folder
            path = str(entry.readlink())
            if _DEVICE in path:
                paths[int(entry.name)] = path
    return paths


def _mapped_paths(proc: Path) -> Iterator[str]:
    for line in (proc / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        yield line.split(maxsplit=5)[-1]


def windows_sign(root: Path = Path("/")) -> str:
    """The evidence that the driver is the Windows driver, as on WSL; empty if it is not.

    NVML then has no per-process memory (`nvmlProcessInfo_t`: the Windows kernel manages the memory), and NVIDIA does
    not promise that it lists every process. The kernel's release names Microsoft; a rebuilt kernel may not, but it has
    the device of Windows' paravirtualised GPUs.
    """
    with contextlib.suppress(OSError):
        release = (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8", errors="replace").strip()
        if "microsoft" in release.lower():
            return f"the kernel is {release}"
    return "there is a /dev/dxg" if (root / "dev/dxg").exists() else ""


def has_capability_devices(root: Path = Path("/")) -> bool:
    """Whether any MIG capability device exists; opening one of them permits access to all instances.

    They are `/dev/nvidia-caps/nvidia-capN` (MIG User Guide, "Device Nodes and Capabilities"), and a container has only
    those that its runtime adds.
    """
    return any((root / "dev/nvidia-caps").glob("nvidia-cap*"))


SONAME: Final = "libnvidia-ml.so.1"
# Where the GPU Operator's driver container, GKE, WSL and distributions put it, and installers made after that of
# cos-gpu-installer (/var/lib/nvidia unless told otherwise); the loader does not search all of them.
_FOLDERS: Final = (
    "run/nvidia/driver/usr/lib/*-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "var/lib/nvidia/lib64",
    "usr/lib/wsl/lib",
    "usr/lib/*-linux-gnu",
    "usr/lib64",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The NVML library that was loaded, or why none was."""

    # Where it was loaded from; None: none was.
    path: str | None = None
    # Without a path, the loader's message.
    problem: str = ""
    # Without a path, other folders that contain the library.
    elsewhere: tuple[str, ...] = ()
    # Why the driver behind it does not answer; None: it does.
    failure: NvmlCallError | None = None
    # NVML's version; None if unknown.
    version: str | None = None
    # The size of an entry of its process lists, in bytes; None if unknown.
    entry: int | None = None


def inspect_library(root: Path = Path("/")) -> Library:
    """Load it as pynvml does and open a session, which stays open. Call it on the driver's thread: it can hang."""
    try:
        ctypes.CDLL(SONAME)
    except OSError as error:
        return Library(problem=str(error), elsewhere=tuple(find_library(root)))
    path = _mapped_library() or SONAME
    try:
        ask(pynvml.nvmlInit)
        version = ask(pynvml.nvmlSystemGetNVMLVersion)
    except NvmlCallError as error:
        return Library(path=path, failure=error)
    return Library(path=path, version=version, entry=entry_layout().size)


def find_library(root: Path = Path("/")) -> Iterator[str]:
    """The usual folders that contain the library, whether or not the loader searches them."""
    for pattern in _FOLDERS:
        for folder in sorted(root.glob(pattern)):
            with contextlib.suppress(PermissionError):
                if (folder / SONAME).exists():
                    yield str(folder)


def _mapped_library() -> str | None:
    """The file behind the loaded library, as the kernel has it mapped: its name usually contains its version."""
    with contextlib.suppress(OSError):
        paths = _mapped_paths(Path("/proc/self"))
        return next((path for path in paths if path.startswith("/") and "libnvidia-ml.so" in path), None)
    return None
