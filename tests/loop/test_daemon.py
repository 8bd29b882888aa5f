"""The daemon's own steps, one at a time: when the driver is read again after a cycle, and between two."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.worlds import Gi, assessed, container, inputs, planned, pod, policy, rule, snapshot, step, use
from watchdog import clock
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import Attribution
from watchdog.core.model import Now
from watchdog.core.plan import OpenCycle
from watchdog.daemon.enforcement import Environment
from watchdog.daemon.main import Daemon
from watchdog.node.driver import DriverReading
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.options import Options

INTERVAL_S = 600.0
FOR_S = 30.0


class NoGpus:
    """A driver of a node without GPUs."""

    needs_new_process = None

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Nothing, at once."""
        return DriverReading(driver="0")

    def used(self) -> Mapping[str, int]:
        """None."""
        return {}

    def close(self) -> None:
        """There is nothing to release."""


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """The file of pods: none."""
    found = tmp_path / "pods.json"
    found.write_text(json.dumps({"kind": "PodList", "items": []}), encoding="utf-8")
    return found


@pytest.fixture
def daemon(tmp_path: Path, pods: Path) -> Iterator[Daemon]:
    """A daemon that reads the driver every ten minutes, right after it has begun to read and found nothing new."""
    path = tmp_path / "policy.toml"
    path.write_text('mode = "observe"\n', encoding="utf-8")
    options = Options(node="n1", policy=path, listen="127.0.0.1:0", journal=tmp_path / "journal.db", pods=pods)
    file = PolicyFile(path)
    file.load()
    scanner = Scanner(ProcessTable(Procfs(), pidfds=True))
    environment = Environment(in_host_pid_namespace=True, pidfd_missing=None)
    under = policy(rule(step(for_s=FOR_S)), mode="observe", interval_s=INTERVAL_S)
    made = Daemon(options, (file, under), NoGpus(), environment, scanner)
    made._sources.inputs(under, clock.now())
    made._sampler.pace.begin(clock.now())
    yield made
    made._end(clock.now())
    made._sinks._server.close()


def reads_in_s(daemon: Daemon, now: Now) -> int:
    """Whole seconds until it reads the driver next."""
    return round(daemon._sampler.pace.next_reading_s - now.boottime_s)


def test_other_pods_are_a_reason_to_read_soon(daemon: Daemon, pods: Path) -> None:
    """Nothing new is none, however often it is checked; a changed list brings the next reading forward to a second."""
    now = clock.now()
    daemon._beat(now)
    assert reads_in_s(daemon, now) == INTERVAL_S
    pods.write_text(json.dumps({"kind": "PodList", "items": [], "metadata": {}}), encoding="utf-8")
    daemon._beat(now)
    assert reads_in_s(daemon, now) == 1


@pytest.mark.parametrize(("stale", "in_s"), [(False, FOR_S), (True, INTERVAL_S)], ids=["fresh", "stale"])
def test_a_step_that_comes_due_is_read_in_time(daemon: Daemon, *, stale: bool, in_s: float) -> None:
    """Design, pace: the loop is there when a step's `for` is over; by a stale list no timer runs."""
    now, tenants = clock.now(), [pod("a", container(declared="1Gi"))]
    under, seen = policy(rule(step(for_s=FOR_S))), snapshot([use(5, 2 * Gi)])
    opened = OpenCycle(
        inputs=inputs(under, tenants, pods_stale=stale),
        snapshot=seen,
        attribution=Attribution(),
        assessments=assessed(seen, tenants, under),
        plan=planned(seen, tenants, under),
        scan_s=0.0,
    )
    daemon._finish(opened)
    assert reads_in_s(daemon, now) == in_s
