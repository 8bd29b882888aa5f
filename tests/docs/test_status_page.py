"""docs/status.md has the very keys that the status has."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.export.test_status import EXPECTED

TEXT: Final = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
STATUS: Final[dict[str, Any]] = json.loads(EXPECTED)


def _tables() -> list[list[str]]:
    """The keys in the first column of each table, in their order."""
    blocks = re.split(r"^\|---\|---\|$", TEXT, flags=re.MULTILINE)[1:]
    return [re.findall(r"^\| `([a-z_]+)` \|", block.partition("\n\n")[0], re.MULTILINE) for block in blocks]


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
def test_every_key_of_the_status_is_told(table: int, row: dict[str, Any]) -> None:
    """Whoever reads the status finds each of its keys on the page, in the order of the document, and no other."""
    assert _tables()[table] == list(row)
