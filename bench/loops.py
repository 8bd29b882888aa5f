"""What the daemon is compared with and has no command of its own: `python -m bench.loops NAME SECONDS`, once each."""

import sys
import time
from collections.abc import Callable


def floor() -> Callable[[], object]:
    """The calls of one cycle by pynvml's own wrappers, on handles that are there already; nothing is done with them."""
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
    """A snapshot of all devices and their processes, as nvitop's documentation takes it."""
    from nvitop import Device, take_snapshots

    devices = Device.all()
    return lambda: take_snapshots(devices)


def gpustat() -> Callable[[], object]:
    """A query of all devices and their processes, as gpustat's documentation makes it."""
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
