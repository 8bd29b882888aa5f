"""Scrapes: how long they take compared with other exporters, and how constant scraping affects a cycle."""

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from bench.node import IMMEDIATE
from bench.running import EXPORTER, PLAIN, PROMETHEUS, WATCHDOG, Bench, Running, start
from bench.table import Row

_SCRAPERS = 4
_VIEWERS = 10
_SCRAPES_S = 1.0  # 15 to 60 times as often as a Prometheus usually does
_RELOADS_S = 5.0  # as the page does while something is over its limit
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
    """A cycle while four scrapers poll, and while four scrape and ten people look at pages; compared with neither."""
    for world in bench.worlds:
        node = bench.node(world, IMMEDIATE)
        calm_ms, busy_ms = [], []
        with start(WATCHDOG, node) as side:
            viewed_ms = []
            for _ in range(bench.repeats):
                calm_ms.append(_cycle_ms(side, bench.window_s * 5))
                with _scraped(side, pause_s=0.0):
                    busy_ms.append(_cycle_ms(side, bench.window_s * 5))
                with _scraped(side, pause_s=_SCRAPES_S), _viewed(side):
                    viewed_ms.append(_cycle_ms(side, bench.window_s * 5))
        viewed = f"{_SCRAPERS} scrape and {_VIEWERS} people look on"
        for what, ours in ((f"{_SCRAPERS} scrapers poll", busy_ms), (viewed, viewed_ms)):
            yield Row(
                what=f"a cycle while {what}",
                where=(world, IMMEDIATE.name),
                ours=ours,
                beside="itself, not scraped",
                theirs=calm_ms,
                unit="ms",
                aim="≤ 3 ms",
            )


def _cycle_ms(side: Running, seconds: float) -> float:
    """The mean duration of its cycles in this time, by its own metric."""
    before = {name: side.sample(f"{_CYCLES}_{name}") for name in ("sum", "count")}
    time.sleep(seconds)
    took_s, cycles = (side.sample(f"{_CYCLES}_{name}") - value for name, value in before.items())
    return took_s / cycles * 1000


@contextlib.contextmanager
def _scraped(side: Running, *, pause_s: float) -> Iterator[None]:
    def scrape(_: int) -> None:
        side.scrape(PROMETHEUS)
        time.sleep(pause_s)

    with _readers(_SCRAPERS, scrape):
        yield


@contextlib.contextmanager
def _viewed(side: Running) -> Iterator[None]:
    """People who look at the node, at a pod each and at a card, all of which reload themselves."""
    accounts = json.loads(side.get("/api/status"))["accounts"]
    pods = [f"{each['namespace']}/{each['pod']}" for each in accounts[: _VIEWERS // 2]]
    paths = ["/", "/gpus/0", *(f"/pods/{pod}" for pod in pods), f"/api/history?pod={pods[0]}", "/api/status"]

    def look(number: int) -> None:
        side.get(paths[number % len(paths)])
        time.sleep(_RELOADS_S)

    with _readers(_VIEWERS, look):
        yield


@contextlib.contextmanager
def _readers(number: int, read: Callable[[int], object]) -> Iterator[None]:
    """Threads that read again and again, each of which is given its number."""
    is_over = threading.Event()

    def repeat(mine: int) -> None:
        while not is_over.is_set():
            read(mine)

    threads = [threading.Thread(target=repeat, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
