"""The status page: who is over and what follows for them, in words that a reader takes in at once."""

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.export.build import KILL, WARN, Story, climbing, policy, quiet, trainer, trainer_node
from tests.export.page_reader import WELL, read
from tests.worlds import Gi, at, container, pod, process, rule, snapshot, use
from watchdog.core.brakes import Brake
from watchdog.core.ledger import UnderWay
from watchdog.core.model import PodList
from watchdog.core.plan import CycleReport
from watchdog.export.page_headline import PageQuery


def busy(second: float, until_s: float, **more: object) -> CycleReport:
    """A cycle in which a kill of a/trainer is in progress, whose memory is waited for until so many seconds."""
    report = climbing(int(second))
    (key,) = report.plan.ledger.accounts
    under_way = UnderWay(step=KILL.signature, victim="main", until_s=at(until_s).boottime_s, **more)  # type: ignore[arg-type]
    state = replace(report.plan.ledger.accounts[key], under_way=under_way)
    ledger = replace(report.plan.ledger, accounts={key: state})
    return replace(report, plan=replace(report.plan, entries=(), ledger=ledger))


def test_the_account_that_is_over_is_told_with_its_next_step() -> None:
    """Who, what comes when, how much against what, why, what comes besides, and what its owner can change."""
    told = read(climbing(9)).text("urgent")
    assert told == (
        "Over limit: what happens next a/trainer Kill in 1s "
        "12.4Gi used, 10.2Gi allowed (8Gi declared by veriff.com/gpu-memory), 2.2Gi over the limit for 9s. "
        "Kill 3 processes of container main (SIGTERM, then SIGKILL after 10s). "
        'Rule "notebooks": above 110% of the 10.2Gi allowed for 10s. '
        + told[told.index("Its owner can use less GPU memory or declare more") :]
    )


def test_what_comes_first_stands_first() -> None:
    """A warning that is due before the kill stands before it; what is read of the account elsewhere is the kill."""
    slow = replace(KILL, for_s=600.0)
    report = climbing(2, under=policy(rule(WARN, slow, name="notebooks")))
    page = read(report)
    assert "a/trainer Warning in 3s; then kill in 9m 58s 12.4Gi used" in page.text("urgent")
    assert "kill in 9m 58s" in page.text()
    assert "over, kill in 9m 58s" in page.text("pods")


def test_the_time_left_counts_from_now_on() -> None:
    """Between two cycles the clock of the reader goes on; it never goes below zero."""
    report = climbing(3)
    assert "Warning in 2s; then kill in 7s" in read(report).text("urgent")
    assert "kill in 3s" in read(report, passed_s=4.5, now_s=at(7.5).wall_s).text("urgent")
    assert "kill now" in read(report, passed_s=60.0, now_s=at(63).wall_s).text("urgent")


def test_a_step_that_is_held_back_names_the_brake_and_when_it_lets_go() -> None:
    """What is withheld, by what and until when."""
    story = Story(journal_writable=False)
    told = read(story.run(12.4, 12)).text("urgent")
    assert "Kill held: journal" in told
    assert "because the watchdog can't write its journal" in told


def test_who_only_observes_promises_nothing() -> None:
    """In observe mode and while enforcement is suspended all of it is what would be done."""
    suspended = replace(climbing(31), enforcing=False, suspended=("stop_file",))
    for report in (climbing(31, under=policy(mode="observe")), suspended):
        told = read(report).text("urgent")
        assert "Would kill now" in told
        assert " Kill " not in told
    hours = replace(rule(WARN, KILL, name="notebooks"), mode="observe")
    told = read(climbing(31, under=policy(hours))).text("urgent")
    assert "No action will be taken: this rule only observes." in told


@pytest.mark.parametrize(
    ("second", "until_s", "short"),
    [(31, 65, "Being killed, SIGKILL in 4s"), (31, 50, "Killed, memory not freed yet")],
)
def test_a_kill_under_way_is_told(second: float, until_s: float, short: str) -> None:
    """Until its SIGKILL with the time left, from then on that its memory is waited for."""
    assert short in read(busy(second, until_s)).text("urgent")


@pytest.mark.parametrize(
    ("sent", "short", "said"),
    [
        (("SIGTERM",), "Killed", "got SIGTERM at 08:00:25 UTC and have ended"),
        ((), "Ended", "had ended before a signal was sent"),
    ],
)
def test_processes_that_have_ended_are_told_with_what_they_got(sent: tuple[str, ...], short: str, said: str) -> None:
    """They may have ended by themselves, before anything was sent."""
    told = read(busy(31, 65, sent=sent, ended=True)).text("urgent")
    assert f"{short}, memory not freed yet" in told
    assert f"its processes {said}; the watchdog then waits up to 30s for their memory to be freed." in told


def test_on_an_old_pod_list_no_time_is_promised() -> None:
    """A timer that stands still is not counted down."""
    old = replace(climbing(3), pods=PodList(pods=(trainer(),), synced=at(-600)))
    told = read(old, passed_s=5.0).text("urgent")
    assert "Warning postponed; then kill postponed" in told
    assert "timers are paused until it is updated" in told
    later = replace(old.plan.entries[1], withheld_by=Brake.OWNER)
    told = read(replace(old, plan=replace(old.plan, entries=(later,))), passed_s=5.0).text("urgent")
    assert "Kill postponed" in told


def test_a_protected_pod_is_told_so() -> None:
    """Whoever is over and never acted on reads why, and gets no advice."""
    under = policy(protect=replace(policy().protect, namespaces=("a",)))
    told = read(climbing(9, under=under)).text("urgent")
    assert "Protected, no action is taken: " in told
    assert "Its owner can" not in told


def test_many_that_are_over_take_little_room_each() -> None:
    """Twelve are listed, with the sentences that the first has not said already; `?all` lists them all."""
    pods = tuple(pod(f"u{n}", container("main", "1Gi", of=f"u{n}")) for n in range(20))
    uses = [use(100 + n, (3 + n) * Gi) for n in range(20)]
    seen = snapshot(uses, [process(100 + n, f"u{n}/main") for n in range(20)])
    report = Story(pods=pods).see(seen)
    page = read(report)
    told = page.text("urgent")
    assert told.count(" used, ") == 12
    assert told.count("Rule ") == told.count("Its owner can") == 1, "what all of them share is said once"
    assert told.endswith("gpu-watchdog explain NAMESPACE/POD. 8 more")
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
    seen = snapshot([use(100, 9 * Gi)], [process(100, "u4/main")])
    report = Story(pods=pods).see(seen)
    page = read(report)
    assert "60 pods" in page.text("pods")
    assert "team-1 20 pods, 9Gi used 1 over Pod Use State pod-u4 9Gi of 1.5Gi" in page.text("pods")
    assert [values for tag, values in page.elements if tag == "details"] == [{}] * 3
    for query, opened in ((PageQuery(shows_all=True), 3), (PageQuery(pod="team-"), 3), (PageQuery(pod="Team-1/"), 0)):
        page = read(report, query=query)
        assert [values for tag, values in page.elements if tag == "details"] == [{"open": ""}] * opened
    assert "20 of 60 match" in page.text("pods")
    assert "ns/pod" not in page.text("pods")
    assert page.text("pods").count("team-1/pod-u") == 20
    assert 'No pod matches "u99"' in read(report, query=PageQuery(pod="u99")).text("pods")


@pytest.mark.parametrize(("report", "colour"), [(quiet(), "1b8a4a"), (climbing(9), "b3001b")])
def test_the_icon_of_the_tab_is_in_the_page(report: CycleReport, colour: str) -> None:
    """A browser that is given no icon asks for one elsewhere; ours tells by its colour how things are."""
    (icon,) = [values["href"] for element, values in read(report).elements if element == "link"]
    assert icon.startswith("data:image/svg+xml,")
    assert f"fill=%27%23{colour}%27" in icon
    assert not set(icon) & set(" '<>")  # a URL has none of these (RFC 3986)


def test_the_template_is_loaded_when_somebody_looks() -> None:
    """A node whose page nobody opens does not spend memory on the library and the compiled template."""
    code = "import sys, watchdog.daemon.main; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_links_within_the_page_lead_somewhere() -> None:
    """Each jump at the top has its heading, also where there is nothing to tell below it."""
    for report in (quiet(), climbing(9), quiet(snapshot=trainer_node(4.0, blind=True, gpus=()))):
        page = read(report)
        jumps = [values["href"][1:] for element, values in page.elements if values.get("href", "").startswith("#")]
        assert len(jumps) >= 6
        assert set(jumps) <= set(page.ids)
