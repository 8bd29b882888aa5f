"""The cost of the daemon at its default interval, compared with the floor at the same pace and with other tools."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

from bench.node import IMMEDIATE, PARSING, REAL_LISTS, BenchNode
from bench.running import EXPORTER, FLOOR, PLAIN, WATCHDOG, Bench, Usage, start
from bench.table import Row

# Aims for the ratio of the CPU time to that of the floor, by processes and driver.
_AIMS = {(100, "immediate"): "2", (100, "parsing"): "1.1", (1000, "immediate"): "0.8", (1000, "parsing"): "0.6"}
_TOOLS = (PLAIN, "nvitop", "gpustat", EXPORTER)


def idle(bench: Bench) -> Iterator[Row]:
    """The daemon and the floor, on every node with every driver, all in the same windows."""
    nodes = [bench.node(world, driver) for world, driver in product(bench.worlds, (IMMEDIATE, PARSING, REAL_LISTS))]
    with contextlib.ExitStack() as stack:
        sides = {(node, name): stack.enter_context(start(name, node)) for node in nodes for name in (WATCHDOG, FLOOR)}
        usage = bench.watch(sides, scale=2.5)  # the cards are enumerated again every 10 s
    for node in nodes:
        aim = _AIMS.get((node.world.processes, node.driver.name), "")
        where = (node.world, node.driver.name)
        yield _cpu(where, usage[node, WATCHDOG], FLOOR, usage[node, FLOOR], f"≤ {aim}" if aim else "")
    yield _lists((nodes[0].world, "any"), usage[nodes[0], WATCHDOG], FLOOR, usage[nodes[0], FLOOR])


def changing(bench: Bench) -> Iterator[Row]:
    """The daemon and the floor while one process keeps allocating, so that no tick is quiet."""
    nodes = [bench.node(world, replace(IMMEDIATE, read="changed")) for world in bench.worlds]
    over = threading.Event()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:
        stack.callback(over.set)
        sides = {(node, name): stack.enter_context(start(name, node)) for node in nodes for name in (WATCHDOG, FLOOR)}
        grows = [threads.submit(_grow, node, over) for node in nodes]
        usage = bench.watch(sides, scale=2.5)
        over.set()
        for each in grows:
            each.result()
    for node in nodes:
        ours, theirs = ([share * 1000 for share in usage[node, name].cpu] for name in (WATCHDOG, FLOOR))
        what, where = "CPU per second, one process allocates", (node.world, node.driver.name)
        yield Row(what=what, where=where, ours=ours, beside=FLOOR, theirs=theirs, unit="ms")


def _grow(node: BenchNode, over: threading.Event) -> None:
    """Let a process use one more page every half second, up to 4 MiB."""
    for pages in range(1000):
        if over.wait(0.5):
            return
        node.show(grown=4096 * pages)


def tools(bench: Bench) -> Iterator[Row]:
    """The daemon and tools that read the same cards once per second, in the same windows."""
    for world, driver in product(bench.worlds, (IMMEDIATE, REAL_LISTS)):
        node, where = bench.node(world, driver), (world, driver.name)
        with contextlib.ExitStack() as stack:
            usage = bench.watch({name: stack.enter_context(start(name, node)) for name in (WATCHDOG, *_TOOLS)})
        ours = usage[WATCHDOG]
        for name in _TOOLS:
            yield _cpu(where, ours, name, usage[name], "≤ 0.05" if (name, driver) == ("nvitop", IMMEDIATE) else "")
        if driver is IMMEDIATE:
            for name in _TOOLS:
                mine, theirs, aim = ours.pss_mib, usage[name].pss_mib, "≤ 45 MiB" if name == _TOOLS[0] else ""
                yield Row(what="PSS at rest", where=where, ours=mine, beside=name, theirs=theirs, unit="MiB", aim=aim)
        if (world, driver) == (bench.worlds[0], IMMEDIATE):
            for name in _TOOLS:
                yield _lists((world, "any"), ours, name, usage[name])


def _cpu(where: tuple[object, str], ours: Usage, beside: str, theirs: Usage, aim: str) -> Row:
    mine, other = ([share * 1000 for share in each.cpu] for each in (ours, theirs))
    return Row(what="CPU per second at rest", where=where, ours=mine, beside=beside, theirs=other, unit="ms", aim=aim)


def _lists(where: tuple[object, str], ours: Usage, beside: str, theirs: Usage) -> Row:
    return Row(what="list calls per second", where=where, ours=ours.lists, beside=beside, theirs=theirs.lists, unit="")
