"""Every kind of note, read as a tenant reads it: what happened, how much, what to change, whom to ask."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.export.build import entry, policy, trainer
from tests.export.notes import kill_of, on_cards, table
from tests.worlds import rule, step
from watchdog.core.policy import Declaration
from watchdog.kube.event_objects import PodEvent
from watchdog.report.sentences.action import shown_as

PAGE: Final = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
# What only somebody knows who has read the code or the status.
JARGON: Final = (
    *("account", "verdict", "brake", "ledger", "assessment", "undeclared", "unattributed", "step", "None", "{", "  "),
)


@cache
def notes() -> dict[str, PodEvent]:
    """Each kind of note by its name."""
    return dict(table())


@pytest.mark.parametrize("name", sorted(notes()))
def test_each_note_can_be_read_by_somebody_who_knows_nothing_of_this(name: str) -> None:
    """Whole sentences in a line, without the words of the code, that end with whom to ask.

    One about use has the amounts, the rule and the remedy; one of a kill says how Kubernetes shows it: a program may
    exit with 0 on SIGTERM, which is Completed, and who looks for OOMKilled finds nothing.
    """
    found = notes()[name]
    note = found.note
    assert note.startswith(("Pod a/trainer", "Container side of pod a/trainer"))
    assert not [word for word in JARGON if word in note]
    whom = "the operator of this cluster" if "nobody to ask" in name else "gpu-team@example.org"
    assert note.endswith(f" Questions: ask {whom}.")
    assert len(note.encode()) <= 1024
    assert note.count("(") == note.count(")")
    if "uses" in note:
        amount = r"[0-9.]+[KMGT]i"
        assert re.search(rf" uses {amount} of GPU memory", note)
        assert re.search(rf"the {amount} allowed \(", note) or "but none is allowed (0 " in note
        assert re.search(r'\. Rule "\w+": above ', note)
        assert "To stay within the limit, use " in note
    if found.reason == "GPUMemoryKilled":
        code = "Error (exit code 143 or 137), or Completed if its main process exits with 0"
        assert ("Error (exit code 137)" if "SIGKILL immediately" in note else code) in note
        assert "OOMKilled" in note
        assert ("restart policy" in note) is ("scope process" not in name)


def test_a_job_that_may_count_it_as_success_is_named() -> None:
    """A Job's pod whose program exits with 0 on SIGTERM has succeeded for Kubernetes, and only its Event says so."""
    of_job = entry()
    pod = of_job.assessment.pod
    assert pod.owner is not None
    assert shown_as(of_job).endswith("Completed if its main process exits with 0 (its Job counts that as success).")
    for owner in (None, replace(pod.owner, kind="ReplicaSet")):
        other = replace(of_job, assessment=replace(of_job.assessment, pod=replace(pod, owner=owner)))
        assert shown_as(other).endswith("Completed if its main process exits with 0.")


def test_of_several_containers_it_says_why_this_one() -> None:
    """An owner whose sidecar was killed for what the pod uses reads why it was that one."""
    why = "Of its containers, side exceeds its own declaration by the most."
    told = {name for name, each in notes().items() if why in each.note}
    assert told == {"kill, two that declare", "kill, one declares and the other uses"}


def test_under_a_default_nothing_is_declared() -> None:
    """An owner who has declared nothing learns that this is the reason, and the key by which to."""
    for name in ("kill, default", "kill, forbidden"):
        note = notes()[name].note
        assert "The pod declares no GPU memory. To stay within" in note
        assert 'set resources.limits["veriff.com/gpu-memory"] of container main to at least 12Gi (the allowance' in note


def test_a_misdeclaration_says_how_the_number_is_read() -> None:
    """Most of them are numbers in another unit than was meant."""
    for name, says in {
        "misdeclared": "Under veriff.com/gpu-memory 1 means 1 byte, and suffixes like 8Gi work.",
        "misdeclared: number of a unit": "Under nvidia.com/gpumem 1 means 1Mi on each GPU.",
        "misdeclared: percentage": "Under nvidia.com/gpumem-percentage the number is a percentage of each card.",
        "misdeclared: fraction": "Under gpu-fraction the number is a fraction of each card, like 0.5.",
        "misdeclared: share": "Under nvidia.com/gpu.shared the number is a count of shares of a GPU.",
    }.items():
        assert f" {says} Correct it in the pod's manifest. " in notes()[name].note


def remedy(note: str) -> str:
    """What to change, as the page has it in a cell."""
    found = re.search(r"the limit, (?:use (?:less|no) GPU memory or )?(.*?)\. Questions:", note)
    assert found is not None, note
    return found[1].replace("declare more: ", "").replace("declare what it needs: ", "")


def test_the_page_shows_what_to_change_for_each_kind_of_declaration() -> None:
    """The table of docs/events.md is what the notes say."""
    rows = [
        f"| {name.removeprefix('kill, ').removeprefix('declared: ')} | {remedy(each.note)} |"
        for name, each in notes().items()
        if name.startswith(("kill, declared", "kill, default", "kill, forbidden", "kill, two"))
    ]
    missing = [row for row in rows if row not in PAGE]
    assert not missing, "\n".join(missing)


def test_what_is_cut_of_a_note_that_is_too_long() -> None:
    """With the longest names that Kubernetes allows: the action, the remedy and whom to ask are there."""
    key, contact = f"{'d' * 253}/{'k' * 63}", "https://" + "c" * 190
    declarations = (Declaration(resource=key, unit=1),)
    under = policy(rule(step("110%"), name="r" * 63), declarations=declarations, contact=contact)
    main = replace(trainer().containers[0], name="c" * 63, resources={key: "8Gi"})
    holder = trainer(namespace="n" * 63, name="p" * 253, containers=(main,))
    note = kill_of(under, holder, on_cards(12.4)).note
    assert len(note.encode()) <= 1024
    assert re.search(
        r"set resources\.limits\[\"d+\.\.d+/k+(\.\.k+)?\"\] of container c+ to at least 12Gi "
        r"\(the allowance is added to this\)",
        note,
    )
    assert "Killing 3 processes of container c" in note
    assert note.endswith("c.")


def test_the_event_of_an_mps_client() -> None:
    """Point 36: the owner learns that the work on the GPU ends at once, whatever the grace period."""
    found = notes()["kill, an MPS client"]
    assert found.reason == "GPUMemoryKilled"
    assert "The MPS server is asked to end 1 client first" in found.note
    assert "The grace period does not extend its work on the GPU." in found.note
