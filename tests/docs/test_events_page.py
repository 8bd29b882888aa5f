"""docs/events.md shows the very notes that the code writes, and names every reason, action and annotation."""

import re
import textwrap
from pathlib import Path
from typing import Final

import pytest

from tests.export.occurrences import misdeclaring, occurrences, told
from watchdog.kube.event_objects import SERIES_GAP_S
from watchdog.kube.events import (
    KEPT_S,
    MOST_FAILURES,
    MOST_WAITING,
    OBJECT_BURST,
    OBJECT_PER_S,
    REQUEST_BURST,
    REQUEST_PER_S,
)
from watchdog.report import events as tiding_form

TEXT: Final = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
REASONS: Final = frozenset(tiding_form.ACTIONS)


def section(title: str) -> str:
    """The text below a heading."""
    return re.split(r"^#+ ", TEXT.partition(f"# {title}\n")[2], flags=re.MULTILINE)[0]


def example(title: str) -> str:
    """The example of a section, in one line."""
    block = "\n".join(line for line in section(title).splitlines() if line.startswith("    "))
    return " ".join(textwrap.dedent(block).split())


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_each_reason_has_the_note_that_is_written(reason: str) -> None:
    """Each reason is there with the note that a pod gets, to the letter, and the action that machines read."""
    pod_event = occurrences()[reason]
    assert example(reason) == pod_event.note
    assert section(reason).strip().startswith(f"`{pod_event.action}`. ")


def test_the_page_has_each_reason_and_no_other() -> None:
    """A reason that is added has its section in the same commit."""
    assert set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) == REASONS


def test_observe_mode_is_shown() -> None:
    """The page shows what `[events] observe` writes."""
    assert example("In observe mode") == occurrences()["observed"].note


def test_every_annotation_is_documented() -> None:
    """What machines read is a table on the page, and nothing else is written."""
    written = {
        key.partition("/")[2] for each in (*occurrences().values(), *told(misdeclaring())) for key in each.annotations
    }
    names = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", section("For machines"), re.MULTILINE)
    assert {name.strip("`") for row in names for name in row.split(", ")} == written


def test_the_limits_are_those_of_the_code() -> None:
    """The numbers on the page are those that hold."""
    limits = section("Limits")
    for words in (
        f"{OBJECT_BURST} Events of a pod and type, then one in {1 / OBJECT_PER_S / 60:.0f} minutes",
        f"{REQUEST_BURST} requests at once, {REQUEST_PER_S:.0f} a second",
        f"{MOST_WAITING} Events waiting; an hour for each, and {MOST_FAILURES} tries",
    ):
        assert words in limits
    assert KEPT_S == 3600
    assert f"within {SERIES_GAP_S / 60:.0f} minutes" in section("Two Events, not one")
