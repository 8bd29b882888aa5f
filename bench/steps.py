"""Where the time of a steady pass goes: each of its steps alone, on the values that the cycle would hand to it."""

import contextlib
import os
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pynvml

from bench.node import BenchNode
from bench.table import show
from bench.timing import compare
from bench.watch import Watch, options_of
from watchdog import clock
from watchdog.cli.scan import look
from watchdog.config.load import load_policy
from watchdog.core.decide import decide
from watchdog.core.inputs import Inputs
from watchdog.core.ledger import Ledger
from watchdog.core.plan import CycleReport
from watchdog.core.steady import Assessor
from watchdog.daemon.sinks import Sinks
from watchdog.daemon.sources import node_source, pod_source
from watchdog.daemon.start import open_processes
from watchdog.node.driver_thread import DriverThread
from watchdog.node.nvml import NvmlDriver
from watchdog.options import Options

_MS = 1e3


def steps_of_a_pass(nodes: Sequence[BenchNode], gpus: int = 8) -> None:
    """What each step of a steady pass takes."""
    columns = ("step, in ms", *(f"{len(node.pids)} processes" for node in nodes))
    found = [_measure(node, gpus) for node in nodes]
    rows = [(name, *(f"{each[name]:.3f}" for each in found)) for name in found[0]]
    show(f"Where the time of a steady pass goes ({gpus} GPUs, lists of 0 ms)", columns, rows)


def _measure(node: BenchNode, gpus: int) -> dict[str, float]:
    node.show(gpus)
    node.use(still=True)
    pynvml.nvmlInit()
    with _steps(node) as steps, Watch(node) as watch:
        timing = compare({**steps, "the whole pass": watch.run_pass}, rounds=40)
    pynvml.nvmlShutdown()
    found = {name: timing.seconds(name) * _MS for name in timing.medians_s}
    found["hand a reading from thread to thread"] -= found["read the driver"]
    whole = found.pop("the whole pass")
    return {**found, "the rest": whole - sum(found.values()), "the whole pass": whole}


@contextlib.contextmanager
def _steps(node: BenchNode) -> Iterator[dict[str, Callable[[], object]]]:
    options = options_of(node)
    options = replace(options, journal=options.journal.with_name("steps.db"))
    report = look(options, load_policy(options.policy))
    driver, other = NvmlDriver(), NvmlDriver()
    reading = driver.read()
    _, scanner = open_processes(options)
    threaded = DriverThread(other)
    sinks = _sinks(options, report)
    yield {
        "read the driver": driver.read,
        "hand a reading from thread to thread": _asking(threaded),
        "read pods and node": _sources(options),
        "look at processes": lambda: scanner.snapshot(reading, clock.now()),
        **_judging(report),
        "report": lambda: sinks.publish(report, is_stale=False),
    }
    threaded.close(timeout_s=1.0)
    driver.close()
    scanner.close()
    sinks.stop((), clock.now())


def _asking(thread: DriverThread) -> Callable[[], object]:
    poll = select.poll()
    poll.register(thread.fileno(), select.POLLIN)

    def ask() -> object:
        thread.request()
        poll.poll()
        return thread.take()

    return ask


def _sources(options: Options) -> Callable[[], object]:
    pods, node = pod_source(options), node_source(options)
    return lambda: (pods.read(clock.now()), node.read(clock.now()))


def _judging(report: CycleReport) -> dict[str, Callable[[], object]]:
    """The steps of the core; each cycle goes by what the one before it left."""
    assessor, inputs = Assessor(), Inputs(policy=report.policy, node=report.node, pods=report.pods)
    ledgers = [Ledger()]
    _, assessments = assessor.assess(report.snapshot, inputs)

    def choose() -> None:
        ledgers[0] = decide(assessments, ledgers[0], clock.now(), inputs).ledger

    choose()
    return {
        "attribute and assess": lambda: assessor.assess(report.snapshot, inputs),
        "decide": choose,
    }


def _sinks(options: Options, report: CycleReport) -> Sinks:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
        sinks = Sinks(options, report.policy, report.at)
    sinks.maintain(clock.now())
    sinks.publish(report, is_stale=False)
    return sinks
