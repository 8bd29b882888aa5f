"""What a killed run of the tests has left goes with the next one; what could not run is reported; who runs a file."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.leftovers import OF_A_NODE, claimed
from tests.node.support import REPOSITORY, cannot_run, need_root, sleeper
from tests.rig.cgroups import mounts

# A run that is killed while it has its folder, and notes a cgroup.
_KILLED: Final = """
    import os, signal, sys
    from pathlib import Path
    from tests.leftovers import claimed, note_cgroup
    with claimed(Path(sys.argv[1])):
        for each in sys.argv[2:]:
            note_cgroup(Path(each))
        print("ready", flush=True)
        if sys.stdin.readline() == "kill\\n":
            os.kill(os.getpid(), signal.SIGKILL)
"""

# Tests that share something, which each worker that runs one of them makes.
_SHARES: Final = """
import tempfile, time
from pathlib import Path
import pytest

@pytest.fixture(scope="session", autouse=True)
def shared():
    tempfile.mkstemp(prefix=f"made-{Path(__file__).stem}-", dir=Path(__file__).parent)

@pytest.mark.parametrize("number", range(8))
def test(number):
    time.sleep(0.02)
"""


def run(folder: Path, *cgroups: Path) -> subprocess.Popen[str]:
    """A separate run, which ends or is killed on a line of its stdin."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", textwrap.dedent(_KILLED), str(folder), *map(str, cgroups)]
    started = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def next_run(beside: Path) -> AbstractContextManager[None]:
    """The run of the tests that comes next."""
    (beside / "pytest-9").mkdir()
    return claimed(beside / "pytest-9")


@pytest.mark.parametrize("order", ["end", "kill"])
def test_the_folder_of_a_run_that_was_killed_goes_with_the_next(tmp_path: Path, order: str) -> None:
    """A run that ended in order keeps its folder for inspection; one that still runs is left alone."""
    other, alive = run(tmp_path / "pytest-1"), run(tmp_path / "pytest-2")
    try:
        other.communicate(f"{order}\n", timeout=60)
        with next_run(tmp_path):
            assert (tmp_path / "pytest-1").exists() is (order == "end")
            assert (tmp_path / "pytest-2").exists()
    finally:
        alive.communicate("end\n", timeout=60)
    assert list(tmp_path.glob("*/in-use-*")) == []


@pytest.mark.node
def test_its_cgroups_go_with_it(tmp_path: Path) -> None:
    """A node's cgroups go with all that is below; another one only if no process is in it."""
    need_root()
    hierarchies = mounts("cgroup") or mounts("cgroup2")
    if not hierarchies:
        cannot_run("no cgroup hierarchy is mounted")
    name = uuid.uuid4().hex[:8]
    node, ours, busy = (hierarchies[0] / f"{kind}{name}" for kind in (OF_A_NODE, "tests-ours-", "tests-busy-"))
    try:
        (node / "kubepods" / "burstable").mkdir(parents=True)
        ours.mkdir()
        busy.mkdir()
        with sleeper() as bystander:
            (busy / "cgroup.procs").write_text(str(bystander.pid), encoding="ascii")
            run(tmp_path / "pytest-1", node, ours, busy).communicate("kill\n", timeout=60)
            with next_run(tmp_path):
                assert [each.exists() for each in (node, ours, busy)] == [False, False, True]
            assert bystander.poll() is None
    finally:
        for each in (node / "kubepods" / "burstable", node / "kubepods", node, ours, busy):
            with contextlib.suppress(FileNotFoundError):
                each.rmdir()


_TEST = """
import pytest
from tests.node.support import cannot_run

@pytest.mark.parametrize("number", range(3))
def test_it(number: int) -> None:
    cannot_run("needs a card of gold")

def test_else() -> None:
    pass
"""


@pytest.mark.slow
def test_a_test_that_cannot_run_is_reported_and_in_ci_has_failed(tmp_path: Path) -> None:
    """A run ends with what it could not run, each reason once; where CI is set a green run has run everything."""
    done = _run(tmp_path, "-n", "2", CI="")
    assert done.returncode == 0, done.stdout
    *_, heading, line, counts = done.stdout.strip().splitlines()
    assert "not run on this machine: 3" in heading
    assert line.startswith("    3  needs a card of gold (")
    assert counts.startswith("1 passed, 3 skipped")
    done = _run(tmp_path, CI="true")
    assert (done.returncode, "3 failed, 1 passed" in done.stdout) == (1, True)


def _run(folder: Path, *arguments: str, CI: str) -> subprocess.CompletedProcess[str]:  # noqa: N803 (the variable's name)
    file = folder / "test_gold.py"
    file.write_text(_TEST, encoding="utf-8")
    options = ["-q", "-c", "pyproject.toml", f"--rootdir={REPOSITORY}", "-p", "tests.conftest", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=REPOSITORY,
        env={**os.environ, "CI": CI},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_file_that_shares_something_is_run_by_one_worker(tmp_path: Path) -> None:
    """`make deep` makes a cluster or an image once for the file that needs it, not once in each worker."""
    (found,) = re.findall(r"--dist (\w+) --no-loadscope-reorder \$\(SHARING\)", (REPOSITORY / "Makefile").read_text())
    for name in ("one", "other", "third"):
        (tmp_path / f"test_{name}.py").write_text(_SHARES, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n3", "--dist", found, "--no-loadscope-reorder", "-c/dev/null"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout
    assert len(list(tmp_path.glob("made-*"))) == 3
