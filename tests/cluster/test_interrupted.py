"""Tests that are interrupted leave no process, mount, cgroup, namespace or folder behind, or the next run ends it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.cluster.real_pods import wait_until
from tests.node.support import REPOSITORY, mounts

pytestmark = [pytest.mark.node, pytest.mark.slow]

_PART: Final = "tests/cluster/interrupted_part.py"
_ANOTHER: Final = "tests/core/test_units.py"
_LIMIT_S: Final = 300.0
# Four servers of the control plane, containerd, kubelet, what holds the namespaces; a browser, Prometheus, a daemon, a
# tenant. Pods are no children of pytest.
_LEAST: Final = 12


class Run:
    """A run of pytest, whose temporary files are in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self._ready, self._log = folder / "ready", folder / "log"
        environment = {**os.environ, "TMPDIR": str(self.temporary), "INTERRUPTED_READY": str(self._ready)}
        environment.pop("PYTEST_DEBUG_TEMPROOT", None)
        # Whoever runs the tests in the background may have handed down ignored signals.
        command = ["env", "--default-signal=INT,TERM", sys.executable, "-m", "tests.cluster.warden", *arguments]
        with self._log.open("ab") as log:
            self._warden = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self.pid: int = self._told()["pid"]
        self._pytest = psutil.Process(self.pid)

    def wait_ready(self) -> str:
        """Wait until all of it runs; the name of its node's cgroup."""

        def is_ready() -> bool:
            assert psutil.pid_exists(self.pid), self.log
            return self._ready.exists() and self._ready.read_text(encoding="ascii") != ""

        wait_until(is_ready, lambda: self.log, _LIMIT_S)
        return self._ready.read_text(encoding="ascii")

    @property
    def log(self) -> str:
        """The end of what pytest said."""
        return self._log.read_text(encoding="utf-8")[-3000:]

    def end(self, by: signal.Signals | None = None) -> list[str]:
        """Send a signal, or none, and wait for the end; the commands that run on after it."""
        if by is not None:
            os.kill(self.pid, by)
        left: list[str] = self._told()["left"]
        self._warden.communicate(timeout=60)
        return left

    def sessions(self) -> list[Path]:
        """The folders of runs that pytest keeps, as it does for the last three."""
        return [each for each in self.temporary.glob("pytest-of-*/pytest-*") if not each.is_symlink()]

    def kill(self) -> None:
        """End what still runs, where the test has failed."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._pytest.kill()
        self._warden.kill()
        self._warden.communicate()

    def _told(self) -> dict[str, Any]:
        assert self._warden.stdout is not None
        line = self._warden.stdout.readline()
        assert line, self.log
        found: dict[str, Any] = json.loads(line)
        return found


def machine(folder: Path) -> dict[str, list[str]]:
    """What a node could leave behind on this machine."""
    return {
        "mounts": mounts(folder),
        "namespaces": sorted(each.name for each in Path("/run/netns").glob("*")),
        "settings": [Path("/proc/sys", each).read_text("ascii") for each in ("vm/overcommit_memory", "kernel/panic")],
    }


def cgroups(name: str) -> list[str]:
    """The cgroups of a node of the tests, in each hierarchy."""
    return [str(each) for pattern in (name, f"*/{name}") for each in Path("/sys/fs/cgroup").glob(pattern)]


def noted(session: Path) -> list[Path]:
    """The cgroups that a run has made."""
    return [Path(line) for line in (session / "cgroups-made").read_text(encoding="utf-8").split()]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket may have 107 characters, and Chromium makes one."""
    with tempfile.TemporaryDirectory(prefix="part-") as made:
        yield Path(made)


@pytest.mark.usefixtures("node_programs")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_tests_that_were_interrupted(folder: Path, by: signal.Signals) -> None:
    """A node with a pod, a daemon, a browser, a Prometheus: gone, also after SIGKILL, but for folders and cgroups then.

    Those the next run removes, and with them all that fills the disk.
    """
    before = machine(folder)
    run = Run(folder, _PART)
    try:
        name = run.wait_ready()
        assert len(psutil.Process(run.pid).children(recursive=True)) >= _LEAST
        (session,) = run.sessions()
        made = noted(session)
        assert cgroups(name)
        assert {str(each) for each in made} > set(cgroups(name))
        assert run.end(by) == []
    finally:
        run.kill()
    wait_until(lambda: cgroups(name) == [], lambda: f"the node's cgroups are gone: {cgroups(name)}")
    assert machine(folder) == before
    if by is not signal.SIGKILL:
        assert [each for each in made if each.name != "kubepods" and each.exists()] == []
        assert list(session.glob("in-use-*")) == []
        assert [each.name for each in run.temporary.iterdir()] == [session.parent.name]
        return
    assert session.exists()
    assert Run(folder, _ANOTHER).end() == []
    assert [each for each in made if each.name not in ("kubepods", "burstable") and each.exists()] == []
    assert session not in run.sessions()
    assert {each.name for each in run.temporary.iterdir()} - {session.parent.name} == set()
