"""Time from a limit crossed to SIGKILL: the daemon and the plain watchdog, at every phase of their intervals."""

import contextlib
import os
import select
import signal
import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

from bench.node import IMMEDIATE, REAL_LISTS, BenchNode, World, sleepers
from bench.running import PLAIN, WATCHDOG, Bench, Running, start
from bench.table import Row, Unit

# The stub rereads its file when it changes.
_DRIVERS = tuple(replace(driver, read="changed") for driver in (IMMEDIATE, REAL_LISTS))
_MOST_LOOKS = 60  # the default of `[pulse] looks`, within a minute
_NODES = 2  # each with its own daemon; the trials are divided between them
_INTERVAL_S = 1.0
_PATIENCE_S = 30.0
_SHORTLY_S = 0.1  # two reads of the counters: of what falls and rises again between two reads, they show nothing
_POLICY = """
mode = "enforce"
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
[[rule]]
name = "all"
match = {}
[[rule.step]]
above = "100%"
for = "0s"
do = "kill"
grace = "0s"
unwarned = true
[pulse]
[brakes]
node = "10000 per 1m"
namespace = "10000 per 1m"
owner = "10000 per 1m"
[safety]
foreign_pid_namespace = true
"""


def reaction(bench: Bench) -> Iterator[Row]:
    """All sides at the same time: first their cost at rest, then the trials.

    One process crosses its limit each second, for longer than a minute: all of `[pulse] looks` would just be enough.
    """
    policy = _policy(bench, f'looks = "{2 * _MOST_LOOKS} per 1m"')
    count = bench.trials // _NODES
    world = World(cards=8, processes=count, pods=count)
    with contextlib.ExitStack() as stack:
        nodes = {
            side: bench.node(world, side[0], stack.enter_context(sleepers(count)))
            for side in product(_DRIVERS, (WATCHDOG, PLAIN), range(_NODES))
        }
        sides = {side: stack.enter_context(start(side[1], node, policy=policy)) for side, node in nodes.items()}
        _await_enforcing(sides.values())
        usage = bench.watch(sides)
        with ThreadPoolExecutor(len(nodes)) as threads:
            running = {side: threads.submit(_trials, node, side[2] / bench.trials) for side, node in nodes.items()}
        took_ms = {side: each.result() for side, each in running.items()}
    for driver in _DRIVERS:
        where, is_first = (world, driver.name), driver is _DRIVERS[0]
        ours, theirs = (
            [took for number in range(_NODES) for took in took_ms[driver, name, number]] for name in (WATCHDOG, PLAIN)
        )
        calm, plain = (usage[driver, name, 0] for name in (WATCHDOG, PLAIN))
        share, plain_share = ([100 * share for share in each.cpu] for each in (calm, plain))
        p50, plain_p50 = (_medians(each, bench.repeats) for each in (ours, theirs))
        figures: list[tuple[str, list[float], list[float], Unit, str]] = [
            ("limit crossed to SIGKILL, p50", p50, plain_p50, "ms", "≤ 60 ms"),
            ("limit crossed to SIGKILL, p99", [_p99(ours)], [_p99(theirs)], "ms", "≤ 120 ms"),
            ("the same process at rest: share of a core", share, plain_share, "%", "≤ 0.5 %"),
            ("the same process at rest: list calls per second", calm.lists, plain.lists, "", ""),
        ]
        for what, mine, other, unit, aim in figures:
            bound = aim if is_first else ""
            yield Row(what=what, where=where, ours=mine, beside=PLAIN, theirs=other, unit=unit, aim=bound)


def again(bench: Bench) -> Iterator[Row]:
    """One offender right after another on one card: each kill lets its counter fall, and the next one rises to it."""
    policy = _policy(bench)
    count = min(bench.trials // _NODES, _MOST_LOOKS)
    world = World(cards=1, processes=count, pods=count)
    with contextlib.ExitStack() as stack:
        nodes = {
            side: bench.node(world, _DRIVERS[0], stack.enter_context(sleepers(count)))
            for side in product((WATCHDOG, PLAIN), range(_NODES))
        }
        sides = {side: stack.enter_context(start(side[0], node, policy=policy)) for side, node in nodes.items()}
        _await_enforcing(sides.values())
        with ThreadPoolExecutor(len(nodes)) as threads:
            running = {side: threads.submit(_again, node, side[1] / _NODES) for side, node in nodes.items()}
        took_ms = {side: each.result() for side, each in running.items()}
    ours, theirs = ([took for number in range(_NODES) for took in took_ms[name, number]] for name in (WATCHDOG, PLAIN))
    where, what = (world, IMMEDIATE.name), "limit crossed 0.1 s after a kill to SIGKILL"
    p50, plain_p50 = (_medians(each, bench.repeats) for each in (ours, theirs))
    yield Row(what=f"{what}, p50", where=where, ours=p50, beside=PLAIN, theirs=plain_p50, unit="ms")
    ours, theirs = [_p99(ours)], [_p99(theirs)]
    yield Row(what=f"{what}, p99", where=where, ours=ours, beside=PLAIN, theirs=theirs, unit="ms", aim="≤ 150 ms")


def _policy(bench: Bench, pulse: str = "") -> Path:
    policy = bench.root / "enforce.toml"
    policy.write_text(_POLICY.replace("[pulse]", f"[pulse]\n{pulse}"), encoding="utf-8")
    return policy


def _await_enforcing(sides: Iterable[Running]) -> None:
    while not all(side.sample("gpu_watchdog_enforcing") for side in sides if side.name == WATCHDOG):
        time.sleep(0.1)  # a policy takes effect once its file has been unchanged for some seconds


def _trials(node: BenchNode, first_phase: float) -> list[float]:
    """Let one process after another cross its limit, each at its own phase of the interval; ms until it died."""
    found: list[float] = []
    due_s = time.monotonic() + first_phase
    for pid in node.pids:
        while due_s < time.monotonic():
            due_s += _INTERVAL_S
        time.sleep(due_s - time.monotonic())
        due_s += _INTERVAL_S * (1 + 1 / len(node.pids))
        found.append(_cross(node, pid))
    return found


def _again(node: BenchNode, first_phase: float) -> list[float]:
    """Let one process after another cross its limit, each shortly after the last one's death; ms until it died."""
    found: list[float] = []
    time.sleep(first_phase * _INTERVAL_S)
    for pid in node.pids:
        time.sleep(_SHORTLY_S)
        found.append(_cross(node, pid))
    return found


def _cross(node: BenchNode, pid: int) -> float:
    """Let a process cross its limit; ms until it died."""
    pidfd = os.pidfd_open(pid)
    node.show(over=(pid,))
    crossed_s = time.monotonic()
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    if not ended.poll(_PATIENCE_S * 1000):
        raise RuntimeError(f"process {pid} is above its limit, and was not killed")
    took_ms = (time.monotonic() - crossed_s) * 1000
    os.close(pidfd)
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert status is not None
    assert status.si_status == signal.SIGKILL
    return took_ms


def _medians(found: list[float], blocks: int) -> list[float]:
    """The median of each block of trials, each of which covers all phases."""
    return [statistics.median(found[block::blocks]) for block in range(blocks)]


def _p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100, method="inclusive")[98]
