"""A program that allocates GPU memory through libcuda.so.1 alone: `allocating.py BYTES`, more for each line it reads.

Prints `free TOTAL FREE` in bytes, as CUDA counts, after each allocation. With `--work` it also keeps the GPU busy with
kernels that fill its memory, and prints `done COUNT` after each batch of them. If a batch fails, it prints `error CODE`
and waits for its end, or with `--again` for a line, at which it resets the GPU and begins again. `--deaf`: it ignores
SIGTERM. `--fork`: it has a child that never uses the GPU, but has its file descriptors.
"""

import ctypes
import os
import select
import signal
import sys
import time
from typing import Any, Final

_KERNELS: Final = 64  # queued at a time, so that there is always work outstanding
_THREADS: Final = 256
# Stores a value in each word of the buffer. Compiled by the driver for its GPU, which must be Volta or newer, as MPS
# clients with memory of their own need it.
_PTX: Final = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 words, .param .u32 count, .param .u32 value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [value];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra done;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r2;
done:
    ret;
}
"""


class CudaError(Exception):
    """A call into CUDA failed."""


def main() -> None:
    """Allocate, say so, and wait for the next line, idle or at work."""
    cuda, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if "--deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    while (error := _use(cuda, device)) is not None:
        _say(f"error {error}")
        if "--again" not in sys.argv:
            signal.pause()
        sys.stdin.readline()
        cuda.cuDevicePrimaryCtxReset_v2(device)


def _use(cuda: Any, device: ctypes.c_int) -> CudaError | None:
    try:
        _allocate(cuda, device)
    except CudaError as error:
        return error
    return None


def _allocate(cuda: Any, device: ctypes.c_int) -> None:
    context = ctypes.c_void_p()
    # The primary context is what every CUDA program has; its 300 to 520 MiB are what the allowance is for.
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda.cuCtxSetCurrent(context))
    amount = int(sys.argv[1])
    fill = _kernel(cuda) if "--work" in sys.argv else None
    buffers: list[tuple[ctypes.c_uint64, int]] = []
    count = 0
    if "--fork" in sys.argv and os.fork() == 0:
        time.sleep(300)
        os._exit(0)
    while True:
        if amount:
            pointer = ctypes.c_uint64()
            _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(amount)))
            buffers.append((pointer, amount))
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        _say(f"free {total.value} {free.value}")
        while fill is not None and not select.select([sys.stdin], [], [], 0)[0]:
            count += 1
            _work(cuda, fill, buffers)
            _say(f"done {count}")
        line = sys.stdin.readline()
        if not line:
            return
        amount = int(line)


def _kernel(cuda: Any) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(_PTX)))
    _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fill"))
    return function


def _work(cuda: Any, fill: ctypes.c_void_p, buffers: list[tuple[ctypes.c_uint64, int]]) -> None:
    for number in range(_KERNELS):
        pointer, size = buffers[number % len(buffers)]
        words = size // 4
        values = pointer, ctypes.c_uint32(words), ctypes.c_uint32(number)
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        grid, block = (-(-words // _THREADS), 1, 1), (_THREADS, 1, 1)
        _check(cuda.cuLaunchKernel(fill, *grid, *block, 0, None, parameters, None))
    _check(cuda.cuCtxSynchronize())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _check(code: int) -> None:
    if code:
        raise CudaError(code)


if __name__ == "__main__":
    main()
