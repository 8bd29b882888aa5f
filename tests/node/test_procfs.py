"""What the kernel reports about processes: read from real ones and from made-up proc file systems."""

import os
import pwd
import subprocess
import time
import tracemalloc
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.support import FakeProc, python, sleeper, stat_line, wait_until
from watchdog.node.procfs import Procfs, parse_stat, printable

REAL = Procfs()


comms = st.binary(max_size=15).filter(lambda comm: b"\0" not in comm)


@given(comms, st.sampled_from("RSDZTtXxI"), st.integers(0, 2**63))
def test_stat_parses_back(comm: bytes, state: str, ticks: int) -> None:
    """A name of any bytes, parentheses and newlines among them, does not move the fields behind it."""
    stat = parse_stat(stat_line(7, comm, state, ticks))
    assert (stat.comm, stat.state, stat.start_ticks) == (comm, state, ticks)
    assert stat.exiting == (state in "ZXx")
    assert parse_stat(stat_line(7, comm, state, ticks, exiting=True)).exiting, "before it is a zombie"


@given(st.binary(max_size=200))
def test_stat_of_any_bytes(raw: bytes) -> None:
    """What is no status is a ValueError and nothing else."""
    try:
        parse_stat(raw)
    except ValueError:
        return
    assert raw.count(b"(")


@pytest.mark.parametrize(
    "raw", [b"", b"1 (x", b"1 x) S 1", b"1 )(" + b" 0" * 30, b"1 (x) S 1 2", b"1 (x) SS" + b" 0" * 30]
)
def test_broken_stat(tmp_path: Path, raw: bytes) -> None:
    """A broken status says so as an OSError, never as a number."""
    FakeProc(tmp_path).add(5, stat=raw)
    with pytest.raises(OSError, match="no process status"):
        Procfs(tmp_path).stat(5)


HOSTILE = [b"a) S 1 2 3", b"))) ((", b"x\ny", b"\x1b[31mred", b"tab\there", b"", b" ", "日本語".encode(), b"\xff"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_of_a_real_process(name: bytes) -> None:
    """A process that names itself like a status line keeps its start time, and its name is fit for a terminal."""
    code = f"""
        import ctypes, sys
        ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
        print("ready", flush=True)
        sys.stdin.read()
    """
    before = REAL.stat(os.getpid()).start_ticks
    with python(code) as process:
        stat = REAL.stat(process.pid)
        assert stat.comm == name
        assert before <= stat.start_ticks <= time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        assert stat.state in "SRD"


@given(st.binary(max_size=30) | st.text(max_size=30))
def test_printable(raw: bytes | str) -> None:
    """What processes write about themselves can't steer a terminal or break a line."""
    assert printable(raw).isprintable()
    assert printable("python3 ./日本語.py") == "python3 ./日本語.py"


def test_first_argument_and_user_of_a_real_process() -> None:
    """The first argument and the user of a process are those that it was started with."""
    with sleeper() as process:
        wait_until(lambda: REAL.first_argument(process.pid) == "sleep")
        assert REAL.user(process.pid) == pwd.getpwuid(os.getuid()).pw_name


def test_other_root(tmp_path: Path) -> None:
    """Everything comes from the root that was given, the first argument and the user too."""
    fake = FakeProc(tmp_path)
    fake.add(4194000, cgroup=b"0::/x\ry\n", cmdline=b"/opt/\x1b[2J\0--port\0")
    fake.add(4194000, task=4194001)
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    (tmp_path / "uptime").write_text("1 1\n", encoding="ascii")
    procfs = Procfs(tmp_path)
    assert (procfs.pids(), procfs.threads(4194000)) == ([4194000], [4194001])
    assert procfs.cgroup_text(4194000) == b"0::/x\ry\n"
    assert procfs.first_argument(4194000) == "/opt/\\x1b[2J"
    assert (procfs.user(4194000), procfs.in_host_pid_namespace()) == (pwd.getpwuid(0).pw_name, True)
    assert psutil.PROCFS_PATH == "/proc"


def test_arguments_as_large_as_an_address_space(tmp_path: Path) -> None:
    """A process that makes its arguments as long as it likes costs neither memory nor time (PR_SET_MM in prctl(2))."""
    FakeProc(tmp_path).add(5)
    with (tmp_path / "5/cmdline").open("wb") as file:
        file.truncate(2**26)
        file.write(b"x" * 2**16)
    tracemalloc.start()
    try:
        assert Procfs(tmp_path).first_argument(5) == "x" * 4096
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_gone() -> None:
    """A process that is gone is a ProcessLookupError, whatever is asked of it."""
    process = subprocess.Popen(["true"])
    process.wait()
    for question in (REAL.stat, REAL.cgroup_text, REAL.threads, REAL.first_argument, REAL.user):
        with pytest.raises(ProcessLookupError):
            question(process.pid)


def test_own_pid(tmp_path: Path) -> None:
    """The PID that a proc file system has for the daemon says whether PIDs read there are the ones that it signals."""
    assert Procfs().own_pid() == os.getpid()
    assert Procfs(tmp_path).own_pid() is None
    (tmp_path / "self").symlink_to("12345")
    assert Procfs(tmp_path).own_pid() == 12345


def test_capabilities(tmp_path: Path) -> None:
    """CAP_KILL is bit 5 of the effective set; what can't be read is not there."""
    (tmp_path / "self").mkdir()
    status = tmp_path / "self/status"
    for line, there in (("0000000000000020", True), ("000001ffffffffdf", False), ("zz", False)):
        status.write_text(f"Name:\tx\nCapEff:\t{line}\nCapBnd:\t000001ffffffffff\n", encoding="ascii")
        assert Procfs(tmp_path).has_capability(5) is there
    status.unlink()
    assert not Procfs(tmp_path).has_capability(5)


def test_own_pid_namespace() -> None:
    """Only one inode of the daemon's own PID namespace means the host's."""
    assert REAL.in_host_pid_namespace() == (Path("/proc/self/ns/pid").stat().st_ino == 4026531836)
    assert not Procfs(Path("/nonexistent")).in_host_pid_namespace()


def test_no_proc_at_the_root() -> None:
    """Without a proc file system at the root, listing says so instead of listing nothing."""
    with pytest.raises(OSError, match="No such file"):
        Procfs(Path("/nonexistent")).pids()
