"""The stub itself: what the tests below it rely on must be true of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.node.nvml_world import NvmlWorld, card, ghost, nvml_world
from tests.stub import (
    GIB,
    LISTS,
    MIB,
    Read,
    Stub,
    StubDelay,
    StubGpu,
    StubProcess,
    build_or_skip,
    environment,
    read_calls,
)

SLEEPER = ("sleep", "60")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NvmlWorld]:
    with nvml_world(tmp_path) as found:
        pynvml.nvmlInit()
        yield found
        found.show()
        pynvml.nvmlShutdown()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(SLEEPER) as process:
        yield process
        process.kill()


def pids() -> list[int]:
    """Who is on the compute list of the first card, by pynvml's own wrapper."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return sorted(process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))


def used() -> int:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found: int = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
    return found


def show(world: NvmlWorld, *processes: StubProcess, **more: object) -> None:
    world.show(card("a", *processes, reserved=0), **more)


def test_memory_is_what_processes_hold_once(world: NvmlWorld) -> None:
    """Used = base + reserved + what its processes hold, each once though it stands in several lists."""
    everywhere = ghost(1, GIB, lists=("compute", "graphics", "mps"))
    world.show(card("a", everywhere, ghost(2, None), ghost(3, None, holds=5 * MIB), base=7 * MIB, reserved=MIB))
    assert used() == GIB + 13 * MIB


def test_a_process_that_dies_is_gone_and_its_memory_free(world: NvmlWorld, sleeper: "subprocess.Popen[bytes]") -> None:
    """Dead means dead: a zombie, which nobody has waited for yet, uses no GPU memory."""
    show(world, StubProcess(pid=sleeper.pid, used=GIB), ghost(1))
    assert (len(pids()), used()) == (2, 2 * GIB)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
    assert Path(f"/proc/{sleeper.pid}").exists()
    assert (len(pids()), used()) == (1, GIB)


def test_memory_can_stay_for_a_while_after_death(world: NvmlWorld, sleeper: "subprocess.Popen[bytes]") -> None:
    """The driver takes its time to free memory; a rewritten file does not begin that time again."""
    show(world, StubProcess(pid=sleeper.pid, used=GIB), free_delay_ms=200.0)
    assert pids() == [sleeper.pid]
    sleeper.kill()
    sleeper.wait()
    begun_s = time.monotonic()
    assert (pids(), used()) == ([sleeper.pid], GIB)
    show(world, StubProcess(pid=sleeper.pid, used=2 * GIB), free_delay_ms=200.0)
    assert used() == 2 * GIB
    while pids() and time.monotonic() - begun_s < 5.0:
        time.sleep(0.005)
    assert 0.19 <= time.monotonic() - begun_s < 1.0
    assert used() == 0


def test_a_process_that_was_dead_before_is_never_listed(world: NvmlWorld) -> None:
    """Only a ghost is listed without a process."""
    with subprocess.Popen(("true",)) as process:
        process.wait()
    show(world, StubProcess(pid=process.pid), free_delay_ms=10_000.0)
    assert pids() == []
    with subprocess.Popen(("true",)) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        show(world, StubProcess(pid=zombie.pid), free_delay_ms=10_000.0)
        assert pids() == []
    show(world, StubProcess(pid=process.pid, ghost=True))
    assert pids() == [process.pid]


def test_a_delay_is_not_cut_short_by_signals(world: NvmlWorld) -> None:
    """A call that hangs in the kernel does not end because a signal comes."""
    show(world, delays=(StubDelay(call=LISTS[0], ms=200.0),))
    heard: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    begun_s = time.monotonic()
    try:
        pids()  # one call: an empty list has no second
        took_s = time.monotonic() - begun_s
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
    assert heard
    assert 0.2 <= took_s < 1.0


def test_a_delay_can_be_a_fraction_of_a_millisecond_and_of_one_card(world: NvmlWorld) -> None:
    """Benchmarks run with 4.5 ms a list; other cards are not delayed."""
    world.show(card("a"), card("b"), delays=(StubDelay(call=LISTS[0], ms=4.5, gpu="GPU-b"),))
    took_s = []
    for index in range(2):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        begun_s = time.monotonic()
        pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        took_s.append(time.monotonic() - begun_s)
    assert took_s[1] >= 0.0045
    assert took_s[0] < took_s[1]


def test_no_pidfd_is_left_behind(world: NvmlWorld) -> None:
    """The stub holds a pidfd a process that the file names, and lets it go with the file."""
    show(world)
    pids()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    children = [subprocess.Popen(SLEEPER) for _ in range(5)]
    for _ in range(3):
        show(world, *(StubProcess(pid=child.pid) for child in children))
        assert pids() == sorted(child.pid for child in children)
    assert len(os.listdir("/proc/self/fd")) == before + 5  # noqa: PTH208
    for child in children:
        child.kill()
        child.wait()
    for _ in range(2):
        show(world)
        assert pids() == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_build_is_made_once() -> None:
    """Variants are kept by the hash of their source, so that a test run compiles each at most once."""
    assert build_or_skip() == build_or_skip()
    assert build_or_skip("entry32") != build_or_skip()


# Changes the file so that it can't be told by its size or times, and prints how many cards there are.
_UNNOTICED = """
import os, pathlib, pynvml
file = pathlib.Path(os.environ["NVML_STUB_FILE"])
pynvml.nvmlInit()
times = file.stat()
text = file.read_text()
with file.open("r+") as opened:
    opened.write(text.replace("gpu ", "#gp ", 1))
os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
print(pynvml.nvmlDeviceGetCount())
"""


@pytest.mark.parametrize(("read", "cards"), [("once", 2), ("changed", 2), ("always", 1)])
def test_the_file_is_read_when_a_benchmark_wants_it(read: Read, cards: int, tmp_path: Path) -> None:
    """At each call, or not; and the calls of another process are counted in a file."""
    file, calls = Stub(gpus=(StubGpu(uuid="a"), StubGpu(uuid="b"))).write(tmp_path / "nvml.txt"), tmp_path / "calls"
    assert read_calls(calls) == {}
    found = subprocess.run(
        [sys.executable, "-c", _UNNOTICED],
        env=environment(file, read=read, calls=calls),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert int(found.stdout) == cards
    assert {name: count for name, count in read_calls(calls).items() if count} == {
        "nvmlInitWithFlags": 1,
        "nvmlDeviceGetCount_v2": 1,
    }
