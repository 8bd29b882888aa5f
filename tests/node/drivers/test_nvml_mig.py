"""What the NVML driver reads of cards in MIG mode."""

from dataclasses import replace

import pynvml
import pytest

from tests.node.drivers.nvml_world import NvmlWorld, card, ghost, mig_card, row, uses
from tests.stub import GIB, LISTS, StubMig, StubReturn
from watchdog.core.model import GapReason, MigParent

COMPUTE = LISTS[0]
BY_INDEX = "nvmlDeviceGetMigDeviceHandleByIndex"
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
MONITOR = "NVIDIA_MIG_MONITOR_DEVICES=all"


def test_instances_are_rows_and_their_card_is_a_parent(world: NvmlWorld) -> None:
    """MIG indices have holes (NOT_FOUND is not the end), and each process belongs to the row of its instance."""
    reading = world.read(card("a"), mig_card("m", ghost(1, 3 * GIB, gi=1, ci=0), ghost(2, GIB, gi=2, ci=0)))
    assert reading.gaps == ()
    assert reading.parents == (MigParent(uuid="GPU-m", index=1, name="NVIDIA Stub", total=40 * GIB),)
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-a", "MIG-m1", "MIG-m2"]
    second = row(reading, "MIG-m2")
    assert (second.parent, second.index, second.gi, second.ci, second.profile) == ("GPU-m", 1, 2, 0, "1g.5gb")
    assert (second.name, second.total, second.used) == ("NVIDIA Stub MIG 1g.5gb", 5 * GIB, GIB)
    assert (uses(reading, "MIG-m1"), uses(reading, "MIG-m2")) == ({1: 3 * GIB}, {2: GIB})


def test_one_process_in_two_instances_is_counted_in_each(world: NvmlWorld) -> None:
    """Point 9: the maximum is per (PID, GPU instance, compute instance), not per PID."""
    lists = ("compute", "graphics")
    reading = world.read(
        mig_card("m", ghost(1, 3 * GIB, gi=1, ci=0, lists=lists), ghost(1, GIB, gi=2, ci=0, lists=lists))
    )
    assert (uses(reading, "MIG-m1"), uses(reading, "MIG-m2")) == ({1: 3 * GIB}, {1: GIB})


def test_compute_instances_of_one_gpu_instance_are_rows_of_their_own(world: NvmlWorld) -> None:
    """They share the memory of the GPU instance; the processes differ by the compute instance."""
    migs = tuple(
        StubMig(uuid=f"MIG-{ci}", slot=ci, gi=5, ci=ci, profile="1c.2g.10gb", total=10 * GIB) for ci in range(2)
    )
    reading = world.read(mig_card("m", ghost(1, GIB, gi=5, ci=0), ghost(2, 2 * GIB, gi=5, ci=1), migs=migs))
    assert (uses(reading, "MIG-0"), uses(reading, "MIG-1")) == ({1: GIB}, {2: 2 * GIB})
    assert [gpu.used for gpu in reading.gpus] == [3 * GIB, 3 * GIB]
    assert [gpu.profile for gpu in reading.gpus] == ["1c.2g.10gb", "1c.2g.10gb"]


@pytest.mark.parametrize(
    ("profile", "total", "expected"),
    [
        ("3g.20gb", 20 * GIB - 2**27, "3g.20gb"),
        ("1c.3g.20gb", 20 * GIB, "1c.3g.20gb"),
        ("7g.40gb", 40 * GIB, "7g.40gb"),
    ],
)
def test_the_profile_comes_from_the_attributes_where_the_name_lacks_it(
    world: NvmlWorld, profile: str, total: int, expected: str
) -> None:
    """A MIG device whose name cannot be read still has its profile."""
    mig = StubMig(uuid="MIG-1", profile=profile, total=total)
    returns = (StubReturn(call="nvmlDeviceGetName", code=pynvml.NVML_ERROR_NOT_SUPPORTED, gpu="MIG-1"),)
    world.show(mig_card("m", migs=(mig,)), returns=returns)
    assert row(world.driver().read(), "MIG-1").profile == expected


def test_the_place_of_an_instance_is_read_and_may_stay_unknown(world: NvmlWorld) -> None:
    """Point 42: claims name instances by it; a driver that does not say where one is hides nothing else of it."""
    first = StubMig(uuid="MIG-1", slot=0, gi=1, placement=(19, 4))
    other = StubMig(uuid="MIG-2", slot=1, gi=2)
    driver = world.driver()
    world.show(mig_card("m", migs=(first, other)))
    reading = driver.read()
    assert (reading.gaps, [gpu.placement for gpu in reading.gpus]) == ((), [(19, 4), None])
    # A new instance can get the ID of one that is gone.
    again = replace(first, uuid="MIG-3", placement=(14, 2))
    world.show(mig_card("m", migs=(again, other)))
    driver = world.driver()
    assert [gpu.placement for gpu in driver.read().gpus] == [(14, 2), None]


@pytest.mark.parametrize("call", ["nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"])
def test_an_instance_whose_place_is_refused_is_read_all_the_same(world: NvmlWorld, call: str) -> None:
    """Without it only instances of one profile can't be told apart, so it is no gap."""
    mig = StubMig(uuid="MIG-1", placement=(19, 4))
    world.show(
        mig_card("m", ghost(1, GIB, gi=1, ci=0), migs=(mig,)), returns=(StubReturn(call=call, code=NO_PERMISSION),)
    )
    reading = world.driver().read()
    assert (reading.gaps, row(reading, "MIG-1").placement, uses(reading, "MIG-1")) == ((), None, {1: GIB})


def test_a_process_without_a_compute_instance_is_placed_if_there_is_one_candidate(world: NvmlWorld) -> None:
    """A GPU instance with one row leaves no choice; between two there is no guess."""
    one = mig_card("m", ghost(1, GIB, gi=2))
    world.show(one)
    assert uses(world.driver().read(), "MIG-m2") == {1: GIB}
    world.show(replace(one, migs=(*one.migs, StubMig(uuid="MIG-m3", slot=4, gi=2, ci=1))))
    reading = world.driver().read()
    assert reading.uses == ()
    assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.MIG, "GPU-m")]


@pytest.mark.parametrize(("gi", "ci"), [(9, 0), (1, 3), (None, None)], ids=["instance", "compute instance", "none"])
def test_a_process_in_an_unknown_instance_is_a_gap_and_is_not_used(world: NvmlWorld, gi: int, ci: int) -> None:
    """Law 3: unknown input never leads to enforcement. Its bytes are no row's; the other processes are good."""
    world.show(mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, GIB, gi=gi, ci=ci)))
    driver = world.driver(layout_every_s=3600.0)
    for _ in range(2):
        reading = driver.read()
        assert ([use.gpu for use in reading.uses], reading.unseen) == (["MIG-m1"], frozenset({"GPU-m"}))
        assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.MIG, "GPU-m")]
        assert MONITOR in str(reading.gaps[0].problem)
    world.forget_calls()
    driver.read()
    assert world.calls(BY_INDEX) == 0  # looked up once, not with every reading


def test_a_new_instance_is_found_as_soon_as_a_process_is_in_it(world: NvmlWorld) -> None:
    """The slow beat of the enumeration must not hide a new tenant."""
    before = mig_card("m", ghost(1, GIB, gi=1, ci=0))
    world.driver(layout_every_s=3600.0)
    world.read(before)
    new = StubMig(uuid="MIG-new", slot=5, gi=7, ci=0, total=5 * GIB)
    world.forget_calls()
    reading = world.read(
        mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, 2 * GIB, gi=7, ci=0), migs=(*before.migs, new))
    )
    assert (reading.gaps, uses(reading, "MIG-new")) == ((), {2: 2 * GIB})
    assert (row(reading, "MIG-new").total, row(reading, "MIG-new").used) == (5 * GIB, 2 * GIB)
    assert world.calls(COMPUTE) == 1


def test_an_instance_that_is_destroyed_is_no_row_any_more(world: NvmlWorld) -> None:
    """Its processes are gone with it: an instance in use cannot be destroyed."""
    before = mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, GIB, gi=2, ci=0))
    world.read(before)
    reading = world.read(mig_card("m", ghost(1, GIB, gi=1, ci=0), migs=before.migs[:1]))
    assert ([gpu.uuid for gpu in reading.gpus], uses(reading, "MIG-m1")) == (["MIG-m1"], {1: GIB})
    assert reading.gaps == ()


def test_mig_ids_on_a_card_without_mig_contradict(world: NvmlWorld) -> None:
    """Instance ids on a card without instances are a sign of entries read with the wrong layout."""
    reading = world.read(card("a", ghost(1, GIB), ghost(2, GIB, gi=1, ci=0)))
    assert (reading.uses, set(reading.unseen)) == ((), {"GPU-a"})
    assert [gap.reason for gap in reading.gaps] == [GapReason.CONTRADICTION]


def test_a_card_put_into_mig_mode_is_noticed_by_its_processes(world: NvmlWorld) -> None:
    """The layout is looked at again before the ids are called a contradiction."""
    world.driver(layout_every_s=3600.0)
    world.read(card("a", ghost(1), mig_mode=False))
    reading = world.read(mig_card("a", ghost(2, GIB, gi=2, ci=0)))
    assert (reading.gaps, uses(reading, "MIG-a2")) == ((), {2: GIB})
    assert reading.parents == (MigParent(uuid="GPU-a", index=0, name="NVIDIA Stub", total=40 * GIB),)
    assert [gpu.uuid for gpu in reading.gpus] == ["MIG-a1", "MIG-a2"]


@pytest.mark.parametrize("call", [BY_INDEX, COMPUTE, "nvmlDeviceGetMemoryInfo_v2"])
def test_missing_permission_names_what_to_set(world: NvmlWorld, call: str) -> None:
    """Without the monitor capability MIG answers NO_PERMISSION: the gap names the remedy, the other cards go on."""
    reading = world.read(
        card("a", ghost(9)),
        mig_card("m", ghost(1, GIB, gi=1, ci=0)),
        returns=tuple(StubReturn(call=call, code=NO_PERMISSION, gpu=gpu) for gpu in ("GPU-m", "MIG-m1", "MIG-m2")),
    )
    assert reading.gaps
    assert all(MONITOR in str(gap.problem) for gap in reading.gaps)
    assert {gap.reason for gap in reading.gaps} == {GapReason.MEMORY if "Memory" in call else GapReason.MIG}
    assert uses(reading, "GPU-a") == {9: GIB}
    hidden = {BY_INDEX: {"GPU-m"}, COMPUTE: {"MIG-m1", "MIG-m2"}}
    assert set(reading.unseen) == hidden.get(call, set())


def test_a_card_whose_instances_and_processes_are_both_hidden_is_unseen(world: NvmlWorld) -> None:
    """A card in MIG mode has no row of its own; what runs on it is unknown all the same."""
    calls = (BY_INDEX, COMPUTE)
    reading = world.read(
        card("a"),
        mig_card("m"),
        returns=tuple(StubReturn(call=call, code=NO_PERMISSION, gpu="GPU-m") for call in calls),
    )
    assert ([gpu.uuid for gpu in reading.gpus], set(reading.unseen)) == (["GPU-a"], {"GPU-m"})


@pytest.mark.parametrize(
    "call", [BY_INDEX, "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigMode"]
)
def test_an_enumeration_that_fails_keeps_the_rows_it_had(world: NvmlWorld, call: str) -> None:
    """An instance is dropped when NVML says that it is not there, not when NVML fails to say."""
    shown = mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, GIB, gi=2, ci=0))
    world.read(shown)
    broken = tuple(StubReturn(call=call, code=pynvml.NVML_ERROR_TIMEOUT, gpu=gpu) for gpu in ("GPU-m", "MIG-m2"))
    reading = world.read(shown, returns=broken)
    assert (uses(reading, "MIG-m1"), uses(reading, "MIG-m2")) == ({1: GIB}, {2: GIB})
    assert [(gap.reason, gap.gpu) for gap in reading.gaps] == [(GapReason.MIG, "GPU-m")]
    assert call.removesuffix("_v2") in str(reading.gaps[0].problem)


def test_a_null_handle_of_an_instance_is_never_passed_on(world: NvmlWorld) -> None:
    """The world counts null handles at its end; the other instance goes on."""
    shown = mig_card("m", ghost(1, GIB, gi=1, ci=0))
    reading = world.read(replace(shown, migs=(shown.migs[0], replace(shown.migs[1], null_handle=True))))
    assert (uses(reading, "MIG-m1"), [gpu.uuid for gpu in reading.gpus]) == ({1: GIB}, ["MIG-m1"])
    assert "null handle" in str(reading.gaps[0].problem)


def test_an_instance_with_more_than_it_has_contradicts(world: NvmlWorld) -> None:
    """The size that counts is the instance's own; the parent has one list, so all of its rows are unlisted."""
    reading = world.read(mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, 6 * GIB, gi=2, ci=0)))
    assert (reading.uses, set(reading.unseen)) == ((), {"MIG-m1", "MIG-m2"})
    assert [gap.reason for gap in reading.gaps] == [GapReason.CONTRADICTION]


def test_a_reading_of_one_instance_leaves_its_neighbours_alone(world: NvmlWorld) -> None:
    """Point 22: the last look is at the victim's row."""
    world.read(mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, GIB, gi=2, ci=0)))
    world.forget_calls()
    reading = world.read(
        mig_card("m", ghost(1, GIB, gi=1, ci=0), ghost(2, 3 * GIB, gi=2, ci=0)), only=frozenset({"MIG-m2"})
    )
    assert ([gpu.uuid for gpu in reading.gpus], uses(reading, "MIG-m2")) == (["MIG-m2"], {2: 3 * GIB})
    assert (len(reading.uses), world.calls("nvmlDeviceGetMemoryInfo_v2"), world.calls(COMPUTE)) == (1, 1, 1)


def test_a_card_in_another_mode_is_asked_again_which_lists_it_has(world: NvmlWorld) -> None:
    """A list that answered before MIG mode may not be there in it, and the other way round; neither is a gap."""
    graphics = (StubReturn(call=LISTS[1], code=pynvml.NVML_ERROR_NOT_SUPPORTED),)
    world.read(card("a", ghost(1, lists=("graphics",))))
    reading = world.read(mig_card("a", ghost(2, gi=1, ci=0)), returns=graphics)
    assert (reading.gaps, uses(reading, "MIG-a1")) == ((), {2: GIB})
    assert uses(world.read(card("a", ghost(1, lists=("graphics",)))), "GPU-a") == {1: GIB}
