"""What a node can advertise by a snapshot, and when a smaller amount than before is trusted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import at
from watchdog.core.capacity import Settling, advertised, offered
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, MigParent, Snapshot
from watchdog.core.policy import Capacity

GI = 2**30
CARDS = Capacity(resource="example.com/gpu-memory")
HOLD_S = 10.0


def card(number: int, **more: object) -> Gpu:
    """A card of 80Gi of which the driver reserves 1Gi, with changes."""
    return replace(
        Gpu(uuid=f"GPU-{number}", index=number, name="A100", total=80 * GI, reserved=GI, used=2 * GI),
        **more,  # type: ignore[arg-type]
    )


def instance(number: int, size: int, parent: str = "GPU-0") -> Gpu:
    """A MIG instance."""
    return Gpu(uuid=f"MIG-{number}", index=0, name="A100 MIG", parent=parent, gi=number, ci=0, total=size, reserved=0)


def seen(*gpus: Gpu, **more: object) -> Snapshot:
    """A snapshot with these rows."""
    return replace(Snapshot(at=at(0), driver="550", interface="NVML", gpus=gpus), **more)  # type: ignore[arg-type]


def gap(reason: GapReason, gpu: str | None = None) -> Gap:
    """Something that is unknown."""
    return Gap(reason=reason, what="something", problem=Problem("it failed"), gpu=gpu)


PARENT = MigParent(uuid="GPU-0", index=0, name="A100")


@pytest.mark.parametrize(
    ("capacity", "snapshot", "amount"),
    [
        (CARDS, seen(card(0), card(1)), 158 * GI),
        (replace(CARDS, reserve=GI), seen(card(0), card(1)), 156 * GI),
        (replace(CARDS, reserve=100 * GI), seen(card(0), card(1)), 0),  # never negative, card by card
        (replace(CARDS, reserve=70 * GI), seen(card(0), card(1, total=40 * GI)), 9 * GI),
        (replace(CARDS, unit=2**20), seen(card(0)), 79 * 1024),
        (replace(CARDS, unit=3 * GI), seen(card(0), card(1)), 52),  # rounded down, on the sum
        (CARDS, seen(card(0), card(1, up=False)), 79 * GI),  # lost: known
        (CARDS, seen(card(0, up=False), card(1, up=False)), 0),
        (CARDS, seen(card(0), card(1, up=False, total=None)), 79 * GI),
        (CARDS, seen(card(0), card(1, total=None)), None),  # up, and of no known size
        (CARDS, seen(card(0, reserved=None)), 80 * GI),  # an older driver does not say what it keeps
        (CARDS, seen(card(0, used=None)), 79 * GI),  # how much is used has no part in it
        (CARDS, seen(), 0),
        (CARDS, seen(card(0, up=False), blind=True), None),
        (CARDS, seen(card(0), unseen=frozenset({"GPU at index 1"})), None),  # there, and could not be named
        (CARDS, seen(card(0), unseen=frozenset({"GPU-0"})), 79 * GI),  # its processes alone are unknown
        (CARDS, seen(instance(1, 20 * GI), instance(2, 40 * GI), card(1), parents=(PARENT,)), 139 * GI),
        (replace(CARDS, reserve=GI), seen(instance(1, 20 * GI), instance(2, 40 * GI), parents=(PARENT,)), 58 * GI),
        (
            replace(CARDS, reserve=GI),  # two compute instances share the memory of their GPU instance
            seen(instance(1, 20 * GI), replace(instance(1, 20 * GI), uuid="MIG-2", ci=1), parents=(PARENT,)),
            19 * GI,
        ),
        (CARDS, seen(card(1), parents=(PARENT,)), 79 * GI),  # cut, and has no instances
        (CARDS, seen(card(1), parents=(PARENT,), gaps=(gap(GapReason.MIG, "GPU-0"),)), None),
        (CARDS, seen(instance(1, 20 * GI), parents=(PARENT,), gaps=(gap(GapReason.MIG, "GPU-0"),)), 20 * GI),
        (CARDS, seen(card(0), gaps=(gap(GapReason.PODS),)), 79 * GI),
        (replace(CARDS, amount=5 * GI, reserve=GI), seen(card(0)), 5 * GI),
        (replace(CARDS, amount=5 * GI, unit=GI), seen(card(0)), 5),
        (replace(CARDS, amount=5 * GI), seen(card(0, total=None)), 5 * GI),
        (replace(CARDS, amount=5 * GI), seen(card(0, up=False)), 0),
        (replace(CARDS, amount=5 * GI), seen(), 0),
        (replace(CARDS, amount=5 * GI), seen(card(0), blind=True), None),
    ],
)
def test_what_a_node_offers(capacity: Capacity, snapshot: Snapshot, amount: int | None) -> None:
    """Lost cards don't count, a reserve never makes it negative, and what is unknown is never guessed."""
    assert offered(capacity, snapshot) == amount


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        *((None, 0), ("0", 0), ("85899345920", 80 * GI), ("80Gi", 80 * GI), ("104857600k", 104857600000)),
        *(("5e3", 5000), ("500m", None), ("lots", None), ("", None)),
    ],
)
def test_quantities_are_compared_by_value(written: str | None, amount: int | None) -> None:
    """The API server rewrites numbers, so they are compared by value; an invalid one is None."""
    assert advertised(written) == amount


@pytest.mark.parametrize(
    ("readings", "changes"),
    [
        ([(0, 80, 0)], [80]),
        ([(0, 80, None)], [80]),  # what the node lists is no amount
        ([(0, 80, 80)], [None]),
        ([(0, None, 0)], [None]),
        ([(0, 40, 80), (9.9, 40, 80), (10, 40, 80)], [None, None, 40]),
        ([(0, 40, 80), (5, 80, 80), (10, 40, 80), (19, 40, 80)], [None] * 4),  # it came back in between
        ([(0, 40, 80), (5, None, 80), (10, 40, 80), (19, 40, 80)], [None] * 4),  # an unknown one counts nothing
        # The largest of what was seen, and then the rest.
        ([(0, 0, 80), (5, 40, 80), (10, 0, 80), (11, 0, 40), (21, 0, 40)], [None, None, 40, None, 0]),
        ([(0, 40, 80), (5, 90, 80), (6, 40, 90)], [None, 90, None]),
        ([(0, 40, 80), (10, 40, 80), (11, 40, 40), (12, 0, 40)], [None, 40, None, None]),
    ],
)
def test_a_decrease_waits_and_an_increase_does_not(
    readings: list[tuple[float, int | None, int | None]], changes: list[int | None]
) -> None:
    """A smaller amount is advertised once every reading (second, wanted, present) was smaller for a while."""
    settling = Settling()
    assert [settling.settle(wanted, present, at(second), HOLD_S) for second, wanted, present in readings] == changes


def test_another_boot_restarts_the_wait() -> None:
    """Seconds of two boots can't be compared."""
    settling, another = Settling(), [replace(at(second), boot_id="another") for second in (50, 60)]
    assert [settling.settle(40, 80, moment, HOLD_S) for moment in (at(0), *another)] == [None, None, 40]


@given(st.lists(st.tuples(st.floats(0, 5), st.none() | st.integers(0, 3)), max_size=40))
def test_what_is_advertised_was_seen_and_never_falls_on_less_than_the_hold(
    steps: list[tuple[float, int | None]],
) -> None:
    """An advertised amount was read, and a decrease follows only readings that were all below."""
    settling, second, present = Settling(), 0.0, 0
    read: list[tuple[float, int | None]] = []
    for pause, wanted in steps:
        second += pause
        read.append((second, wanted))
        change = settling.settle(wanted, present, at(second), HOLD_S)
        if change is None:
            continue
        assert change != present
        assert change in [amount for _, amount in read]
        if change < present:
            lately = [amount for moment, amount in read if moment > second - HOLD_S]
            assert all(amount is not None and amount < present for amount in lately)
        present = change
