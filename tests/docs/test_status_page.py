"""docs/status.md has the very keys that the status has."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.export.build import climbing, entry
from tests.worlds import at
from watchdog.core.model import PinnedLimit, ProcessKey
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.report.status import HealthStatus, encode
from watchdog.report.status_build import status_of

TEXT: Final = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
LIMIT: Final = PinnedLimit(key=ProcessKey(pid=101, start_ticks=1010), gpu="GPU-0", by_server=2**30)
STATUS: Final = encode(status_of(replace(climbing(9), pinned=(LIMIT,))))


def _tables() -> list[list[str]]:
    """The keys in the first column of each table, in their order."""
    blocks = re.split(r"^\|---\|---\|$", TEXT, flags=re.MULTILINE)[1:]
    return [re.findall(r"^\| `([a-z0-9_]+)` \|", block.partition("\n\n")[0], re.MULTILINE) for block in blocks]


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (0, STATUS),
        (1, STATUS["gpus"][0]),
        (2, STATUS["accounts"][0]),
        (3, STATUS["accounts"][0]["ladder"][0]),
        (4, STATUS["plan"][0]),
    ],
)
def test_every_key_of_the_status_is_documented(table: int, row: dict[str, Any]) -> None:
    """Each key of the status is on the page, in the order of the document, and no other."""
    assert _tables()[table] == list(row)


def test_every_key_of_what_was_done_lately_is_documented(tmp_path: Path) -> None:
    """The same for an action, as the journal of a daemon gives it."""
    journal = Journal.open(tmp_path / "journal.db", JournalLimits(), "n1")
    key = ProcessKey(pid=101, start_ticks=1010)
    journal.signalled(journal.intend(entry(), (key,), at(31)), at(31), "SIGTERM", (key,))
    row = encode(journal.recent.actions[0])
    journal.close()
    assert _tables()[5] == list(row)
    assert [f"`{name}`" in TEXT for name in row["signals"][0]] == [True] * 3


def test_every_key_of_the_health_is_documented() -> None:
    """The same for how the watchdog is."""
    assert _tables()[6] == list(HealthStatus.__struct_fields__)
