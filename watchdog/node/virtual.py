"""Where a driver may not tell what single processes use: below Windows (WSL), and in guests that have a virtual GPU."""

import contextlib
from pathlib import Path

import pynvml

from watchdog.node.nvml_errors import NvmlCallError, ask, ask_handle


def windows_sign(root: Path = Path("/")) -> str:
    """By what it can be told that the driver is that of Windows, as on WSL; empty where it is not.

    There NVML has no amounts of single processes (`nvmlProcessInfo_t`: the kernel of Windows manages the memory), and
    NVIDIA does not say that it lists every process. The kernel's release names Microsoft; one that somebody has built
    anew does not, but has the device of Windows' paravirtualised GPUs.
    """
    with contextlib.suppress(OSError):
        release = (root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8", errors="replace").strip()
        if "microsoft" in release.lower():
            return f"the kernel is {release}"
    return "there is a /dev/dxg" if (root / "dev/dxg").exists() else ""


def has_capability_devices(root: Path = Path("/")) -> bool:
    """Whether any device of MIG's capabilities is there: the right to see all instances is that to open one of them.

    They are `/dev/nvidia-caps/nvidia-capN` (MIG User Guide, "Device Nodes and Capabilities"), and a container has those
    alone that its runtime puts there.
    """
    return any((root / "dev/nvidia-caps").glob("nvidia-cap*"))


def is_vgpu(handle: object) -> bool:
    """Whether a card is a vGPU in a virtual machine, as far as the driver says; a whole one passed through is not."""
    try:
        mode = ask(pynvml.nvmlDeviceGetVirtualizationMode, handle)
    except NvmlCallError:
        return False  # what follows from it is a better word for what is missing, and no amount
    return bool(mode == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)


def find_vgpus() -> tuple[str, ...]:
    """The UUIDs of the vGPUs of this machine. In a session that is open, and on the driver's thread: it can hang."""
    found = []
    with contextlib.suppress(NvmlCallError):
        for index in range(ask(pynvml.nvmlDeviceGetCount)):
            with contextlib.suppress(NvmlCallError):
                handle = ask_handle(pynvml.nvmlDeviceGetHandleByIndex, index)
                if is_vgpu(handle):
                    found.append(ask(pynvml.nvmlDeviceGetUUID, handle))
    return tuple(found)
