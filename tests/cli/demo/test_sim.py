"""The simulated node: real processes with simulated cgroups and memory."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.support import run_python, sleeper
from watchdog.cli.demo.pods import SimPod, SimProcess, UsageCurve
from watchdog.cli.demo.sim import RunningPod, SimNode, SimProcfs
from watchdog.core.model import Place, PlaceKind
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs

GI = 2**30
LEVEL = UsageCurve(((0, 2.0),))
POD = SimPod(
    namespace="ns",
    name="p",
    uid="aaaaaaaa-0000-4000-8000-000000000001",
    container="main",
    container_id="ab" * 32,
    declared="4Gi",
    processes=(
        SimProcess(name="first", curve=LEVEL),
        SimProcess(name="deaf", curve=LEVEL, ignores_sigterm=True),
        SimProcess(name="idle"),
    ),
)


@pytest.fixture
def running() -> Iterator[RunningPod]:
    """The running pod; its processes end with the test."""
    with SimNode() as node:
        yield node.start(POD)


def children(process: int) -> list[int]:
    """The PIDs of all processes whose parent this is."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


@pytest.mark.parametrize(("second", "gib"), [(-5, 1), (0, 1), (1, 1), (2, 2), (3, 3), (3.5, 1.5), (4, 0), (100, 0)])
def test_curve(second: float, gib: float) -> None:
    """A curve is level before its first point and after its last, and a straight line between two."""
    assert UsageCurve(((1, 1), (3, 3), (4, 0))).at(second) == gib * GI


@pytest.mark.slow
def test_node_kills_stopped_processes() -> None:
    """A stopped process, which does not see the end of its input, is killed when the node is left."""
    with SimNode() as node:
        keys = node.start(POD).keys
        os.kill(keys[1].pid, signal.SIGSTOP)
    assert not [key.pid for key in keys if Path(f"/proc/{key.pid}").exists()]


@pytest.mark.slow
def test_pod_that_can_not_start() -> None:
    """A pod whose processes do not start is an error and leaves no process."""
    code = """
        import os, sys
        from tests.cli.demo.test_sim import POD, children
        from watchdog.cli.demo.sim import SimNode
        sys.executable = "/bin/true"
        try:
            with SimNode() as node:
                node.start(POD)
        except OSError as error:
            print(error, children(os.getpid()))
    """
    assert run_python(code) == "first of ns/p did not start within 10 s []\n"


def test_procfs(running: RunningPod) -> None:
    """Law 4: the demo's /proc shows its own processes in the cgroup of their pod, and no stranger, even if listed."""
    procfs = SimProcfs()
    procfs.admit(running.session, POD.cgroup)
    pids = sorted(key.pid for key in running.keys)
    assert procfs.pids() == pids
    place = Place(kind=PlaceKind.POD, pod=POD.uid, container=POD.container_id)
    for process, key in zip(POD.processes, running.keys, strict=True):
        pid = key.pid
        assert parse_cgroup(procfs.cgroup_text(pid)) == parse_cgroup(procfs.cgroup_text(pid, pid)) == place
        assert procfs.stat(pid).start_ticks == key.start_ticks
        assert procfs.stat(pid).comm.decode() == process.name
    assert procfs.in_host_pid_namespace() == Procfs().in_host_pid_namespace()
    with sleeper() as stranger:
        with pytest.raises(ProcessLookupError):
            procfs.cgroup_text(stranger.pid)
        assert stranger.pid not in procfs.pids()
        table = ProcessTable(procfs)
        members, gaps = table.container_members(frozenset({POD.container_id}), frozenset({POD.uid}))
        assert sorted(handle.key.pid for handle in members) == sorted(key.pid for key in running.keys)
        assert gaps == ()
        for handle in members:
            handle.close()
        listed, _ = table.update({running.keys[0].pid, stranger.pid})
        assert [pid for pid, process in listed.items() if process.place.kind is PlaceKind.POD] == [running.keys[0].pid]
        table.close()
