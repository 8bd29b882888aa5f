"""What the NVML driver reads of cards, and with how many calls."""

from dataclasses import replace

import pynvml
import pytest

from tests.node.drivers.nvml_world import PID, NvmlWorld, card, ghost, mig_card, row, uses
from tests.stub import GIB, LISTS, MIB, StubDelay, StubProcess, StubReturn
from watchdog import clock
from watchdog.core.model import GapReason, Gpu

COMPUTE, GRAPHICS, MPS = LISTS


def test_a_node_is_read_as_it_is(world: NvmlWorld) -> None:
    """Cards, their memory with what is reserved, and who uses it: the numbers that everything else is based on."""
    reading = world.read(card("a", ghost(1, 3 * GIB), ghost(2, 2 * GIB), base=100 * MIB), card("b"), driver="560.35.03")
    assert (reading.driver, reading.blind, reading.gaps, reading.unseen) == ("560.35.03", False, (), frozenset())
    first, second = reading.gpus
    idle = Gpu(uuid="GPU-b", index=1, name="NVIDIA Stub", total=40 * GIB, reserved=512 * MIB, used=512 * MIB)
    assert (first, second) == (replace(idle, uuid="GPU-a", index=0, used=5 * GIB + 612 * MIB), idle)
    assert (uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ({1: 3 * GIB, 2: 2 * GIB}, {})


def test_a_node_without_gpus_is_not_blind(world: NvmlWorld) -> None:
    """A driver that answers "no GPU" has answered: nothing is unknown."""
    reading = world.read()
    assert (reading.gpus, reading.gaps, reading.blind) == ((), (), False)


def test_several_lists_are_united_by_their_maximum(world: NvmlWorld) -> None:
    """Point 9: a process has its total in each list: adding counts it double, one list alone lets some through.

    An amount that is not available (2^64-1) is unknown, not 0; a process may use the whole card; and a card that uses
    less than its processes together is shown as it is.
    """
    reading = world.read(
        card(
            "a",
            ghost(1, 3 * GIB, lists=("compute", "graphics", "mps")),
            ghost(2, 1 * GIB, lists=("compute",)),
            ghost(2, 4 * GIB, lists=("graphics",)),
            ghost(3, 2 * GIB, lists=("graphics",)),
            ghost(4, 40 * GIB, lists=("mps",)),
            ghost(5, None, lists=("compute",)),
            ghost(5, 6 * GIB, lists=("mps",)),
            ghost(6, None, lists=("compute", "graphics")),
            ghost(7, 0, lists=("compute",)),
            ghost(7, None, lists=("graphics",)),
            used=GIB,
        )
    )
    assert uses(reading, "GPU-a") == {1: 3 * GIB, 2: 4 * GIB, 3: 2 * GIB, 4: 40 * GIB, 5: 6 * GIB, 6: None, 7: 0}
    assert (row(reading, "GPU-a").listed, row(reading, "GPU-a").used) == (True, GIB)


def test_who_is_an_mps_client(world: NvmlWorld) -> None:
    """Point 36: the driver's list of MPS clients is kept, of the last good listing where there is none now."""
    cards = (
        card("a", ghost(1), ghost(2, lists=("compute", "mps")), ghost(3, lists=("mps",))),
        mig_card("m", ghost(4, gi=1, ci=0), ghost(5, gi=2, ci=0, lists=("mps",))),
    )

    def clients(code: int | None = None) -> dict[int, bool | None]:
        returns = () if code is None else (StubReturn(call=MPS, code=code, gpu="GPU-a"),)
        return {use.pid - PID: use.client for use in world.read(*cards, returns=returns).uses}

    elsewhere = {4: False, 5: True}
    world.driver(layout_every_s=3600.0)
    assert clients() == {1: False, 2: True, 3: True, **elsewhere}
    assert clients(pynvml.NVML_ERROR_UNKNOWN) == {1: None, 2: True, 3: True, **elsewhere}
    world.driver()
    assert clients(pynvml.NVML_ERROR_NOT_SUPPORTED) == {1: None, 2: None, **elsewhere}


def test_memory_that_no_process_holds_is_seen_to_move(world: NvmlWorld) -> None:
    """Equal process lists do not make an equal reading."""
    world.driver(layout_every_s=3600.0)
    readings = [world.read(card("a", ghost(1), base=base)) for base in (0, MIB)]
    assert [row(each, "GPU-a").used for each in readings] == [GIB + 512 * MIB, GIB + 513 * MIB]


def test_a_unified_chip_has_no_memory_counter_and_that_is_no_gap(world: NvmlWorld) -> None:
    """GB10 and its like: the size is unknown, the processes are known."""
    for _ in range(2):
        reading = world.read(card("a", ghost(1, 300 * GIB), unified=True))
        shown = row(reading, "GPU-a")
        assert (shown.total, shown.used, shown.reserved, shown.up, shown.listed) == (None, None, None, True, True)
        assert (uses(reading, "GPU-a"), reading.gaps) == ({1: 300 * GIB}, ())


def test_a_counter_that_was_there_and_is_gone_is_a_gap(world: NvmlWorld) -> None:
    """A card that gave its memory before and now has no counter has failed; that is no property of it."""
    world.read(card("a"))
    reading = world.read(card("a", unified=True))
    assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.MEMORY, "GPU-a")]
    assert (row(reading, "GPU-a").total, row(reading, "GPU-a").used) == (40 * GIB, None)


@pytest.mark.parametrize(
    "wrong",
    [ghost(-PID), ghost(2**22 - PID + 1), ghost(2**32 - 1 - PID), ghost(1, 41 * GIB), ghost(1, 2**63)],
    ids=["pid 0", "pid above 2^22", "pid 4294967295", "more than the card", "2^63 bytes"],
)
def test_a_list_that_contradicts_itself_is_rejected_whole(world: NvmlWorld, wrong: StubProcess) -> None:
    """Law 3: unknown input never leads to enforcement. One impossible entry spoils its whole list."""
    world.read(card("a", ghost(1, GIB), ghost(2, GIB)), card("b", ghost(9, GIB)))
    reading = world.read(card("a", ghost(3, 2 * GIB), wrong), card("b", ghost(9, 2 * GIB)))
    (gap,) = reading.gaps
    assert (gap.reason, gap.gpu, gap.what) == (GapReason.CONTRADICTION, "GPU-a", "GPU-a processes")
    assert (uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ({1: None, 2: None}, {9: 2 * GIB})
    assert (row(reading, "GPU-a").listed, row(reading, "GPU-a").up) == (False, True)
    assert reading.unseen == frozenset()


def test_a_size_query_that_answers_success_hides_nobody(world: NvmlWorld) -> None:
    """SUCCESS on a size query is "no processes" to pynvml: the reading does not ask for a size."""
    assert uses(world.read(card("a", ghost(1)), size_query_succeeds=True), "GPU-a") == {1: GIB}


def test_a_list_that_grows_between_two_calls_is_read_in_the_end(world: NvmlWorld) -> None:
    """More new processes than the buffer has room for raise in pynvml; here the list is asked for again."""
    driver = world.driver()
    world.forget_calls()
    reading = world.read(card("a", ghost(1)), grow_by=200, grow_calls=3)
    assert len(reading.uses) == 1  # it has grown by nothing so far
    reading = driver.read()
    assert (reading.gaps, len(reading.uses) >= 200, world.calls(COMPUTE)) == ((), True, 3)


def test_a_list_that_never_fits_is_a_gap_after_a_bounded_number_of_calls(world: NvmlWorld) -> None:
    """Every loop is bounded, that of a list which is always too long for its buffer too."""
    reading = world.read(card("a"), returns=(StubReturn(call=COMPUTE, code=pynvml.NVML_ERROR_INSUFFICIENT_SIZE),))
    assert [gap.reason for gap in reading.gaps] == [GapReason.PROCESSES]
    assert world.calls(COMPUTE) <= 10


def test_a_thousand_processes_are_read(world: NvmlWorld) -> None:
    """The buffer grows to what a full card needs, and is kept: the next reading is one call again."""
    full = card("a", *(ghost(number, number) for number in range(1, 1001)))
    for calls in (2, 1):
        world.forget_calls()
        assert uses(world.read(full), "GPU-a") == {number: number for number in range(1, 1001)}
        assert world.calls(COMPUTE) == calls


def test_a_steady_reading_makes_no_call_too_many(world: NvmlWorld) -> None:
    """Each list holds the driver's lock for milliseconds: one call a list, one counter a card, and nothing else."""
    driver = world.driver(layout_every_s=3600.0)
    world.read(card("a", ghost(1)), card("b"), mig_card("c", ghost(2, gi=1, ci=0)))
    world.forget_calls()
    reading = driver.read()
    assert (len(reading.gpus), reading.gaps) == (4, ())
    assert [world.calls(name) for name in LISTS] == [3, 3, 3]
    assert world.calls("nvmlDeviceGetMemoryInfo_v2") == 4
    assert world.calls() == 13


def test_a_list_that_a_card_does_not_have_is_asked_for_once(world: NvmlWorld) -> None:
    """To have no graphics or MPS list is a property of a card; asking each second would cost the lock each second."""
    returns = tuple(
        StubReturn(call=name, code=pynvml.NVML_ERROR_NOT_SUPPORTED, gpu="GPU-a") for name in (GRAPHICS, MPS)
    )
    world.show(card("a", ghost(1)), card("b", ghost(2)), returns=returns)
    driver = world.driver(layout_every_s=3600.0)
    assert driver.read().gaps == ()
    world.forget_calls()
    reading = driver.read()
    assert (reading.gaps, uses(reading, "GPU-a"), uses(reading, "GPU-b")) == ((), {1: GIB}, {2: GIB})
    assert [world.calls(name) for name in LISTS] == [2, 1, 1]


def test_a_list_that_has_answered_cannot_become_unsupported(world: NvmlWorld) -> None:
    """A graphics client must not vanish behind a sudden "not supported"."""
    world.read(card("a", ghost(1, lists=("graphics",))))
    reading = world.read(card("a"), returns=(StubReturn(call=GRAPHICS, code=pynvml.NVML_ERROR_NOT_SUPPORTED),))
    assert (uses(reading, "GPU-a"), row(reading, "GPU-a").listed) == ({1: None}, False)
    assert [gap.reason for gap in reading.gaps] == [GapReason.PROCESSES]


def test_a_new_error_brings_the_enumeration_forward(world: NvmlWorld) -> None:
    """A card in trouble is looked up again at once, and then only at the slow beat again."""
    driver = world.driver(layout_every_s=3600.0)
    world.read(card("a"))
    world.read(card("a"), returns=(StubReturn(call=COMPUTE, code=10),))
    world.forget_calls()
    for _ in range(3):
        driver.read()
    assert world.calls("nvmlDeviceGetCount_v2") == 1


def test_a_reading_of_some_rows_is_fresh_and_leaves_the_others_alone(world: NvmlWorld) -> None:
    """Point 22: before an action the victim's use is read again; nothing remembered stands in for it."""
    world.read(card("a", ghost(1)), card("b", ghost(2)))
    world.forget_calls()
    reading = world.read(
        card("a", ghost(1, 5 * GIB), ghost(3, GIB)), card("b", ghost(2, 5 * GIB)), only=frozenset({"GPU-a"})
    )
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-a"]
    assert uses(reading, "GPU-a") == {1: 5 * GIB, 3: GIB}
    assert [world.calls(name) for name in LISTS] == [1, 1, 1]
    assert world.calls() == 4


def test_a_last_look_that_fails_is_no_blindness(world: NvmlWorld) -> None:
    """One card that fails the last look proves nothing about NVML as a whole; its row is unlisted, so spared."""
    world.read(card("a", ghost(1)), card("b", ghost(2)))
    failing = (StubReturn(call="*", code=1, gpu="GPU-a"),)
    reading = world.read(card("a", ghost(1)), card("b", ghost(2)), returns=failing, only=frozenset({"GPU-a"}))
    assert (reading.blind, row(reading, "GPU-a").listed, uses(reading, "GPU-a")) == (False, False, {1: None})


def test_a_last_look_after_an_error_has_a_new_handle(world: NvmlWorld) -> None:
    """The last look enumerates nothing, and still does not go on with a handle that failed."""
    node, both = (card("a", ghost(1)), mig_card("m", ghost(2, gi=1, ci=0))), frozenset({"GPU-a", "MIG-m1"})
    world.driver(layout_every_s=3600.0)
    world.read(*node)
    assert world.read(*node, handle_epoch=1, only=both).gaps
    reading = world.read(*node, handle_epoch=1, only=both)
    assert (reading.gaps, uses(reading, "GPU-a"), uses(reading, "MIG-m1")) == ((), {1: GIB}, {2: GIB})
    assert row(reading, "MIG-m1").used == GIB


def test_a_last_look_at_a_row_that_is_not_there_is_a_gap(world: NvmlWorld) -> None:
    """A last look that finds nothing must not read as "uses nothing"."""
    world.read(card("a", ghost(1)))
    reading = world.read(card("a", ghost(1)), only=frozenset({"GPU-x"}))
    assert (reading.gpus, [gap.gpu for gap in reading.gaps]) == ((), ["GPU-x"])


def test_a_reading_has_when_its_lists_were_requested(world: NvmlWorld) -> None:
    """Right before them, and not when the reading began: what comes first can take long."""
    counter = StubDelay(call="nvmlDeviceGetMemoryInfo_v2", ms=300.0, gpu="GPU-b")
    world.show(card("a", ghost(1)), card("b", ghost(2)), delays=(counter, StubDelay(call=LISTS[0], ms=300.0)))
    began_s = clock.now().boottime_s
    reading = world.driver().read()
    first_s, second_s = (reading.listed_s[uuid] - began_s for uuid in ("GPU-a", "GPU-b"))
    assert first_s >= 0
    assert second_s >= first_s + 0.6
    assert clock.now().boottime_s - began_s >= second_s + 0.3
