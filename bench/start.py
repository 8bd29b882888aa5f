"""Startup time, and memory after startup: each side in turn."""

import subprocess
import sys
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

_WITH_API, _VERSION, _PYTHON = "watchdog with the API", "version", "`python -c pass`"


def startup(bench: Bench) -> Iterator[Row]:
    """Time to the first reading that can be scraped, and to the end of a command that prints one, or the version."""
    node = bench.node(bench.worlds[0], IMMEDIATE)
    where = (node.world, node.driver.name)
    files = ("--policy", POLICY, "--pods", node.pods_file, "--procfs", node.procfs, "--node", NAME)
    commands: dict[str, list[str | Path]] = {
        WATCHDOG: [*IN_PROC, node.procfs, COMMAND, "scan", "--json", *files],
        "gpustat": [COMMAND.with_name("gpustat"), "--json"],
        "nvitop": [COMMAND.with_name("nvitop"), "--once"],
        _VERSION: [COMMAND, "--version"],
        _PYTHON: [sys.executable, "-c", "pass"],
    }
    started: dict[str, list[float]] = {name: [] for name in (WATCHDOG, _WITH_API, PLAIN, EXPORTER)}
    printed: dict[str, list[float]] = {name: [] for name in commands}
    for _, (name, times) in product(range(bench.repeats), started.items()):
        with served(node) as kubeconfig:
            began_s = time.perf_counter()
            is_with_api = name == _WITH_API
            with start(WATCHDOG if is_with_api else name, node, kubeconfig=kubeconfig if is_with_api else None):
                times.append((time.perf_counter() - began_s) * 1000)
    for _ in range(bench.repeats):
        for name, command in commands.items():
            began_s = time.perf_counter()
            subprocess.run(command, env=environment(node.stub_file, read="once"), stdout=subprocess.DEVNULL, check=True)
            printed[name].append((time.perf_counter() - began_s) * 1000)
    ready, reading = "start to first reading served", "one reading printed, `scan`"
    rows = (
        (f"{ready}, pods from the API", started[_WITH_API], PLAIN, started[PLAIN], "≤ 1,000 ms"),
        (ready, started[WATCHDOG], PLAIN, started[PLAIN], "≤ 500 ms"),
        (ready, started[WATCHDOG], EXPORTER, started[EXPORTER], ""),
        (reading, printed[WATCHDOG], "gpustat", printed["gpustat"], ""),
        (reading, printed[WATCHDOG], "nvitop", printed["nvitop"], ""),
        ("`--version` printed", printed[_VERSION], _PYTHON, printed[_PYTHON], "≤ 60 ms"),
    )
    for what, ours, beside, theirs, aim in rows:
        yield Row(what=what, where=where, ours=ours, beside=beside, theirs=theirs, unit="ms", aim=aim)


def memory(bench: Bench) -> Iterator[Row]:
    """Memory with pods from the API: at rest, and of a large node after many simultaneous scrapes."""
    small = bench.node(bench.worlds[0], IMMEDIATE)
    at_rest: dict[str, list[float]] = {WATCHDOG: [], PLAIN: []}
    with served(small) as kubeconfig:
        for _, name in product(range(bench.repeats), at_rest):
            with start(name, small, kubeconfig=kubeconfig) as side:
                time.sleep(bench.window_s)
                at_rest[name].append(side.memory_mib())
    ours, theirs = at_rest.values()
    where, what = (small.world, "immediate"), "PSS at rest, with the API"
    yield Row(what=what, where=where, ours=ours, beside=PLAIN, theirs=theirs, unit="MiB", aim="≤ 55 MiB")
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
