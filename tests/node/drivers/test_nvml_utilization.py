"""How busy cards and processes are, as NVML says it: both functions, and answers that are no numbers."""

from pathlib import Path

import pytest

from tests.node.drivers.nvml_world import PID, NvmlWorld, card, ghost, mig_card
from tests.node.drivers.test_nvml_variants import read
from tests.stub import StubGpu, StubReturn, StubSamples, Variant
from watchdog.core.utilization import CardUtilization

UNKNOWN, NOT_SUPPORTED, NO_PERMISSION, NO_FUNCTION = 999, 3, 4, 13
NEWER = "nvmlDeviceGetProcessesUtilizationInfo"
OLDER = "nvmlDeviceGetProcessUtilization"
RATES = "nvmlDeviceGetUtilizationRates"
SAMPLES = "nvmlDeviceGetSamples"


def utilization(world: NvmlWorld, *gpus: StubGpu, **more: object) -> dict[str, CardUtilization]:
    """What a driver says, right after a reading, of a node that shows this; by the card's letter."""
    world.read(*gpus, **more)  # type: ignore[arg-type]
    return {each.gpu.removeprefix("GPU-"): each for each in world.drivers[-1].utilization()}


def shares(found: CardUtilization) -> dict[int, float]:
    """The ratio of each process, by the number that `ghost` took."""
    return {pid - PID: ratio for pid, ratio in (found.by_pid or {}).items()}


def gpu_samples(*percents: int) -> tuple[StubSamples, ...]:
    """What the driver keeps of a card itself, six a second, and nothing of its memory, encoder and decoder."""
    return (StubSamples(percents=percents),)


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
        (
            card("a", utilization=50),
            (StubReturn(call=SAMPLES, code=NOT_SUPPORTED), StubReturn(call=RATES, code=NO_PERMISSION)),
            "Insuff",
        ),
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


def test_a_card_that_computed_since_it_was_last_asked_has_computed(world: NvmlWorld) -> None:
    """Point 45: a second of work between two readings is no 0, although the card's current rate is."""
    shown = card("a", utilization=0, samples=gpu_samples(*(0,) * 30, *(100,) * 6, *(0,) * 24))
    assert utilization(world, shown)["a"].ratio == pytest.approx(0.1)


def test_a_sample_counts_once(world: NvmlWorld) -> None:
    """The first time those of the last ten seconds count, then those since; if none is newer, the current rate."""
    kept = gpu_samples(*(100,) * 300, *(40,) * 60)
    assert utilization(world, card("a", utilization=7, samples=kept), sampled_s=1000)["a"].ratio == pytest.approx(0.4)
    longer = card("a", utilization=7, samples=gpu_samples(*(100,) * 30, *(20,) * 90))
    assert utilization(world, longer, sampled_s=1015)["a"].ratio == pytest.approx(0.2)
    assert utilization(world, longer, sampled_s=1015)["a"].ratio == 0.07


@pytest.mark.parametrize(
    ("samples", "ratio"),
    [
        ((StubSamples(of="gpu", percents=(0, 0)), StubSamples(of="memory", percents=(0, 4))), 0.02),
        ((StubSamples(of="gpu", percents=(30, 0)), StubSamples(of="encoder", percents=(0, 80))), 0.4),
        ((StubSamples(of="memory", percents=(0, 0)), StubSamples(of="decoder", percents=(0, 2))), 0.01),
        ((StubSamples(of="gpu", percents=()), StubSamples(of="memory", percents=(3,))), 0.03),
        ((StubSamples(of="encoder", percents=(80,)),), 0.8),
        ((StubSamples(of="encoder", percents=(1,)),), 0.5),
        ((StubSamples(of="gpu", percents=()), StubSamples(of="memory", percents=())), 0.5),
        ((StubSamples(of="gpu", percents=(9,), value_type=0),), 0.5),
        ((), 0.5),
    ],
)
def test_the_busiest_type_of_samples(world: NvmlWorld, samples: tuple[StubSamples, ...], ratio: float) -> None:
    """The largest mean counts; only without a sample of the card or its memory is its current rate asked for."""
    found = utilization(world, card("a", utilization=50, samples=samples), sampled_s=1000)
    assert found["a"].ratio == pytest.approx(ratio)
    assert world.calls(RATES) == (1 if ratio in {0.5, 0.8} else 0)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, NO_FUNCTION, UNKNOWN])
def test_a_driver_without_samples_says_the_current_rate(world: NvmlWorld, code: int) -> None:
    """What a driver refuses to say of the last ten seconds is no reason to know nothing."""
    found = utilization(world, card("a", utilization=50), returns=(StubReturn(call=SAMPLES, code=code),))
    assert found["a"] == CardUtilization(gpu="GPU-a", ratio=0.5, by_pid={})


@pytest.mark.parametrize(
    ("gpu", "ratio"),
    [
        (card("a", utilization=0, samples=(StubSamples(percents=(101, 0)),)), None),
        (card("a", utilization=0, samples=(StubSamples(percents=(2_000_000_000,)),)), None),
        (card("a", utilization=0, samples=(StubSamples(percents=(101, 30, 50)),)), 0.4),
        (card("a", utilization=101, samples=()), None),
    ],
)
def test_an_impossible_number_of_a_card_makes_no_zero(world: NvmlWorld, gpu: StubGpu, ratio: float | None) -> None:
    """It is left out of the mean; where that is 0 without it, the card may have computed."""
    found = utilization(world, gpu)["a"]
    assert (found.ratio, found.by_pid) == (None if ratio is None else pytest.approx(ratio), {})


def test_more_samples_than_room(world: NvmlWorld) -> None:
    """The driver gives as many as fit, the oldest first; the newest are what counts."""
    found = utilization(world, card("a", utilization=0, samples=gpu_samples(*(0,) * 900, 60)))
    assert found["a"].ratio == pytest.approx(0.01)


@pytest.mark.parametrize("utilization_now", [0, 90])
def test_a_clock_that_was_set_back_hides_nothing_for_long(world: NvmlWorld, utilization_now: int) -> None:
    """No sample is newer then: what a card computed is seen at once, and of its processes from the next reading on."""
    shown = card("a", ghost(1, utilization=35), utilization=utilization_now, samples=gpu_samples(60, 60))
    for sampled_s, expected in ((5000, {1: 0.35}), (1000, {}), (1001, {1: 0.35})):
        found = utilization(world, shown, sampled_s=sampled_s)["a"]
        assert (found.ratio, shares(found)) == (0.6, expected)


def test_a_clock_that_was_set_back_while_nothing_ran(world: NvmlWorld) -> None:
    """The driver may keep no sample to tell it by: the same holds once there is one."""
    utilization(world, card("a", ghost(1, utilization=35), utilization=90), sampled_s=5000)
    idle = card("a", utilization=0, samples=gpu_samples())
    assert utilization(world, idle, sampled_s=1000)["a"] == CardUtilization(gpu="GPU-a", ratio=0.0, by_pid={})
    busy = card("a", ghost(1, utilization=35), utilization=0, samples=gpu_samples(60))
    for sampled_s, expected in ((1010, {}), (1020, {1: 0.35})):
        found = utilization(world, busy, sampled_s=sampled_s)["a"]
        assert (found.ratio, shares(found)) == (0.6, expected)


def test_an_idle_process_is_not_said_to_be_busy_again(world: NvmlWorld) -> None:
    """A sample that the driver still keeps, and that was read before, says nothing of the time since."""
    shown = card("a", ghost(1, utilization=35), utilization=90)
    assert shares(utilization(world, shown, sampled_s=1000)["a"]) == {1: 0.35}
    assert shares(utilization(world, shown, sampled_s=1000)["a"]) == {}


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
