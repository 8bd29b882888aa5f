"""The tenants of the simulated node: their pods and processes, what these use over time, and the story of a demo."""

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
from watchdog.node.pidfd import TicksHandle
from watchdog.node.procfs import Procfs

_REAL: Final = Procfs()


def key_of(pid: int) -> ProcessKey:
    """Take the identity of a process from the real /proc; ProcessLookupError or another OSError if it can't be seen."""
    return ProcessKey(pid=pid, start_ticks=_REAL.stat(pid).start_ticks)


def lives(key: ProcessKey) -> bool:
    """Whether this very process runs; a zombie, which holds no memory any more, does not."""
    try:
        stat = _REAL.stat(key.pid)
    except OSError:
        return False
    return stat.start_ticks == key.start_ticks and stat.state not in "ZXx"


_GI: Final = 2**30
# The CUDA driver hands out memory in pages of this size (cuMemGetAllocationGranularity).
_PAGE: Final = 2 * 2**20


@dataclass(frozen=True, slots=True)
class UsageCurve:
    """Straight lines between points of (second, GiB), level before the first and after the last."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        seconds = [second for second, _ in self.points]
        if not seconds or sorted(set(seconds)) != seconds or any(gib < 0 for _, gib in self.points):
            raise ValueError("a curve needs points whose seconds rise and whose amounts are 0 or more")

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
class Task:
    """One process of a tenant: its name (15 bytes at most), what it holds, and whether it ignores SIGTERM."""

    name: str
    curve: UsageCurve = NOTHING
    ignores_sigterm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPod:
    """A pod with one container. The first task leads, the others are its forks. `declared` is a quantity."""

    namespace: str
    pod: str
    uid: str
    container: str
    container_id: str
    resource: str
    declared: str
    tasks: tuple[Task, ...]

    @property
    def title(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def cgroup(self) -> str:
        """The text of /proc/PID/cgroup in its container: cgroup v2, systemd driver, containerd."""
        pod = f"kubepods-burstable-pod{self.uid.replace('-', '_')}.slice"
        return f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{self.container_id}.scope\n"


def pod_list(tenants: Iterable[SimPod], node: str) -> dict[str, Any]:
    """What `kubectl get pods -A -o json` would print of them."""
    return {"apiVersion": "v1", "kind": "List", "items": [_pod(tenant, node) for tenant in tenants]}


def _pod(tenant: SimPod, node: str) -> dict[str, Any]:
    amounts = {tenant.resource: tenant.declared}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": tenant.namespace, "name": tenant.pod, "uid": tenant.uid},
        "spec": {
            "nodeName": node,
            "containers": [{"name": tenant.container, "resources": {"limits": amounts, "requests": amounts}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": tenant.container,
                    "containerID": f"containerd://{tenant.container_id}",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


# Each process says that it is there and then waits on its standard input, whose other end this process holds: however
# this process ends, by SIGKILL too, the kernel closes that end, and all of them leave, those deaf to SIGTERM as well.
_SCRIPT: Final = """
import os, signal, sys

def live(task):
    name = task.removesuffix("!")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if name != task else signal.SIG_DFL)
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
    os.write(1, b"%d %s\\n" % (os.getpid(), name.encode()))
    os.close(1)
    os.read(0, 1)
    os._exit(0)

leader, *forks = sys.argv[1:]
for fork in forks:
    if os.fork() == 0:
        live(fork)
live(leader)
"""
_START_S: Final = 10.0
_LEAVE_S: Final = 1.0
_PR_SET_CHILD_SUBREAPER: Final = 36  # include/uapi/linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a tenant."""

    task: Task
    key: ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A tenant with its processes, its leader first; the leader's PID is the session's."""

    tenant: SimPod
    members: tuple[Member, ...]

    @property
    def session(self) -> int:
        """The session that all of its processes are in."""
        return self.members[0].key.pid


class SimNode:
    """Starts tenants and, when it is left, ends and reaps every process of theirs. Nobody is reaped before that."""

    def __init__(self) -> None:
        self._leaders: list[subprocess.Popen[bytes]] = []
        self._keys: list[ProcessKey] = []

    def __enter__(self) -> Self:
        # What a leader leaves behind becomes a child of this process, which can then reap it.
        _adopt_orphans(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        _adopt_orphans(0)

    def start(self, tenant: SimPod) -> RunningPod:
        """Start a tenant's processes and wait until all are there; OSError if that fails or takes too long."""
        arguments = [task.name + "!" * task.ignores_sigterm for task in tenant.tasks]
        leader = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._leaders.append(leader)
        pids = _read_pids(leader, len(tenant.tasks))
        members = []
        for task in tenant.tasks:
            if task.name not in pids:
                raise OSError(f"{task.name} of {tenant.title} did not start within {_START_S:.0f} s")
            key = key_of(pids[task.name])
            self._keys.append(key)
            members.append(Member(task=task, key=key))
        return RunningPod(tenant=tenant, members=tuple(members))

    def _end(self) -> None:
        for leader in self._leaders:
            if leader.stdin is not None:
                leader.stdin.close()
        _wait_for(self._keys)
        for key in self._keys:
            with contextlib.suppress(OSError):
                TicksHandle(key, partial(lives, key)).signal(signal.SIGKILL)
        for leader in self._leaders:
            leader.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                leader.wait(_LEAVE_S)
        _wait_for(self._keys)
        for key in self._keys:
            with contextlib.suppress(OSError):
                os.waitpid(key.pid, os.WNOHANG)


def _read_pids(leader: subprocess.Popen[bytes], count: int) -> dict[str, int]:
    """The PID of each process by its name, as far as they have come in time."""
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
    """Wait until all of them have ended, or a while."""
    deadline_s = time.monotonic() + _LEAVE_S
    while any(lives(key) for key in keys) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _adopt_orphans(on: int) -> None:
    # Where this is not to be had, init reaps them.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


_RESOURCE: Final = "veriff.com/gpu-memory"

NODE: Final = "demo-node"
POLICY: Final = Path(__file__).with_name("policy.toml")
# Seconds for which the driver holds the memory of a process that has ended; on a real card it is up to a second.
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
    pod="detector",
    uid="d0000001-0000-4000-8000-000000000001",
    container="serve",
    container_id="a1" * 32,
    resource=_RESOURCE,
    declared="8Gi",
    tasks=(Task(name="detector", curve=UsageCurve(((0, 0), (1.5, 7.0), (6, 7.0), (8, 7.3), (11, 7.3), (13, 7.1)))),),
)
_BURSTS: Final = SimPod(
    namespace="notebooks",
    pod="jupyter-7",
    uid="d0000001-0000-4000-8000-000000000002",
    container="notebook",
    container_id="b2" * 32,
    resource=_RESOURCE,
    declared="4Gi",
    tasks=(
        Task(
            name="notebook",
            curve=UsageCurve(((0, 0), (0.5, 0), (2, 3.2), (3, 3.2), (3.6, 6.0), (6.4, 6.0), (7.2, 3.3))),
        ),
    ),
)
# The trainer, which holds nearly all of it, is a fork that ignores SIGTERM; the loader holds nothing on the card and
# goes with its container all the same.
_RUNS_AWAY: Final = SimPod(
    namespace="training",
    pod="finetune",
    uid="d0000001-0000-4000-8000-000000000003",
    container="train",
    container_id="c3" * 32,
    resource=_RESOURCE,
    declared="6Gi",
    tasks=(
        Task(name="launcher", curve=UsageCurve(((0.5, 0), (1, 0.6)))),
        Task(
            name="trainer",
            curve=UsageCurve(((0, 0), (0.5, 0), (2.5, 4.4), (7.5, 4.4), (14.5, 10.6))),
            ignores_sigterm=True,
        ),
        Task(name="loader"),
    ),
)
TENANTS: Final = (_WITHIN, _BURSTS, _RUNS_AWAY)
