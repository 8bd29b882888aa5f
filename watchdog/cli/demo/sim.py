"""Simulates a node: real processes in sessions of their own, and a driver and a /proc that show them as pods."""

import contextlib
import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Self

from watchdog import clock
from watchdog.cli.demo.pods import SimPod, UsageCurve
from watchdog.core.model import Gpu, ProcessKey, Use
from watchdog.core.utilization import CardUtilization
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.process import TicksHandle
from watchdog.node.procfs import Procfs

_REAL: Final = Procfs()


def key_of(pid: int) -> ProcessKey:
    """The identity of a process, from the real /proc; ProcessLookupError or another OSError if it can't be read."""
    return ProcessKey(pid=pid, start_ticks=_REAL.stat(pid).start_ticks)


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process is running; a zombie, which no longer holds memory, is not."""
    try:
        stat = _REAL.stat(key.pid)
    except OSError:
        return False
    return stat.start_ticks == key.start_ticks and stat.state not in "ZXx"


# Each process reports that it has started and then waits on its standard input, whose other end this process holds:
# however this process ends, even by SIGKILL, the kernel closes that end and all of them exit, with SIGTERM ignored or
# not.
_SCRIPT: Final = """
import os, signal, sys

def run(process):
    name = process.removesuffix("!")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if name != process else signal.SIG_DFL)
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
    os.write(1, b"%d %s\\n" % (os.getpid(), name.encode()))
    os.close(1)
    os.read(0, 1)
    os._exit(0)

leader, *forks = sys.argv[1:]
for fork in forks:
    if os.fork() == 0:
        run(fork)
run(leader)
"""
_START_S: Final = 10.0
_EXIT_S: Final = 1.0
_PR_SET_CHILD_SUBREAPER: Final = 36  # include/uapi/linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod whose processes run: their identities in the order of its processes, the leader first."""

    spec: SimPod
    keys: tuple[ProcessKey, ...]

    @property
    def session(self) -> int:
        """The session of all its processes, which is named by the leader's PID."""
        return self.keys[0].pid


class SimNode:
    """Starts pods; leaving its context ends and reaps all of their processes. None is reaped before."""

    def __init__(self) -> None:
        self._leaders: list[subprocess.Popen[bytes]] = []
        self._keys: list[ProcessKey] = []

    def __enter__(self) -> Self:
        # The children that a leader leaves behind become children of this process, which can then reap them.
        _adopt_orphans(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        _adopt_orphans(0)

    def start(self, pod: SimPod) -> RunningPod:
        """Start a pod's processes and wait until all are running; OSError if that fails or takes too long."""
        arguments = [process.name + "!" * process.ignores_sigterm for process in pod.processes]
        leader = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._leaders.append(leader)
        pids = _read_pids(leader, len(pod.processes))
        if missing := [process.name for process in pod.processes if process.name not in pids]:
            raise OSError(f"{missing[0]} of {pod.title} did not start within {_START_S:.0f} s")
        keys = tuple(key_of(pids[process.name]) for process in pod.processes)
        self._keys += keys
        return RunningPod(spec=pod, keys=keys)

    def _end(self) -> None:
        for leader in self._leaders:
            if leader.stdin is not None:
                leader.stdin.close()
        _wait_for(self._keys)
        for key in self._keys:
            with contextlib.suppress(OSError):
                TicksHandle(key, partial(is_alive, key)).signal(signal.SIGKILL)
        for leader in self._leaders:
            leader.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                leader.wait(_EXIT_S)
        _wait_for(self._keys)
        for key in self._keys:
            with contextlib.suppress(OSError):
                os.waitpid(key.pid, os.WNOHANG)


def _read_pids(leader: subprocess.Popen[bytes], count: int) -> dict[str, int]:
    """The PIDs by process name, of those that started in time."""
    if leader.stdout is None:
        return {}
    text, deadline_s = b"", time.monotonic() + _START_S
    with leader.stdout as stdout:
        while text.count(b"\n") < count and select.select([stdout], [], [], deadline_s - time.monotonic())[0]:
            part = os.read(stdout.fileno(), 4096)
            if not part:
                break
            text += part
    lines = (line.split() for line in text.decode("ascii").splitlines())
    return {name: int(pid) for pid, name in lines}


def _wait_for(keys: Iterable[ProcessKey]) -> None:
    """Wait until all of them have exited, for a second at most."""
    deadline_s = time.monotonic() + _EXIT_S
    while any(is_alive(key) for key in keys) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _adopt_orphans(on: int) -> None:
    # Where this is not available, init reaps them.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


# On a real card up to a second.
_RELEASE_S: Final = 0.6


@dataclass(slots=True)
class _SimUse:
    key: ProcessKey
    curve: UsageCurve
    since_s: float
    used: int = 0
    died_s: float | None = None


class SimDriver:
    """Reads a GPU that exists only in memory, as a driver reads a real one.

    Memory is free a while after the process has died, and listed under its PID until then, as with real drivers.
    The curves must fit the card: nothing is refused.
    """

    interface: Final = "the simulation"
    needs_new_process: Final = None

    def __init__(self, card: Gpu) -> None:
        self._card = card
        self._uses: list[_SimUse] = []

    def allocate(self, key: ProcessKey, curve: UsageCurve) -> None:
        """Let a process use memory along a curve that begins now; one that uses 0 bytes is not listed."""
        self._uses.append(_SimUse(key, curve, clock.now().boottime_s))

    def read(self, only: frozenset[str] | None = None, like: DriverReading | None = None) -> DriverReading:
        """Read the card as it is now."""
        if only is not None and self._card.uuid not in only:
            return DriverReading(driver="simulated", interface=self.interface)
        now_s = clock.now().boottime_s
        for use in self._uses:
            if is_alive(use.key):
                use.used = use.curve.at(now_s - use.since_s)
            elif use.died_s is None:
                use.died_s = now_s
        self._uses = [use for use in self._uses if use.died_s is None or now_s - use.died_s < _RELEASE_S]
        uses = tuple(Use(gpu=self._card.uuid, pid=use.key.pid, used=use.used) for use in self._uses if use.used)
        used = (self._card.reserved or 0) + sum(use.used for use in self._uses)
        gpus = (replace(self._card, used=used),)
        return DriverReading(driver="simulated", interface=self.interface, gpus=gpus, uses=uses)

    def used(self) -> Mapping[str, int]:
        """The memory of the card that is in use, read as any reading does."""
        return {gpu.uuid: gpu.used for gpu in self.read().gpus if gpu.used is not None}

    def utilization(self) -> tuple[CardUtilization, ...]:
        """Every process that uses memory computes, all of them in turns."""
        busy = [use.key.pid for use in self._uses if use.used and use.died_s is None]
        by_pid = {pid: 1 / len(busy) for pid in busy}
        return (CardUtilization(gpu=self._card.uuid, ratio=1.0 if busy else 0.0, by_pid=by_pid),)

    def close(self) -> None:
        """There is nothing to release."""


class SimProcfs(Procfs):
    """The real /proc, limited to the processes of chosen sessions, each in the cgroup of its pod.

    The leader of an admitted session must not be reaped while this is in use. Its PID names the session; if it were
    reused, another process could be mistaken for one of the pod.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cgroups: dict[int, bytes] = {}

    def admit(self, session: int, cgroup: str) -> None:
        """Put a session, with everything its processes fork, into a cgroup (the text of /proc/PID/cgroup)."""
        self._cgroups[session] = cgroup.encode("ascii")

    def pids(self) -> list[int]:
        """The running processes of the admitted sessions, forks included."""
        return [pid for pid in super().pids() if self._cgroup(pid) is not None]

    def cgroup_text(self, pid: int, tid: int | None = None) -> bytes:
        """The cgroup text of a process that still belongs to its session; threads have their process's."""
        cgroup = self._cgroup(pid)
        if cgroup is None:
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is not of this node")
        return cgroup

    def _cgroup(self, pid: int) -> bytes | None:
        try:
            return self._cgroups.get(os.getsid(pid))
        except OSError:
            return None
