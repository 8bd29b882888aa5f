"""docs/tenants.md shows the very note that a pod gets, and every reason that its owner can meet."""

import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.export.build import killed, quiet
from tests.export.notes import FRACTION, by
from tests.export.occurrences import killing, occurrences, told
from watchdog.core.model import Owner
from watchdog.core.policy import Allowance
from watchdog.report import events as tiding_form

DOCS: Final = Path(__file__).parents[2] / "docs"
TEXT: Final = (DOCS / "tenants.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading."""
    return re.split(r"^## ", TEXT.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]


def test_the_event_that_is_read_is_the_one_that_is_written() -> None:
    """The page shows the same words as a terminal."""
    block = re.findall(r"(?:^    .*\n)+", section("Read the Event"), re.MULTILINE)[0]
    shown = " ".join(textwrap.dedent(block).split())
    plan, of = killing(), Owner(kind="StatefulSet", name="notebook")
    notebook = replace(plan.assessment.pod, namespace="team-a", name="notebook-0", owner=of)
    of_notebook = replace(plan, assessment=replace(plan.assessment, pod=notebook))
    (told_of,) = told(quiet(31, began=(replace(killed(), entry=of_notebook),)))
    assert shown == told_of.note.replace("gpu-team@example.org", "#gpu-help")


@pytest.mark.parametrize("reason", sorted(tiding_form.ACTIONS))
def test_each_reason_is_explained(reason: str) -> None:
    """The page has every reason that `describe` may show."""
    assert f"`{reason}`" in section("Read the Event")


def test_what_to_declare_is_as_an_event_says_it() -> None:
    """The number of the example and the one of an annotation, with its quotes."""
    assert "veriff.com/gpu-memory: 11Gi" in section("Declare more")
    assert "to at least 11Gi (the allowance is added to this)." in occurrences()["GPUMemoryKilled"].note
    assert 'gpu-fraction: "0.38"' in section("Declare more")
    assert 'annotation gpu-fraction to at least "0.38"' in by(FRACTION, "0.2").note


def test_the_allowance_is_the_one_that_ships() -> None:
    """The allowance on the page is the default of the policy."""
    own = Allowance()
    assert (own.per_context, own.max_contexts) == (512 * 2**20, 4)
    assert own.percent * 100 == 2
    text = " ".join(section("What counts").split())
    assert "512Mi for each process on each GPU, four times at most, and 2% of what is declared" in text
