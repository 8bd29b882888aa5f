"""A program that takes GPU memory through libcuda.so.1 alone: `hog.py BYTES`, and more for each line that it reads.

Prints `free TOTAL FREE` in bytes, as CUDA counts, after each allocation. With `--work` it also keeps the GPU busy with
kernels that fill its memory, and prints `done COUNT` after each batch of them.
"""

import ctypes
import select
import sys
from typing import Any, Final

_KERNELS: Final = 64  # queued at a time, so that there is always work outstanding


def main() -> None:
    """Allocate, say so, and wait for the next line, idle or at work."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    # The primary context is what every CUDA program has; its 300 to 500 MiB are what the allowance is for.
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda.cuCtxSetCurrent(context))
    amount, works = int(sys.argv[1]), "--work" in sys.argv
    buffers: list[tuple[ctypes.c_uint64, int]] = []
    count = 0
    while True:
        if amount:
            pointer = ctypes.c_uint64()
            _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(amount)))
            buffers.append((pointer, amount))
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        _say(f"free {total.value} {free.value}")
        while works and not select.select([sys.stdin], [], [], 0)[0]:
            count += 1
            _work(cuda, buffers)
            _say(f"done {count}")
        line = sys.stdin.readline()
        if not line:
            return
        amount = int(line)


def _work(cuda: Any, buffers: list[tuple[ctypes.c_uint64, int]]) -> None:
    for number in range(_KERNELS):
        pointer, size = buffers[number % len(buffers)]
        _check(cuda.cuMemsetD32Async(pointer, number, ctypes.c_size_t(size // 4), None))
    _check(cuda.cuCtxSynchronize())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"CUDA error {code}")


if __name__ == "__main__":
    main()
