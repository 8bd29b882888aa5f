"""A cycle beside a snapshot of nvitop's, which asks the same driver about the same processes."""

from collections.abc import Iterator, Sequence
from functools import partial

import nvitop
import pynvml

from bench.node import BenchNode
from bench.table import milliseconds, show
from bench.timing import compare
from bench.watch import Watch


def beside_nvitop(nodes: Sequence[BenchNode], gpus: int = 8) -> None:
    """A steady pass beside `nvitop.take_snapshots`."""
    columns = ("GPUs", "processes", "nvitop, ms", "pass, ms", "nvitop / pass")
    show(
        f"A steady pass beside a snapshot of nvitop {nvitop.__version__} (lists of 0 ms)", columns, _beside(nodes, gpus)
    )


def _beside(nodes: Sequence[BenchNode], gpus: int) -> Iterator[Sequence[object]]:
    for node in nodes:
        node.show(gpus)
        node.use(still=True)
        pynvml.nvmlInit()
        devices = nvitop.Device.all()
        if len(nvitop.take_snapshots(devices).gpu_processes) != len(node.pids):
            raise RuntimeError("nvitop does not see the processes of the stub")
        with Watch(node) as watch:
            timing = compare({"nvitop": partial(nvitop.take_snapshots, devices), "pass": watch.run_pass}, rounds=3)
        pynvml.nvmlShutdown()
        yield (
            gpus,
            len(node.pids),
            milliseconds(timing.seconds("nvitop")),
            milliseconds(timing.seconds("pass")),
            timing.ratio("nvitop", "pass"),
        )
