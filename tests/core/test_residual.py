"""The residual of a card: when it is much, for how long, and where it is not known."""

from typing import Any

import pytest

from tests.worlds import Gi, gpu, pod, process, snapshot, use
from watchdog.core.attribute import attribute
from watchdog.core.model import Gpu, Snapshot
from watchdog.core.residual import LargeResiduals

CARD = gpu(0, 80 * Gi, used=71 * Gi, reserved=Gi)  # its processes use 10Gi
INSTANCE: dict[str, Any] = {"parent": "GPU-9", "gi": 1, "total": 80 * Gi, "used": 71 * Gi, "reserved": Gi}


def seen(second: float, *cards: Gpu, used: int | None = 10 * Gi, **more: Any) -> Snapshot:
    """A reading of these cards; a process of pod a uses the first."""
    return snapshot([use(1, used)], [process(1)], cards, second, **more)


def gaps(*readings: Snapshot) -> list[tuple[str | None, str]]:
    """The gaps after these readings: of which card, and the cause."""
    known = LargeResiduals()
    for reading in readings:
        known = known.after(reading, attribute(reading, [pod("a")]))
    return [(gap.gpu, gap.problem.cause) for gap in known.gaps(readings[-1].at)]


def test_a_large_residual_that_lasts_is_a_gap_with_its_amount() -> None:
    """Point 10: 60Gi that no process uses are no account's; for a moment they can be those of a process that ends."""
    assert gaps(seen(0, CARD), seen(59, CARD)) == []
    ((card, cause),) = gaps(seen(0, CARD), seen(60, CARD))
    assert (card, cause.startswith("60Gi are in use by no listed process")) == ("GPU-0", True)
    assert gaps(seen(0, CARD), seen(30, gpu(0, used=11 * Gi, reserved=Gi)), seen(60, CARD)) == []
    assert gaps(seen(0, CARD), seen(30, CARD, used=None), seen(60, CARD)) != [], "an unknown amount ends nothing"


@pytest.mark.parametrize(
    "reading",
    [
        {"cards": (gpu(0, used=19 * Gi, reserved=Gi),)},
        {"cards": (gpu(0, used=71 * Gi, reserved=None),)},
        {"cards": (gpu(0, used=None, reserved=Gi),)},
        {"cards": (gpu(0, used=71 * Gi, reserved=Gi, listed=False),)},
        {"cards": (CARD,), "unseen": frozenset({"GPU-0"})},
        {"cards": (CARD,), "used": None},
        {"cards": (CARD,), "used": 62 * Gi},
        {"cards": (gpu(0, ci=0, **INSTANCE), gpu(1, ci=1, **INSTANCE)), "used": 62 * Gi},
    ],
    ids=[
        *("a tenth", "the driver does not tell what is reserved", "nor what is used", "its processes are not listed"),
        *("a vGPU whose processes are not listed", "an unknown amount", "an MPS server or many contexts use it"),
        "two compute instances of one memory",
    ],
)
def test_an_ordinary_card_has_no_gap(reading: dict[str, Any]) -> None:
    """Point 10: what is not known is no residual, and what processes are listed with is none either."""
    given = dict(reading)
    cards = given.pop("cards")
    assert gaps(*(seen(second, *cards, **given) for second in (0, 30, 60, 90))) == []
