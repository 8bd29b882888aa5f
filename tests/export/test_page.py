"""The status page: who is over and what follows for them, and how to stop enforcement."""

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.export.build import KILL, WARN, Story, busy, climbing, crowd, policy, quiet, trainer, trainer_node
from tests.export.page_reader import WELL, read
from tests.node.support import run_python
from tests.worlds import Gi, at, container, pod, process, rule, snapshot, use
from watchdog.core.model import PodList
from watchdog.core.plan import CycleReport
from watchdog.export.page_headline import PageQuery
from watchdog.report.progress import by_urgency
from watchdog.report.status_build import status_of


def test_the_account_that_is_over_has_its_next_step_and_its_remedy() -> None:
    """Who, what comes when, how much against what, why, and what its owner can change."""
    report = climbing(9)
    (progress,) = by_urgency(status_of(report))
    (step,) = progress.steps
    assert (
        read(report)
        .text("urgent")
        .startswith(
            f"Over limit: what happens next a/trainer {step.short.capitalize()} "
            "12.4Gi used, 10.2Gi allowed (8Gi declared by veriff.com/gpu-memory), 2.2Gi over the limit for 9s. "
            f"{step.detail} Its owner can {progress.account.advice}."
        )
    )


def test_steps_are_in_the_order_in_which_they_come() -> None:
    """A warning that is due before the kill is before it; elsewhere the account has the kill."""
    page = read(climbing(2, under=policy(rule(WARN, replace(KILL, for_s=600.0), name="notebooks"))))
    assert "a/trainer Warning in 3s; then kill in 9m 58s 12.4Gi used" in page.text("urgent")
    assert "kill in 9m 58s" in page.text()
    assert "over, kill in 9m 58s" in page.text("pods")


def test_the_time_left_counts_from_now_on() -> None:
    """Between two cycles the clock of the reader goes on; it never goes below zero."""
    report = climbing(3)
    for passed_s, left in ((0.0, "in 7s"), (4.5, "in 3s"), (60.0, "now")):
        assert f"kill {left}" in read(report, passed_s=passed_s, now_s=at(3 + passed_s).wall_s).text("urgent")


SUSPENDED = replace(climbing(31), enforcing=False, suspended=("stop_file",))
PROTECTING = policy(protect=replace(policy().protect, namespaces=("a",)))
OLD = replace(climbing(3), pods=PodList(pods=(trainer(),), synced=at(-600)))


@pytest.mark.parametrize(
    ("report", "shown", "missing"),
    [
        (Story(journal_writable=False).run(12.4, 12), "Kill held: journal", "Kill in"),
        (climbing(31, under=policy(mode="observe")), "Would kill now", " Kill "),
        (SUSPENDED, "Would kill now", " Kill "),
        (busy(31, 65), "Being killed, SIGKILL in 4s", "Kill in"),
        (OLD, "Warning postponed; then kill postponed", "in 7s"),
        (climbing(9, under=PROTECTING), "Protected, no action is taken: ", "Its owner can"),
    ],
    ids=["held back", "observed", "suspended", "in progress", "on an old pod list", "protected"],
)
def test_an_account_that_is_over_shows_what_comes_for_it(report: CycleReport, shown: str, missing: str) -> None:
    """In a few words, with the sentence of each step that is shown, and without a promise that is not kept."""
    text = read(report).text("urgent")
    assert shown in text
    assert missing not in text
    (progress,) = by_urgency(status_of(report))
    assert progress.gravest is not None
    assert progress.gravest.detail in text


def test_many_that_are_over_take_little_room_each() -> None:
    """Twelve are listed, with the sentences that the first has not said already; `?all` lists them all."""
    report = crowd(*range(3, 23))
    page = read(report)
    urgent = page.text("urgent")
    assert urgent.count(" used, ") == 12
    assert urgent.count("Rule ") == urgent.count("Its owner can") == 1, "what all of them share is said once"
    assert urgent.endswith("gpu-watchdog explain NAMESPACE/POD. 8 more")
    assert page.text("pods").count("over, kill") == 20
    assert read(report, query=PageQuery(shows_all=True)).text("urgent").count(" used, ") == 20


def _off(*reasons: str) -> dict[str, Any]:
    return {"suspended": reasons, "enforcing": False}


@pytest.mark.parametrize(
    ("more", "api", "file", "told"),
    [
        ({}, "ok", "", ("Stop enforcement here .* From anywhere: kubectl annotate node n1 gpu-memory-watchdog/mode="
                        "observe --overwrite In the watchdog's pod, or on .*: gpu-watchdog stop")),
        ({}, None, "/x y/stop", "((?!kubectl).)* pod, or on .*: gpu-watchdog stop --stop-file '/x y/stop'"),
        ({"policy": policy(mode="observe"), "enforcing": False}, "ok", "", "Stop .* The policy only observes.* stop"),
        (_off("lock"), "ok", "", "Stop enforcement here .* gpu-watchdog stop"),
        (_off("node_annotation"), "ok", "", ("Enforcement is stopped here To resume it: The node's annotation turns it "
                                             "off. kubectl annotate node n1 gpu-memory-watchdog/mode-")),
        (_off("lock", "stop_file"), "ok", "/var/lib/gpu-watchdog/stop", ("Enforcement is stopped here .* The file "
         "/var/lib/gpu-watchdog/stop turns it off. In the watchdog's pod, or on .*: gpu-watchdog resume")),
        (_off("stop_file", "node_annotation"), "ok", "", ".*mode- .* gpu-watchdog resume"),
    ],
)  # fmt: skip
def test_how_to_stop_enforcement_here_and_how_to_resume_it(
    more: dict[str, Any], api: str | None, file: str, told: str
) -> None:
    """The exact command for this node: by the API only where the watchdog follows it; and what undoes which stop."""
    health = structs.replace(WELL, api=api, stop_file=file or None)
    text = read(replace(climbing(9), **more), health=health).text("stop")
    assert re.fullmatch(told, text), text


def test_many_pods_are_grouped_by_namespace() -> None:
    """Collapsed, with what is wrong in each; a filter or `?all` opens them, and few matches need no groups."""
    pods = tuple(pod(f"u{n}", container("main", "1Gi", of=f"u{n}"), namespace=f"team-{n % 3}") for n in range(60))
    report = Story(pods=pods).see(snapshot([use(100, 9 * Gi)], [process(100, "u4/main")]))
    page = read(report)
    assert "60 pods" in page.text("pods")
    assert "team-1 20 pods, 9Gi used 1 over Pod Use State pod-u4 9Gi of 1.5Gi" in page.text("pods")
    assert [values for tag, values in page.elements if tag == "details"] == [{}] * 3
    for query, opened in ((PageQuery(shows_all=True), 3), (PageQuery(pod="team-"), 3), (PageQuery(pod="Team-1/"), 0)):
        page = read(report, query=query)
        assert [values for tag, values in page.elements if tag == "details"] == [{"open": ""}] * opened
    assert "20 of 60 match" in page.text("pods")
    assert page.text("pods").count("team-1/pod-u") == 20
    assert 'No pod matches "u99"' in read(report, query=PageQuery(pod="u99")).text("pods")


@pytest.mark.parametrize(("report", "colour"), [(quiet(), "1b8a4a"), (climbing(9), "b3001b")])
def test_the_icon_of_the_tab_is_in_the_page(report: CycleReport, colour: str) -> None:
    """A browser that is given no icon asks for one elsewhere; ours shows by its colour how things are."""
    (icon,) = [values["href"] for element, values in read(report).elements if element == "link"]
    assert icon.startswith("data:image/svg+xml,")
    assert f"fill=%27%23{colour}%27" in icon
    assert not set(icon) & set(" '<>")  # a URL has none of these (RFC 3986)


def test_the_template_is_loaded_on_first_use() -> None:
    """A node whose page is never opened does not spend memory on the library and the compiled template."""
    run_python("import sys, watchdog.daemon.main; sys.exit('jinja2' in sys.modules)")


def test_links_within_the_page_lead_somewhere() -> None:
    """Each jump at the top has its heading, also where there is nothing to show below it."""
    for report in (quiet(), climbing(9), quiet(snapshot=trainer_node(4.0, blind=True, gpus=()))):
        page = read(report)
        jumps = [values["href"][1:] for element, values in page.elements if values.get("href", "").startswith("#")]
        assert len(jumps) >= 6
        assert set(jumps) <= set(page.ids)
