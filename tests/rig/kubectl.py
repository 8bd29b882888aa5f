"""The real kubectl for tests that need no cluster."""

from pathlib import Path

import pytest

from tests.node.support import cannot_run
from tools import programs
from tools.programs import NoProgramsError


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The program, built if need be, before a test changes HOME; without it the test can't run."""
    try:
        return programs.kubectl()
    except NoProgramsError as error:
        cannot_run(str(error))
