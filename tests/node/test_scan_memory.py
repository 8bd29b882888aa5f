"""What a scanner remembers: who was listed where, so that a GPU that cannot be listed keeps its processes."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.node.support import POD, REAL, FakeProc, real_stat, sleeper, stat_line, wait_until
from tests.worlds import at
from watchdog import clock
from watchdog.core.model import Gpu, ProcessKey, Snapshot, Use
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner

PID = 4_000_000
GIB = 2**30

Look = Callable[..., Snapshot]


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A proc file system with one process."""
    made = FakeProc(tmp_path)
    made.add(PID, stat=stat_line(PID, b"python3", start_ticks=1000))
    return made


@pytest.fixture
def scanner(proc: FakeProc) -> Scanner:
    """A scanner of that proc file system."""
    return Scanner(ProcessTable(Procfs(proc.root), pidfds=False))


@pytest.fixture
def look(scanner: Scanner) -> Look:
    """One cycle after the other over one GPU on which the process is listed, or was listed before."""

    def take(*, listed: bool = True, is_there: bool = True, listed_s: float | None = None) -> Snapshot:
        uses = (Use(gpu="GPU-0", pid=PID, used=GIB if listed else None),) if is_there else ()
        gpus = (Gpu(uuid="GPU-0", index=0, name="Stub", listed=listed),)
        when = {} if listed_s is None else {"GPU-0": listed_s}
        return scanner.snapshot(DriverReading(driver="1", interface="NVML", gpus=gpus, uses=uses, listed_s=when), at(0))

    return take


def used(snapshot: Snapshot) -> int | None:
    """What its one process uses."""
    (use,) = snapshot.uses
    return use.used


def test_a_process_stays_on_a_gpu_that_cannot_be_listed(look: Look) -> None:
    """Law 3: while its list is missing, who was on a GPU and lives still counts, with an unknown amount."""
    assert [used(look(listed=listed)) for listed in (True, True, False, False, True)] == [GIB, GIB, None, None, GIB]


def test_another_process_of_the_same_number_is_not_who_is_listed(look: Look, proc: FakeProc) -> None:
    """Point 11: a recycled PID with the same amount as before has an unknown one, until it is once not listed."""
    look()
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=2000))
    assert [used(look()), used(look())] == [None, None]
    look(is_there=False)
    assert used(look()) == GIB


def test_who_gets_the_number_of_a_ghost_does_not_inherit_its_memory(look: Look, proc: FakeProc) -> None:
    """Point 11: the same where the process had ended before the first reading."""
    shutil.rmtree(proc.root / str(PID))
    look()
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=2000))
    assert used(look()) is None


def test_a_process_that_began_after_the_driver_was_asked_was_not_listed(look: Look, proc: FakeProc) -> None:
    """Point 11: who is younger than the reading is not who was meant."""
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=10**9))
    assert used(look()) is None


@pytest.mark.parametrize(("listed_after_s", "expected"), [(4.0, GIB), (2.0, None)])
def test_a_process_that_began_while_the_driver_was_read(
    look: Look, proc: FakeProc, listed_after_s: float, expected: int | None
) -> None:
    """A reading can take seconds: a process older than its list may be the one listed, a younger one is not."""
    asked_s = at(0).boottime_s
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=int((asked_s + 3) * os.sysconf("SC_CLK_TCK"))))
    assert used(look(listed_s=asked_s + listed_after_s)) == expected
    assert used(look(listed_s=asked_s + 60)) == expected  # as long as it is listed


def test_memory_on_a_gpu_that_cannot_be_listed_is_not_taken_for_free(
    look: Look, proc: FakeProc, scanner: Scanner
) -> None:
    """Point 24: a victim last listed on a GPU that is dark now may still hold memory there, be it dead or not."""
    key = ProcessKey(pid=PID, start_ticks=1000)
    assert not scanner.may_be_listed(key, look())
    shutil.rmtree(proc.root / str(PID))
    assert scanner.may_be_listed(key, look(listed=False))
    assert not scanner.may_be_listed(key, look(is_there=False))


def test_a_process_that_took_the_number_meanwhile_was_never_listed(look: Look, proc: FakeProc) -> None:
    """Point 11: what is in the last good list was another process, so nothing is known of this one."""
    look()
    look()
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=2000))
    assert look(listed=False).uses == ()


def _sleeps(pid: int) -> bool:
    return REAL.stat(pid).comm == b"sleep"


@pytest.mark.parametrize("is_last_look", [False, True])
def test_a_process_that_has_ended_is_not_who_is_newly_listed_on_another_gpu(
    tmp_path: Path, *, is_last_look: bool
) -> None:
    """Points 10 and 11: what its container keeps is listed where it was; a PID that was given again is another's."""
    fake = FakeProc(tmp_path)
    with sleeper() as one, sleeper() as other:
        for each in (one, other):
            wait_until(partial(_sleeps, each.pid))
            fake.add(each.pid, POD, real_stat(each.pid))
        table = ProcessTable(Procfs(fake.root))
        scanner = Scanner(table)
        gpus = tuple(Gpu(uuid=f"GPU-{number}", index=number, name="Stub") for number in range(2))
        both = tuple(Use(gpu=gpu.uuid, pid=one.pid, used=GIB) for gpu in gpus)
        first = scanner.snapshot(DriverReading(driver="1", interface="NVML", gpus=gpus, uses=both[:1]), clock.now())
        one.kill()
        one.wait()
        shutil.rmtree(fake.root / str(one.pid))
        reading, now = DriverReading(driver="1", interface="NVML", gpus=gpus, uses=both), clock.now()
        only = frozenset(gpu.uuid for gpu in gpus)
        last = scanner.rescan(first, reading, only, now, asked=now) if is_last_look else scanner.snapshot(reading, now)
        assert last.processes[one.pid].ended
        assert {use.gpu: use.used for use in last.uses} == {"GPU-0": GIB, "GPU-1": None}
        scanner.close()


@pytest.mark.parametrize(("asked_after_s", "expected"), [(4.0, GIB), (2.0, None)])
def test_a_process_that_began_after_the_last_look_was_requested_was_not_listed_by_it(
    scanner: Scanner, proc: FakeProc, asked_after_s: float, expected: int | None
) -> None:
    """Point 11: what the last look lists anew is a process that ran by then, be it younger than the first reading."""
    gpus = (Gpu(uuid="GPU-0", index=0, name="Stub"),)
    first = scanner.snapshot(DriverReading(driver="1", interface="NVML", gpus=gpus), at(0))
    began_s = at(0).boottime_s + 3
    proc.add(PID, stat=stat_line(PID, b"python3", start_ticks=int(began_s * os.sysconf("SC_CLK_TCK"))))
    reading = DriverReading(driver="1", interface="NVML", gpus=gpus, uses=(Use(gpu="GPU-0", pid=PID, used=GIB),))
    last = scanner.rescan(first, reading, frozenset({"GPU-0"}), at(5), asked=at(asked_after_s))
    assert used(last) == expected
