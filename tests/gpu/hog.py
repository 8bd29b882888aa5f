"""A program that takes GPU memory through libcuda.so.1 alone: `hog.py BYTES`, and more for each line that it reads.

Prints `free TOTAL FREE` in bytes, as CUDA counts, after each allocation.
"""

import ctypes
import sys


def main() -> None:
    """Allocate, say so, and wait for the next line."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    # The primary context is what every CUDA program has; its 300 to 500 MiB are what the allowance is for.
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda.cuCtxSetCurrent(context))
    amount = int(sys.argv[1])
    while True:
        if amount:
            pointer = ctypes.c_uint64()
            _check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(amount)))
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        sys.stdout.write(f"free {total.value} {free.value}\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        amount = int(line)


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"CUDA error {code}")


if __name__ == "__main__":
    main()
