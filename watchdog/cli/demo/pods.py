"""The simulated node: its pods, their real processes, what these use over time; and the three pods of the demo."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from watchdog.core.model import Gpu, ProcessKey
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


_GI: Final = 2**30
# The CUDA driver allocates memory in pages of this size (cuMemGetAllocationGranularity).
_PAGE: Final = 2 * 2**20


@dataclass(frozen=True, slots=True)
class UsageCurve:
    """Straight lines between points of (second, GiB); level before the first point and after the last."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        seconds = [second for second, _ in self.points]
        if not seconds or sorted(set(seconds)) != seconds or any(gib < 0 for _, gib in self.points):
            raise ValueError("a curve needs points with rising seconds and amounts of 0 or more")

    def at(self, second: float) -> int:
        """The bytes held at this second, in whole pages."""
        after = bisect_right(self.points, second, key=lambda point: point[0])
        if after in (0, len(self.points)):
            gib = self.points[min(after, len(self.points) - 1)][1]
        else:
            (second_0, gib_0), (second_1, gib_1) = self.points[after - 1 : after + 1]
            gib = gib_0 + (gib_1 - gib_0) * (second - second_0) / (second_1 - second_0)
        return int(gib * _GI) // _PAGE * _PAGE


NOTHING: Final = UsageCurve(((0.0, 0.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProcess:
    """A process of a pod: its name (at most 15 bytes), its use of memory, and whether it ignores SIGTERM."""

    name: str
    curve: UsageCurve = NOTHING
    ignores_sigterm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPod:
    """A pod with one container. The first process forks the others. `declared` is a quantity."""

    namespace: str
    name: str
    uid: str
    container: str
    container_id: str
    resource: str
    declared: str
    processes: tuple[SimProcess, ...]

    @property
    def title(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.name}"

    @property
    def cgroup(self) -> str:
        """The text of /proc/PID/cgroup in its container: cgroup v2, systemd driver, containerd."""
        pod = f"kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        return f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{self.container_id}.scope\n"


def pod_list(pods: Iterable[SimPod], node: str) -> dict[str, Any]:
    """What `kubectl get pods -A -o json` would print for these pods."""
    return {"apiVersion": "v1", "kind": "List", "items": [_pod(pod, node) for pod in pods]}


def _pod(pod: SimPod, node: str) -> dict[str, Any]:
    amounts = {pod.resource: pod.declared}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "spec": {
            "nodeName": node,
            "containers": [{"name": pod.container, "resources": {"limits": amounts, "requests": amounts}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": pod.container,
                    "containerID": f"containerd://{pod.container_id}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


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
class RunningProcess:
    """A process that was started."""

    spec: SimProcess
    key: ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod with its processes, the leader first; its PID names their session."""

    spec: SimPod
    processes: tuple[RunningProcess, ...]

    @property
    def session(self) -> int:
        """The session of all its processes."""
        return self.processes[0].key.pid


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
        started = []
        for process in pod.processes:
            if process.name not in pids:
                raise OSError(f"{process.name} of {pod.title} did not start within {_START_S:.0f} s")
            key = key_of(pids[process.name])
            self._keys.append(key)
            started.append(RunningProcess(spec=process, key=key))
        return RunningPod(spec=pod, processes=tuple(started))

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


_RESOURCE: Final = "veriff.com/gpu-memory"

NODE: Final = "demo-node"
POLICY: Final = Path(__file__).with_name("policy.toml")
# Seconds until the driver releases the memory of an exited process; on a real card up to a second.
RELEASE_S: Final = 0.6
CARD: Final = Gpu(
    uuid="GPU-5eed5eed-0000-4000-8000-000000000000",
    index=0,
    name="Simulated 24Gi",
    total=24 * _GI,
    used=0,
    reserved=_GI // 2,
)

_WITHIN: Final = SimPod(
    namespace="vision",
    name="detector",
    uid="d0000001-0000-4000-8000-000000000001",
    container="serve",
    container_id="a1" * 32,
    resource=_RESOURCE,
    declared="8Gi",
    processes=(
        SimProcess(name="detector", curve=UsageCurve(((0, 0), (1.5, 7.0), (6, 7.0), (8, 7.3), (11, 7.3), (13, 7.1)))),
    ),
)
_BURSTS: Final = SimPod(
    namespace="notebooks",
    name="jupyter-7",
    uid="d0000001-0000-4000-8000-000000000002",
    container="notebook",
    container_id="b2" * 32,
    resource=_RESOURCE,
    declared="4Gi",
    processes=(
        SimProcess(
            name="notebook",
            curve=UsageCurve(((0, 0), (0.5, 0), (2, 3.2), (3, 3.2), (3.6, 6.0), (6.4, 6.0), (7.2, 3.3))),
        ),
    ),
)
# The trainer, which uses nearly all of it, is a fork that ignores SIGTERM; the loader uses no GPU memory and is killed
# with its container all the same.
_LEAKS: Final = SimPod(
    namespace="training",
    name="finetune",
    uid="d0000001-0000-4000-8000-000000000003",
    container="train",
    container_id="c3" * 32,
    resource=_RESOURCE,
    declared="6Gi",
    processes=(
        SimProcess(name="launcher", curve=UsageCurve(((0.5, 0), (1, 0.6)))),
        SimProcess(
            name="trainer",
            curve=UsageCurve(((0, 0), (0.5, 0), (2.5, 4.4), (7.5, 4.4), (14.5, 10.6))),
            ignores_sigterm=True,
        ),
        SimProcess(name="loader"),
    ),
)
PODS: Final = (_WITHIN, _BURSTS, _LEAKS)
