"""What a view of many nodes takes: `python -m bench.cluster` writes it into docs/benchmarks.md, with names prints it.

The daemons of 500 simulated nodes behind a real API server, by `top --cluster`; 5,000 nodes in a real Prometheus, by
`--prometheus`. Everything is on one machine, so the way over the network is not in it, and the API server, the daemons
and Prometheus take their CPU time from the same cores. Needs root, Go (for Kubernetes) and Debian's `prometheus`.
"""

import argparse
import contextlib
import datetime as dt
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.gpu import PAGE
from bench.table import HEAD, Row
from tests.cli.session import session
from tests.monitoring.fleet import FleetNode, write_blocks
from tests.monitoring.prometheus import Prometheus, configuration
from tests.rig.cluster.simulated_nodes import SimulatedNodes, simulated_nodes
from tests.rig.command import COMMAND
from tools import programs

_MARKER: Final = "<!-- written by `python -m bench.cluster` -->"
_SECTION: Final = re.compile(rf"(?<={_MARKER}\n).*?(?=\n<!-- end -->)", re.DOTALL)
_AGENT: Final = "gpu-watchdog/"
_OVER: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many nodes, and how often each figure is measured."""

    nodes: int = 500
    fleet: int = 5000
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Took:
    """What the repeats of a command took: seconds, and CPU seconds of its own and of the server."""

    wall_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    server_s: list[float] = field(default_factory=list)

    def run(self, command: Sequence[str | Path], server: int | None) -> None:
        """Run a command once, while a server with this PID works for it."""
        own_s, server_s, began_s = _children_s(), _cpu_s(server), time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        self.wall_s.append(time.monotonic() - began_s)
        self.own_s.append(_children_s() - own_s)
        self.server_s.append(_cpu_s(server) - server_s)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _cpu_s(pid: int | None) -> float:
    # clock_getcpuclockid(3), glibc
    assert pid is not None
    return time.clock_gettime((~pid << 3) | 2)


def _row(what: str, where: tuple[object, str], ours: list[float], beside: str, theirs: list[float], aim: str) -> Row:
    return Row(what=what, where=where, ours=ours, beside=beside, theirs=theirs, unit="s", aim=aim)


def first(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """The whole table once, next to the kubectl that prints the nodes and the pods."""
    ours, theirs = Took(), Took()
    enter, kubeconfig, server = sim.plane.network.enter, sim.plane.admin_kubeconfig, sim.plane.apiserver.pid
    kubectl = (*enter, programs.programs() / "kubectl", "--kubeconfig", kubeconfig, "get", "nodes,pods", "-A", "-o", "wide")
    for _ in range(size.repeats):
        ours.run((*enter, COMMAND, "top", "--cluster", "--once", "--kubeconfig", kubeconfig), server)
        theirs.run(kubectl, server)
    where, beside = (size.nodes, "API server"), "`kubectl get nodes,pods`"
    yield _row("first full table", where, ours.wall_s, beside, theirs.wall_s, "≤ 3 s")
    yield _row("CPU for it, of the command", where, ours.own_s, beside, theirs.own_s, "")
    yield _row("CPU for it, of the API server", where, ours.server_s, beside, theirs.server_s, "")


def refresh(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """The live view's further questions, next to its first one."""
    command = (*sim.plane.network.enter, COMMAND, "top", "--cluster", "--interval", "200ms")
    chosen = ("--kubeconfig", sim.plane.admin_kubeconfig)
    before = len(sim.plane.requests(user_agent=_AGENT))

    def by_proxy() -> list[tuple[float, float]]:
        asked = sim.plane.requests(user_agent=_AGENT)[before:]
        return [(each.received_s, each.ended_s) for each in asked if each.subresource and each.ended_s is not None]

    with session(command=(*command, *chosen), columns=140, rows=50) as shown:
        shown.see(f"{size.nodes} by proxy")
        server_s, begun = _cpu_s(sim.plane.apiserver.pid), len(by_proxy())
        shown.wait(lambda _: len(by_proxy()) >= begun + (size.repeats + 1) * size.nodes, seconds=600.0)
        per_node_s = (_cpu_s(sim.plane.apiserver.pid) - server_s) / (len(by_proxy()) - begun)
        shown.type("q")
        shown.end()
    # Each node once: then comes the next refresh.
    asked = sorted(by_proxy())[: (size.repeats + 2) * size.nodes]
    spans = [asked[place : place + size.nodes] for place in range(0, len(asked) - size.nodes + 1, size.nodes)]
    took_s = [max(end for _, end in span) - span[0][0] for span in spans]
    where = size.nodes, "API server"
    later = took_s[1 : size.repeats + 1]
    yield _row("a refresh", where, later, "the first one", [took_s[0]] * len(later), "≤ 2 s")
    cpu_s = per_node_s * size.nodes
    yield _row("CPU for a refresh, of the API server", where, [cpu_s], "of one node", [per_node_s], "")


def traffic(sim: SimulatedNodes, size: Size) -> Iterator[Row]:
    """How many requests and bytes the whole table takes."""
    before = len(sim.plane.requests(user_agent=_AGENT))
    sim.answer_bytes()
    command = (*sim.plane.network.enter, COMMAND, "top", "--cluster", "--once")
    subprocess.run(
        (*command, "--kubeconfig", sim.plane.admin_kubeconfig), stdout=subprocess.DEVNULL, check=True
    )
    requests = len(sim.plane.requests(user_agent=_AGENT)) - before
    where = size.nodes, "API server"
    yield Row(
        what="requests for the whole table",
        where=where,
        ours=[requests],
        beside="nodes",
        theirs=[size.nodes],
        unit="",
        aim="",
    )


def fleet(folder: Path, size: Size) -> Iterator[Row]:
    """All nodes of a Prometheus once, next to its answer to the same query fetched by curl."""
    whole = round(12 * _OVER)
    nodes = [FleetNode(name=f"gpu-{number:04}", over=whole + int(number % 5 == 0)) for number in range(size.fleet)]
    write_blocks(folder / "data", nodes)
    ours, theirs = Took(), Took()
    with Prometheus(folder, configuration()) as prometheus:
        for _ in range(size.repeats):
            ours.run((COMMAND, "top", "--cluster", "--prometheus", prometheus.url, "--once"), prometheus.server.pid)
            theirs.run(_curl(prometheus), prometheus.server.pid)
    where, beside = (size.fleet, "Prometheus"), "the same query by curl"
    yield _row("first full table, `--prometheus`", where, ours.wall_s, beside, theirs.wall_s, "≤ 3 s")
    yield _row("CPU for it, of the command", where, ours.own_s, beside, theirs.own_s, "")
    yield _row("CPU for it, of Prometheus", where, ours.server_s, beside, theirs.server_s, "")
