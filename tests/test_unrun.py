"""What a machine could not run is said at the end of a run, each reason once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.support import REPOSITORY

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
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_ends_with_what_it_could_not_run(workers: tuple[str, ...], tmp_path: Path) -> None:
    """`make test` says plainly what it could not run: last, before the counts, also with several workers."""
    done = _run(tmp_path, *workers, CI="")
    assert done.returncode == 0, done.stdout
    *_, heading, line, counts = done.stdout.strip().splitlines()
    assert "not run on this machine: 3" in heading
    assert line.startswith("    3  needs a card of gold (")
    assert counts.startswith("1 passed, 3 skipped")


@pytest.mark.slow
def test_in_ci_nothing_is_left_out(tmp_path: Path) -> None:
    """Where CI is set, what can't be run has failed: a green run has run everything."""
    done = _run(tmp_path, CI="true")
    assert done.returncode == 1
    assert "3 failed, 1 passed" in done.stdout


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
