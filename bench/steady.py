"""A steady pass beside the driver calls that it is made of."""

import itertools
from collections.abc import Iterator, Sequence

import pynvml

from bench.calls import by_ctypes, by_pynvml
from bench.node import BenchNode
from bench.table import milliseconds, show
from bench.timing import Sides, compare
from bench.watch import Watch
from watchdog.node.nvml import NvmlDriver

GPUS = (1, 8, 16)
DELAY_MS = 4.5


def steady_passes(nodes: Sequence[BenchNode]) -> None:
    """A cycle in which nothing has changed, at every size, with lists that take no time and lists as a driver's are."""
    columns = ("list", "GPUs", "processes", "pynvml, ms", "pass, ms", "pass / pynvml", "reading / pynvml", "pass / C")
    show("A steady pass beside the same driver calls", columns, _steady(nodes))


def _steady(nodes: Sequence[BenchNode]) -> Iterator[Sequence[object]]:
    for delay_ms, gpus, node in itertools.product((0.0, DELAY_MS), GPUS, nodes):
        node.show(gpus, delay_ms=delay_ms)
        node.use(still=True)
        pynvml.nvmlInit()
        driver = NvmlDriver()
        with Watch(node) as watch:
            sides: Sides = {
                "pynvml": by_pynvml(gpus),
                "pass": watch.run_pass,
                "reading": driver.read,
                "C": by_ctypes(gpus),
            }
            timing = compare(sides, rounds=max(2, 16 // gpus) if delay_ms else 40)
        driver.close()
        pynvml.nvmlShutdown()
        yield (
            f"{delay_ms:g} ms",
            gpus,
            len(node.pids),
            milliseconds(timing.seconds("pynvml")),
            milliseconds(timing.seconds("pass")),
            timing.ratio("pass", "pynvml"),
            timing.ratio("reading", "pynvml"),
            timing.ratio("pass", "C") if delay_ms else "-",
        )


def moving_passes(nodes: Sequence[BenchNode], gpus: int = 8) -> None:
    """A cycle before which every process has taken more memory: everything is computed again."""
    columns = ("GPUs", "processes", "pynvml, ms", "pass, ms", "pass / pynvml")
    show("A pass in which the use of every process has changed", columns, _moving(nodes, gpus))


def _moving(nodes: Sequence[BenchNode], gpus: int) -> Iterator[Sequence[object]]:
    for node in nodes:
        numbers = itertools.count()

        def move(node: BenchNode = node, numbers: Iterator[int] = numbers) -> None:
            node.show(gpus, more=next(numbers) * 4096)
            pynvml.nvmlDeviceGetCount()  # has the stub read its file now, and not when the clock runs

        node.show(gpus)
        node.use(still=False)
        pynvml.nvmlInit()
        with Watch(node) as watch:
            timing = compare({"pynvml": by_pynvml(gpus), "pass": watch.run_pass}, rounds=10, before=move)
        pynvml.nvmlShutdown()
        yield (
            gpus,
            len(node.pids),
            milliseconds(timing.seconds("pynvml")),
            milliseconds(timing.seconds("pass")),
            timing.ratio("pass", "pynvml"),
        )
