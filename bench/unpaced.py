"""Cycles and the floor without pauses; `python -m bench.unpaced` runs such a daemon."""

import contextlib
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

if __name__ == "__main__":
    # The daemon hides it from structlog (export/log.py), which here may be imported first.
    sys.modules["rich"] = None  # type: ignore[assignment]

from bench.node import IMMEDIATE, NAME, REAL_LISTS
from bench.running import FLOOR, WATCHDOG, Bench, start
from bench.table import Row
from watchdog import clock
from watchdog.config.watch import PolicyFile
from watchdog.daemon.enforcement import open_processes
from watchdog.daemon.main import Daemon
from watchdog.export.log import configure
from watchdog.node.drivers.nvml import NvmlDriver
from watchdog.options import Options


def unpaced(bench: Bench) -> Iterator[Row]:
    """CPU and time of a cycle, and whether memory grows over thousands of cycles."""
    for world, driver in product(bench.worlds, (IMMEDIATE, REAL_LISTS)):
        node, where = bench.node(world, driver), (world, driver.name)
        with contextlib.ExitStack() as stack:
            usage = bench.watch(
                {name: stack.enter_context(start(name, node, paced=False)) for name in (WATCHDOG, FLOOR)}, scale=0.5
            )
        for what in ("CPU", "time"):
            ours, theirs = (
                [
                    (cpu if what == "CPU" else 1) * world.cards / rate * 1000
                    for cpu, rate in zip(each.cpu, each.cycles, strict=True)
                ]
                for each in usage.values()
            )
            yield Row(
                what=f"{what} per cycle, no pause between cycles",
                where=where,
                ours=ours,
                beside=FLOOR,
                theirs=theirs,
                unit="ms",
            )
        if driver is IMMEDIATE:
            memory = usage[WATCHDOG].anonymous_mib
            count = sum(usage[WATCHDOG].cycles[1:]) / world.cards * bench.window_s / 2
            yield Row(
                what="anonymous memory after many cycles",
                where=where,
                ours=memory[1:],
                beside=f"itself {count:,.0f} cycles earlier",
                theirs=memory[:1] * (len(memory) - 1),
                unit="MiB",
            )


def main(port: str, root: str, state: str, policy: str) -> int:
    """A daemon that begins each cycle as soon as the last one has ended."""
    options = Options(
        node=NAME,
        listen=f"127.0.0.1:{port}",
        procfs=Path(root) / "proc",
        pods=Path(root) / "pods.json",
        policy=Path(policy),
        journal=Path(state) / "journal.db",
    )
    policy_file = PolicyFile(options.policy)
    loaded = policy_file.begin(clock.now())
    configure()
    environment, scanner = open_processes(options)
    daemon = Daemon(options, (policy_file, loaded), NvmlDriver(), environment, scanner)
    daemon._sampler.pace.interval_s = 0.0  # and not the policy's, by which every cycle would be late
    return daemon.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
