"""What was read of a PID counts only if it is sure to be of one process."""

import os
import threading
from pathlib import Path

from tests.node.support import FakeProc, sleeper, stat_line, wait_until
from watchdog.core.model import GONE, ZOMBIE, Place, PlaceKind, Process, ProcessKey
from watchdog.node.process import ReadFailures, open_pidfd, poll_dead, read_ended, read_held, read_unheld
from watchdog.node.procfs import Procfs

POD = f"0::/kubepods/pod{'0' * 32}/{'a' * 64}\n"
BEFORE = Process(
    pid=5, key=ProcessKey(pid=5, start_ticks=1000), place=Place(kind=PlaceKind.POD, pod="0" * 32, container="a" * 64)
)


def test_held_process_that_ended_while_it_was_read(tmp_path: Path) -> None:
    """Point 11: what /proc says of a PID after its process has ended is of another one, and is not taken for it."""
    with sleeper() as process:
        fd = open_pidfd(process.pid)
        FakeProc(tmp_path).add(process.pid, POD)
        failures = ReadFailures()
        assert read_held(Procfs(tmp_path), fd, process.pid, None, failures).place.kind is PlaceKind.POD
        process.kill()
        wait_until(lambda: bool(poll_dead((fd,))))
        ended = read_held(Procfs(tmp_path), fd, process.pid, None, failures)
        assert (ended.place, ended.key) == (GONE, None)
        assert failures.gaps() == ()
        os.close(fd)


def test_recycled_between_two_reads(tmp_path: Path) -> None:
    """Point 11: a start time that changes while the cgroup is read means two processes, and neither is believed."""
    folder = tmp_path / "5"
    folder.mkdir()
    for name in ("stat", "cgroup"):
        os.mkfifo(folder / name)
    answers = [("stat", stat_line(5, b"old")), ("cgroup", POD.encode()), ("stat", stat_line(5, b"new", "S", 1001))]

    def answer() -> None:
        for name, text in answers:
            (folder / name).write_bytes(text)

    writer = threading.Thread(target=answer, daemon=True)
    writer.start()
    seen = read_unheld(Procfs(tmp_path), 5, BEFORE, ReadFailures())
    writer.join(10)
    assert (seen.place, seen.key) == (GONE, BEFORE.key)


def test_what_is_left_of_an_ended_process(tmp_path: Path) -> None:
    """An ended process is a zombie only if that zombie is the same process; else it is gone."""
    fake, procfs = FakeProc(tmp_path), Procfs(tmp_path)
    assert read_ended(procfs, 5, None).place == GONE
    fake.add(5, stat=stat_line(5, b"x", "Z"))
    assert read_ended(procfs, 5, None).place == ZOMBIE
    assert read_ended(procfs, 5, BEFORE).place == ZOMBIE
    fake.add(5, stat=stat_line(5, b"x", "Z", 1001))
    assert read_ended(procfs, 5, BEFORE).place == GONE
    fake.add(5, stat=stat_line(5, b"x", "S"))
    assert read_ended(procfs, 5, BEFORE).place == GONE
