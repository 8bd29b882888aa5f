"""What a view of many nodes takes: `python -m bench.cluster` measures it and writes it into docs/benchmarks.md.

The daemons of 500 simulated nodes behind a real API server, by `top --cluster`; 5,000 nodes in a real Prometheus, by
`--prometheus`. Everything is on one machine, so the way over the network is not in it, and the API server, the daemons
and Prometheus share the cores with the command. Needs root, Go (to build Kubernetes and a newer Prometheus), and
Debian's `prometheus`.
"""

import argparse
import datetime as dt
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.gpu import PAGE
from bench.running import compile_program
from bench.table import Row, head
from tests.cli.session import session
from tests.monitoring.fleet import FleetNode, write_blocks
from tests.monitoring.programs import find
from tests.monitoring.prometheus import Prometheus, configuration
from tests.rig.cluster.simulated_nodes import SimulatedNodes, documents, simulated_nodes
from tests.rig.command import COMMAND
from tools import programs
from watchdog.cli.fleet import LIVE_QUERIES

_HEAD: Final = head("figure", "nodes", "asked", "watchdog", "compared with", "its figure", "ratio (range)", "aim")
_SECTION: Final = re.compile(r"(?<=<!-- written by `python -m bench.cluster` -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
_NOT_YET: Final = "Not measured yet: `python -m bench.cluster` writes here what `top --cluster` takes."
_AGENT: Final = "gpu-watchdog/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many nodes there are, and how often each figure is measured."""

    nodes: int = 500
    # Those of the Prometheus: 12 accounts each, of which 10 % are over their limit.
    fleet: int = 5000
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Took:
    """What the runs of a command took (milliseconds): time, its own CPU time, and that of the server."""

    time: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)

    def run(self, command: Sequence[object], server: int | None) -> None:
        """Run a command once; `server` is the PID of what works for it."""
        before = time.monotonic(), _children_s(), _cpu_s(server)
        subprocess.run([*map(str, command)], stdout=subprocess.DEVNULL, check=True)
        after = time.monotonic(), _children_s(), _cpu_s(server)
        for kept, first, last in zip((self.time, self.cpu, self.server), before, after, strict=True):
            kept.append(1000 * (last - first))


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _cpu_s(pid: int | None) -> float:
    """CPU time of a process so far; the clock ID is derived from the PID (clock_getcpuclockid(3), glibc)."""
    assert pid is not None
    return time.clock_gettime((~pid << 3) | 2)


def _rows(whom: str, where: tuple[object, str], ours: Took, beside: str, theirs: Took) -> Iterator[Row]:
    for what, mine, other, aim in (
        ("first full table", ours.time, theirs.time, "≤ 3,000 ms"),
        ("CPU for it, the command's own", ours.cpu, theirs.cpu, ""),
        (f"CPU for it, {whom}'s", ours.server, theirs.server, ""),
    ):
        yield Row(what=what, where=where, ours=mine, beside=beside, theirs=other, unit="ms", aim=aim)


def first(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """The whole table once, next to kubectl's table of the nodes and their pods."""
    ours, theirs = Took(), Took()
    enter, chosen, server = sim.plane.network.enter, sim.plane.admin_kubeconfig, sim.plane.apiserver.pid
    kubectl = (*enter, programs.programs() / "kubectl", "--kubeconfig", chosen, "get", "nodes,pods", "-A")
    for _ in range(size.repeats):
        ours.run((*enter, COMMAND, "top", "--cluster", "--once", "--kubeconfig", chosen), server)
        theirs.run(kubectl, server)
    yield from _rows("the API server", (size.nodes, "API server"), ours, "`kubectl get nodes,pods`", theirs)


def refresh(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """The live view: each refresh, next to the first one, by the API server's own log."""
    before = len(sim.plane.requests(user_agent=_AGENT))

    def spans() -> list[tuple[float, float]]:
        asked = sim.plane.requests(user_agent=_AGENT)[before:]
        ended = [(each.received_s, each.ended_s) for each in asked if each.subresource and each.ended_s is not None]
        return sorted(ended)

    chosen = ("--interval", "200ms", "--kubeconfig", sim.plane.admin_kubeconfig)
    command: tuple[str | Path, ...] = (*sim.plane.network.enter, COMMAND, "top", "--cluster", *chosen)
    with session(command=command, columns=140, rows=50) as shown:
        shown.see(f"{size.nodes} by proxy")
        begun, server_s = len(spans()), _cpu_s(sim.plane.apiserver.pid)
        shown.wait(lambda _: len(spans()) >= begun + size.repeats * size.nodes, seconds=600.0)
        per_node_ms = 1000 * (_cpu_s(sim.plane.apiserver.pid) - server_s) / (len(spans()) - begun)
        shown.type("q")
        shown.end()
    # A refresh begins when the one before has ended, so these are one after the other.
    every = spans()[: (size.repeats + 1) * size.nodes]
    refreshes = [every[place : place + size.nodes] for place in range(0, len(every), size.nodes)]
    initial, *later = (1000 * (max(end for _, end in each) - each[0][0]) for each in refreshes)
    where = size.nodes, "API server"
    yield Row(
        what="a refresh",
        where=where,
        ours=later,
        beside="the first one",
        theirs=[initial] * len(later),
        unit="ms",
        aim="≤ 2,000 ms",
    )
    cpu = [per_node_ms * size.nodes]
    yield Row(
        what="CPU for a refresh, the API server's",
        where=where,
        ours=cpu,
        beside="of one node",
        theirs=[per_node_ms],
        unit="ms",
    )


def traffic(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """How many requests and bytes a whole table takes."""
    before = len(sim.plane.requests(user_agent=_AGENT))
    command = (*sim.plane.network.enter, COMMAND, "top", "--cluster", "--once")
    chosen = ("--kubeconfig", sim.plane.admin_kubeconfig)
    subprocess.run([*map(str, (*command, *chosen))], stdout=subprocess.DEVNULL, check=True)
    requests, where = len(sim.plane.requests(user_agent=_AGENT)) - before, (size.nodes, "API server")
    yield Row(
        what="requests for a whole table", where=where, ours=[requests], beside="nodes", theirs=[size.nodes], unit=""
    )
    every = [documents(number) for number in range(size.nodes)]
    kb = {path: sum(len(each[path]) for each in every) / 1000 for path in ("/api/summary", "/api/status")}
    ours, theirs = [kb["/api/summary"]], [kb["/api/status"]]
    yield Row(
        what="size of the summaries", where=where, ours=ours, beside="the whole statuses", theirs=theirs, unit="kB"
    )


def fleet(folder: Path, size: Size, program: Path) -> Iterator[Row]:
    """All nodes of a Prometheus once, next to curl with the same queries at once."""
    nodes = [FleetNode(name=f"gpu-{number:04}", over=1 + int(number % 5 == 0)) for number in range(size.fleet)]
    write_blocks(folder / "data", nodes)
    ours, theirs = Took(), Took()
    with Prometheus(folder, configuration(), program=program) as prometheus:
        asked = f"Prometheus {prometheus.api('status/buildinfo')['version']}"
        url, server = prometheus.url, prometheus.server.pid
        each = ("--no-progress-meter", "--fail", "--data-urlencode")
        first, second = ((*each, f"query={query}", f"{url}/api/v1/query") for query in LIVE_QUERIES)
        curl = ("curl", "--parallel", "--parallel-immediate", *first, "--next", *second)
        for _ in range(size.repeats):
            ours.run((COMMAND, "top", "--cluster", "--prometheus", url, "--once"), server)
            theirs.run(curl, server)
    yield from _rows("Prometheus", (size.fleet, asked), ours, "the same queries by curl", theirs)


def measured(root: Path, size: Size, *prometheus: Path) -> Iterator[Row]:
    """All figures, those of the last kind with each of these programs."""
    with simulated_nodes(root / "nodes", programs.programs(), size.nodes) as sim:
        for figure in (first, refresh, traffic):
            yield from figure(sim, size)
    for number, program in enumerate(prometheus):
        yield from fleet(root / f"fleet-{number}", size, program)


def cluster_section() -> str:
    """The section of the page about many nodes."""
    found = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    return found[0] if found else _NOT_YET


def main() -> None:
    """Measure, print and write the section."""
    arguments = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("nodes", 500), ("fleet", 5000), ("repeats", 5)):
        arguments.add_argument(f"--{name}", type=int, default=usual)
    arguments.add_argument("--print", action="store_true", help="only print the figures")
    chosen = arguments.parse_args()
    compile_program()
    size = Size(nodes=chosen.nodes, fleet=chosen.fleet, repeats=chosen.repeats)
    load = os.getloadavg()[1]
    rows = [_HEAD]
    print(_HEAD, flush=True)
    with tempfile.TemporaryDirectory() as root:
        for row in measured(Path(root), size, programs.prometheus(), find("prometheus")):
            rows.append(str(row))
            print(row, flush=True)
    when = f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d}, beside other work (load average before: {load:.1f})."
    if not chosen.print:
        text = "\n".join((f"{when}\n", *rows))
        PAGE.write_text(_SECTION.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
