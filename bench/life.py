"""What the daemon takes for ever: memory and its growth, CPU at the default interval, calls to the driver."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from ctypes import CDLL
from pathlib import Path
from typing import Any, Final

import pynvml

from bench.node import POLICY, BenchNode
from bench.table import show
from bench.watch import Watch
from tests.rig.command import Daemon, daemon
from tests.stub import LISTS, environment, preload
from watchdog.node.nvml import NvmlDriver

PASSES: Final = 10_000
_MARKS: Final = (1_000, 5_000, PASSES)
_CPU_S: Final = 30.0


def memory(nodes: Sequence[BenchNode], gpus: int = 8) -> None:
    """Memory over 10,000 passes, everything of the daemon being used: journal, metrics, page and status."""
    columns = ("processes", "passes", "PSS, MiB", "of it anonymous", "RSS, MiB", "open files", "CPU a pass, ms")
    title = f"Memory ({gpus} GPUs, 250 pods; asked for metrics, status and page every few hundred passes)"
    show(title, columns, (row for node in nodes for row in _memory(node, gpus)))


def _memory(node: BenchNode, gpus: int) -> Iterator[Sequence[object]]:
    node.show(gpus)
    with _unpaced(node) as running:
        for mark in _MARKS:
            while (passes := _passes(running)) < mark:
                running.get("/api/status")
                running.get("/")
                time.sleep(0.2)
            sizes = memory_mib(running.pid)
            files = len(list(Path(f"/proc/{running.pid}/fd").iterdir()))
            yield (
                len(node.pids),
                f"{passes:,.0f}",
                f"{sizes['Pss']:.1f}",
                f"{sizes['Pss_Anon']:.1f}",
                f"{sizes['Rss']:.1f}",
                files,
                f"{cpu_s(running.pid) / passes * 1000:.2f}",
            )


@contextlib.contextmanager
def _unpaced(node: BenchNode) -> Iterator[Daemon]:
    state = node.root / "unpaced"
    state.mkdir()
    arguments = (node.procfs, node.pods_file, POLICY, state / "journal.db", "127.0.0.1:0")
    with (state / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.unpaced", *map(str, arguments)],
            env=environment(node.stub_file, static=True),
            cwd=Path(__file__).parents[1],
            stdout=log,
            stderr=log,
        )
    try:
        running = Daemon(process, state / "log")
        running.wait(Daemon.is_up)
        yield running
    finally:
        process.terminate()
        process.wait(timeout=10)


def _passes(running: Daemon) -> float:
    return running.metric("cycle_duration_seconds_count") or 0.0


def memory_mib(pid: int) -> dict[str, float]:
    """What a process takes, in MiB, by the names that the kernel has for it: Rss, Pss, Pss_Anon and others."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return {name: int(size) / 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", rollup, re.MULTILINE)}


def cpu_s(pid: int) -> float:
    """CPU time of a process so far; the clock's number is made of its PID (clock_getcpuclockid(3), glibc)."""
    return time.clock_gettime((~pid << 3) | 2)


def cpu(nodes: Sequence[BenchNode], gpus: int = 8) -> None:
    """CPU of `gpu-watchdog run` at its default interval of 1 s."""
    columns = ("GPUs", "processes", "passes", "CPU of one core", "CPU a pass, ms")
    show(f"CPU at the default interval, over {_CPU_S:.0f} s", columns, (_cpu(node, gpus) for node in nodes))


def _cpu(node: BenchNode, gpus: int) -> Sequence[object]:
    node.show(gpus)
    state = node.root / "paced"
    state.mkdir()
    options: dict[str, Any] = {
        "--policy": POLICY,
        "--procfs": node.procfs,
        "--pods": node.pods_file,
        "--journal": state / "journal.db",
    }
    with daemon(state, node.stub_file, *(each for pair in options.items() for each in pair)) as running:
        running.wait_passes(2)
        began_s, spent_s, passes = time.monotonic(), cpu_s(running.pid), _passes(running)
        time.sleep(_CPU_S)
        spent_s = cpu_s(running.pid) - spent_s
        took_s = time.monotonic() - began_s
        passes = _passes(running) - passes
    return gpus, len(node.pids), f"{passes:.0f}", f"{spent_s / took_s:.2%}", f"{spent_s / passes * 1000:.2f}"


def calls(node: BenchNode, gpus: int = 8, passes: int = 100) -> None:
    """Calls to the driver of a steady pass."""
    library = preload()
    node.show(gpus)
    node.use(still=True)
    pynvml.nvmlInit()
    with Watch(node) as watch:
        library.nvmlStubForgetCalls()
        for _ in range(passes):
            watch.run_pass()
        names = (*LISTS, "nvmlDeviceGetMemoryInfo_v2")
        found = {name: int(library.nvmlStubCalls(name.encode())) / passes / gpus for name in names}
    found["all others, every 10 s"] = _enumerating(library) / gpus
    pynvml.nvmlShutdown()
    rows = [(name, f"{number:g}") for name, number in found.items()]
    show("Calls to the driver a GPU and pass, which at the default interval is a second", ("call", "number"), rows)


def _enumerating(library: CDLL) -> int:
    """The calls by which devices are enumerated again, in a reading that does so."""
    with contextlib.closing(NvmlDriver()) as steady, contextlib.closing(NvmlDriver(layout_every_s=0.0)) as enumerating:
        counts = []
        for driver in (steady, enumerating):
            driver.read()
            library.nvmlStubForgetCalls()
            driver.read()
            counts.append(int(library.nvmlStubCalls(None)))
    return counts[1] - counts[0]
