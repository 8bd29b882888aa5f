"""The tenants' processes: real ones, each tenant in a session of its own, and sure to be ended."""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

from watchdog.core.model import ProcessKey
from watchdog.node.pidfd import TicksHandle
from watchdog.sim.life import key_of, lives
from watchdog.sim.tenant import Task, Tenant

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
class Party:
    """A tenant with its processes, its leader first; the leader's PID is the session's."""

    tenant: Tenant
    members: tuple[Member, ...]

    @property
    def session(self) -> int:
        """The session that all of its processes are in."""
        return self.members[0].key.pid


class Company:
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

    def start(self, tenant: Tenant) -> Party:
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
        return Party(tenant=tenant, members=tuple(members))

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
