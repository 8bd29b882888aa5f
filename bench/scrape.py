"""A scrape of the daemon beside one of nvitop-exporter: time, size, memory and CPU, on the same stub in the same run.

`python -m bench.scrape` runs this alone.
"""

import contextlib
import http.client
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.life import cpu_s, memory_mib
from bench.node import POLICY, BenchNode, sleepers
from bench.table import milliseconds, show
from tests.ports import free_port
from tests.rig.command import daemon
from tests.stub import environment, preload
from watchdog.node.process import raise_descriptor_limit

CARDS: Final = 16
PODS: Final = 200
PROCESSES: Final = (200, 1000)
_SCRAPES: Final = 100
_HANGS_MS: Final = 3_600_000.0
_HANGING: Final = "OpenMetrics, while NVML hangs"
_PAUSE_S: Final = 0.05
_REST_S: Final = 15.0
_PATIENCE_S: Final = 60.0
_KINDS: Final[Mapping[str, dict[str, str]]] = {
    "text": {},
    "text, gzip": {"Accept-Encoding": "gzip"},
    "OpenMetrics": {"Accept": "application/openmetrics-text"},
    "OpenMetrics, gzip": {"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"},
}
_HEADERS: Final = {**_KINDS, _HANGING: _KINDS["OpenMetrics"]}


@dataclass(slots=True, kw_only=True)
class Side:
    """What is measured of one exporter; `took_s` and `pages` by the kind of scrape."""

    port: int
    pid: int
    took_s: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in _HEADERS})
    pages: dict[str, bytes] = field(default_factory=dict)
    rest: float = 0.0

    def scrape(self, kind: str) -> None:
        """Ask for the page once, on a connection of its own."""
        began_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        connection.request("GET", "/metrics", headers=_HEADERS[kind])
        response = connection.getresponse()
        self.pages[kind] = response.read()
        self.took_s[kind].append(time.perf_counter() - began_s)
        connection.close()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"a scrape was answered with {response.status}")

    def quantile_s(self, kind: str, percent: int) -> float:
        """How long the scrapes of a kind took, at this percentile."""
        return statistics.quantiles(self.took_s[kind], n=100)[percent - 1]

    @property
    def series(self) -> int:
        """How many series its page has."""
        return sum(not line.startswith(b"#") for line in self.pages["text"].splitlines())


def scrapes() -> None:
    """Measure both at each size, and print tables."""
    preload()
    raise_descriptor_limit()
    name = f"nvitop-exporter {version('nvitop-exporter')}"
    with tempfile.TemporaryDirectory() as root, sleepers(max(PROCESSES)) as pids:
        for count in PROCESSES:
            node = BenchNode(Path(root) / str(count), pids[:count], pods=PODS)
            node.show(CARDS)
            with both(node) as sides:
                measure(sides)
                node.show(CARDS, delay_ms=_HANGS_MS)
                hang(sides)
                columns = ("", "daemon", name, f"{name} / daemon")
                show(f"A scrape ({CARDS} cards, {PODS} pods, {count:,} processes)", columns, _rows(*sides))


@contextlib.contextmanager
def both(node: BenchNode) -> Iterator[tuple[Side, Side]]:
    """The daemon and nvitop-exporter as they ship, each reading the same stub once a second."""
    state = node.root / "scraped"
    state.mkdir()
    files = ("--procfs", node.procfs, "--pods", node.pods_file, "--journal", state / "journal.db")
    with (
        daemon(state, node.stub_file, "--policy", POLICY, *files) as running,
        _nvitop_exporter(state, node.stub_file) as (other, port),
    ):
        running.wait_passes(2)
        sides = Side(port=running.port, pid=running.pid), Side(port=port, pid=other)
        _wait_for_processes(sides[1], len(node.pids))
        yield sides


@contextlib.contextmanager
def _nvitop_exporter(state: Path, stub: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [str(Path(sys.executable).with_name("nvitop-exporter")), "--hostname", "bench", "--port", str(port)]
    with (state / "nvitop.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(stub), stdout=log, stderr=log)
    try:
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def _wait_for_processes(side: Side, count: int) -> None:
    """Wait until it exports all processes: it reads them in the background."""
    deadline_s = time.monotonic() + _PATIENCE_S
    seen = 0
    while seen < count:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"nvitop-exporter exports {seen} of {count} processes")
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            side.scrape("text")
            seen = side.pages["text"].count(b"\nprocess_info_info{")


def measure(sides: Sequence[Side], scrapes: int = _SCRAPES) -> None:
    """Scrape both in turn, every other time the other way about; then leave them alone, and see what they take."""
    for side in sides:
        side.took_s = {kind: [] for kind in _HEADERS}
    for number in range(scrapes):
        for kind in _KINDS:
            for side in sides if number % 2 else reversed(sides):
                side.scrape(kind)
        time.sleep(_PAUSE_S)
    began_s, spent_s = time.monotonic(), [cpu_s(side.pid) for side in sides]
    time.sleep(_REST_S)
    took_s = time.monotonic() - began_s
    for side, before_s in zip(sides, spent_s, strict=True):
        side.rest = (cpu_s(side.pid) - before_s) / took_s


def hang(sides: Sequence[Side], scrapes: int = _SCRAPES) -> None:
    """Scrape both while a call of each into the driver hangs, from the next reading on."""
    time.sleep(2.0)
    for _ in range(scrapes):
        for side in sides:
            side.scrape(_HANGING)


def _rows(ours: Side, other: Side) -> Iterator[Sequence[object]]:
    yield "series", f"{ours.series:,}", f"{other.series:,}", _ratio(other.series, ours.series)
    for kind in _HEADERS:
        for percent in (50, 99):
            mine, theirs = (side.quantile_s(kind, percent) for side in (ours, other))
            yield f"{kind}: p{percent}, ms", milliseconds(mine), milliseconds(theirs), _ratio(theirs, mine)
    for kind in _KINDS:
        sizes = [len(side.pages[kind]) for side in (ours, other)]
        yield f"{kind}: kB", *(f"{size / 1000:.1f}" for size in sizes), _ratio(sizes[1], sizes[0])
    memory = [memory_mib(side.pid) for side in (ours, other)]
    for kind in ("Pss", "Rss"):
        yield (
            f"{kind.upper()}, MiB",
            *(f"{each[kind]:.1f}" for each in memory),
            _ratio(memory[1][kind], memory[0][kind]),
        )
    yield "CPU of one core, not scraped", f"{ours.rest:.2%}", f"{other.rest:.2%}", _ratio(other.rest, ours.rest)


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.1f}"


if __name__ == "__main__":
    scrapes()
