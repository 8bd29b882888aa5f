"""The simulated node: real processes in made-up cgroups, holding made-up memory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.support import run_python, sleeper, wait_until
from watchdog import clock
from watchdog.cli.demo.driver import SimDriver, SimProcfs
from watchdog.cli.demo.tenants import (
    CARD,
    NODE,
    POLICY,
    TENANTS,
    RunningPod,
    SimNode,
    SimPod,
    Task,
    UsageCurve,
    key_of,
    lives,
    pod_list,
)
from watchdog.config.load import load_policy
from watchdog.core.attribute import attribute
from watchdog.core.model import Gpu, Place, PlaceKind, ProcessKey
from watchdog.kube.objects import parse_pods
from watchdog.node.cgroup import parse_cgroup
from watchdog.node.pidfd import open_pidfd
from watchdog.node.processes import ProcessTable
from watchdog.node.scan import Scanner

GI = 2**30
LEVEL = UsageCurve(((0, 2.0),))
TENANT = SimPod(
    namespace="ns",
    pod="p",
    uid="aaaaaaaa-0000-4000-8000-000000000001",
    container="main",
    container_id="ab" * 32,
    resource="veriff.com/gpu-memory",
    declared="4Gi",
    tasks=(Task(name="first", curve=LEVEL), Task(name="deaf", curve=LEVEL, ignores_sigterm=True), Task(name="idle")),
)


@pytest.fixture
def party() -> Iterator[RunningPod]:
    """The processes of a tenant; they end with the test."""
    with SimNode() as company:
        yield company.start(TENANT)


def children(process: int) -> list[int]:
    """The PIDs of all processes whose parent this is."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


@pytest.mark.parametrize(("second", "gib"), [(-5, 1), (0, 1), (1, 1), (2, 2), (3, 3), (3.5, 1.5), (4, 0), (100, 0)])
def test_curve(second: float, gib: float) -> None:
    """A curve is level before its first point and after its last, and a straight line between two."""
    assert UsageCurve(((1, 1), (3, 3), (4, 0))).at(second) == gib * GI


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 80)), min_size=1, max_size=6, unique_by=lambda p: p[0]))
def test_curve_stays_between_its_points(points: list[tuple[float, float]]) -> None:
    """Whatever is asked, a curve gives whole pages, never less than its lowest point or more than its highest."""
    curve = UsageCurve(tuple(sorted(points)))
    for second in range(-10, 120, 7):
        held = curve.at(second)
        assert held % (2 * 2**20) == 0
        assert min(gib for _, gib in points) * GI - 2 * 2**20 <= held <= max(gib for _, gib in points) * GI


@pytest.mark.parametrize("points", [(), ((1, 1), (1, 2)), ((2, 1), (1, 1)), ((0, -1),)])
def test_curve_refuses(points: tuple[tuple[float, float], ...]) -> None:
    """A curve without points, with seconds that do not rise, or below zero is a mistake of whoever wrote it."""
    with pytest.raises(ValueError, match="a curve needs points"):
        UsageCurve(points)


def test_company_is_real(party: RunningPod) -> None:
    """A tenant's processes are real: named, forks of their leader, in a session that is not ours."""
    for member in party.members:
        assert Path(f"/proc/{member.key.pid}/comm").read_text(encoding="ascii") == f"{member.task.name}\n"
        assert os.getsid(member.key.pid) == party.session != os.getsid(0)
    assert sorted(children(party.session)) == sorted(member.key.pid for member in party.members[1:])


def test_company_leaves_nobody() -> None:
    """When a company is left, each of its processes is gone and reaped: the leaders, their forks, and the deaf."""
    with SimNode() as company:
        parties = [company.start(TENANT), company.start(TENANT)]
        keys = [member.key for party in parties for member in party.members]
        assert all(lives(key) for key in keys)
        os.kill(parties[0].session, signal.SIGTERM)
        wait_until(lambda: not lives(keys[0]))
    assert not [key.pid for key in keys if Path(f"/proc/{key.pid}").exists()]


@pytest.mark.slow
def test_company_ends_those_who_will_not_leave() -> None:
    """A process that is stopped, and so does not see the end of its input, is killed when the company is left."""
    with SimNode() as company:
        keys = [member.key for member in company.start(TENANT).members]
        os.kill(keys[1].pid, signal.SIGSTOP)
    assert not [key.pid for key in keys if Path(f"/proc/{key.pid}").exists()]


def test_company_dies_with_its_owner() -> None:
    """After a SIGKILL of whoever started a company, all of its processes leave by themselves."""
    code = (
        "import sys, time; from watchdog.cli.demo.tenants import SimNode; from tests.sim.test_sim import TENANT\n"
        "with SimNode() as company:\n"
        "    print(*(member.key.pid for member in company.start(TENANT).members), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        keys = [key_of(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(keys) == 3
        owner.kill()
    wait_until(lambda: not any(lives(key) for key in keys))


def test_company_that_can_not_start() -> None:
    """A tenant whose processes do not come up is an error, and leaves nothing."""
    code = """
        import os, sys
        from tests.sim.test_sim import TENANT, children
        from watchdog.cli.demo.tenants import SimNode
        sys.executable = "/bin/true"
        try:
            with SimNode() as company:
                company.start(TENANT)
        except OSError as error:
            print(error, children(os.getpid()))
    """
    assert run_python(code) == "first of ns/p did not start within 10 s []\n"


def test_driver(party: RunningPod) -> None:
    """Memory is listed under its PID while the process lives and for a while after its death, then it is free."""
    seconds = [0.0]
    card = Gpu(uuid="GPU-1", index=0, name="Sim", total=24 * GI, reserved=GI)
    driver = SimDriver(card, lambda: seconds[0], release_s=1.0)
    for member in party.members:
        driver.allocate(member.key, member.task.curve)
    first, deaf = (member.key.pid for member in party.members[:2])
    assert {use.pid for use in driver.read().uses} == {first, deaf}
    os.kill(first, signal.SIGTERM)
    os.kill(deaf, signal.SIGTERM)
    wait_until(lambda: not lives(party.members[0].key))
    for second, holders in ((10.0, {first, deaf}), (10.9, {first, deaf}), (11.0, {deaf}), (99.0, {deaf})):
        seconds[0] = second
        reading = driver.read()
        assert {use.pid: use.used for use in reading.uses} == dict.fromkeys(holders, 2 * GI)
        assert reading.gpus[0].used == GI + 2 * GI * len(holders)
    assert driver.read(frozenset({"GPU-2"})).gpus == ()
    assert driver.read(frozenset({"GPU-1"})).uses == reading.uses
    driver.close()
    assert driver.read().uses == ()


def test_driver_knows_a_recycled_pid(party: RunningPod) -> None:
    """The memory of a process goes when it has ended, though its PID may belong to another by then."""
    driver = SimDriver(CARD, lambda: 0.0)
    key = party.members[0].key
    driver.allocate(ProcessKey(pid=key.pid, start_ticks=key.start_ticks - 1), LEVEL)
    assert driver.read().uses == ()


def test_procfs(party: RunningPod, tmp_path: Path) -> None:
    """A simulated /proc shows the real processes of a session, forks included, in the cgroup of their pod."""
    procfs = SimProcfs(tmp_path / "proc")
    procfs.admit(party.session, TENANT.cgroup)
    pids = sorted(member.key.pid for member in party.members)
    assert procfs.pids() == pids
    place = Place(kind=PlaceKind.POD, pod=TENANT.uid, container=TENANT.container_id)
    for member in party.members:
        pid = member.key.pid
        assert parse_cgroup(procfs.cgroup_text(pid)) == parse_cgroup(procfs.cgroup_text(pid, pid)) == place
        assert procfs.stat(pid).start_ticks == member.key.start_ticks
        assert procfs.name(pid) == member.task.name
    assert procfs.pid_namespace() is not None


def test_procfs_lets_go(party: RunningPod, tmp_path: Path) -> None:
    """A process that has ended and been reaped is not shown any more."""
    procfs = SimProcfs(tmp_path / "proc")
    procfs.admit(party.session, TENANT.cgroup)
    gone = party.members[2].key
    os.kill(gone.pid, signal.SIGKILL)
    wait_until(lambda: not lives(gone))
    os.kill(party.session, signal.SIGKILL)  # its parent, so that it comes to this process
    wait_until(lambda: _reap(gone.pid))
    assert gone.pid not in procfs.pids()
    assert not (tmp_path / "proc" / str(gone.pid)).exists()
    with pytest.raises(ProcessLookupError):
        procfs.cgroup_text(gone.pid)


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()


def test_procfs_never_shows_a_stranger(party: RunningPod, tmp_path: Path) -> None:
    """Law 4: "Only processes of an account over its allowed amount, unprotected, are ever signalled", no stranger."""
    procfs = SimProcfs(tmp_path / "proc")
    procfs.admit(party.session, TENANT.cgroup)
    with sleeper() as stranger:
        (tmp_path / "proc" / str(stranger.pid)).symlink_to(tmp_path / "proc" / str(party.session))
        with pytest.raises(ProcessLookupError):
            procfs.cgroup_text(stranger.pid)
        (tmp_path / "proc" / str(stranger.pid)).unlink()
        table = ProcessTable(procfs)
        members, gaps = table.container_members(frozenset({TENANT.container_id}), frozenset({TENANT.uid}))
        assert sorted(handle.key.pid for handle in members) == sorted(member.key.pid for member in party.members)
        assert gaps == ()
        for handle in members:
            handle.close()


def test_scan_of_the_simulated_node(party: RunningPod, tmp_path: Path) -> None:
    """The scan and the attribution of production put a tenant's memory where its PodList says, all of it."""
    procfs = SimProcfs(tmp_path / "proc")
    procfs.admit(party.session, TENANT.cgroup)
    driver = SimDriver(CARD, lambda: 0.0)
    for member in party.members:
        driver.allocate(member.key, member.task.curve)
    pods, gaps = parse_pods(json.dumps(pod_list((TENANT,), NODE)).encode(), NODE)
    assert gaps == ()
    scanner = Scanner(ProcessTable(procfs))
    found = attribute(scanner.snapshot(driver.read(), clock.now()), pods)
    scanner.close()
    assert {(use.uid, use.container, use.key) for use in found.attributed} == {
        (TENANT.uid, "main", member.key) for member in party.members[:2]
    }
    assert found.unattributed == ()


def test_story() -> None:
    """The story holds together: the policy has no warning, the curves always fit the card."""
    policy = load_policy(POLICY)
    assert policy.mode == "enforce"
    assert policy.warnings == ()
    curves = [task.curve for tenant in TENANTS for task in tenant.tasks]
    for tenth in range(400):
        assert sum(curve.at(tenth / 10) for curve in curves) <= (CARD.size or 0)
    assert len({part for tenant in TENANTS for part in (tenant.uid, tenant.container_id)}) == 2 * len(TENANTS)


def test_life(party: RunningPod) -> None:
    """A zombie does not live, and a PID with another start time is another process."""
    key = party.members[0].key
    assert lives(key)
    assert not lives(ProcessKey(pid=key.pid, start_ticks=key.start_ticks + 1))
    os.close(open_pidfd(key.pid))
    os.kill(key.pid, signal.SIGKILL)
    wait_until(lambda: not lives(key))
    assert Path(f"/proc/{key.pid}/stat").exists()
