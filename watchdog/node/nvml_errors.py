"""What goes wrong in NVML, translated once: an error names its call and has a text with the remedy."""

from collections.abc import Callable
from typing import Final, TypeVar

import pynvml

T = TypeVar("T")

LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
ABSENT: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_NOT_FOUND})
# These say that NVML as a whole does not answer, not that one GPU fails.
WHOLE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
LACKING: Final = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})

_NOT_LISTED: Final = "the driver does not list it any more; unless it was taken out, look for Xid in the kernel log"
REMEDIES: Final[dict[int, str]] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: (
        "this device does not tell that; on WSL and in some vGPU guests it never will: run on Linux itself, or give "
        "the virtual machine a whole GPU (passthrough)"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "for a GPU in MIG mode run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN; "
        "otherwise look at the access to /dev/nvidia*"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the NVIDIA kernel module on the host (nvidia-smi must work there)",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "install the NVIDIA driver, run the container with the NVIDIA runtime (NVIDIA_VISIBLE_DEVICES=all, "
        "NVIDIA_DRIVER_CAPABILITIES=utility), or add the folder of libnvidia-ml.so.1 to LD_LIBRARY_PATH"
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old for it: update to driver 450 or newer",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was exchanged under the library: start the watchdog anew, or reboot if nvidia-smi fails too"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: "it fell off the bus: look for Xid 79 in the kernel log, drain and reboot the node",
    pynvml.NVML_ERROR_RESET_REQUIRED: "drain the node, then nvidia-smi --gpu-reset or a reboot",
    pynvml.NVML_ERROR_UNKNOWN: (
        "look for NVRM in the kernel log; in a container whose devices were taken away (systemctl daemon-reload), "
        "create the pod anew"
    ),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: _NOT_LISTED,
    pynvml.NVML_ERROR_NOT_FOUND: _NOT_LISTED,
}


class NvmlCallError(Exception):
    """A call of NVML that failed: `call` is the C function, `code` its return code (None: the answer made no sense)."""

    def __init__(self, call: str, code: int | None, text: str = "") -> None:
        super().__init__(call, code, text)
        self.call = call
        self.code = code
        self.text = text

    @property
    def said(self) -> str:
        """What failed, in NVML's own words."""
        return f"{self.call}: {self.text or f'{pynvml.NVMLError(self.code)} (code {self.code})'}"

    @property
    def remedy(self) -> str:
        """What helps, where that is known."""
        return REMEDIES.get(self.code or 0, "it is tried again with every pass")

    @property
    def why(self) -> str:
        """What failed, in NVML's own words, and the remedy where one is known."""
        return f"{self.said}; {self.remedy}"

    def __str__(self) -> str:
        return self.why


def ask(function: Callable[..., T], *args: object) -> T:
    """Call a wrapper of pynvml; every way in which it can fail is raised as an NvmlCallError.

    `NVMLLibraryMismatchError` is no NVMLError, and text that is not UTF-8 comes as a UnicodeDecodeError.
    """
    name = getattr(function, "__name__", "NVML")
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise NvmlCallError(name, error.value) from None
    except pynvml.NVMLLibraryMismatchError:
        raise NvmlCallError(name, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
    except UnicodeDecodeError:
        raise NvmlCallError(name, None, "the answer is not UTF-8 text") from None


def ask_handle(function: Callable[..., T], *args: object) -> T:
    """Call a wrapper that gives a device handle: a null one, which has crashed other tools, is an error."""
    handle = ask(function, *args)
    if not handle:
        raise NvmlCallError(function.__name__, None, "NVML gave a null handle")
    return handle


def has_function(name: str) -> bool:
    """Whether the loaded library has this C function."""
    try:
        pynvml._nvmlGetFunctionPointer(name)
    except pynvml.NVMLError:
        return False
    return True


def function_pointer(*names: str) -> tuple[str, Callable[..., int]] | None:
    """Give the first of these C functions that the loaded library has, with its name; None if it has none of them."""
    for name in names:
        if has_function(name):
            return name, pynvml._nvmlGetFunctionPointer(name)
    return None
