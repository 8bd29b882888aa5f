"""Every process of a container is found, and none of another."""

import os
import re
import signal
import subprocess
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.cgroups import cgroup, enter
from tests.node.support import (
    DEAD_LEADER,
    ID,
    POD,
    REAL,
    ROOT,
    UID,
    FakeProc,
    open_files,
    python,
    real_stat,
    refusing,
    run_python,
    sleeper,
    sleepers,
    stat_line,
    wait_until,
    ways,
)
from tests.rig.cgroups import Version
from watchdog.core.model import Gap, GapReason, Place, PlaceKind, Process
from watchdog.node.process import Handle, ReadFailures
from watchdog.node.process_table import ProcessTable, hold
from watchdog.node.procfs import Procfs

OTHER_UID, OTHER_ID = "11111111-2222-3333-4444-555555555555", "b2" * 32
IDS, PODS = frozenset({ID}), frozenset({UID})


def container_members(
    root: Path, *, pidfds: bool = True, spares: Callable[[Process], bool] = lambda _: False
) -> tuple[tuple[Handle, ...], tuple[Gap, ...]]:
    table = ProcessTable(Procfs(root), pidfds=pidfds)
    members = table.container_members(IDS, PODS, spares)
    table.close()
    return members


@ways
@pytest.mark.parametrize(
    ("cgroup_text", "belongs"),
    [
        (POD, True),
        (f"0::/kubepods/pod{UID}/{ID}/docker/{OTHER_ID}\n", True),
        (f"0::/../{ID}\n", True),
        (f"0::/../cri-containerd-{ID}.scope\n", True),
        (f"0::/kubepods/pod{UID}/{OTHER_ID}\n", False),
        (f"0::/kubepods/pod{OTHER_UID}/{ID}\n", False),
        (f"0::/kubepods/pod{OTHER_UID}/{OTHER_ID}/kubepods/pod{UID}/{ID}\n", False),
        (f"0::/kubepods/pod{UID}/{OTHER_ID}/docker/{ID}\n", False),
        (f"0::/kubepods/pod{UID}\n", False),
        (f"0::/docker/{ID}\n", False),
        (f"0::/kubepods/pod{UID}/crio-conmon-{ID}\n", False),
        (f"{POD}3:x:/kubepods/pod{OTHER_UID}/{OTHER_ID}\n", False),
        (ROOT, False),
        ("broken\n", False),
    ],
)
def test_who_belongs(tmp_path: Path, cgroup_text: str, *, belongs: bool, pidfds: bool) -> None:
    """Law 4, "to another pod or to an unknown container": only what the parser puts into this container."""
    with sleeper() as process:
        FakeProc(tmp_path).add(process.pid, cgroup_text, real_stat(process.pid))
        before = open_files()
        handles, gaps = container_members(tmp_path, pidfds=pidfds)
        assert [handle.key.pid for handle in handles] == ([process.pid] if belongs else [])
        assert gaps == ()
        for handle in handles:
            handle.close()
        assert open_files() == before


@ways
@pytest.mark.parametrize("spare_servers", [True, False])
def test_never_the_protected(tmp_path: Path, *, pidfds: bool, spare_servers: bool) -> None:
    """Law 4, "It never goes to PID 0 or 1, to the daemon itself", nor an MPS server that others need."""
    fake = FakeProc(tmp_path)
    with sleeper() as server, sleeper() as process:
        named = re.sub(rb"\(.*\)", b"(nvidia-cuda-mps)", real_stat(server.pid))
        fake.add(server.pid, POD, named, b"nvidia-cuda-mps-server\0")
        fake.add(0, POD)
        for pid in (1, os.getpid(), process.pid):
            fake.add(pid, POD, real_stat(pid))
        handles, _ = container_members(
            tmp_path, pidfds=pidfds, spares=lambda process: spare_servers and process.mps is not None
        )
        found = {process.pid} if spare_servers else {server.pid, process.pid}
        assert {handle.key.pid for handle in handles} == found
        for handle in handles:
            handle.close()


@ways
def test_the_daemon_itself_is_never_held(tmp_path: Path, *, pidfds: bool) -> None:
    """Point 35: this daemon itself can't be held to be signalled, and the attempt leaves no descriptor open."""
    FakeProc(tmp_path).add(os.getpid(), POD, real_stat(os.getpid()))
    before = open_files()
    with pytest.raises(ValueError, match="never signalled"):
        hold(Procfs(tmp_path), os.getpid(), lambda _: True, ReadFailures(), pidfds=pidfds)
    assert open_files() == before


@ways
def test_a_move_ends_the_right_to_signal(tmp_path: Path, *, pidfds: bool) -> None:
    """Without a pidfd the cgroup is read again before each signal; with one it can be no other process."""
    fake = FakeProc(tmp_path)
    with sleeper() as process:
        fake.add(process.pid, POD, real_stat(process.pid))
        (handle,), _ = container_members(tmp_path, pidfds=pidfds)
        fake.add(process.pid, ROOT, real_stat(process.pid))
        assert handle.alive() is pidfds
        fake.add(process.pid, POD, stat_line(process.pid, b"sleep", start_ticks=handle.key.start_ticks + 1))
        assert handle.alive() is pidfds
        handle.close()


@ways
def test_a_process_whose_leader_has_ended_is_found_on_v1(tmp_path: Path, *, pidfds: bool) -> None:
    """There its leader reads `/`, as if it were of the host, while a thread still holds the container's memory."""
    fake = FakeProc(tmp_path)
    with python(DEAD_LEADER) as process:
        wait_until(lambda: REAL.stat(process.pid).state == "Z")
        (thread,) = set(REAL.threads(process.pid)) - {process.pid}
        for task, text in ((None, ROOT), (process.pid, ROOT), (thread, POD)):
            fake.add(process.pid, text, None if task == thread else real_stat(process.pid), task=task)
        (handle,), gaps = container_members(tmp_path, pidfds=pidfds)
        assert (handle.key.pid, gaps) == (process.pid, ())
        handle.close()


@ways
def test_processes_that_end_meanwhile(tmp_path: Path, *, pidfds: bool) -> None:
    """What has ended since its files were written is no member."""
    fake = FakeProc(tmp_path)
    process = subprocess.Popen(["sleep", "300"])
    fake.add(process.pid, POD, real_stat(process.pid))
    process.kill()
    wait_until(lambda: REAL.stat(process.pid).state == "Z")
    if not pidfds:
        fake.add(process.pid, POD, real_stat(process.pid))
    assert container_members(tmp_path, pidfds=pidfds) == ((), ())
    process.wait()


def test_what_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    """A process that may belong or not is reported: the container may have more processes than were found."""
    FakeProc(tmp_path).add(7)
    (tmp_path / "7/cgroup").unlink()
    (tmp_path / "7/cgroup").symlink_to("cgroup")
    handles, gaps = container_members(tmp_path)
    assert handles == ()
    assert [(gap.reason, gap.what) for gap in gaps] == [(GapReason.CGROUP, "process 7")]


@pytest.mark.parametrize(("error", "reason"), [("EPERM", "procfs"), ("EMFILE", "descriptors")])
def test_what_cannot_be_held_is_a_gap(tmp_path: Path, error: str, reason: str) -> None:
    """What is not held gets no signal: a kill must know that there is more than what it holds."""
    with sleeper() as process:
        FakeProc(tmp_path).add(process.pid, POD, real_stat(process.pid))
        code = f"""
            from pathlib import Path
            from tests.node.test_members import container_members
            handles, gaps = container_members(Path({str(tmp_path)!r}))
            print(handles, [(gap.reason.value, gap.what) for gap in gaps])
        """
        printed = run_python(refusing(434, error) + textwrap.dedent(code))
        assert printed == f"() {[(reason, f'process {process.pid}')]}\n"


def test_many_processes_leave_descriptors_for_others(tmp_path: Path) -> None:
    """Where descriptors are short all are found and can be signalled, with half of what is left; that is reported."""
    with sleepers(60) as processes:
        fake = FakeProc(tmp_path)
        for process in processes:
            fake.add(process.pid, POD, real_stat(process.pid))
        code = f"""
            import resource
            from tests.node.support import open_files
            from tests.node.test_members import IDS, PODS
            from watchdog.node.process_table import ProcessTable
            from watchdog.node.procfs import Procfs
            from pathlib import Path
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            table = ProcessTable(Procfs(Path({str(tmp_path)!r})))
            before = open_files()
            first, gaps = table.container_members(IDS, PODS)
            print(len(first), gaps, open_files() - before, [gap.reason.value for gap in table.take_shortage()])
            second, gaps = table.container_members(IDS, PODS)
            print(len(second), gaps, open_files() - before)
            for handle in (*first, *second):
                handle.signal(0)
                assert handle.alive() and handle.is_still_accepted()
                handle.close()
            table.take_shortage()
            some, _ = table.container_members(frozenset({{"c3" * 32}}), PODS)
            print(len(some), open_files() - before, table.take_shortage())
            third, _ = table.container_members(IDS, PODS)
            print(len(third), open_files() - before)
        """
        assert run_python(code).splitlines() == ["60 () 24 ['descriptors']", "60 () 24", "0 0 ()", "60 24"]


@ways
def test_what_is_held_but_cannot_be_read_is_a_gap(tmp_path: Path, *, pidfds: bool) -> None:
    """A process whose cgroup names the container may be a member, even if nothing more can be read of it."""
    with sleeper() as process:
        FakeProc(tmp_path).add(process.pid, POD, b"broken")
        before = open_files()
        handles, gaps = container_members(tmp_path, pidfds=pidfds)
        assert (handles, [gap.what for gap in gaps]) == ((), [f"process {process.pid}"])
        process.kill()
        wait_until(lambda: REAL.stat(process.pid).state == "Z")
        assert not pidfds or container_members(tmp_path) == ((), ())
        assert open_files() == before


class Names:
    """A container path of its own for each test, below a cgroup root of its own."""

    def __init__(self) -> None:
        self.uid, self.id = str(uuid.uuid4()), uuid.uuid4().hex * 2
        self.path = f"gpu-watchdog-test-{self.uid[:8]}/kubepods/burstable/pod{self.uid}/{self.id}"
        self.place = Place(kind=PlaceKind.POD, pod=self.uid, container=self.id)


FORKS = """
    import os, sys, time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            time.sleep(300)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.node
@ways
@pytest.mark.parametrize("kind", ["cgroup", "cgroup2"])
def test_forks_in_a_real_cgroup(kind: Version, *, pidfds: bool) -> None:
    """Point 23: every process and fork of the container is found, those that left its session too, and no other."""
    names, other = Names(), Names()
    whose = (frozenset({names.id}), frozenset({names.uid}))
    with cgroup(names.path, kind) as folders, cgroup(other.path, kind) as others, sleepers(2) as (neighbour, inside):
        enter(others, neighbour.pid)
        enter(folders, inside.pid)
        entering = "; ".join(f"open('{folder}/cgroup.procs', 'w').write('0')" for folder in folders)
        with python(FORKS, entering) as process:
            table = ProcessTable(REAL, pidfds=pidfds)
            assert table.update([process.pid])[0][process.pid].place == names.place
            handles, gaps = table.container_members(*whose)
            pids = {handle.key.pid for handle in handles}
            assert ({process.pid, inside.pid} < pids, len(pids), gaps) == (True, 5, ())
            for handle in handles:
                handle.signal(signal.SIGKILL)
            wait_until(lambda: not any(handle.alive() for handle in handles))
            for handle in handles:
                handle.close()
            assert neighbour.poll() is None
            assert table.container_members(*whose) == ((), ())
            table.close()
