"""Process lists of NVML: one driver call a list, whatever the layout of its entries."""

import ctypes
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import pynvml

from watchdog.node.nvml_errors import NvmlCallError, function_pointer, has_function

Kind = Literal["Compute", "Graphics", "MPSCompute"]
KINDS: Final[tuple[Kind, ...]] = ("Compute", "Graphics", "MPSCompute")
Entry = tuple[int, int, int, int]  # PID, used bytes, GPU instance, compute instance
Merged = Mapping[tuple[int, int, int], int | None]  # PID, GPU instance, compute instance -> used bytes
MPS: Final[Kind] = "MPSCompute"
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

    pynvml's own wrapper asks for the size, then for the list: two calls of some 4.5 ms under the driver's global lock
    (MangoHud #2104), and a size query that answers SUCCESS reads as "no processes". Here one call does, with room to
    spare; a list that has outgrown it is asked for again, a bounded number of times.
    """

    def __init__(self) -> None:
        self._functions = {
            kind: function_pointer(f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
            for kind in KINDS
        }
        self._entry = _entry_layout()
        self._count = ctypes.c_uint()
        self._count_pointer: Any = ctypes.byref(self._count)
        self._allocate(_FIRST_CAPACITY)

    def read(self, handle: object, kind: Kind) -> bytes:
        """List the processes of a device, as the driver wrote them; equal bytes mean equal lists.

        Raises NvmlCallError, also where the driver or the device has no such list.
        """
        found = self._functions[kind]
        if found is None:
            raise NvmlCallError(f"nvmlDeviceGet{kind}RunningProcesses_v2", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        name, function = found
        for _ in range(_MAX_TRIES):
            self._count.value = self._capacity
            code = function(handle, self._count_pointer, self._buffer)
            if code == pynvml.NVML_SUCCESS:
                return self._written(name, self._count.value)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._allocate(min(2 * max(self._count.value, self._capacity), _MAX_CAPACITY))
        raise NvmlCallError(name, code)

    def parse(self, raw: bytes) -> list[Entry]:
        """Read the entries of a list that this session gave."""
        return list(self._entry.iter_unpack(raw))

    def _written(self, name: str, count: int) -> bytes:
        if count == 0:
            return b""
        if count > self._capacity:
            raise NvmlCallError(name, None, f"NVML claims {count} entries in a buffer for {self._capacity}")
        return ctypes.string_at(self._buffer, count * self._entry.size)

    def _allocate(self, capacity: int) -> None:
        """Make room for `capacity` entries, of the larger layout: a misjudged driver must not write beyond it."""
        self._capacity = capacity
        self._buffer = ctypes.create_string_buffer(capacity * _ENTRY_32.size)


def entry_bytes() -> int:
    """How many bytes an entry of a process list has with the library that is loaded."""
    return _entry_layout().size


def _entry_layout() -> struct.Struct:
    """Tell how entries lie in memory: drivers of about 535.43 to 535.86 alone have 32 bytes in their `_v3` lists.

    They are known by what they have and lack (nvitop#75): read with 24 bytes, their PIDs come out shifted.
    """
    has_v3 = has_function("nvmlDeviceGetComputeRunningProcesses_v3")
    has_conf_compute = has_function("nvmlDeviceGetConfComputeMemSizeInfo")
    has_details = has_function("nvmlDeviceGetRunningProcessDetailList")
    return _ENTRY_32 if has_v3 and has_conf_compute and not has_details else _ENTRY_24


class ContradictionError(Exception):
    """A listing that cannot be true, and of which nothing may be used."""


def merge(entries: Iterable[Entry]) -> Merged:
    """Unite lists: per (PID, GPU instance, compute instance) the largest amount, None only if unknown in all.

    The same process can stand in several lists, each time with its total; adding them up would count it double. Raises
    ContradictionError on a PID of 0 or above 2^22, the mark of entries that were read with the wrong layout.
    """
    merged: dict[tuple[int, int, int], int | None] = {}
    for pid, used, gi, ci in entries:
        if not 0 < pid <= MAX_PID:
            raise ContradictionError(f"it has the PID {pid}, which cannot be")
        key = (pid, gi, ci)
        if used == NOT_AVAILABLE:
            merged.setdefault(key, None)
        elif (before := merged.get(key)) is None or before < used:
            merged[key] = used
    return merged
