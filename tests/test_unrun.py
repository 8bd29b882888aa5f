"""What a machine could not run is reported at the end of a run, each reason once."""

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
