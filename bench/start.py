"""Startup time, and memory after startup: each side in turn."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from bench.api import served
from bench.node import IMMEDIATE, NAME
from bench.running import EXPORTER, IN_PROC, PLAIN, POLICY, PROMETHEUS, WATCHDOG, Bench, start
from bench.table import Row
from tests.rig.command import COMMAND
from tests.stub import environment


def startup(bench: Bench) -> Iterator[Row]:
    """Time to the first reading that can be scraped, and to the end of a command that prints one."""
    node = bench.node(bench.worlds[0], IMMEDIATE)
    where = (node.world, node.driver.name)
    files = ("--policy", POLICY, "--pods", node.pods_file, "--procfs", node.procfs, "--node", NAME)
    commands: dict[str, list[str | Path]] = {
        WATCHDOG: [*IN_PROC, node.procfs, COMMAND, "scan", "--json", *files],
        "gpustat": [COMMAND.with_name("gpustat"), "--json"],
        "nvitop": [COMMAND.with_name("nvitop"), "--once"],
    }
    started: dict[str, list[float]] = {name: [] for name in (WATCHDOG, PLAIN, EXPORTER)}
    printed: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(bench.repeats):
        for name, times in started.items():
            began_s = time.perf_counter()
            with start(name, node):
                times.append((time.perf_counter() - began_s) * 1000)
        for name, command in commands.items():
            began_s = time.perf_counter()
            subprocess.run(command, env=environment(node.stub_file, read="once"), stdout=subprocess.DEVNULL, check=True)
            printed[name].append((time.perf_counter() - began_s) * 1000)
    for what, found in (("start to first reading served", started), ("one reading printed, `scan`", printed)):
        for name in list(found)[1:]:
            yield Row(what=what, where=where, ours=found[WATCHDOG], beside=name, theirs=found[name], unit="ms")


def memory(bench: Bench) -> Iterator[Row]:
    """Memory with pods from the API, after many simultaneous scrapes."""
    node = bench.node(bench.worlds[-1], IMMEDIATE)
    # prometheus-client's default server queues five connections and resets others.
    at_once = {WATCHDOG: bench.scrapes, PLAIN: 4}
    found: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in ("Pss", "Rss") for name in at_once}
    with served(node) as kubeconfig:
        for _, name in product(range(bench.repeats), at_once):
            with start(name, node, kubeconfig=kubeconfig) as side:
                time.sleep(bench.window_s / 2)
                with ThreadPoolExecutor(at_once[name]) as threads:
                    list(threads.map(side.scrape, [PROMETHEUS] * bench.scrapes))
                time.sleep(bench.window_s / 2)
                for kind in ("Pss", "Rss"):
                    found[kind, name].append(side.memory_mib(kind))
    for kind, aim in (("Pss", "≤ 60 MiB"), ("Rss", "")):
        what = f"{kind.upper()} with the API, after {bench.scrapes} scrapes at once"
        ours, theirs = (found[kind, name] for name in at_once)
        yield Row(
            what=what, where=(node.world, "immediate"), ours=ours, beside=PLAIN, theirs=theirs, unit="MiB", aim=aim
        )
