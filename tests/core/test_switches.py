"""What the Node object can request of the daemon; nothing there ever increases enforcement."""

import pytest

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node
from watchdog.core.rules import MIG_STATE, MODE, REASON, RELEASE, UPGRADE_STATE, Switches, switches

GAP = Gap(reason=GapReason.NODE, what="node file n.json", problem=Problem("no such file"))


@pytest.mark.parametrize(
    ("value", "observes", "ignored"),
    [
        (None, False, None),
        ("observe", True, None),
        (" Observe\n", True, None),
        *((value, False, value) for value in ("enforce", "observed", "", "off")),
    ],
)
def test_the_mode_can_only_be_lowered(value: str | None, observes: bool, ignored: str | None) -> None:
    """Point 33: `observe` turns enforcement off; any other value only causes a warning."""
    node = Node(name="n1", annotations={} if value is None else {MODE: value})
    assert switches(node, ()) == Switches(observes=observes, ignored=ignored)


def test_the_reason_counts_only_beside_the_mode() -> None:
    """`gpu-memory-watchdog/reason` is why enforcement is stopped here, so alone it says and does nothing."""
    reason = {REASON: "driver upgrade"}
    assert switches(Node(name="n1", annotations={MODE: "observe", **reason}), ()).why == "driver upgrade"
    assert switches(Node(name="n1", annotations=reason), ()) == Switches()
    assert switches(Node(name="n1", annotations={MODE: "enforce", **reason}), ()) == Switches(ignored="enforce")


@pytest.mark.parametrize(
    ("label", "value", "lasts"),
    [
        *((MIG_STATE, value, True) for value in ("pending", "rebooting")),
        *((MIG_STATE, value, False) for value in ("success", "failed", "", "Pending", "unknown")),
        *((UPGRADE_STATE, f"{value}-required", True) for value in ["cordon", "wait-for-jobs", "pod-deletion", "drain"]),
        *(
            (UPGRADE_STATE, f"{value}-required", True)
            for value in ["pod-restart", "node-maintenance", "post-maintenance"]
        ),
        *((UPGRADE_STATE, f"{value}-required", False) for value in ("upgrade", "validation", "uncordon")),
        *((UPGRADE_STATE, value, False) for value in ("", "upgrade-done", "upgrade-failed", "some-later-state")),
    ],
)
def test_the_labels_of_operators(label: str, value: str, lasts: bool) -> None:
    """Point 34: only these states of NVIDIA's operators request the release of the driver."""
    found = switches(Node(name="n1", labels={label: value}), ()).maintenance
    assert found == (f"the node's label {label} is {value}" if lasts else None)


@pytest.mark.parametrize(
    ("value", "lasts"), [("", True), ("true", True), ("x", True), ("false", False), ("False ", False)]
)
def test_the_driver_can_be_asked_for_by_hand(value: str, lasts: bool) -> None:
    """Point 34: the annotation counts by its presence, unless it is "false"."""
    found = switches(Node(name="n1", annotations={RELEASE: value}), ()).maintenance
    name = "annotation gpu-memory-watchdog/release-driver"
    assert found == (
        (f"the node's {name} is {value!r}" if value else f"the node carries the {name}") if lasts else None
    )


def test_a_node_that_could_not_be_read_may_say_stop() -> None:
    """A node without a source sets no switch; one that was read keeps its switches, whatever happens to its source."""
    assert switches(Node(name="n1", known=False), ()) == Switches()
    assert switches(Node(name="n1", known=False), (GAP,)) == Switches(unseen=True)
    assert switches(Node(name="n1", annotations={MODE: "observe"}), (GAP,)) == Switches(observes=True)
    swapped = Node(name="n1", labels={MODE: "observe", RELEASE: ""}, annotations={MIG_STATE: "pending"})
    assert switches(swapped, ()) == Switches()
