"""The path of a journal, and an open one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.rig import LIMITS
from watchdog.journal.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal.open(path, LIMITS, "n1")
    yield journal
    journal.close()
