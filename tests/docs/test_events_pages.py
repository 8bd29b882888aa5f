"""docs/events.md and docs/tenants.md show the very notes that pods get, and each reason, action and annotation."""

import re
import textwrap
from dataclasses import replace
from typing import Final

import pytest

from tests.docs.test_docs import ROOT, TEXTS
from tests.report.build import killed, quiet
from tests.report.notes import FRACTION, by, killing, misdeclaring, occurrences, reported
from watchdog.core.model import Owner
from watchdog.core.policy import Allowance
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
from watchdog.report.events import ACTIONS

EVENTS, TENANTS = (TEXTS[ROOT / "docs" / f"{name}.md"] for name in ("events", "tenants"))
REASONS: Final = frozenset(ACTIONS)


def _section(text: str, title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^#+ ", text.partition(f"# {title}\n")[2], flags=re.MULTILINE)[0]


def _example(title: str) -> str:
    """The example of a section of docs/events.md, in one line."""
    block = "\n".join(line for line in _section(EVENTS, title).splitlines() if line.startswith("    "))
    return " ".join(textwrap.dedent(block).split())


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_each_reason_has_the_note_that_is_written(reason: str) -> None:
    """Each reason is there with the note that a pod gets, to the letter, and the action that machines read."""
    pod_event = occurrences()[reason]
    assert _example(reason) == pod_event.note
    assert _section(EVENTS, reason).strip().startswith(f"`{pod_event.action}`. ")


def test_the_page_has_each_reason_and_no_other() -> None:
    """A reason that is added has its section in the same commit."""
    assert set(re.findall(r"^### (\w+)$", EVENTS, re.MULTILINE)) == REASONS


def test_observe_mode_is_shown() -> None:
    """The page shows what `[events] observe` writes."""
    assert _example("In observe mode") == occurrences()["observed"].note


def test_every_annotation_is_documented() -> None:
    """What machines read is a table on the page, and nothing else is written."""
    written = {
        key.partition("/")[2]
        for each in (*occurrences().values(), *reported(misdeclaring()))
        for key in each.annotations
    }
    names = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", _section(EVENTS, "For machines"), re.MULTILINE)
    assert {name.strip("`") for row in names for name in row.split(", ")} == written


def test_the_limits_are_those_of_the_code() -> None:
    """The numbers on the page are those that hold."""
    limits = _section(EVENTS, "Limits")
    for words in (
        f"{OBJECT_BURST} Events of a pod and type, then one in {1 / OBJECT_PER_S / 60:.0f} minutes",
        f"{REQUEST_BURST} requests at once, {REQUEST_PER_S:.0f} a second",
        f"{MOST_WAITING} Events waiting; an hour for each, and {MOST_FAILURES} tries",
    ):
        assert words in limits
    assert KEPT_S == 3600
    assert f"within {SERIES_GAP_S / 60:.0f} minutes" in _section(EVENTS, "Two Events, not one")


def test_the_event_that_is_read_is_the_one_that_is_written() -> None:
    """The page shows the same words as a terminal."""
    block = re.findall(r"(?:^    .*\n)+", _section(TENANTS, "Read the Event"), re.MULTILINE)[0]
    shown = " ".join(textwrap.dedent(block).split())
    plan, of = killing(), Owner(kind="StatefulSet", name="notebook")
    notebook = replace(plan.assessment.pod, namespace="team-a", name="notebook-0", owner=of)
    of_notebook = replace(plan, assessment=replace(plan.assessment, pod=notebook))
    (event,) = reported(quiet(31, began=(replace(killed(), entry=of_notebook),)))
    assert shown == event.note.replace("gpu-team@example.org", "#gpu-help")


def test_each_reason_is_explained_to_tenants() -> None:
    """docs/tenants.md has every reason that `describe` may show."""
    assert not [reason for reason in REASONS if f"`{reason}`" not in _section(TENANTS, "Read the Event")]


def test_what_to_declare_is_as_an_event_says_it() -> None:
    """The number of the example and the one of an annotation, with its quotes."""
    assert "veriff.com/gpu-memory: 11Gi" in _section(TENANTS, "Declare more")
    assert "to at least 11Gi (the allowance is added to this)." in occurrences()["GPUMemoryKilled"].note
    assert 'gpu-fraction: "0.38"' in _section(TENANTS, "Declare more")
    assert 'annotation gpu-fraction to at least "0.38"' in by(FRACTION, "0.2").note


def test_the_allowance_is_the_one_that_ships() -> None:
    """The allowance on the page is the default of the policy."""
    own = Allowance()
    assert (own.per_context, own.max_contexts) == (512 * 2**20, 4)
    assert own.percent * 100 == 2
    text = " ".join(_section(TENANTS, "What counts").split())
    assert "512Mi for each process on each GPU, four times at most, and 2% of what is declared" in text
