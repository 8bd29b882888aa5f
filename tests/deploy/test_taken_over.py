"""What docs/security.md says of a watchdog that was taken over: what root with CAP_KILL alone can read of others."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import cannot_run

pytestmark = pytest.mark.node

_ONLY_KILL: Final = ("setpriv", "--bounding-set=-all,+kill", "--inh-caps=-all")
_ONE_MORE: Final = ("setpriv", "--bounding-set=-all,+chown,+kill", "--inh-caps=-all")
_TENANT: Final = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
_SHOWN: Final = ("stat", "cgroup", "cmdline")
_INSIDE: Final = ("environ", "maps", "root/etc/passwd")
_LIMIT_S: Final = 20.0


@pytest.fixture(autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        cannot_run("needs root, to take capabilities away")


@contextmanager
def _sleeping(start: tuple[str, ...]) -> Iterator[int]:
    process = subprocess.Popen([*start, "sleep", "60"])
    try:
        deadline_s = time.monotonic() + _LIMIT_S
        while Path(f"/proc/{process.pid}/comm").read_text(encoding="ascii") != "sleep\n":
            assert time.monotonic() < deadline_s, "it has not started"
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _readable(pid: int, name: str) -> bool:
    """Whether a process with the watchdog's capabilities can read it."""
    command = [*_ONLY_KILL, "head", "-c1", f"/proc/{pid}/{name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("start", "inside"),
    [((), False), (_ONE_MORE, False), (_TENANT, False), (_ONLY_KILL, True)],
    ids=["all capabilities", "one more than KILL", "another user", "KILL alone"],
)
def test_what_can_be_read_of_others(start: tuple[str, ...], *, inside: bool) -> None:
    """Names and cgroups of all; memory, environment and files of nobody with another user or one capability more."""
    with _sleeping(start) as pid:
        assert [_readable(pid, name) for name in _SHOWN] == [True] * len(_SHOWN)
        assert [_readable(pid, name) for name in _INSIDE] == [inside] * len(_INSIDE)
