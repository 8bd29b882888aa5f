"""Starts the daemon and the programs it is compared with as real processes, and measures what they use."""

import compileall
import contextlib
import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from bench.node import NAME, BenchNode, Driver, World
from tests.node.support import ENDS_WITH_US
from tests.ports import free_port
from tests.rig.command import COMMAND
from tests.stub import LISTS, environment, read_calls

ROOT: Final = Path(__file__).parents[1]
POLICY: Final = ROOT / "config" / "policy.toml"
WATCHDOG, PLAIN, EXPORTER, FLOOR = "watchdog", "plain watchdog", "nvitop-exporter", "floor"
PROMETHEUS: Final = {"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"}  # its request headers
# What the metrics contain once there is a first reading.
_FIRST_READING: Final = {
    WATCHDOG: b"gpu_watchdog_container_memory_used_bytes{",
    PLAIN: b"pod_gpu_memory_used_bytes{",
    EXPORTER: b"process_info_info{",
}
# Links the process itself into the simulated /proc of its node: the daemon only enforces if /proc is its own.
IN_PROC: Final = ("sh", "-c", 'ln -sfn /proc/$$ "$0/$$" && ln -sfn $$ "$0/self" && exec "$@"')
_PATIENCE_S: Final = 120.0
Key = TypeVar("Key")


def compile_program() -> None:
    """Compile the program, as pip and the image do."""
    # Where PYTHONDONTWRITEBYTECODE is set, each start would compile it again, and imports take half as long again.
    if not compileall.compile_dir(ROOT / "watchdog", quiet=1):
        sys.exit("the program can't be compiled; see the errors above, and whether watchdog/ can be written")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running program that reads the stub."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int
    log: Path
    calls_file: Path

    @property
    def cpu_s(self) -> float:
        """CPU time of all threads so far; the clock ID is derived from the PID (clock_getcpuclockid(3), glibc)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory_mib(self, kind: str = "Pss") -> float:
        """Its memory as counted by the kernel."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
        found = re.search(rf"^{kind}:\s+(\d+) kB$", rollup, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    def calls(self, *names: str) -> int:
        """How often it called these driver functions."""
        found = read_calls(self.calls_file)
        return sum(found.get(name, 0) for name in names)

    def scrape(self, headers: Mapping[str, str] = {}) -> bytes:
        """Scrape its metrics once, on a new connection."""
        return self.get("/metrics", headers)

    def get(self, path: str, headers: Mapping[str, str] = {}) -> bytes:
        """Ask for a path once, on a new connection."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)) as connection:
            connection.request("GET", path, headers=dict(headers))
            return connection.getresponse().read()

    def sample(self, name: str) -> float:
        """The value of a metric without labels."""
        found = re.search(rf"^{name} (\S+)$", self.scrape().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def has_read(self) -> bool:
        """Whether its first reading is available."""
        if self.name not in _FIRST_READING:
            return self.calls(*LISTS) > 0
        with contextlib.suppress(OSError, http.client.HTTPException):
            return _FIRST_READING[self.name] in self.scrape()
        return False


@contextlib.contextmanager
def start(
    name: str, node: BenchNode, *, policy: Path = POLICY, kubeconfig: Path | None = None, paced: bool = True
) -> Iterator[Running]:
    """Start one side and wait for its first reading; it is killed at the end. `kubeconfig`: pods come from the API."""
    state = node.root / f"{name}-{time.monotonic_ns()}"
    state.mkdir()
    port = free_port()
    log, calls_file = state / "log", state / "calls"
    pods = ("--pods", node.pods_file) if kubeconfig is None else ("--kubeconfig", kubeconfig)
    options = ("--policy", policy, "--procfs", node.procfs, "--journal", state / "journal.db", *pods)
    commands: dict[str, Sequence[object]] = {
        WATCHDOG: (*IN_PROC, node.procfs, COMMAND, "run", "--node", NAME, "--listen", f"127.0.0.1:{port}", *options),
        EXPORTER: (COMMAND.with_name(EXPORTER), "--hostname", NAME, "--port", port),
        PLAIN: (sys.executable, "-m", "bench.plain_watchdog", node.limits_file, port, node.procfs),
    }
    if name == WATCHDOG and not paced:
        commands[name] = (*IN_PROC, node.procfs, sys.executable, "-m", "bench.unpaced", port, node.root, state, policy)
    words = [*ENDS_WITH_US, *commands.get(name, (sys.executable, "-m", "bench.loops", name, int(paced)))]
    variables = environment(node.stub_file, read=node.driver.read, calls=calls_file)
    with log.open("wb") as out:
        process = subprocess.Popen(list(map(str, words)), env=variables, stdout=out, stderr=out, cwd=ROOT)
    running = Running(name=name, process=process, port=port, log=log, calls_file=calls_file)
    try:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not running.has_read():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} has read nothing: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.005)
        yield running
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a side used, one value per window: CPU time, lists and cycles x cards per second, and memory."""

    cpu: list[float] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    cycles: list[float] = field(default_factory=list)
    pss_mib: list[float] = field(default_factory=list)
    anonymous_mib: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargePods:
    """How many pods a node with large ones has; the defaults are as many as a large node can have."""

    running: int = 250
    # Pods that have ended, beside large ones and beside usual ones.
    finished: int = 12_500
    failed: int = 9_000
    # In each large pod; some have twice as many.
    containers: int = 250
    # For how long each kind of node is measured.
    seconds: int = 15


@dataclass(slots=True, kw_only=True)
class Bench:
    """Where and how thoroughly the benchmarks run; the defaults are those of `make bench`."""

    root: Path
    pids: Sequence[int]
    worlds: Sequence[World] = (World(cards=8, processes=100, pods=40), World(cards=8, processes=1000, pods=250))
    repeats: int = 5
    window_s: float = 4.0
    trials: int = 200
    scrapes: int = 100
    large: LargePods = field(default_factory=LargePods)
    _nodes: int = field(default=0, init=False)

    def node(self, world: World, driver: Driver, pids: Sequence[int] | None = None) -> BenchNode:
        """Make a node; with its own `pids`, its processes may die."""
        self._nodes += 1
        root = self.root / str(self._nodes)
        return BenchNode(root, self.pids if pids is None else pids, world, driver, dies=pids is not None)

    def watch(self, sides: Mapping[Key, Running], scale: float = 1.0) -> dict[Key, Usage]:
        """What each side uses, all in the same windows, one per repeat; `scale` makes them longer."""
        found: dict[Key, Usage] = {key: Usage() for key in sides}
        time.sleep(self.window_s * scale / 2)  # skip the startup phase
        for _ in range(self.repeats):
            before = {key: _counts(side) for key, side in sides.items()}
            time.sleep(self.window_s * scale)
            for key, side in sides.items():
                at_s, *counts = (after - first for after, first in zip(_counts(side), before[key], strict=True))
                usage = found[key]
                for rates, count in zip((usage.cpu, usage.lists, usage.cycles), counts, strict=True):
                    rates.append(count / at_s)
                usage.pss_mib.append(side.memory_mib())
                usage.anonymous_mib.append(side.memory_mib("Pss_Anon"))
        return found


def _counts(side: Running) -> tuple[float, ...]:
    # All call the last list once per card and cycle: it is empty, so that pynvml's wrapper does not call twice.
    return time.monotonic(), side.cpu_s, side.calls(*LISTS), side.calls(LISTS[-1])
