"""How many cards a node has: what the driver lists, beside the labels and the capacity of the Node object."""

from typing import Final

import pytest

from tests.worlds import gpu, snapshot
from watchdog.core.amount import CardCount, Cards
from watchdog.core.model import Gpu, Node

COUNT, REPLICAS = "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
HAMI: Final = {"hami.io/node-nvidia-register": "[]"}
TWO: Final = (gpu(0), gpu(1))
MIXED: Final = (gpu(0), gpu(1), gpu(2, name="Other"))
INSTANCES: Final = tuple(gpu(number, parent="GPU-p", gi=number, ci=0, profile="1g.10gb") for number in range(7))


def _node(count: str = "", replicas: str = "", offered: str = "", *, hami: bool = False) -> Node:
    labels = {key: value for key, value in ((COUNT, count), (REPLICAS, replicas)) if value}
    capacity = {"nvidia.com/gpu": offered} if offered else {}
    return Node(name="n1", labels=labels, capacity=capacity, annotations=HAMI if hami else {})


@pytest.mark.parametrize(
    ("cards", "node", "found"),
    [
        (TWO, _node(), ""),
        (TWO, _node("2", "1", "2"), ""),
        (TWO, _node("2", "4", "8"), ""),
        # The label counts a card that the driver does not list.
        (TWO, _node("3", "1", "3"), "missing"),
        (TWO, _node("3"), "missing"),
        (TWO, _node("3", hami=True), "missing"),
        # Label and driver agree: another plugin offers more, or the labels know of no sharing.
        (TWO, _node("2", "1", "20"), "offered"),
        (TWO, _node("2", "", "20"), "offered"),
        (TWO, _node("", "1", "20", hami=True), "offered"),
        (TWO, _node("", "", "20", hami=True), "offered"),
        # Only the capacity shows a card that is missing.
        (TWO, _node("", "1", "3"), "missing"),
        (TWO, _node("", "4", "12"), "missing"),
        (TWO, _node("1", "1", "3"), "missing"),
        # Without labels nobody can tell.
        (TWO, _node("", "", "16"), "uncertain"),
        (TWO, _node("1", "", "16"), "uncertain"),
        # A label of GPU feature discovery counts one model of several, and instances or cards where MIG is on.
        (MIXED, _node("2", "1", "3"), ""),
        (MIXED, _node("2", "1", "30"), "offered"),
        (MIXED, _node("1", "1", "30"), "offered"),
        (INSTANCES, _node("7", "1", "7"), ""),
        (INSTANCES, _node("1", "1", "1"), ""),
        (TWO, _node("2", "0", "16"), ""),
        (TWO, _node("many", "x", "2"), ""),
    ],
)
def test_what_the_node_object_shows_of_cards(cards: tuple[Gpu, ...], node: Node, found: str) -> None:
    """Point 4: capacity is no evidence of a missing card where driver and label agree; each contradiction is named."""
    count = CardCount.of(snapshot(gpus=cards), node)
    reported = {name: getattr(count, name) for name in ("missing", "uncertain", "offered")}
    assert [name for name, text in reported.items() if text] == ([found] if found else [])
    seen = Cards.of(snapshot(gpus=cards), node)
    assert (seen.hidden, seen.complete) == (found == "missing", found in ("", "offered"))
    assert bool(seen.why) is (found in ("missing", "uncertain"))
