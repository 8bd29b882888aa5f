"""The short run of the soak: no law is broken, and a history can be had again from its seed."""

import pytest

from tests.soak.coverage import INJECTED, missing
from tests.soak.planted import FAULTS
from tests.soak.run import episode, soak

# One episode a seed, the longest.
_EPISODES = sorted(dict(sorted(fault.episode for fault in FAULTS.values())).items())


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "steps"), _EPISODES)
def test_no_law_is_broken_where_a_planted_fault_is_found(seed: str, steps: int) -> None:
    """Law 6 and all others hold through every history in which a planted fault breaks one."""
    assert episode(seed, steps).failure == ""


@pytest.mark.slow
def test_a_seed_gives_the_same_history_again() -> None:
    """What a failure names can be run again."""
    one, other = episode("again", 400), episode("again", 400)
    assert one.seen == other.seen
    assert one.failure == other.failure == ""


@pytest.mark.slow
def test_a_short_run_meets_all_that_can_be_done_to_the_daemon() -> None:
    """What goes wrong on a node goes wrong in the soak, often enough for the laws to be put to the test by it."""
    short = soak("short", 8_000)
    assert short.failure == ""
    assert missing(short, INJECTED) == []
