"""What the command says of each world is what is stored of it."""

from pathlib import Path

import pytest

from tests.golden.table import EXPECTED, ROWS, difference, observed

pytestmark = [pytest.mark.node, pytest.mark.slow]


@pytest.mark.parametrize("name", ROWS)
def test_says_what_is_stored(name: str, tmp_path: Path) -> None:
    """A rewrite of the program changes nothing that people rely on; the world's own `keeps` says what it protects."""
    if differs := difference(name, observed(ROWS[name], tmp_path)):
        pytest.fail(
            f"{ROWS[name].keeps}\n{differs}\n`python -m tests.golden --write {name}` stores it anew", pytrace=False
        )


def test_nothing_is_stored_that_no_world_says() -> None:
    """A world that is renamed leaves no file behind that nobody compares."""
    assert {path.stem for path in EXPECTED.glob("*.json")} == set(ROWS)
