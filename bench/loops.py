"""Comparison programs without a suitable command: `python -m bench.loops NAME SECONDS` runs one at that interval."""

import sys
import time
from collections.abc import Callable


def floor() -> Callable[[], object]:
    """The calls of one cycle by pynvml's own wrappers, on existing handles; the results are ignored."""
    import pynvml

    pynvml.nvmlInit()
    cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def call() -> None:
        for card in cards:
            pynvml.nvmlDeviceGetComputeRunningProcesses(card)
            pynvml.nvmlDeviceGetGraphicsRunningProcesses(card)
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses(card)
            pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)

    return call


def nvitop() -> Callable[[], object]:
    """A snapshot of all devices and their processes, as in nvitop's documentation."""
    from nvitop import Device, take_snapshots

    devices = Device.all()
    return lambda: take_snapshots(devices)


def gpustat() -> Callable[[], object]:
    """A query of all devices and their processes, as in gpustat's documentation."""
    from gpustat import new_query

    query: Callable[[], object] = new_query
    return query


def main(name: str, every_s: str) -> None:
    call = {"floor": floor, "nvitop": nvitop, "gpustat": gpustat}[name]()
    due_s = time.monotonic()
    while True:
        call()
        due_s = max(due_s + float(every_s), time.monotonic()) if float(every_s) else due_s
        time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main(*sys.argv[1:])
