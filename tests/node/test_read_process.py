"""One reading of one process: what it is, where it belongs, and what could not be read."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.node.support import PLACE, POD, ROOT, FakeProc, stat_line
from watchdog.core.errors import Problem
from watchdog.core.model import HOST, UNREADABLE, ZOMBIE, GapReason, MpsSigns, Place, ProcessKey
from watchdog.node.process import NO_DESCRIPTOR, ReadFailure, ReadFailures, describe_error, read_process
from watchdog.node.procfs import Procfs


def line(state: str, *, exiting: bool = False) -> bytes:
    return stat_line(5, b"python3", state, exiting=exiting)


@pytest.mark.parametrize(
    ("cgroup", "leader", "threads", "place"),
    [
        (POD, line("S"), [], PLACE),
        (ROOT, line("S"), [], HOST),
        (ROOT, line("Z"), [], ZOMBIE),
        (ROOT, line("X"), [], ZOMBIE),
        (POD, line("Z"), [], ZOMBIE),
        (ROOT, line("R", exiting=True), [], ZOMBIE),
        (POD, line("R", exiting=True), [], PLACE),
        (ROOT, line("Z"), [(POD, line("S"))], PLACE),
        (ROOT, line("R", exiting=True), [(POD, line("S"))], PLACE),
        (ROOT, line("Z"), [(ROOT, line("S"))], HOST),
        (ROOT, line("Z"), [(ROOT, line("Z")), (ROOT, line("R", exiting=True)), (POD, line("S"))], PLACE),
        (ROOT, line("Z"), [(ROOT, line("Z"))], ZOMBIE),
        (ROOT, line("Z"), [(POD, b"broken")], ZOMBIE),
    ],
)
def test_places(tmp_path: Path, cgroup: str, leader: bytes, threads: list[tuple[str, bytes]], place: Place) -> None:
    """A process whose leader has ended does not escape while a thread lives; a whole zombie is one."""
    fake = FakeProc(tmp_path)
    fake.add(5, cgroup, leader)
    fake.add(5, cgroup, leader, task=5)
    for number, (text, stat) in enumerate(threads):
        fake.add(5, text, stat, task=6 + number)
    process, failure = read_process(Procfs(tmp_path), 5)
    assert (process.place, failure) == (place, None)
    assert process.key == ProcessKey(pid=5, start_ticks=1000)


@pytest.mark.parametrize("missing", ["stat", "cgroup", "task"])
def test_threads_that_end_while_they_are_read(tmp_path: Path, missing: str) -> None:
    """A thread that ends after it was listed hides none of the others; without its threads the process is gone."""
    fake = FakeProc(tmp_path)
    fake.add(5, ROOT, line("Z"))
    fake.add(5, POD, line("S"), task=6)
    fake.add(5, POD, line("S"), task=7)
    if missing == "task":
        shutil.rmtree(tmp_path / "5/task")
        with pytest.raises(ProcessLookupError):
            read_process(Procfs(tmp_path), 5)
    else:
        (tmp_path / "5/task/6" / missing).unlink()
        assert read_process(Procfs(tmp_path), 5)[0].place == PLACE


def test_a_thread_that_begins_to_exit_while_it_is_read(tmp_path: Path) -> None:
    """On v1 its cgroup is `/` from then on: that is not where its process belongs."""
    fake = FakeProc(tmp_path)
    fake.add(5, ROOT, line("Z"))
    fake.add(5, POD, line("S"), task=6)
    fake.add(5, POD, line("S"), task=7)
    first = tmp_path / "5/task/6"
    for name in ("stat", "cgroup"):
        (first / name).unlink()
        os.mkfifo(first / name)
    answers = [("stat", line("S")), ("cgroup", ROOT.encode()), ("stat", line("R", exiting=True))]

    def answer() -> None:
        for name, text in answers:
            (first / name).write_bytes(text)

    writer = threading.Thread(target=answer, daemon=True)
    writer.start()
    assert read_process(Procfs(tmp_path), 5)[0].place == PLACE
    writer.join(10)


@pytest.mark.slow
@pytest.mark.parametrize(("cgroup", "meanwhile"), [(ROOT, UNREADABLE), (POD, PLACE)], ids=["v1", "v2"])
def test_zombies_hide_no_thread_for_long(tmp_path: Path, cgroup: str, meanwhile: Place) -> None:
    """However many traced threads have ended, each reading goes on where the last ended; then the living one is kept.

    Where none lives the process is a zombie in the end, and stays one.
    """
    fake = FakeProc(tmp_path)
    fake.add(5, cgroup, line("Z"))
    for tid in range(5, 4200):
        fake.add(5, cgroup, line("Z"), task=tid)
    procfs = Procfs(tmp_path)
    fake.add(5, POD, line("S"), task=4150)
    places = [read_process(procfs, 5)[0].place for _ in range(4)]
    assert places == [meanwhile, meanwhile, PLACE, PLACE]
    fake.add(5, cgroup, line("Z"), task=4150)
    places = [read_process(procfs, 5)[0].place for _ in range(6)]
    assert places == [meanwhile, meanwhile, ZOMBIE, ZOMBIE, ZOMBIE, ZOMBIE]


@pytest.mark.parametrize(
    ("cgroup", "stat", "has_key", "reason"),
    [
        (None, line("S"), True, GapReason.CGROUP),
        ("pids\n", line("S"), True, GapReason.CGROUP),
        (POD, b"broken", False, GapReason.PROCFS),
    ],
    ids=["no cgroup text", "a cgroup text of another form", "no status"],
)
def test_what_cannot_be_read(
    tmp_path: Path, cgroup: str | None, stat: bytes, reason: GapReason, *, has_key: bool
) -> None:
    """It is unreadable, not of the host; without a start time there is no identity, and a place alone is a guess."""
    FakeProc(tmp_path).add(5, cgroup or "", stat)
    if cgroup is None:
        (tmp_path / "5/cgroup").unlink()
        (tmp_path / "5/cgroup").symlink_to("cgroup")
    process, failure = read_process(Procfs(tmp_path), 5)
    assert (process.key, process.place) == (ProcessKey(pid=5, start_ticks=1000) if has_key else None, UNREADABLE)
    assert failure is not None
    assert failure.reason is reason


@pytest.mark.parametrize(("cgroup", "place"), [(ROOT, UNREADABLE), (POD, PLACE)], ids=["v1", "v2"])
def test_threads_that_cannot_be_listed(tmp_path: Path, cgroup: str, place: Place) -> None:
    """One of them may live: the process is no zombie, and what can't be read of it ends no cycle with an error."""
    FakeProc(tmp_path).add(5, cgroup, line("Z"))
    (tmp_path / "5/task").symlink_to("task")
    process, failure = read_process(Procfs(tmp_path), 5)
    assert (process.place, failure is not None) == (place, place == UNREADABLE)


def test_gone(tmp_path: Path) -> None:
    """A process that is gone is reported as gone, at whichever file it is noticed."""
    fake = FakeProc(tmp_path)
    with pytest.raises(ProcessLookupError):
        read_process(Procfs(tmp_path), 5)
    fake.add(5)
    (tmp_path / "5/stat").unlink()
    with pytest.raises(ProcessLookupError):
        read_process(Procfs(tmp_path), 5)


@pytest.mark.parametrize(
    ("comm", "cmdline", "server"),
    [
        (b"nvidia-cuda-mps", b"nvidia-cuda-mps-server\0", True),
        (b"nvidia-cuda-mps", b"/usr/bin/nvidia-cuda-mps-server\0-d\0", True),
        (b"nvidia-cuda-mps", b"nvidia-cuda-mps-control\0-d\0", False),
        (b"nvidia-cuda-mps", b"", False),
        (b"python3", b"nvidia-cuda-mps-server\0", False),
        (b"nvidia-cuda-mp", b"nvidia-cuda-mps-server\0", False),
    ],
)
def test_mps_server(tmp_path: Path, comm: bytes, cmdline: bytes, *, server: bool) -> None:
    """Point 35: an MPS server has this name and first argument; its control daemon has others."""
    FakeProc(tmp_path).add(5, stat=stat_line(5, comm), cmdline=cmdline)
    process, _ = read_process(Procfs(tmp_path), 5)
    assert (process.mps is not None and process.mps.server) is server


@pytest.mark.parametrize(
    ("comm", "cmdline", "name"),
    [
        (b"exe", b"runsc-sandbox\0--root=/run/containerd/runsc\0boot\0", "runsc-sandbox"),
        (b"gvisor_sentry", b"runsc-sandbox\0boot\0", "runsc-sandbox"),
        (b"gvisor_sentry_p", b"runsc-sandbox\0boot\0", "runsc-sandbox"),
        (b"exe", b"runsc-gofer\0", "exe"),
        (b"exe", b"", "exe"),
        (b"python3", b"runsc-sandbox\0", "python3"),
    ],
)
def test_gvisor_sandbox(tmp_path: Path, comm: bytes, cmdline: bytes, name: str) -> None:
    """The kernel of a gVisor sandbox is recognised by its first argument, and is shown under that name."""
    FakeProc(tmp_path).add(5, stat=stat_line(5, comm), cmdline=cmdline)
    process, _ = read_process(Procfs(tmp_path), 5)
    assert (process.gvisor, process.name) == (name == "runsc-sandbox", name)


@pytest.mark.parametrize(
    ("bounding", "users", "privileged"),
    [
        ("000001ffffffffff", "0 0 4294967295", True),
        ("00000000a80425fb", "0 0 4294967295", False),  # an ordinary container's, for any user
        ("000001ffffffffff", "0 65536 65536", False),  # a user namespace gives all rights, in itself
        ("000001ffffffffff", "", False),
        ("zz", "0 0 4294967295", False),
        (None, "0 0 4294967295", False),
    ],
)
def test_where_an_mps_server_runs(tmp_path: Path, bounding: str | None, users: str, *, privileged: bool) -> None:
    """Point 35: a process with all capabilities and all users mapped looks privileged; only the spec proves it."""
    FakeProc(tmp_path).add(5, stat=stat_line(5, b"nvidia-cuda-mps"), cmdline=b"nvidia-cuda-mps-server\0")
    (tmp_path / "5/uid_map").write_text(f"         {users}\n", encoding="ascii")
    status = tmp_path / "5/status"
    status.write_text(f"Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t{bounding}\n", encoding="ascii")
    if bounding is None:
        status.unlink()
    process, _ = read_process(Procfs(tmp_path), 5)
    assert process.mps == MpsSigns(server=True, privileged=privileged)


def test_mps_server_with_unreadable_arguments(tmp_path: Path) -> None:
    """Point 35: what may be an MPS server is taken for one."""
    FakeProc(tmp_path).add(5, stat=stat_line(5, b"nvidia-cuda-mps"))
    (tmp_path / "5/cmdline").unlink()
    (tmp_path / "5/cmdline").symlink_to("cmdline")
    process, _ = read_process(Procfs(tmp_path), 5)
    assert process.mps is not None
    assert process.mps.server


def test_troubles_become_one_gap_each() -> None:
    """A thousand hidden processes are one gap that names a few of them."""
    failures = ReadFailures()
    for pid in range(1000, 0, -1):
        failures.add(pid, NO_DESCRIPTOR)
    failures.add(7, ReadFailure(GapReason.CGROUP, Problem("why")))
    gaps = failures.gaps()
    assert [(gap.reason, gap.what) for gap in gaps] == [
        (GapReason.CGROUP, "process 7"),
        (GapReason.DESCRIPTORS, "processes 1, 2, 3, 4, 5 and 995 more"),
    ]


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (errno.EMFILE, GapReason.DESCRIPTORS, "limit of open files"),
        (errno.ENFILE, GapReason.DESCRIPTORS, "limit of open files"),
        (errno.EACCES, GapReason.CGROUP, "without hidepid"),
        (errno.ENAMETOOLONG, GapReason.CGROUP, "longer than the kernel writes"),
        (errno.EIO, GapReason.CGROUP, "Input/output error"),
    ],
)
def test_errors_name_the_remedy(number: int, reason: GapReason, words: str) -> None:
    """Each kind of error says what can be done about it."""
    failure = describe_error(OSError(number, os.strerror(number)), GapReason.CGROUP)
    assert failure.reason is reason
    assert words in str(failure.problem)
