"""What the NVML driver does when cards fail, vanish, change or come to the node."""

import pynvml
import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, row, uses
from tests.stub import GIB, LISTS, MIB, StubGpu, StubReturn
from watchdog.core.model import GapReason

COMPUTE, GRAPHICS, MPS = LISTS


def test_processes_known_before_are_carried_over_with_no_number(world: NvmlWorld) -> None:
    """Law 3: unknown input never leads to enforcement. Old bytes are not shown, old processes not forgotten."""
    driver = world.driver()
    world.read(card("a", ghost(1, 3 * GIB), ghost(2, GIB)), card("b", ghost(3)))
    broken = (StubReturn(call=COMPUTE, code=pynvml.NVML_ERROR_TIMEOUT, gpu="GPU-a"),)
    for _ in range(3):
        world.show(card("a", ghost(1, 9 * GIB)), card("b", ghost(3)), returns=broken)
        reading = driver.read()
        assert uses(reading, "GPU-a") == {1: None, 2: None}
        assert uses(reading, "GPU-b") == {3: GIB}
        assert (row(reading, "GPU-a").listed, row(reading, "GPU-a").up) == (False, True)
        assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.PROCESSES, "GPU-a")]
        assert COMPUTE in str(reading.gaps[0].problem)
        assert reading.unseen == frozenset()
    assert uses(world.read(card("a", ghost(1, 9 * GIB)), card("b", ghost(3))), "GPU-a") == {1: 9 * GIB}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_lost_gpu_is_down_and_the_others_go_on(world: NvmlWorld, code: int) -> None:
    """One lost GPU must not end the cycle for the others; it runs nothing, so it hides nothing either."""
    reading = world.read(
        card("a", ghost(1)), card("b", ghost(2)), returns=(StubReturn(call="*", code=code, gpu="GPU-a"),)
    )
    assert [(gap.reason, gap.what) for gap in reading.gaps] == [(GapReason.GPU_LOST, "GPU at index 0")]
    assert ([gpu.uuid for gpu in reading.gpus], reading.unseen) == (["GPU-b"], frozenset())
    world.read(card("a", ghost(1)), card("b", ghost(2)))
    reading = world.read(
        card("a", ghost(1)), card("b", ghost(2, 2 * GIB)), returns=(StubReturn(call="*", code=code, gpu="GPU-a"),)
    )
    assert (row(reading, "GPU-a").up, row(reading, "GPU-a").listed, row(reading, "GPU-b").up) == (False, False, True)
    assert (row(reading, "GPU-a").total, row(reading, "GPU-a").used) == (40 * GIB, None)
    assert (uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ({1: None}, {2: 2 * GIB})
    assert {(gap.reason, gap.gpu) for gap in reading.gaps} == {(GapReason.GPU_LOST, "GPU-a")}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_lost_gpu_is_not_asked_further_and_is_never_unseen(world: NvmlWorld, code: int) -> None:
    """A lost card runs nothing, and calls about it can be slow: the first such answer ends its turn."""
    lost = (StubReturn(call="nvmlDeviceGetMemoryInfo_v2", code=code, gpu="GPU-a"),)
    reading = world.read(card("a", ghost(1)), card("b", ghost(2)), returns=lost)
    assert (world.calls(COMPUTE), reading.unseen, uses(reading, "GPU-b")) == (1, frozenset(), {2: GIB})
    assert (row(reading, "GPU-a").up, row(reading, "GPU-a").listed) == (False, False)


def test_an_unknown_error_of_one_call_makes_a_gpu_down(world: NvmlWorld) -> None:
    """NVML says "unknown error" of cards that have failed as a whole; the processes known before stay known."""
    world.read(card("a", ghost(1)), card("b"))
    unknown = (StubReturn(call=COMPUTE, code=pynvml.NVML_ERROR_UNKNOWN, gpu="GPU-a"),)
    reading = world.read(card("a", ghost(1)), card("b"), returns=unknown)
    assert (row(reading, "GPU-a").up, row(reading, "GPU-b").up) == (False, True)
    assert row(reading, "GPU-a").used == GIB + 512 * MIB
    assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.GPU_ERROR, "GPU-a")]


def test_a_card_that_vanishes_before_it_was_ever_listed_hides_nobody(world: NvmlWorld) -> None:
    """Nothing runs on a card that is not there."""
    failing = world.read(card("a"), card("b"), returns=(StubReturn(call=COMPUTE, code=10, gpu="GPU-a"),))
    assert set(failing.unseen) == {"GPU-a"}
    reading = world.read(card("b"))
    assert (row(reading, "GPU-a").up, reading.unseen) == (False, frozenset())


@pytest.mark.parametrize(
    ("nameless", "returns"),
    [
        (StubGpu(uuid=""), ()),
        (card("a", ghost(1)), (StubReturn(call="nvmlDeviceGetUUID", code=999, gpu="GPU-a"),)),
        (card("a", ghost(1), null_handle=True), ()),
    ],
    ids=["empty UUID", "no UUID", "null handle"],
)
def test_a_card_that_cannot_be_identified_is_unseen(
    world: NvmlWorld, nameless: StubGpu, returns: tuple[StubReturn, ...]
) -> None:
    """It is no row, which could be mistaken for another one, and something may run on it; the others go on."""
    reading = world.read(nameless, card("b", ghost(2)), returns=returns)
    assert ([gpu.uuid for gpu in reading.gpus], set(reading.unseen)) == (["GPU-b"], {"GPU at index 0"})
    assert [(gap.reason, gap.what) for gap in reading.gaps] == [(GapReason.GPU_ERROR, "GPU at index 0")]
    assert uses(reading, "GPU-b") == {2: GIB}


def test_a_null_handle_of_a_known_card_is_never_passed_on(world: NvmlWorld) -> None:
    """A null handle has crashed other tools; the world counts them at its end."""
    world.read(card("a", ghost(1)), card("b", ghost(2)))
    reading = world.read(card("a", ghost(1), null_handle=True), card("b", ghost(2)))
    assert (uses(reading, "GPU-a"), row(reading, "GPU-a").up) == ({1: None}, False)


def test_a_stale_handle_is_replaced_after_one_failed_reading(world: NvmlWorld) -> None:
    """Handles are cached, and after an error a device gets a new one, by its UUID."""
    world.driver(layout_every_s=3600.0)
    _, stale, reading = (world.read(card("a", ghost(1)), handle_epoch=epoch) for epoch in (0, 1, 1))
    assert {gap.what for gap in stale.gaps} == {"NVML", "GPU-a memory", "GPU-a processes"}
    assert (reading.gaps, uses(reading, "GPU-a")) == ((), {1: GIB})


def test_a_vanished_card_stays_as_one_that_is_down(world: NvmlWorld) -> None:
    """A card that the driver lists no more must be seen in `gpu_up`, and comes back as the same row."""
    world.read(card("a", ghost(1)), card("b", ghost(2)))
    for _ in range(2):
        reading = world.read(card("b", ghost(2)))
        assert (row(reading, "GPU-a").up, row(reading, "GPU-b").up) == (False, True)
        assert (row(reading, "GPU-b").index, uses(reading, "GPU-a")) == (0, {1: None})
        assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.GPU_LOST, "GPU-a")]
        assert reading.unseen == frozenset()
    reading = world.read(card("a", ghost(1, 2 * GIB)), card("b", ghost(2)))
    assert (row(reading, "GPU-a").up, uses(reading, "GPU-a"), reading.gaps) == (True, {1: 2 * GIB}, ())


def test_what_is_used_on_two_cards_with_one_uuid_is_unknown(world: NvmlWorld) -> None:
    """Neither is read as the other, nor left out: who was known stays with an unknown amount, others may be there."""
    two = (card("a", ghost(1)), card("b", ghost(2)))
    four = (*two, *(card(each, ghost(3), says="GPU-a") for each in "cd"))
    world.read(*two)
    for _ in range(2):
        reading = world.read(*four)
        assert [gpu.uuid for gpu in reading.gpus] == ["GPU-a", "GPU-b"]
        assert (uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ({1: None}, {2: GIB})
        assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.CONTRADICTION, "GPU-a")]
        assert (sorted(reading.unseen), row(reading, "GPU-a").listed) == (["GPU-a"], False)
    second = world.read(*four, only=frozenset({"GPU-a"}))
    assert (uses(second, "GPU-a"), sorted(second.unseen)) == ({1: None}, ["GPU-a"])
    reading = world.read(*two)
    assert (uses(reading, "GPU-a"), reading.gaps, reading.unseen) == ({1: GIB}, (), frozenset())


def test_text_that_is_not_utf8_ends_nothing(world: NvmlWorld) -> None:
    """Garbage in a card's name costs the name."""
    world.show(card("a", ghost(1)), card("b"))
    world.path.write_bytes(world.path.read_bytes().replace(b"name=NVIDIA Stub", b"name=NVIDIA \xff\xfe", 1))
    reading = world.driver().read()
    assert (uses(reading, "GPU-a"), row(reading, "GPU-a").name) == ({1: GIB}, "")
    assert [gap.what for gap in reading.gaps] == ["GPU-a name"]


def test_no_session_stays_open_after_close(world: NvmlWorld) -> None:
    """An open NVML client holds up GPU resets; a reading after it opens a new session."""
    driver = world.driver()
    world.read(card("a", ghost(1)))
    assert world.library.nvmlStubInitialized() == 1
    driver.close()
    driver.close()
    assert world.library.nvmlStubInitialized() == 0
    assert uses(driver.read(), "GPU-a") == {1: GIB}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_a_card_that_is_lost_before_the_start_is_counted_as_missing(world: NvmlWorld, code: int) -> None:
    """Point 6: the driver counts it, so what the others have together is not all; one lost later keeps its size."""
    two = (card("a"), card("b"))
    gone = (StubReturn(call="nvmlDeviceGetHandleByIndex_v2", code=code, gpu="GPU-b"),)
    reading = world.read(*two, returns=gone)
    assert ([gpu.uuid for gpu in reading.gpus], reading.missing) == (["GPU-a"], frozenset({"GPU at index 1"}))
    world.driver()
    assert world.read(*two).missing == frozenset()
    later = world.read(*two, returns=gone)
    assert ([gpu.uuid for gpu in later.gpus], later.missing) == (["GPU-a", "GPU-b"], frozenset())
