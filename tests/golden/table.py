"""All worlds by their names, and what is stored of them."""

import difflib
from pathlib import Path
from typing import Final

from tests.golden.acted import ACTED
from tests.golden.capture import shown
from tests.golden.declaring import DECLARING
from tests.golden.held import HELD
from tests.golden.parts import Told, World
from tests.golden.scanned import SCANNED
from tests.golden.stage import played, told
from tests.golden.tellings import TELLINGS

EXPECTED: Final = Path(__file__).with_name("expected")
_TABLES: Final = (DECLARING, SCANNED, ACTED, HELD, TELLINGS)
ROWS: Final[dict[str, World | Told]] = {row.name: row for table in _TABLES for row in table}
assert len(ROWS) == sum(map(len, _TABLES)), "two worlds have one name"


def observed(row: World | Told, root: Path) -> str:
    """What the command says of it, as it is stored."""
    return shown(told(row, root) if isinstance(row, Told) else played(row, root)) + "\n"


def difference(name: str, got: str) -> str:
    """What differs from what is stored, as a unified diff; empty: nothing."""
    file = EXPECTED / f"{name}.json"
    stored = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = difflib.unified_diff(stored.splitlines(), got.splitlines(), f"stored {name}", f"now {name}", lineterm="")
    return "\n".join(lines)
