"""A real daemon whose port is flooded with connections that never finish their request."""

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest

from tests.node.support import ENDS_WITH_US, REPOSITORY
from tests.rig import Daemon, Node
from tests.stub import GIB, MIB
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_thousands_of_unfinished_requests_hold_up_nothing(any_world: Node) -> None:
    """Law 10: beside 2000 more a second the probes are answered, an offender dies, and the daemon stays small.

    A probe may fail or take more than a second, though not three in a row, by which the kubelet goes: without CPU for a
    while the daemon's queue is full, and a client that gets none between connecting and sending makes room for others.
    """
    tenant = any_world.single("hog", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        quiet = _size(running)
        with _flood(running.port, ""), _flood(running.port, "GET /metrics HTTP/1.1\r\nX: "):
            until, misses = time.monotonic() + 10, Counter[str]()
            while time.monotonic() < until:
                for probe in ("/healthz", "/readyz"):
                    misses[probe] = 0 if _is_answered(running, probe) else misses[probe] + 1
                    assert misses[probe] < 3, f"{probe} three times in a row"
                grown = [now - before for now, before in zip(_size(running), quiet, strict=True)]
                assert all(more < most for more, most in zip(grown, (40, 16, 256), strict=True)), grown
                if tenant.used < GIB and until - time.monotonic() < 8:
                    any_world.use(tenant, 9 * GIB)
                time.sleep(0.1)
            running.wait(lambda _: not tenant.is_alive)


@contextlib.contextmanager
def _flood(port: int, begun: str) -> Iterator[None]:
    """A process that opens 1000 connections a second, keeps 3000 of them, and sends the beginning of a request."""
    program = REPOSITORY / "tests" / "export" / "flood.py"
    process = subprocess.Popen([*ENDS_WITH_US, sys.executable, program, str(port), "1000", begun, "3000"])
    try:
        yield
        assert process.poll() is None, "the flood has ended by itself"
    finally:
        process.kill()
        process.wait()


def _is_answered(running: Daemon, probe: str) -> bool:
    began = time.monotonic()
    with contextlib.suppress(OSError):
        return running.get(probe)[0] == 200 and time.monotonic() - began < 1
    return False


def _size(running: Daemon) -> tuple[int, int, int]:
    """Its threads, its memory in MiB, and its descriptors."""
    process = psutil.Process(running.pid)
    return process.num_threads(), process.memory_info().rss // MIB, process.num_fds()
