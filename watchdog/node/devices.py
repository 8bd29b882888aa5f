"""Which device files of NVIDIA's driver this very process has open: any holds up a reset, and another driver."""

from contextlib import suppress
from pathlib import Path
from typing import Final

# Where the driver's root is another one, as with the GPU Operator's driver container, it is a folder further down.
_DEVICE: Final = "/dev/nvidia"


def open_devices(proc: Path = Path("/proc/self")) -> tuple[str, ...]:
    """Paths of device files that are open or mapped, each once; OSError where that can't be seen.

    A mapping keeps its file open after the descriptor has been closed (mmap(2)).
    """
    return tuple(dict.fromkeys((*descriptors(proc).values(), *_mapped(proc))))


def descriptors(proc: Path = Path("/proc/self")) -> dict[int, str]:
    """The descriptors of this process that are device files of the driver, with their paths; OSError."""
    found: dict[int, str] = {}
    for entry in (proc / "fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile, like the one that lists the folder
            path = str(entry.readlink())
            if _DEVICE in path:
                found[int(entry.name)] = path
    return found


def _mapped(proc: Path) -> list[str]:
    lines = (proc / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = (line.split(maxsplit=5)[-1] for line in lines if _DEVICE in line)
    return [path for path in paths if _DEVICE in path]
