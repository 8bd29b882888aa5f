"""How busy cards and processes are, as NVML says it: both functions, and answers that are no numbers."""

from pathlib import Path

import pytest

from tests.node.drivers.nvml_world import PID, NvmlWorld, card, ghost, mig_card
from tests.node.drivers.test_nvml_variants import read
from tests.stub import StubGpu, StubReturn, Variant
from watchdog.core.utilization import CardUtilization

UNKNOWN, NOT_SUPPORTED, NO_PERMISSION, NO_FUNCTION = 999, 3, 4, 13
NEWER = "nvmlDeviceGetProcessesUtilizationInfo"
OLDER = "nvmlDeviceGetProcessUtilization"


def utilization(world: NvmlWorld, *gpus: StubGpu, **more: object) -> dict[str, CardUtilization]:
    """What a driver says, right after a reading, of a node that shows this; by the card's letter."""
    world.read(*gpus, **more)  # type: ignore[arg-type]
    return {each.gpu.removeprefix("GPU-"): each for each in world.drivers[-1].utilization()}


def shares(found: CardUtilization) -> dict[int, float]:
    """The ratio of each process, by the number that `ghost` took."""
    return {pid - PID: ratio for pid, ratio in (found.by_pid or {}).items()}


def test_a_card_and_each_of_its_processes(world: NvmlWorld) -> None:
    """The card's busier figure and each process's busiest engine; who has no sample is left out."""
    found = utilization(
        world,
        card("a", ghost(1, utilization=35), ghost(2, utilization=3, encoder=60), ghost(3), utilization=90, moved=12),
        card("b", ghost(4), utilization=0, moved=7),
        card("c", utilization=0),
    )
    assert (found["a"].ratio, shares(found["a"])) == (0.9, {1: 0.35, 2: 0.6})
    assert (found["b"].ratio, shares(found["b"])) == (0.07, {})
    assert found["c"] == CardUtilization(gpu="GPU-c", ratio=0.0, by_pid={})


@pytest.mark.parametrize("variant", ["current", "r525"])
def test_the_older_function_gives_the_same(tmp_path: Path, variant: Variant) -> None:
    """Drivers before 550 have only that one."""
    (found,) = read(tmp_path, variant, card("a", ghost(1, utilization=35), utilization=90))["utilization"]
    assert (found["ratio"], found["by_pid"], found["why"]) == (0.9, {str(PID + 1): 0.35}, "")


@pytest.mark.parametrize("code", [NOT_SUPPORTED, 25])
def test_a_function_that_the_driver_has_and_refuses(world: NvmlWorld, code: int) -> None:
    """A driver with the newer function that does not support it, or not its version, is asked by the older one."""
    refused = (StubReturn(call=NEWER, code=code),)
    found = utilization(world, card("a", ghost(1, utilization=35), utilization=90), returns=refused)
    assert shares(found["a"]) == {1: 0.35}


@pytest.mark.parametrize(
    ("gpu", "returns", "why"),
    [
        (mig_card("a"), (), "NVML reports no utilisation of MIG instances"),
        (card("a", utilization=50, virtualization=2), (), "NVML reports no utilisation in the guest of a vGPU"),
        (card("a"), (), "nvmlDeviceGetUtilizationRates: Not Supported"),
        (
            card("a", utilization=50),
            (StubReturn(call=OLDER, code=UNKNOWN), StubReturn(call=NEWER, code=UNKNOWN)),
            NEWER,
        ),
        (card("a", utilization=50), (StubReturn(call="nvmlDeviceGetUtilizationRates", code=NO_PERMISSION),), "Insuff"),
    ],
)
def test_why_it_is_unknown(world: NvmlWorld, gpu: StubGpu, returns: tuple[StubReturn, ...], why: str) -> None:
    """MIG, vGPU guests, and every error: nothing is 0 for it, and the reason is there."""
    for found in utilization(world, gpu, returns=returns).values():
        assert why in found.why
        assert found.ratio is None or found.by_pid is None


@pytest.mark.parametrize("busiest", [101, 2_000_000_000])
def test_an_impossible_number_is_unknown(world: NvmlWorld, busiest: int) -> None:
    """Drivers give processes millions of per cent (nvtop#110), and fill their list up with a PID of 0."""
    shown = card("a", ghost(1, utilization=busiest), ghost(2, utilization=5), utilization=50)
    found = utilization(world, shown, pad_samples=True)
    assert (shares(found["a"]), found["a"].unclear) == ({2: 0.05}, frozenset({PID + 1}))


def test_a_clock_that_was_set_back_hides_nothing_for_long(world: NvmlWorld) -> None:
    """The driver has no sample after the last time stamp then: where its card computes, it is asked for all of them."""
    shown = card("a", ghost(1, utilization=35), utilization=90)
    assert shares(utilization(world, shown)["a"]) == {1: 0.35}
    assert shares(utilization(world, shown, stale_samples=True)["a"]) == {}
    assert shares(utilization(world, shown, stale_samples=True)["a"]) == {1: 0.35}


def test_more_processes_than_room(world: NvmlWorld) -> None:
    """A list that is longer than the buffer is asked for again, and none of it is lost."""
    many = [ghost(number, utilization=number % 100 + 1) for number in range(1, 400)]
    assert len(shares(utilization(world, card("a", *many, utilization=90))["a"])) == 399


def test_nothing_is_asked_without_a_session(world: NvmlWorld) -> None:
    """A driver that was released for maintenance is not opened for this."""
    utilization(world, card("a", utilization=90))
    world.drivers[-1].close()
    world.forget_calls()
    assert (world.drivers[-1].utilization(), world.calls()) == ((), 0)


def test_figures_that_differ_in_every_call_leave_readings_equal(world: NvmlWorld) -> None:
    """Point 44: utilisation is no part of a reading, so a busy card rests as an idle one does."""
    shown = card("a", ghost(1, utilization=35), utilization=50, varies=True)
    before, first = world.read(shown), world.drivers[-1].utilization()
    after, second = world.read(shown), world.drivers[-1].utilization()
    assert before == after
    assert first != second
