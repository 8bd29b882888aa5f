"""What a cycle is measured against: the same driver calls alone."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

_LISTS = ("Compute", "Graphics", "MPSCompute")
_CAPACITY = 4096


def by_pynvml(gpus: int) -> Callable[[], None]:
    """The process lists and the memory of each GPU, by pynvml's own wrappers, on handles that are there already."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]

    def call() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)

    return call


def by_ctypes(gpus: int) -> Callable[[], None]:
    """The least that Python can do: each C function once, into memory that is there already, and nothing read of it."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]
    lists = [pynvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses_v3") for kind in _LISTS]
    memory = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo_v2")
    buffer = (pynvml.c_nvmlProcessInfo_v2_t * _CAPACITY)()
    count = ctypes.c_uint()
    count_at: Any = ctypes.byref(count)
    info = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    info_at: Any = ctypes.byref(info)

    def call() -> None:
        for handle in handles:
            for function in lists:
                count.value = _CAPACITY
                function(handle, count_at, buffer)
            memory(handle, info_at)

    return call
