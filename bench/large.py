"""What pods as large as the API server accepts cost: `python -m bench.large` prints the table of docs/sizing.md."""

import contextlib
import http.client
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.api import served
from bench.node import PARSING, BenchNode, World, sleepers
from bench.running import WATCHDOG, Bench, LargePods, Running, start
from bench.table import Row, digits, head, line
from tests.stub import MIB
from watchdog.config.load import load_policy
from watchdog.core.keys import keys_of
from watchdog.node.process import raise_descriptor_limit

_POLICY: Final = """mode = "enforce"
schemes = ["*"]
[[rule]]
name = "all"
match = {}
account = "ACCOUNT"
[[rule.step]]
do = "kill"
above = "100%"
for = "1s"
unwarned = true
"""
_COLUMNS: Final = (
    "pods",
    "CPU of the loop in a second: median, ms",
    "largest, ms",
    "late cycles",
    "/healthz other than 200",
    "SIGTERM to end, s",
)
Pods = list[dict[str, Any]]


_USUAL: Final = "as they usually are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one kind of node cost."""

    # What is large there.
    what: str
    # CPU of the loop in each second, the smallest first.
    cpu_ms: list[float]
    # Cycles that began late, and answers of /healthz other than 200.
    late: int
    unhealthy: int
    # From SIGTERM to the end of the process.
    ended_s: float


def kinds(size: LargePods, named: list[str]) -> Mapping[str, tuple[str, Callable[[Pods], Pods]]]:
    """The accounts of the policy, and what the pods of a node become, by what is large."""
    few, many = size.containers, 2 * size.containers
    mig = [f"nvidia.com/mig-{each}" for each in range(100)]
    return {
        _USUAL: ("pod", lambda pods: pods),
        f"and {size.failed:,} small Failed": ("pod", lambda pods: [*pods, *_finished(size.failed, pods[0])]),
        f"{few} init containers, 100 MIG resources of 0 in each, and {size.finished:,} finished": (
            "pod",
            lambda pods: [*map(_fattened(few, mig, "0"), pods), *_finished(size.finished, pods[0])],
        ),
        f"{few} init containers, 100 MIG resources of 1 in each": (
            "pod",
            lambda pods: list(map(_fattened(few, mig, "1"), pods)),
        ),
        f"{many} containers, all {len(named)} resources of the schemes in each": (
            "pod",
            lambda pods: list(map(_fattened(many, named, "1", "containers"), pods)),
        ),
        f"{many} containers, each an account": (
            "container",
            lambda pods: list(map(_fattened(many, ["nvidia.com/gpumem"], "1", "containers"), pods)),
        ),
    }


def _fattened(
    number: int, keys: list[str], quantity: str, where: str = "initContainers"
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A pod with this many containers more, each of which asks for these resources."""
    resources = {"limits": dict.fromkeys(keys, quantity)}

    def fatten(pod: dict[str, Any]) -> dict[str, Any]:
        more = [{"name": f"fat-{each}", "image": "i", "resources": resources} for each in range(number)]
        return pod | {"spec": pod["spec"] | {where: [*pod["spec"][where], *more]}}

    return fatten


def _finished(number: int, like: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Pods whose containers have ended."""
    for each in range(number):
        metadata = like["metadata"] | {"name": f"failed-{each}", "uid": f"{each:08x}-2222-4222-8333-444444444444"}
        yield like | {"metadata": metadata, "status": {"phase": "Failed"}}


def loop_cpu_s(side: Running) -> float:
    """CPU time of the daemon's loop so far: of its main thread, as its CLOCK_THREAD_CPUTIME_ID counts it."""
    path = Path(f"/proc/{side.process.pid}/task/{side.process.pid}/schedstat")
    return int(path.read_text(encoding="ascii").split()[0]) / 1e9


def _health(side: Running) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", side.port, timeout=10)) as connection:
        connection.request("GET", "/healthz")
        return connection.getresponse().status


def _seconds(side: Running, node: BenchNode, number: int) -> tuple[list[float], int]:
    """CPU of the loop in each of this many seconds, while a process allocates; and how often it was not healthy."""
    used, unhealthy, grown = [], 0, count(MIB, MIB)
    for _ in range(number):
        before, until_s = loop_cpu_s(side), time.monotonic() + 1
        while time.monotonic() < until_s:
            node.show(grown=next(grown))
            unhealthy += _health(side) != 200
            time.sleep(0.2)
        used.append((loop_cpu_s(side) - before) * 1000)
    return sorted(used), unhealthy


def measure(bench: Bench) -> Iterator[Measured]:
    """Run the daemon on each kind of node; the usual one comes first."""
    policy, size = bench.root / "large.toml", bench.large
    policy.write_text(_POLICY.replace("ACCOUNT", "pod"), encoding="utf-8")
    named = sorted(key for key in keys_of(load_policy(policy)).resources if "*" not in key)
    for what, (account, change) in kinds(size, named).items():
        node = bench.node(_world(size), PARSING)
        node.pods = change(node.pods)
        policy.write_text(_POLICY.replace("ACCOUNT", account), encoding="utf-8")
        with served(node) as kubeconfig, start(WATCHDOG, node, policy=policy, kubeconfig=kubeconfig) as side:
            cpu_ms, unhealthy = _seconds(side, node, size.seconds)
            late, sent_s = side.sample("gpu_watchdog_cycle_late_total"), time.monotonic()
            side.process.send_signal(signal.SIGTERM)
            side.process.wait(60)
            ended_s = time.monotonic() - sent_s
        yield Measured(what=what, cpu_ms=cpu_ms, late=int(late), unhealthy=unhealthy, ended_s=ended_s)


def _world(size: LargePods) -> World:
    return World(cards=8, processes=size.running, pods=size.running)


def large(bench: Bench) -> Iterator[Row]:
    """The worst second of the loop, and the end, with large pods; compared with the same node and usual pods."""
    usual, *others = measure(bench)
    where = (_world(bench.large), PARSING.name)
    for one in others:
        if one.unhealthy:
            raise RuntimeError(f"/healthz was not 200 {one.unhealthy} times with pods of {one.what}")
        beside, is_small = "itself, usual pods", one.what.endswith("Failed")
        aim = "≤ 50 ms" if is_small else "≤ 250 ms"
        worst, its_worst = one.cpu_ms[-1:], usual.cpu_ms[-1:]
        what = f"CPU of the loop in its worst second, {one.what}"
        yield Row(what=what, where=where, ours=worst, beside=beside, theirs=its_worst, unit="ms", aim=aim)
        took_ms, usual_ms = [1000 * one.ended_s], [1000 * usual.ended_s]
        what = f"SIGTERM to end, {one.what}"
        yield Row(what=what, where=where, ours=took_ms, beside=beside, theirs=usual_ms, unit="ms", aim="≤ 1,000 ms")


def main() -> None:
    """Print the table, each row as soon as it is measured."""
    print(head(*_COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as root, sleepers(LargePods().running) as pids:
        for one in measure(Bench(root=Path(root), pids=pids)):
            median, most = one.cpu_ms[len(one.cpu_ms) // 2], one.cpu_ms[-1]
            cells = digits(median), digits(most), one.late, one.unhealthy, digits(one.ended_s)
            print(line(one.what, *cells), flush=True)


if __name__ == "__main__":
    raise_descriptor_limit()
    main()
