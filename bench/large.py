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
from bench.running import WATCHDOG, Bench, Running, start
from bench.table import digits, head, line
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many pods of each kind; the defaults are as many as a large node can have."""

    running: int = 250
    finished: int = 12_500
    failed: int = 9_000
    containers: int = 250
    seconds: int = 15


def kinds(size: Size, named: list[str]) -> Mapping[str, tuple[str, Callable[[Pods], Pods]]]:
    """The accounts of the policy, and what the pods of a node become, by what is large."""
    few, many = size.containers, 2 * size.containers
    mig = [f"nvidia.com/mig-{each}" for each in range(100)]
    return {
        "as they usually are": ("pod", lambda pods: pods),
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


def large(bench: Bench, size: Size) -> Iterator[tuple[object, ...]]:
    """A row for each kind of node."""
    policy = bench.root / "large.toml"
    policy.write_text(_POLICY.replace("ACCOUNT", "pod"), encoding="utf-8")
    named = sorted(key for key in keys_of(load_policy(policy)).resources if "*" not in key)
    for what, (account, change) in kinds(size, named).items():
        node = bench.node(World(cards=8, processes=size.running, pods=size.running), PARSING)
        node.pods = change(node.pods)
        policy.write_text(_POLICY.replace("ACCOUNT", account), encoding="utf-8")
        with served(node) as kubeconfig, start(WATCHDOG, node, policy=policy, kubeconfig=kubeconfig) as side:
            used, unhealthy = _seconds(side, node, size.seconds)
            late, sent_s = side.sample("gpu_watchdog_cycle_late_total"), time.monotonic()
            side.process.send_signal(signal.SIGTERM)
            side.process.wait(60)
            ended_s = time.monotonic() - sent_s
        yield what, digits(used[len(used) // 2]), digits(used[-1]), int(late), unhealthy, digits(ended_s)


def main() -> None:
    """Print the table, each row as soon as it is measured."""
    size = Size()
    print(head(*_COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as root, sleepers(size.running) as pids:
        for row in large(Bench(root=Path(root), pids=pids), size):
            print(line(*row), flush=True)


if __name__ == "__main__":
    raise_descriptor_limit()
    main()
