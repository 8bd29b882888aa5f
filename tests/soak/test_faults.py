"""The soak finds what it is for: every planted fault, and by the law that it breaks."""

from pathlib import Path

import pytest

from tests.soak.faults import Fault, hunt
from tests.soak.planted import FAULTS

_OTHER_SEEDS = 60


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_fits_the_source(fault: Fault) -> None:
    """A fault that changes nothing any more would be found for another reason, or never."""
    assert fault.broken()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """The soak notices every broken rule; the stored episode is run first, because it does so soonest.

    Other code gives other histories: what is not found there is looked for in others.
    """
    fault.plant(tmp_path)
    failure = hunt(tmp_path, *fault.episode)
    others = iter(fault.other_seeds(_OTHER_SEEDS))
    while fault.found_at(failure) is None:
        seed = next(others, None)
        assert seed is not None, failure or "nothing was found"
        failure = hunt(tmp_path, seed)
