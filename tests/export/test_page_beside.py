"""What stands beside the accounts of the status page: recent actions, what is unattributed or not known, the health."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.export.build import Story, quiet, trainer_node
from tests.export.page_reader import WELL, action, read
from tests.worlds import Gi, at, process, snapshot, use
from watchdog.core.assessment import Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList


@pytest.mark.parametrize(
    ("do", "result", "told"),
    [
        ("kill", None, "kill is in progress"), ("kill", "done", "was killed"), ("kill", "failed", "kill failed"),
        ("kill", "interrupted", "kill was interrupted"), ("kill", "gone", "kill was no longer needed"),
        ("kill", "observed", "would have been killed"), ("evict", "done", "was evicted"),
        ("evict", "blocked", "eviction is blocked"), ("warn", "done", "was warned"),
        ("warn", "observed", "would have been warned"), ("kill", "withdrawn", "kill was withdrawn"),
    ],
)  # fmt: skip
def test_what_was_done_is_told_with_its_end(do: str, result: str | None, told: str) -> None:
    """Each action with what became of it, when, why and what came of it."""
    text = read(quiet(40), recent=(action(do=do, result=result),), now_s=at(40).wall_s).text("recent")
    assert f"a/trainer container main {told} 08:00:00 UTC, 40s ago It was over. It is gone." in text


def test_older_actions_have_a_line_each() -> None:
    """Three with their sentences, the others without, and all but six collapsed."""
    text = read(quiet(40), recent=(action(),) * 20).text("recent")
    assert (text.count("was killed"), text.count("It was over.")) == (20, 3)
    assert text.partition("14 earlier")[0].count("was killed") == 6


def test_unattributed_memory_is_told_by_its_reason() -> None:
    """How much, by how many, what they are, and what to look at."""
    told = read(quiet()).text("unattributed")
    assert told == (
        "Unattributed memory 1Gi in 1 process outside any pod: Xorg (PID 9) 1Gi on GPU 0. "
        "No action is taken. Check what runs on the node besides Kubernetes."
    )
    unknown = Story(pods=()).see(snapshot([use(5, None)], [process(5, None, name="")]))
    assert "An unknown amount in 1 process outside any pod: unnamed (PID 5) unknown on GPU 0." in read(unknown).text(
        "unattributed"
    )


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_described(reason: Reason) -> None:
    """No process is listed without what it is and what to check."""
    stray = Unattributed(pid=7, gpu="GPU-0", used=Gi, reason=reason, name="odd")
    told = read(replace(quiet(), attribution=replace(quiet().attribution, unattributed=(stray,)))).text("unattributed")
    assert f"({reason.value})" not in told
    assert told.endswith(".")
    assert "No action is taken. " in told


def test_gaps_with_one_remedy_stand_together() -> None:
    """A driver that fails gives a gap for each call: what to do is said once, and GPUs go by their short names."""
    gaps = tuple(
        Gap(
            reason=GapReason.GPU_ERROR,
            what=f"GPU-{n} memory",
            problem=Problem(f"call {n} failed", "look for NVRM"),
            gpu=f"GPU-{n}",
        )
        for n in range(2)
    )
    other = Gap(reason=GapReason.PODS, what="pod list", problem=Problem("no way there", "see the network"))
    report = quiet(snapshot=trainer_node(4.0, gaps=gaps), pods=PodList(synced=at(0), gaps=(other,)))
    assert read(report).text("gaps") == (
        "Data gaps GPU 0 memory: call 0 failed GPU 1 memory: call 1 failed What to do: look for NVRM. "
        "pod list: no way there What to do: see the network."
    )
    crowd = tuple(replace(gaps[0], what=f"process {n}", problem=Problem(f"x{n}", "same")) for n in range(50))
    assert "And 46 more like these." in read(quiet(snapshot=trainer_node(4.0, gaps=crowd))).text("gaps")
    assert read(quiet()).text("gaps") == "Data gaps None."


def test_a_policy_file_that_has_not_settled_is_not_said_to_be_wrong() -> None:
    """It may be valid: its own sentence is what is told."""
    unsettled = "the policy file p.toml has not settled within 1m, and the current policy stays"
    told = read(quiet(), health=structs.replace(WELL, policy_error=unsettled)).text("health")
    assert f"Policy the file on disk is not in effect: {unsettled}" in told
    assert "mistake" not in told


def test_the_health_says_what_is_wrong() -> None:
    """Each thing that can be wrong is a sentence in the list."""
    health = structs.replace(
        WELL, ready=False, unready=("the pod list is old",), journal="no space left", policy_error="line 3",
        api="node n1: no right",
    )  # fmt: skip
    told = read(quiet(), health=health).text("health")
    for expected in ("Ready the pod list is old", "Journal no space left", "API server node n1: no right"):
        assert expected in told
    assert "Policy the file on disk is not in effect: line 3" in told
    assert "Version 0.1.0 Up since 07:00:00 UTC (1h)" in told
