"""The table of listed processes: identity over death, recycling and missing rights."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.node.support import (
    DEAD_LEADER,
    PLACE,
    POD,
    REAL,
    ROOT,
    UID,
    FakeProc,
    need_root,
    open_files,
    python,
    real_stat,
    run_python,
    sleeper,
    sleepers,
    wait_until,
    ways,
)
from watchdog.core.model import GONE, HOST, UNREADABLE, ZOMBIE, ProcessKey
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs


@ways
def test_a_listed_process_is_known(*, pidfds: bool) -> None:
    """Point 11: a listed process is known by PID and start time, and stays the same from cycle to cycle."""
    table = ProcessTable(REAL, pidfds=pidfds)
    with sleeper() as process:
        wait_until(lambda: REAL.stat(process.pid).comm == b"sleep")
        found, gaps = table.update([process.pid])
        assert gaps == ()
        seen = found[process.pid]
        assert seen.key == ProcessKey(pid=process.pid, start_ticks=REAL.stat(process.pid).start_ticks)
        assert (seen.name, seen.mps) == ("sleep", None)
        assert table.update([process.pid])[0][process.pid] is seen
        assert table.reread([process.pid])[0] == found
    table.close()


@ways
def test_end_of_a_process(*, pidfds: bool) -> None:
    """A process that ends is a zombie, then gone, and keeps its identity while its memory is waited for."""
    table = ProcessTable(REAL, pidfds=pidfds)
    with sleeper() as process:
        before = open_files()
        key = table.update([process.pid])[0][process.pid].key
        process.kill()
        wait_until(lambda: REAL.stat(process.pid).state == "Z")
        for _ in range(2):
            zombie = table.update([process.pid])[0][process.pid]
            assert (zombie.place, zombie.key) == (ZOMBIE, key)
            assert open_files() == before
        process.wait()
        for read in (table.update, table.update, table.reread):
            gone = read([process.pid])[0][process.pid]
            assert (gone.place, gone.key) == (GONE, key)
    table.close()


@ways
def test_the_end_of_any_process_is_a_change(*, pidfds: bool) -> None:
    """Promise 1: a driver can list a process that has ended, so equal lists alone do not make a cycle quiet."""
    table = ProcessTable(REAL, pidfds=pidfds)
    assert table.is_unchanged(), "nothing is listed"
    with sleeper() as one, sleeper() as other:
        wait_until(lambda: {REAL.stat(one.pid).comm, REAL.stat(other.pid).comm} == {b"sleep"})
        table.update([one.pid, other.pid])
        assert table.is_unchanged() is pidfds, "without a pidfd only reading it again can tell"
        other.kill()
        wait_until(lambda: REAL.stat(other.pid).state == "Z")
        is_unchanged: bool = table.is_unchanged()
        assert not is_unchanged
    table.close()


@ways
def test_ended_at_first_sight(*, pidfds: bool) -> None:
    """A zombie has an identity and no place; a PID that has no process any more has neither."""
    process = subprocess.Popen(["true"])
    wait_until(lambda: REAL.stat(process.pid).state == "Z")
    key = ProcessKey(pid=process.pid, start_ticks=REAL.stat(process.pid).start_ticks)
    seen = ProcessTable(REAL, pidfds=pidfds).update([process.pid])[0][process.pid]
    assert (seen.place, seen.key) == (ZOMBIE, key)
    process.wait()
    found, gaps = ProcessTable(REAL, pidfds=pidfds).update([process.pid, 0, 2**22 + 1])
    assert ({(seen.key, seen.place) for seen in found.values()}, gaps) == ({(None, GONE)}, ())


@ways
def test_dead_leader(*, pidfds: bool) -> None:
    """A process whose leader has ended stays what it was while a thread lives."""
    table = ProcessTable(REAL, pidfds=pidfds)
    with python(DEAD_LEADER) as process:
        wait_until(lambda: REAL.stat(process.pid).state == "Z")
        own = table.update([process.pid, os.getpid()])[0]
        assert own[process.pid].place == own[os.getpid()].place != ZOMBIE
        assert table.update([process.pid])[0][process.pid] == own[process.pid]
    table.close()


def test_known_processes_are_not_read_again(tmp_path: Path) -> None:
    """What is known and alive comes without reading /proc; the last look reads again."""
    table = ProcessTable(Procfs(tmp_path))
    with sleeper() as process:
        FakeProc(tmp_path).add(process.pid, POD, real_stat(process.pid))
        seen = table.update([process.pid])[0][process.pid]
        assert seen.place == PLACE
        shutil.rmtree(tmp_path / str(process.pid))
        assert table.update([process.pid])[0][process.pid] is seen
        found, gaps = table.reread([process.pid])
        assert found[process.pid].place == UNREADABLE
        assert "hides it" in str(gaps[0].problem)
    table.close()


@ways
def test_fresh_sees_a_move(tmp_path: Path, *, pidfds: bool) -> None:
    """Point 22: before an action the cgroup is read again, and a process that has moved is no longer where it was."""
    table = ProcessTable(Procfs(tmp_path), pidfds=pidfds)
    with sleeper() as process:
        fake = FakeProc(tmp_path)
        fake.add(process.pid, POD, real_stat(process.pid))
        assert table.update([process.pid])[0][process.pid].place == PLACE
        fake.add(process.pid, "0::/\n", real_stat(process.pid))
        assert table.update([process.pid])[0][process.pid].place == PLACE
        assert table.reread([process.pid])[0][process.pid].place == HOST
    table.close()


@ways
@pytest.mark.parametrize(
    "text", ["0::/\n1:x:broken\n", f"0::/kubepods/pod{UID}\n", f"{POD}1:x:/kubepods/pod{UID}/{'b' * 64}\n"]
)
def test_unsettled_places_are_read_again(tmp_path: Path, text: str, *, pidfds: bool) -> None:
    """A place that is not known for good, as while a runtime sets a container up, is read until it is."""
    table = ProcessTable(Procfs(tmp_path), pidfds=pidfds)
    with sleeper() as process:
        fake = FakeProc(tmp_path)
        fake.add(process.pid, text, real_stat(process.pid))
        assert table.update([process.pid])[0][process.pid].place != PLACE
        fake.add(process.pid, POD, real_stat(process.pid))
        assert table.update([process.pid])[0][process.pid].place == PLACE
    table.close()


def test_names_are_checked_by_turns(tmp_path: Path) -> None:
    """A process that renames itself is read again, whatever its place, and a check reads 64 names at most."""
    fake = FakeProc(tmp_path)
    with sleepers(150) as processes:
        pids = [process.pid for process in processes]
        for pid in pids:
            fake.add(pid, POD, real_stat(pid))
            (tmp_path / f"{pid}/comm").write_bytes(b"sleep\n")
        table = ProcessTable(Procfs(tmp_path))
        assert {seen.name for seen in table.update(pids)[0].values()} == {"sleep"}
        for pid in pids:
            (tmp_path / f"{pid}/comm").write_bytes(b"x\x1b\n\n")
            (tmp_path / f"{pid}/stat").write_bytes(real_stat(pid).replace(b"(sleep)", b"(x\x1b\n)"))
        shown = [[seen.name for seen in table.update(pids)[0].values()].count("x\\x1b\\n") for _ in range(3)]
        assert shown == [64, 86, 150]  # the second check came to the last process
        assert (table.has_renamed(), table.is_unchanged()) == (False, True)
    table.close()


def test_descriptors_are_bounded() -> None:
    """PIDs that are no longer listed are released, and so is everything at the end."""
    unopened = open_files()
    table = ProcessTable(REAL)
    before = open_files()
    with sleepers(20) as processes:
        pids = [process.pid for process in processes]
        for start in range(15):
            table.update(pids[start : start + 5])
            assert open_files() <= before + 5
        table.update(pids)
        assert open_files() == before + 20
        for process in processes[:10]:
            process.kill()
            process.wait()
        table.update(pids)
        assert open_files() == before + 10
        table.close()
        table.close()
        assert open_files() == unopened


def test_no_descriptor_left() -> None:
    """Without descriptors for all, the others are still read, and a gap says what to do."""
    code = """
        import resource
        from pathlib import Path
        from tests.node.support import PLACE, POD, REAL, UID, open_files, real_stat, ways, sleepers
        from watchdog.node.process_table import ProcessTable
        from watchdog.node.procfs import Procfs
        with sleepers(40) as processes:
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 100))
            table = ProcessTable(Procfs())
            pids = [process.pid for process in processes]
            found, gaps = table.update(pids)
            again, gaps_again = table.update(pids)
            print(sum(1 for seen in found.values() if seen.key), found == again, gaps == gaps_again)
            print([(gap.reason.value, gap.what[-7:], "ulimit" in str(gap.problem)) for gap in gaps])
            processes[0].kill(); processes[-1].kill(); processes[0].wait(); processes[-1].wait()
            ended, _ = table.update(pids)
            print(sorted({pids.index(pid) for pid, seen in ended.items() if seen.place.kind == "gone"}))
    """
    assert run_python(code).splitlines() == ["40 True True", "[('descriptors', ' 5 more', True)]", "[0, 39]"]


RECYCLED = """
    import os, subprocess, time
    from pathlib import Path
    from watchdog.node.process import ReadFailures
    from watchdog.node.process_table import ProcessTable, hold
    from watchdog.node.procfs import Procfs

    def start(last):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(last))
        return subprocess.Popen(["sleep", "60"])

    table = ProcessTable(Procfs(), pidfds={pidfds})
    first = start(500)
    before = table.update([first.pid])[0][first.pid]
    def held_as(process):
        return hold(Procfs(), process.pid, lambda seen: seen.key == process.key, ReadFailures(), pidfds={pidfds})

    held = held_as(before)
    first.kill(); first.wait(); time.sleep(0.05)
    second = start(500)
    assert second.pid == first.pid == 501, (first.pid, second.pid)
    try:
        held.signal(9)
    except ProcessLookupError:
        print("nobody was signalled")
    after = table.update([second.pid])[0][second.pid]
    print(before.key != after.key, after.place == before.place, held_as(before))
    print(second.poll())
    held_as(after).signal(9)
    print(second.wait())
"""


@pytest.mark.node
@ways
def test_recycled_pid(*, pidfds: bool) -> None:
    """Point 11: a PID that was given to another process is another one, and the old one's handle reaches neither."""
    need_root()
    code = RECYCLED.replace("{pidfds}", str(pidfds))
    printed = run_python(code, "unshare", "--pid", "--fork", "--mount-proc").splitlines()
    assert printed == ["nobody was signalled", "True True None", "None", "-9"]


HIDDEN = """
    import os, subprocess
    from watchdog.node.process_table import ProcessTable
    from watchdog.node.procfs import Procfs
    subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
    gone = subprocess.Popen(["true"])
    gone.wait()
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    found, gaps = ProcessTable(Procfs(), pidfds={pidfds}).update([os.getppid(), gone.pid])
    shown = [(gap.reason.value, str(gap.problem)) for gap in gaps]
    print(found[os.getppid()].place.kind, found[gone.pid].place.kind, shown)
"""


@pytest.mark.node
@ways
def test_hidden_by_hidepid(*, pidfds: bool) -> None:
    """A mount with hidepid hides processes that live: they are unreadable, not gone, and a gap names the remedy."""
    need_root()
    printed = run_python(HIDDEN.replace("{pidfds}", str(pidfds)), "unshare", "--mount")
    assert printed.startswith("unreadable gone [('procfs', 'it runs but the proc file system hides it; mount /proc ")


def test_what_leads_a_container(tmp_path: Path) -> None:
    """Point 36: if its parent is outside its container, its end may end the container; so if that is unknown."""
    proc, parent = FakeProc(tmp_path), os.getpid()
    with sleeper() as child:
        proc.add(child.pid, POD, real_stat(child.pid))
        table = ProcessTable(Procfs(tmp_path))
        assert table.leads_container(child.pid)
        for place, leads in (("0::/system.slice/containerd.service\n", True), (POD, False)):
            proc.add(parent, place, real_stat(parent))
            assert table.leads_container(child.pid) is leads
        # Its first thread has ended, and on cgroup v1 shows `/`, while another one still runs in the container.
        proc.add(child.pid, ROOT, re.sub(rb"\) \w", b") Z", real_stat(child.pid)))
        proc.add(child.pid, POD, task=child.pid + 1)
        proc.add(parent, "4:memory:/system.slice/containerd.service\n", real_stat(parent))
        assert table.leads_container(child.pid)
        table.close()
