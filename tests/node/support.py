"""Real processes and made-up proc file systems for the tests of what the kernel reports."""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

import pytest

from watchdog.core.model import Place, PlaceKind
from watchdog.node.procfs import Procfs

REPOSITORY = Path(__file__).parents[2]
# A container as the kernel shows it.
UID: Final = "8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"
ID: Final = "a1" * 32
PLACE: Final = Place(kind=PlaceKind.POD, pod=UID, container=ID)
POD: Final = f"2:pids:/kubepods/pod{UID}/{ID}\n0::/\n"
ROOT: Final = "2:pids:/\n0::/\n"
REAL: Final = Procfs()
ways: Final = pytest.mark.parametrize("pidfds", [True, False])
# Before a command that shall not outlive the tests, however they end. It is about the thread that starts it: not for
# one that ends before.
ENDS_WITH_US: tuple[str, ...] = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


def cannot_run(reason: str) -> NoReturn:
    """Skip a test that this machine can't run; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def compiled(source: Path, program: Path, *flags: str) -> Path:
    """Compile a source in C, or skip where there is no compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        cannot_run("needs a C compiler (Debian: apt-get install gcc libc6-dev)")
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", *flags, "-o", program, source], check=True)
    return program


def preloaded(folder: Path, name: str, code: str) -> str:
    """The variable with which a command has this code in place of functions of the C library."""
    source = folder / f"{name}.c"
    source.write_text(code, encoding="ascii")
    return f"LD_PRELOAD={compiled(source, folder / f'{name}.so', '-shared', '-fPIC')}"


def need_root() -> None:
    """Skip unless root: namespaces, mounts and cgroups need it."""
    if os.geteuid() != 0:
        cannot_run("needs root")


def wait_until(true: Callable[[], bool], seconds: float = 180) -> None:
    """Wait until something is true; the limit only counts where it fails."""
    deadline, pause_s = time.monotonic() + seconds, pauses()
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(next(pause_s))


def pauses() -> Iterator[float]:
    """Seconds between one look and the next, from 5 ms to 0.1 s: who waits for long leaves the cores to the others."""
    pause_s = 0.005
    while True:
        yield pause_s
        pause_s = min(1.2 * pause_s, 0.1)


@contextlib.contextmanager
def no_threads(name: str, *, after: int = 0) -> Iterator[None]:
    """The system starts a limited number of further threads of this name, as at a limit of PIDs."""
    start, left = threading.Thread.start, itertools.count(after, -1)

    def refuse(thread: threading.Thread) -> None:
        if thread.name == name and next(left) <= 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def mounts(ours: Path) -> list[str]:
    """The mounts of this machine, without those that other tests have meanwhile in temporary folders of their own."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [Path(line.split()[1]) for line in lines]
    theirs = Path(tempfile.gettempdir())
    return [
        line
        for line, point in zip(lines, points, strict=True)
        if point.is_relative_to(ours) or not point.is_relative_to(theirs)
    ]


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that sleep; they are ended and reaped."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(subprocess.Popen(["sleep", "300"]) for _ in range(count))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """One process that sleeps."""
    with sleepers(1) as (process,):
        yield process


@contextlib.contextmanager
def python(code: str, first: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run code in a Python process of its own, from its line `ready` on; it is ended and reaped."""
    code = f"{first}\n{textwrap.dedent(code)}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


# The leader ends by the exit(2) of one thread, not exit_group(2): it turns into a zombie, and the thread lives on.
DEAD_LEADER = """
    import ctypes, os, threading, time
    thread = threading.Thread(target=time.sleep, args=(300,))
    thread.start()
    print("ready", flush=True)
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def run_python(code: str, *before: str) -> str:
    """Run code to its end in a Python process of its own, in the repository; what it prints comes back."""
    command = [*before, sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusing(number: int, error: str) -> str:
    """Code that has the kernel refuse a system call with this error from then on."""
    return f"""
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
# Classic BPF: load the number of the system call; if it is the one, answer with an error; else allow.
refuse, allow = 0x00050000 | errno.{error}, 0x7FFF0000
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(filters)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
"""


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def real_stat(pid: int) -> bytes:
    """The line of /proc/PID/stat of a real process."""
    return Path(f"/proc/{pid}/stat").read_bytes()


def stat_line(pid: int, comm: bytes, state: str = "S", start_ticks: int = 1000, *, exiting: bool = False) -> bytes:
    """A line of /proc/PID/stat."""
    flags = 0x400040 | (0x4 if exiting else 0)
    before = f"{pid} (".encode() + comm + f") {state} 1 {pid} {pid} 0 -1 {flags}".encode()
    return before + b" 0" * 12 + f" {start_ticks}".encode() + b" 0" * 30 + b"\n"


class FakeProc:
    """A proc file system of ordinary files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        pid: int,
        cgroup: bytes | str = "0::/\n",
        stat: bytes | None = None,
        cmdline: bytes = b"",
        task: int | None = None,
    ) -> None:
        """Add a process, or a thread of one."""
        folder = self.root / str(pid)
        if task is not None:
            folder = folder / "task" / str(task)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_bytes(stat_line(task or pid, b"python3") if stat is None else stat)
        (folder / "cgroup").write_bytes(cgroup.encode() if isinstance(cgroup, str) else cgroup)
        (folder / "cmdline").write_bytes(cmdline)
        (folder / "status").write_text("Name:\tx\nUid:\t0\t0\t0\t0\n", encoding="ascii")
