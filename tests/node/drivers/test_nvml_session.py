"""A driver that goes away as a whole, and comes back."""

import pynvml
import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, mig_card, row, uses
from tests.stub import GIB, LISTS, StubReturn
from watchdog.core.model import GapReason

NOT_LOADED = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
NODE = (card("a", ghost(1)), mig_card("m", ghost(2, GIB, gi=1, ci=0)))


def all_fail(code: int) -> tuple[StubReturn, ...]:
    return (StubReturn(call="*", code=code),)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, "retried"),
        (NOT_LOADED, "load the NVIDIA kernel module"),
        (MISMATCH, "restart the watchdog"),
        (UNKNOWN, "recreate the pod"),
    ],
)
def test_a_driver_that_goes_away_leaves_what_was_known_without_numbers(
    world: NvmlWorld, code: int, remedy: str
) -> None:
    """Law 3: unknown input never leads to enforcement. Rows stay, down and unlisted, and come back as they were."""
    driver = world.driver()
    healthy = world.read(*NODE)
    world.show(*NODE, returns=all_fail(code))
    for _ in range(2):
        reading = driver.read()
        assert reading.blind
        assert [gpu.uuid for gpu in reading.gpus] == [gpu.uuid for gpu in healthy.gpus]
        assert not any(gpu.up or gpu.listed for gpu in reading.gpus)
        assert (row(reading, "GPU-a").total, row(reading, "GPU-a").used) == (40 * GIB, None)
        assert (uses(reading, "GPU-a"), uses(reading, "MIG-m1")) == ({1: None}, {2: None})
        assert (reading.gaps[0].reason, reading.gaps[0].what) == (GapReason.DRIVER_UNAVAILABLE, "NVML")
        assert remedy in str(reading.gaps[0].problem)
        assert reading.parents == healthy.parents
    world.show(*NODE, handle_epoch=7)  # handles of the old session are void
    for _ in range(3):
        reading = driver.read()
    assert reading == healthy


def test_cards_that_all_say_that_nvml_is_gone_are_blindness(world: NvmlWorld) -> None:
    """A driver that counts its cards and then knows none of them has not answered."""
    reading = world.read(*NODE, returns=(StubReturn(call="nvmlDeviceGetHandleByIndex_v2", code=NOT_LOADED),))
    assert (reading.blind, [gap.reason for gap in reading.gaps]) == (True, [GapReason.DRIVER_UNAVAILABLE])


def test_a_row_that_was_never_listed_is_unseen_while_nvml_is_gone(world: NvmlWorld) -> None:
    """What was not known before does not become known by the driver's absence."""
    failing = (StubReturn(call=LISTS[0], code=UNKNOWN, gpu="GPU-a"),)
    assert set(world.read(*NODE, returns=failing).unseen) == {"GPU-a"}
    assert set(world.read(*NODE, returns=all_fail(NOT_LOADED)).unseen) == {"GPU-a"}


def test_a_driver_that_comes_back_in_another_version_needs_a_new_process(world: NvmlWorld) -> None:
    """The old library stays mapped after nvmlShutdown: no reading of this process can succeed again."""
    driver = world.driver()
    world.read(*NODE)
    for code, times in ((NOT_LOADED, 20), (MISMATCH, 2)):  # it is being exchanged
        for _ in range(times):
            world.read(*NODE, returns=all_fail(code))
        assert not driver.needs_new_process
    reading = driver.read()
    reason = driver.needs_new_process or ""
    assert "another version" in reason
    assert reason in str(reading.gaps[0].problem)
    world.read(*NODE)
    assert not driver.needs_new_process


def test_devices_that_were_taken_away_need_a_new_process(world: NvmlWorld) -> None:
    """`systemctl daemon-reload` can take the devices from a running container: only a new one gets them back."""
    driver = world.driver()
    world.read(*NODE)
    for times in range(1, 11):
        world.read(*NODE, returns=all_fail(UNKNOWN))
        assert ("have been removed" in (driver.needs_new_process or "")) is (times == 10)


def test_a_node_that_never_answered_needs_no_new_process(world: NvmlWorld) -> None:
    """A process that starts without devices would only start again and again."""
    driver = world.driver()
    for _ in range(20):
        world.read(*NODE, returns=all_fail(UNKNOWN))
    assert driver.needs_new_process is None


def test_lists_that_a_card_lacked_are_asked_for_again_in_a_new_session(world: NvmlWorld) -> None:
    """A newer driver may have the list that the old one had not."""
    lacking = (StubReturn(call=LISTS[2], code=pynvml.NVML_ERROR_NOT_SUPPORTED),)
    node = card("a", ghost(1), ghost(5, lists=("mps",)))
    assert uses(world.read(node, returns=lacking), "GPU-a") == {1: GIB}
    world.read(node, returns=all_fail(NOT_LOADED))
    assert uses(world.read(node), "GPU-a") == {1: GIB, 5: GIB}
    world.read(node, returns=all_fail(NOT_LOADED))
    reading = world.read(node, returns=lacking)
    assert (reading.gaps, uses(reading, "GPU-a")) == ((), {1: GIB})


def test_a_silent_driver_is_not_initialised_with_every_reading(world: NvmlWorld) -> None:
    """To open NVML touches every card: in vain, each second, it would be a load on the node."""
    world.read(card("a"))
    calls = ("nvmlDeviceGetMemoryInfo_v2", LISTS[0])
    timeouts = tuple(StubReturn(call=call, code=pynvml.NVML_ERROR_TIMEOUT) for call in calls)
    world.forget_calls()
    readings = [world.read(card("a"), returns=timeouts) for _ in range(10)]
    assert all(reading.blind for reading in readings)
    assert 1 <= world.calls("nvmlInitWithFlags") <= 2
    assert {gap.what for gap in readings[0].gaps} == {"NVML", "GPU-a memory", "GPU-a processes"}


def test_the_count_may_fail_while_known_cards_answer(world: NvmlWorld) -> None:
    """Cards are addressed by UUID, so those that are known are read on; the gap says what failed."""
    healthy = world.read(*NODE)
    reading = world.read(*NODE, returns=(StubReturn(call="nvmlDeviceGetCount_v2", code=pynvml.NVML_ERROR_TIMEOUT),))
    assert (reading.blind, reading.uses, reading.gpus) == (False, healthy.uses, healthy.gpus)
    assert [gap.what for gap in reading.gaps] == ["GPU count"]


def test_a_node_whose_only_card_is_lost_is_not_blind(world: NvmlWorld) -> None:
    """NVML answers: it says that the card is lost."""
    world.read(card("a", ghost(1)))
    reading = world.read(
        card("a", ghost(1)), returns=(StubReturn(call="*", code=pynvml.NVML_ERROR_GPU_IS_LOST, gpu="GPU-a"),)
    )
    assert (reading.blind, row(reading, "GPU-a").up) == (False, False)
    assert {gap.reason for gap in reading.gaps} == {GapReason.GPU_LOST}
