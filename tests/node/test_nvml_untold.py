"""Drivers that list processes and do not say what they use, as on WSL2 and in some vGPU guests: told, never a zero."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.nvml_world import NvmlWorld, card, ghost, mig_card, nvml_world
from tests.stub import GIB
from watchdog.core.model import GapReason


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NvmlWorld]:
    with nvml_world(tmp_path) as found:
        yield found


def test_a_card_whose_processes_have_no_numbers_is_a_gap(world: NvmlWorld) -> None:
    """One gap a card says that, however many processes it lists; the card's own numbers and other cards stay known."""
    world.show(card("a", ghost(1, None), ghost(2, None), used=7 * GIB), card("b", ghost(3)))
    driver = world.driver()
    for _ in range(2):
        reading = driver.read()
        assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.PROCESS_MEMORY, "GPU-a")]
        assert [use.used for use in reading.uses] == [None, None, GIB]
        first = reading.gpus[0]
        assert (first.up, first.listed, first.used) == (True, True, 7 * GIB)
    assert "; " in str(reading.gaps[0].problem), "it says what helps"


def test_it_ends_with_the_numbers(world: NvmlWorld) -> None:
    """Once the driver says it, or lists nobody, there is no gap any more."""
    driver = world.driver()
    for processes in ((ghost(1, GIB),), ()):
        world.show(card("a", ghost(1, None)))
        assert [gap.reason for gap in driver.read().gaps] == [GapReason.PROCESS_MEMORY]
        world.show(card("a", *processes))
        assert driver.read().gaps == ()


def test_a_process_that_one_list_knows_is_known(world: NvmlWorld) -> None:
    """A number in one of the lists is a number: only what no list tells is a gap, also in MIG instances."""
    two = (ghost(1, None, lists=("compute",)), ghost(1, GIB, lists=("graphics",)))
    world.show(card("a", *two), mig_card("m", ghost(2, None, gi=2, ci=0)))
    reading = world.driver().read()
    assert [gap.gpu for gap in reading.gaps] == ["GPU-m"]
    assert {(use.gpu, use.used) for use in reading.uses} == {("GPU-a", GIB), ("MIG-m2", None)}


def test_such_a_card_costs_no_more_than_another(world: NvmlWorld) -> None:
    """A reading that is as the one before is not computed again for a number that is never there."""
    world.show(card("a", ghost(1, None)))
    driver = world.driver(layout_every_s=3600.0)
    first = driver.read()
    assert driver.read().uses[0] is first.uses[0]
