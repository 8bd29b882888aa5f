"""The soak finds what it is for: every planted fault, and by the law that it breaks."""

from pathlib import Path

import pytest

from tests.soak.faults import Fault, broken, hunt, is_found, plant
from tests.soak.planted import FAULTS
from tests.soak.soonest import SOONEST

_OTHER_SEEDS = 60


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_fits_the_source(fault: Fault) -> None:
    """A fault that changes nothing any more would be found for another reason, or never."""
    assert broken(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """Each rule that the soak watches is one that it sees broken; the stored episode first, it finds it soonest."""
    plant(fault, tmp_path)
    said = hunt(tmp_path, *SOONEST.get(fault.name, (f"{fault.seeds}/0", 3000)))
    others = (f"{fault.seeds}/{number}" for number in range(_OTHER_SEEDS))
    while not is_found(fault, said):
        seed = next(others, None)
        assert seed is not None, said or "nothing was found"
        said = hunt(tmp_path, seed, 4000)
