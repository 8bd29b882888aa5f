"""Single NVML calls: process lists, memory counters, and each error code as a problem with its remedy."""

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import pynvml

from watchdog.core.errors import Problem

T = TypeVar("T")

LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
ABSENT: Final = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_NOT_FOUND})
# These mean that NVML as a whole is not responding, not that one GPU fails.
WHOLE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
LACKING: Final = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
_NO_SECOND_VERSION: Final = LACKING | {pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}

_NOT_LISTED: Final = "the driver no longer lists it; unless it was removed, look for Xid in the kernel log"
REMEDIES: Final[dict[int, str]] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: (
        "this device does not report it; on WSL and in some vGPU guests it never will: run on Linux itself, or give "
        "the virtual machine a whole GPU (passthrough)"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "for a GPU in MIG mode run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN; "
        "otherwise check the access to /dev/nvidia*"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the NVIDIA kernel module on the host (nvidia-smi must work there)",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "install the NVIDIA driver, run the container with the NVIDIA runtime (NVIDIA_VISIBLE_DEVICES=all, "
        "NVIDIA_DRIVER_CAPABILITIES=utility), or add the folder of libnvidia-ml.so.1 to LD_LIBRARY_PATH"
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old: update to driver 450 or newer",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced under the loaded library: restart the watchdog, or reboot if nvidia-smi fails too"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: "it fell off the bus: look for Xid 79 in the kernel log, drain and reboot the node",
    pynvml.NVML_ERROR_RESET_REQUIRED: "drain the node, then nvidia-smi --gpu-reset or a reboot",
    pynvml.NVML_ERROR_UNKNOWN: (
        "look for NVRM in the kernel log; in a container that has lost its devices (systemctl daemon-reload), recreate "
        "the pod"
    ),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: _NOT_LISTED,
    pynvml.NVML_ERROR_NOT_FOUND: _NOT_LISTED,
}
RETRIED: Final = "it is retried every cycle"


class NvmlCallError(Exception):
    """An NVML call that failed: `call` is the C function, `code` its return code (None: the response made no sense)."""

    def __init__(self, call: str, code: int | None, text: str = "") -> None:
        super().__init__(call, code, text)
        self.call = call
        self.code = code
        self.text = text

    @property
    def problem(self) -> Problem:
        """The failed call with NVML's message, and the remedy."""
        text = self.text or f"{pynvml.NVMLError(self.code)} (code {self.code})"
        return Problem(f"{self.call}: {text}", REMEDIES.get(self.code or 0, RETRIED))

    def __str__(self) -> str:
        return str(self.problem)


def ask(function: Callable[..., T], *args: object) -> T:
    """Call a pynvml wrapper; every failure is raised as an NvmlCallError.

    `NVMLLibraryMismatchError` is not an NVMLError, and text that is not UTF-8 raises a UnicodeDecodeError.
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
    """Call a pynvml wrapper that returns a device handle; a null handle, which has crashed other tools, is an error."""
    handle = ask(function, *args)
    if not handle:
        raise NvmlCallError(function.__name__, None, "NVML returned a null handle")
    return handle


def function_pointer(*names: str) -> tuple[str, Callable[..., int]] | None:
    """The first of these C functions that the loaded library has, with its name; None if it has none of them."""
    for name in names:
        with contextlib.suppress(pynvml.NVMLError):
            return name, pynvml._nvmlGetFunctionPointer(name)
    return None


Kind = Literal["Compute", "Graphics", "MPSCompute"]
KINDS: Final[tuple[Kind, ...]] = ("Compute", "Graphics", "MPSCompute")
ListEntry = tuple[int, int, int, int]  # PID, used bytes, GPU instance, compute instance
Merged = Mapping[tuple[int, int, int], int | None]  # PID, GPU instance, compute instance -> used bytes
CLIENTS: Final[Kind] = "MPSCompute"
NOT_AVAILABLE: Final = 2**64 - 1
NO_INSTANCE: Final = 2**32 - 1
MAX_PID: Final = 2**22  # PID_MAX_LIMIT of a 64-bit Linux

_ENTRY_24: Final = struct.Struct("=I4xQII")
_ENTRY_32: Final = struct.Struct("=I4xQII8x")
_FIRST_CAPACITY: Final = 128
_MAX_CAPACITY: Final = 2**16
_MAX_TRIES: Final = 6


class ProcessLists:
    """The process lists of one NVML session, read into one buffer that grows.

    pynvml's own wrapper requests the size, then the list: two calls of some 4.5 ms under the driver's global lock
    (MangoHud #2104). It also takes a size query that returns SUCCESS for "no processes". Here one call is enough, with
    room to spare; a list that has outgrown the buffer is requested again, a bounded number of times.
    """

    def __init__(self) -> None:
        self._functions = {
            kind: function_pointer(f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
            for kind in KINDS
        }
        self._entry = entry_layout()
        self._count = ctypes.c_uint()
        self._count_pointer: Any = ctypes.byref(self._count)
        self._allocate(_FIRST_CAPACITY)

    def read(self, handle: object, kind: Kind) -> bytes:
        """List the processes of a device, as the driver wrote them; equal bytes mean equal lists.

        NvmlCallError on failure, and if the driver or the device has no such list.
        """
        loaded = self._functions[kind]
        if loaded is None:
            raise NvmlCallError(f"nvmlDeviceGet{kind}RunningProcesses_v2", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        name, function = loaded
        for _ in range(_MAX_TRIES):
            self._count.value = self._capacity
            code = function(handle, self._count_pointer, self._buffer)
            if code == pynvml.NVML_SUCCESS:
                count = self._count.value
                if count == 0:
                    return b""  # two of a card's three lists usually are empty, and a copy of nothing takes 0.3 us
                if count > self._capacity:
                    raise NvmlCallError(name, None, f"NVML claims {count} entries in a buffer for {self._capacity}")
                return ctypes.string_at(self._buffer, count * self._entry.size)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._allocate(min(2 * max(self._count.value, self._capacity), _MAX_CAPACITY))
        raise NvmlCallError(name, code)

    def parse(self, raw: bytes) -> list[ListEntry]:
        """Parse the entries of a list read in this session."""
        return list(self._entry.iter_unpack(raw))

    def _allocate(self, capacity: int) -> None:
        """Make room for `capacity` entries of the larger layout: a misjudged driver must not write beyond it."""
        self._capacity = capacity
        self._buffer = ctypes.create_string_buffer(capacity * _ENTRY_32.size)


def entry_layout() -> struct.Struct:
    """The layout of list entries: only drivers of about 535.43 to 535.86 have 32 bytes in their `_v3` lists.

    They are recognised by the functions they have and lack (nvitop#75): read with 24 bytes, their PIDs come out
    shifted.
    """
    has_v3 = function_pointer("nvmlDeviceGetComputeRunningProcesses_v3")
    has_conf_compute = function_pointer("nvmlDeviceGetConfComputeMemSizeInfo")
    has_details = function_pointer("nvmlDeviceGetRunningProcessDetailList")
    return _ENTRY_32 if has_v3 and has_conf_compute and not has_details else _ENTRY_24


class Memory(NamedTuple):
    """Bytes of a device.

    The second version of NVML's own counter leaves `reserved` out of what is used, although its documentation said
    otherwise up to driver 525: on an idle H100 with driver 580.159 it has 0 bytes used, 480 MiB reserved, and the rest
    free (`tests/gpu`).
    """

    total: int
    # The total minus what is free, so it includes `reserved`.
    used: int
    # None if the driver does not report it separately.
    reserved: int | None


class MemoryCounter:
    """Reads the memory counter of devices, in one NVML session: 12 us a call, where a process list takes 4.5 ms."""

    def __init__(self) -> None:
        self._first = function_pointer("nvmlDeviceGetMemoryInfo")
        self._second = function_pointer("nvmlDeviceGetMemoryInfo_v2")
        self._info = pynvml.c_nvmlMemory_t()
        self._info_v2 = pynvml.c_nvmlMemory_v2_t()
        self._pointer: Any = ctypes.byref(self._info)
        self._pointer_v2: Any = ctypes.byref(self._info_v2)

    def used(self, handles: Iterable[tuple[str, object]]) -> dict[str, int]:
        """Read the bytes in use by UUID; devices that can't be read are missing.

        20 times a second for 8 devices, each call on cold caches: `read` for each would double the CPU time.
        """
        used: dict[str, int] = {}
        loaded = self._second or self._first
        if loaded is None:
            return used
        _, function = loaded
        info, pointer = (self._info_v2, self._pointer_v2) if self._second else (self._info, self._pointer)
        self._info_v2.version = pynvml.nvmlMemory_v2
        for uuid, handle in handles:
            if function(handle, pointer) == pynvml.NVML_SUCCESS:
                used[uuid] = info.total - info.free
                continue
            with contextlib.suppress(NvmlCallError):
                if (memory := self.read(handle)) is not None:
                    used[uuid] = memory.used
        return used

    def read(self, handle: object) -> Memory | None:
        """Read the counter; None if the device has none (GB10 and others that share the host's memory).

        NvmlCallError on any other failure.
        """
        if self._second is not None:
            name, function = self._second
            info = self._info_v2
            info.version = pynvml.nvmlMemory_v2
            code = function(handle, self._pointer_v2)
            if code == pynvml.NVML_SUCCESS:
                return Memory(info.total, info.total - info.free, info.reserved)
            if code not in _NO_SECOND_VERSION:
                raise NvmlCallError(name, code)
        if self._first is None:
            raise NvmlCallError("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        name, function = self._first
        code = function(handle, self._pointer)
        if code == pynvml.NVML_SUCCESS:
            return Memory(self._info.total, self._info.total - self._info.free, None)
        if code == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise NvmlCallError(name, code)


class ContradictionError(Exception):
    """A process list that is impossible, so that nothing in it may be used."""


def merge(entries: Iterable[ListEntry]) -> Merged:
    """Merge lists: per (PID, GPU instance, compute instance) the largest amount, None only if unknown in all.

    The same process can be in several lists, each time with its total; adding them up would count it twice.
    ContradictionError on a PID of 0 or above 2^22, the sign of entries that were read with the wrong layout.
    """
    merged: dict[tuple[int, int, int], int | None] = {}
    for pid, used, gi, ci in entries:
        if not 0 < pid <= MAX_PID:
            raise ContradictionError(f"it has the PID {pid}, which is impossible")
        key = (pid, gi, ci)
        if used == NOT_AVAILABLE:
            merged.setdefault(key, None)
        elif (before := merged.get(key)) is None or before < used:
            merged[key] = used
    return merged
