"""A simulated time of a busy node: replaying it decides only where something happened."""

import time
from pathlib import Path

import pytest

from bench.past import OTHER, UNDER, day
from tests.past.life import Life, actions_of, replayed

HOURS = 3


@pytest.mark.slow
def test_a_busy_time_is_replayed_much_faster_than_it_was_lived(tmp_path: Path) -> None:
    """The cycles in which nothing happened cost nothing, so that a day of a busy node takes seconds."""
    path, seconds = tmp_path / "journal.db", HOURS * 3600
    began_s = time.process_time()
    life = Life(path, UNDER).run(day(seconds, 40, 100, 300.0))
    lived_s = time.process_time() - began_s
    began_s = time.process_time()
    found = replayed(path, OTHER)
    took_s = time.process_time() - began_s
    assert life.actions
    assert actions_of(replayed(path, UNDER)) == life.actions
    assert found.seen_s == pytest.approx(seconds - 1)
    # A cycle for each of the seconds in which something moved (a process each 3 s here), and few besides.
    assert found.cycles < seconds / 2
    assert took_s < lived_s / 2
    assert path.stat().st_size < HOURS * 100 * 1024
