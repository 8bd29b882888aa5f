"""Handles that the table gives out: of the listed process with that identity, or none."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.node.support import FakeProc, sleeper, stat_line
from watchdog.core.model import Place, PlaceKind, ProcessKey
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs

UID, ID = "8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60", "a1" * 32
PLACE = Place(kind=PlaceKind.POD, pod=UID, container=ID)
POD = f"0::/kubepods/pod{UID}/{ID}\n"
REAL = Procfs()

ways = pytest.mark.parametrize("pidfds", [True, False])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def real_stat(pid: int) -> bytes:
    return Path(f"/proc/{pid}/stat").read_bytes()


@ways
def test_handle(tmp_path: Path, *, pidfds: bool) -> None:
    """A handle is of the listed process with that identity, and outlives the table's interest in it."""
    table = ProcessTable(REAL, pidfds=pidfds)
    with sleeper() as process:
        key = table.update([process.pid])[0][process.pid].key
        assert key is not None
        assert table.handle(ProcessKey(pid=process.pid, start_ticks=key.start_ticks + 1)) is None
        handle = table.handle(key)
        assert handle is not None
        assert handle.key == key
        table.update([])
        assert table.handle(key) is None
        handle.signal(signal.SIGKILL)
        process.wait()
        handle.close()
    table.close()


@ways
def test_no_handle_of_what_has_changed(tmp_path: Path, *, pidfds: bool) -> None:
    """Point 22: no handle is given of a process that has ended, or, where none is held, has moved or is another one."""
    table = ProcessTable(Procfs(tmp_path), pidfds=pidfds)
    with sleeper() as process:
        fake, stat = FakeProc(tmp_path), real_stat(process.pid)
        fake.add(process.pid, POD, stat)
        key = table.update([process.pid])[0][process.pid].key
        assert key is not None
        if not pidfds:
            fake.add(process.pid, "0::/\n", stat)
            assert table.handle(key) is None
            fake.add(process.pid, POD, stat_line(process.pid, b"sleep", start_ticks=key.start_ticks + 1))
            assert table.handle(key) is None
        process.kill()
        process.wait()
        shutil.rmtree(tmp_path / str(process.pid))
        assert table.handle(key) is None
    table.close()


@ways
def test_no_handle_of_the_protected(tmp_path: Path, *, pidfds: bool) -> None:
    """Point 35: this daemon itself can't be held to be signalled."""
    fake = FakeProc(tmp_path)
    fake.add(os.getpid(), POD, real_stat(os.getpid()))
    table = ProcessTable(Procfs(tmp_path), pidfds=pidfds)
    (seen,) = table.update([os.getpid()])[0].values()
    before = open_files()
    assert seen.place == PLACE
    assert seen.key is not None
    with pytest.raises(ValueError, match="never signalled"):
        table.handle(seen.key)
    assert open_files() == before
    table.close()
