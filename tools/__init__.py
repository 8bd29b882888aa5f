"""What is run by hand or by `make`: the generators of docs/ and deploy/, the release, the programs that tests need.

Nothing here imports the tests: whatever needs their rig (`tests/pictures`) stays with it.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
