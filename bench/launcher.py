"""A busy process on a real GPU: keeps launching an empty kernel, and prints the count for each line it reads."""

import ctypes
import select
import sys

_BATCH = 1000
# An empty kernel; the driver compiles it for its card.
_PTX = b".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda.cuCtxSetCurrent(context))
    _check(cuda.cuModuleLoadData(ctypes.byref(module), _PTX))
    _check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing"))
    launched = 0
    while True:
        for _ in range(_BATCH):
            _check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None))
        _check(cuda.cuCtxSynchronize())
        launched += _BATCH
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(launched, flush=True)


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"CUDA error {code}")


if __name__ == "__main__":
    main()
