"""What is beside the accounts of the status page: recent actions, unattributed memory, data gaps, the health."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.export.build import Story, quiet, trainer_node
from tests.export.page_reader import WELL, action, read
from tests.worlds import Gi, at, process, snapshot, use
from watchdog.core.assessment import Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.report.sentences.action import result_short


def test_older_actions_have_a_line_each() -> None:
    """Three with when, why and what came of it, the others without, and all but six collapsed."""
    done = action()
    text = read(quiet(40), recent=(done,) * 20, now_s=at(40).wall_s).text("recent")
    assert f"a/trainer container main {result_short(done)} 08:00:00 UTC, 40s ago {done.why} {done.outcome}" in text
    assert (text.count(result_short(done)), text.count(str(done.why))) == (20, 3)
    assert text.partition("14 earlier")[0].count(result_short(done)) == 6


def test_unattributed_memory_is_listed_by_its_reason() -> None:
    """How much, by how many, what they are, and what to check."""
    assert read(quiet()).text("unattributed") == (
        "Unattributed memory 1Gi in 1 process outside any pod: Xorg (PID 9) 1Gi on GPU 0. "
        "No action is taken. Check what runs on the node besides Kubernetes."
    )
    unknown = Story(pods=()).see(snapshot([use(5, None)], [process(5, None, name="")]))
    shown = "An unknown amount in 1 process outside any pod: unnamed (PID 5) unknown on GPU 0."
    assert shown in read(unknown).text("unattributed")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_described(reason: Reason) -> None:
    """No process is listed without what it is and what to check."""
    stray = Unattributed(pid=7, gpu="GPU-0", used=Gi, reason=reason, name="odd")
    shown = read(replace(quiet(), attribution=replace(quiet().attribution, unattributed=(stray,)))).text("unattributed")
    assert f"({reason.value})" not in shown
    assert "No action is taken. " in shown


def test_gaps_with_one_remedy_are_together() -> None:
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
    many = tuple(replace(gaps[0], what=f"process {n}", problem=Problem(f"x{n}", "same")) for n in range(50))
    assert "And 46 more like these." in read(quiet(snapshot=trainer_node(4.0, gaps=many))).text("gaps")
    assert read(quiet()).text("gaps") == "Data gaps None."


def test_the_health_says_what_is_wrong() -> None:
    """Each thing that can be wrong is an item of the list, in its own words."""
    unsettled = "the policy file p.toml has not settled within 1m, and the current policy stays"
    health = structs.replace(
        WELL, ready=False, unready=("the pod list is old",), journal="no space left", policy_error=unsettled,
        api="node n1: no right",
    )  # fmt: skip
    shown = read(quiet(), health=health).text("health")
    for item in (
        "Ready the pod list is old",
        "Journal no space left",
        "API server node n1: no right",
        f"Policy the file on disk is not in effect: {unsettled}",
        "Version 0.1.0 Up since 07:00:00 UTC (1h)",
    ):
        assert item in shown
