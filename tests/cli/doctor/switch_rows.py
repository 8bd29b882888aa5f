"""A node whose object turns enforcement off or can't be read."""

from collections.abc import Mapping
from typing import Final

from tests.cli.doctor.build import GOOD, gap, spoilt
from watchdog.cli.doctor.facts import Facts
from watchdog.core.model import GapReason, Node
from watchdog.core.rules import MODE

UNREAD: Final = gap(GapReason.NODE, "node file n.json", "No such file; what was read is kept; write it", on=None)


def _node(**changes: object) -> Facts:
    return spoilt("cluster", node=Node(name="n1", **changes))  # type: ignore[arg-type]


SWITCHES: Final[Mapping[str, tuple[tuple[str, Facts], ...]]] = {
    "node_annotation": (
        ("has no annotation", GOOD),
        ("of node n1 turns enforcement off", _node(annotations={MODE: "observe"})),
        ("which has no effect", _node(annotations={MODE: "enforce"})),
        (
            "can't be read, so it is assumed to",
            spoilt("cluster", node=Node(name="n1", known=False), node_gaps=(UNREAD,)),
        ),
        ("is not watched", _node(known=False)),
    ),
}
