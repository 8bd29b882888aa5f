"""The simulated node: real processes with simulated cgroups and memory."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.support import run_python, sleeper, wait_until
from watchdog import clock
from watchdog.cli.demo.pods import CARD, NODE, PODS, POLICY, SimPod, SimProcess, UsageCurve, pod_list
from watchdog.cli.demo.sim import RunningPod, SimDriver, SimNode, SimProcfs, is_alive
from watchdog.config.load import load_policy
from watchdog.core.attribute import attribute
from watchdog.core.model import Gpu, Place, PlaceKind, ProcessKey
from watchdog.kube.objects import parse_pods
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.process import open_pidfd
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner

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


def test_node_is_real(running: RunningPod) -> None:
    """A pod's processes are real: named, forks of their leader, in their own session."""
    for process, key in zip(POD.processes, running.keys, strict=True):
        assert Path(f"/proc/{key.pid}/comm").read_text(encoding="ascii") == f"{process.name}\n"
        assert os.getsid(key.pid) == running.session != os.getsid(0)
    assert sorted(children(running.session)) == sorted(key.pid for key in running.keys[1:])


def test_node_leaves_no_process() -> None:
    """Leaving the node ends and reaps each process: the leaders, their forks, and those that ignore SIGTERM."""
    with SimNode() as node:
        pods = [node.start(POD), node.start(POD)]
        keys = [key for pod in pods for key in pod.keys]
        assert all(is_alive(key) for key in keys)
        os.kill(pods[0].session, signal.SIGTERM)
        wait_until(lambda: not is_alive(keys[0]))
    assert not [key.pid for key in keys if Path(f"/proc/{key.pid}").exists()]


@pytest.mark.slow
def test_node_kills_stopped_processes() -> None:
    """A stopped process, which does not see the end of its input, is killed when the node is left."""
    with SimNode() as node:
        keys = node.start(POD).keys
        os.kill(keys[1].pid, signal.SIGSTOP)
    assert not [key.pid for key in keys if Path(f"/proc/{key.pid}").exists()]


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


def test_driver(running: RunningPod) -> None:
    """Memory is listed under its PID while the process lives and for a while afterwards, then it is free."""
    seconds = [0.0]
    card = Gpu(uuid="GPU-1", index=0, name="Sim", total=24 * GI, reserved=GI)
    driver = SimDriver(card, lambda: seconds[0])
    for process, key in zip(POD.processes, running.keys, strict=True):
        driver.allocate(key, process.curve)
    first, deaf = (key.pid for key in running.keys[:2])
    assert {use.pid for use in driver.read().uses} == {first, deaf}
    os.kill(first, signal.SIGTERM)
    os.kill(deaf, signal.SIGTERM)
    wait_until(lambda: not is_alive(running.keys[0]))
    for second, holders in ((10.0, {first, deaf}), (10.5, {first, deaf}), (10.7, {deaf}), (99.0, {deaf})):
        seconds[0] = second
        reading = driver.read()
        assert {use.pid: use.used for use in reading.uses} == dict.fromkeys(holders, 2 * GI)
        assert reading.gpus[0].used == GI + 2 * GI * len(holders)
    assert driver.read(frozenset({"GPU-2"})).gpus == ()
    assert driver.read(frozenset({"GPU-1"})).uses == reading.uses


def test_procfs(running: RunningPod) -> None:
    """Law 4: a simulated /proc shows the processes of a session in the cgroup of their pod, and never a stranger."""
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


def test_scan_of_the_simulated_node(running: RunningPod) -> None:
    """The scan and the attribution of production attribute all of a pod's memory to it, as its PodList says."""
    procfs = SimProcfs()
    procfs.admit(running.session, POD.cgroup)
    driver = SimDriver(CARD, lambda: 0.0)
    for process, key in zip(POD.processes, running.keys, strict=True):
        driver.allocate(key, process.curve)
    pods, gaps = parse_pods(json.dumps(pod_list((POD,))).encode(), NODE)
    assert gaps == ()
    scanner = Scanner(ProcessTable(procfs))
    found = attribute(scanner.snapshot(driver.read(), clock.now()), pods)
    scanner.close()
    assert {(use.uid, use.container, use.key) for use in found.attributed} == {
        (POD.uid, "main", key) for key in running.keys[:2]
    }
    assert found.unattributed == ()


def test_demo_pods() -> None:
    """The demo is consistent: the policy has no warning, the curves always fit the card."""
    policy = load_policy(POLICY)
    assert policy.mode == "enforce"
    assert policy.warnings == ()
    curves = [process.curve for pod in PODS for process in pod.processes]
    for tenth in range(400):
        assert sum(curve.at(tenth / 10) for curve in curves) <= (CARD.size or 0)
    assert len({part for pod in PODS for part in (pod.uid, pod.container_id)}) == 2 * len(PODS)


def test_is_alive(running: RunningPod) -> None:
    """A zombie is not alive, and a PID with another start time is another process."""
    key = running.keys[0]
    assert is_alive(key)
    assert not is_alive(ProcessKey(pid=key.pid, start_ticks=key.start_ticks + 1))
    os.close(open_pidfd(key.pid))
    os.kill(key.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(key))
    assert Path(f"/proc/{key.pid}/stat").exists()
