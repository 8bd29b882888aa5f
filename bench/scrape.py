"""Scrapes: how long they take compared with other exporters, and how constant scraping affects a cycle."""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator

from bench.node import IMMEDIATE
from bench.running import EXPORTER, PLAIN, PROMETHEUS, WATCHDOG, Bench, Running, start
from bench.table import Row

_SCRAPERS = 4
_CYCLES = "gpu_watchdog_cycle_duration_seconds"


def scrape(bench: Bench) -> Iterator[Row]:
    """A scrape as Prometheus makes it, the first after a cycle, of each exporter in turn."""
    for world in bench.worlds:
        node, where = bench.node(world, IMMEDIATE), (world, IMMEDIATE.name)
        with contextlib.ExitStack() as stack:
            sides = {name: stack.enter_context(start(name, node)) for name in (WATCHDOG, PLAIN, EXPORTER)}
            took_ms: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(bench.repeats):
                found: dict[str, list[float]] = {name: [] for name in sides}
                for _ in range(4):
                    time.sleep(1.1)  # let a cycle complete in between
                    for name in sides if number % 2 else reversed(sides):
                        began_s = time.perf_counter()
                        sides[name].scrape(PROMETHEUS)
                        found[name].append((time.perf_counter() - began_s) * 1000)
                for name, each in found.items():
                    took_ms[name].append(statistics.median(each))
            size_kb = {name: len(side.scrape()) / 1000 for name, side in sides.items()}
        for name in (PLAIN, EXPORTER):
            yield Row(
                what="a scrape", where=where, ours=took_ms[WATCHDOG], beside=name, theirs=took_ms[name], unit="ms"
            )
            ours, theirs = [size_kb[WATCHDOG]], [size_kb[name]]
            yield Row(what="size of a scrape", where=where, ours=ours, beside=name, theirs=theirs, unit="kB")


def scraped(bench: Bench) -> Iterator[Row]:
    """A cycle while four scrapers poll without a pause, compared with windows without scrapes."""
    for world in bench.worlds:
        node = bench.node(world, IMMEDIATE)
        calm_ms, busy_ms = [], []
        with start(WATCHDOG, node) as side:
            for _ in range(bench.repeats):
                calm_ms.append(_cycle_ms(side, bench.window_s * 2))
                with _polled(side):
                    busy_ms.append(_cycle_ms(side, bench.window_s * 2))
        what, where, aim = f"a cycle while {_SCRAPERS} scrapers poll", (world, IMMEDIATE.name), "≤ 3 ms"
        yield Row(
            what=what, where=where, ours=busy_ms, beside="itself, not scraped", theirs=calm_ms, unit="ms", aim=aim
        )


def _cycle_ms(side: Running, seconds: float) -> float:
    """The mean duration of its cycles in this time, by its own metric."""
    before = {name: side.sample(f"{_CYCLES}_{name}") for name in ("sum", "count")}
    time.sleep(seconds)
    took_s, cycles = (side.sample(f"{_CYCLES}_{name}") - value for name, value in before.items())
    return took_s / cycles * 1000


@contextlib.contextmanager
def _polled(side: Running) -> Iterator[None]:
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            side.scrape(PROMETHEUS)

    threads = [threading.Thread(target=poll) for _ in range(_SCRAPERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
