"""The status page: who is over and what follows, how to stop enforcement, who uses what, and what is not known."""

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.export.page_reader import WELL, Read, action, read
from tests.node.support import run_python
from tests.report.build import (
    KILL,
    WARN,
    Story,
    activity,
    busy,
    climbing,
    many_over,
    policy,
    quiet,
    trainer,
    trainer_node,
)
from tests.worlds import Gi, at, container, gpu, pod, process, rule, snapshot, use
from watchdog.core.assessment import Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport, StopNote
from watchdog.core.utilization import Utilization
from watchdog.export.page_headline import PageQuery
from watchdog.report.progress import by_urgency
from watchdog.report.sentences.action import result_short
from watchdog.report.status import Moment
from watchdog.report.status_build import status_of


def test_the_account_that_is_over_has_its_next_step_and_its_remedy() -> None:
    """Who, what comes when, how much against what, why, and what its owner can change."""
    report = climbing(9)
    (progress,) = by_urgency(status_of(report))
    (step,) = progress.steps
    assert (shown := read(report).text("urgent")).startswith(
        "Over limit: what happens next In each bar: limit, declared amount, use of a pod over its limit. "
        f"a/trainer {step.short.capitalize()} "
        "12.4Gi used, 10.2Gi allowed (8Gi declared by veriff.com/gpu-memory), 2.2Gi over the limit for 9s. "
        f"{step.detail} Its owner can {progress.account.advice}."
    ), shown


def test_steps_are_in_the_order_in_which_they_come() -> None:
    """A warning that is due before the kill is before it; elsewhere the account has the kill."""
    page = read(climbing(2, under=policy(rule(WARN, replace(KILL, for_s=600.0), name="notebooks"))))
    assert "a/trainer Warning in 3s; then kill in 9m 58s 12.4Gi used" in page.text("urgent")
    assert "kill in 9m 58s" in page.text()
    assert "over, kill in 9m 58s" in page.text("pods")


SUSPENDED = replace(climbing(31), enforcing=False, suspended=("stop_file",))
PROTECTING = policy(protect=replace(policy().protect, namespaces=("a",)))
OLD = replace(climbing(3), pods=PodList(pods=(trainer(),), synced=at(-600)))


@pytest.mark.parametrize(
    ("report", "shown", "missing"),
    [
        (Story(journal_writable=False).run(12.4, 12), "Kill withheld: journal", "Kill in"),
        (climbing(31, under=policy(mode="observe")), "Would kill now", " Kill "),
        (SUSPENDED, "Would kill now", " Kill "),
        (busy(31, 65), "Being killed, SIGKILL in 4s", "Kill in"),
        (OLD, "Warning withheld: stale; then kill withheld: stale", "in 7s"),
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
    """Twelve are listed, with the sentences that the first does not have; `?all` lists them all."""
    report = many_over(*range(3, 23))
    page = read(report)
    urgent = page.text("urgent")
    assert urgent.count(" used, ") == 12
    assert urgent.count("Rule ") == urgent.count("Its owner can") == 1, "what all of them share is shown once"
    assert urgent.endswith("gpu-watchdog explain NAMESPACE/POD. 8 more")
    assert page.text("pods").count("over, kill") == 20
    assert read(report, query=PageQuery(shows_all=True)).text("urgent").count(" used, ") == 20


def _off(*reasons: str) -> dict[str, Any]:
    return {"suspended": reasons, "enforcing": False}


@pytest.mark.parametrize(
    ("more", "api", "file", "reported"),
    [
        ({}, "ok", "", ("Stop enforcement here .* From anywhere: kubectl annotate node n1 gpu-memory-watchdog/mode="
                        "observe --overwrite Or in the watchdog's pod .*: kubectl -n .* POD -- gpu-watchdog stop")),
        ({}, None, "/x y/stop", "((?!kubectl).)* pod, or on .*: gpu-watchdog stop --stop-file '/x y/stop'"),
        ({"policy": policy(mode="observe"), "enforcing": False}, "ok", "", "Stop .* The policy only observes.* stop"),
        (_off("lock"), "ok", "", "Stop enforcement here .* gpu-watchdog stop"),
        (_off("node_annotation"), "ok", "", ("Enforcement is stopped here To resume it: The node's annotation turns it "
                                             "off. kubectl annotate node n1 gpu-memory-watchdog/mode- .*/reason-")),
        (_off("lock", "stop_file"), "ok", "/var/lib/gpu-watchdog/stop", ("Enforcement is stopped here .* The file "
         "/var/lib/gpu-watchdog/stop turns it off. In the watchdog's pod .*: kubectl .* -- gpu-watchdog resume")),
        (_off("stop_file", "node_annotation"), "ok", "", ".*mode- .* gpu-watchdog resume"),
    ],
)  # fmt: skip
def test_how_to_stop_enforcement_here_and_how_to_resume_it(
    more: dict[str, Any], api: str | None, file: str, reported: str
) -> None:
    """The exact command for this node: by the API only where the watchdog follows it; and what undoes which stop."""
    health = structs.replace(WELL, api=api, stop_file=file or None)
    text = read(replace(climbing(9), **more), health=health).text("stop")
    assert re.fullmatch(reported, text), text


def test_many_pods_are_grouped_by_namespace() -> None:
    """Collapsed, with what is wrong in each; a filter or `?all` opens them, and few matches need no groups."""
    pods = tuple(pod(f"u{n}", container("main", "1Gi", of=f"u{n}"), namespace=f"team-{n % 3}") for n in range(60))
    report = Story(pods=pods).see(snapshot([use(100, 9 * Gi)], [process(100, "u4/main")]))
    page = read(report)
    assert "60 pods" in page.text("pods")
    assert (
        "team-1 20 pods, 9Gi used 1 over Pod GPU Use Limit Declared State pod-u4 GPU 0 9.0Gi 1.5Gi 1.0Gi"
        in page.text("pods")
    )
    assert [values for tag, values in page.elements if tag == "details"] == [{}] * 4  # the watchdog's own state too
    for query, opened in ((PageQuery(shows_all=True), 4), (PageQuery(pod="team-"), 3), (PageQuery(pod="Team-1/"), 0)):
        page = read(report, query=query)
        assert sum("open" in values for tag, values in page.elements if tag == "details") == opened
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


def test_all_accounts_stand_in_the_table_the_most_urgent_first() -> None:
    """What is over, what is not known, and then by the share of what may be used; who declares nothing comes last."""
    declared = {"low": "8Gi", "high": "8Gi", "over": "1Gi", "none": None, "odd": "8Gi"}
    pods = tuple(pod(uid, container("main", amount, of=uid)) for uid, amount in declared.items())
    ids = {1: ("low", 2 * Gi), 2: ("high", 7 * Gi), 3: ("over", 3 * Gi), 5: ("none", Gi), 6: ("odd", None)}
    seen = snapshot(
        [use(pid, used) for pid, (_, used) in ids.items()],
        [process(pid, f"{uid}/main") for pid, (uid, _) in ids.items()],
        [gpu(used=20 * Gi)],
    )
    reported = read(Story(pods=pods).see(seen)).text("pods")
    order = [reported.index(f"ns/pod-{uid} ") for uid in ("over", "odd", "high", "low", "none")]
    assert order == sorted(order)
    assert "ns/pod-odd GPU 0 unknown, at most 7.0Gi 8.7Gi 8.0Gi unknown" in reported
    assert "1.0Gi nothing declared" in reported
    assert reported.count('rule "notebooks"') == 1, "a rule that all have in common is named once"


def test_what_is_held_idle_is_a_finding() -> None:
    """Right after what is over: who holds what, for how long, what it comes to, and nothing more than is known."""
    assert "idle" not in read(quiet(utilization=activity(0.35))).ids
    assert "idle" not in read(quiet(utilization=activity(0.0, 600.0))).ids
    shown = read(quiet(utilization=activity(0.0, 7800.0)))
    assert shown.text("idle") == (
        "Held idle 1 pod, 4Gi a/trainer holds 4Gi on GPU 0 and GPU 1 and has computed nothing for 2h 10m, 0.11 "
        "card-hours. Nothing is done about it. Time for which their utilisation is unknown doesn't count."
    )
    assert "1 pod holds 4Gi and has computed nothing for long." in shown.text()
    assert shown.ids.index("gpus") < shown.ids.index("idle") < shown.ids.index("recent")
    ((pod, gpus, *_, state),) = shown.rows["pods"][1:]
    assert (pod.strip(), " ".join(gpus.split())) == ("a/trainer", "GPU 0 and GPU 1 0% busy")
    assert " ".join(state.split()) == "within, idle for 2h 10m"
    over = read(replace(climbing(9), utilization=activity(0.0, 7800.0)))
    assert over.ids.index("urgent") < over.ids.index("idle")


def test_of_much_that_is_idle_the_largest_is_listed() -> None:
    """The others are counted, and a click away; each namespace has its number."""
    report = many_over(*(1.1 + n / 10 for n in range(30)), declared="64Gi")
    idle = Utilization(idle_s={each.account: 7200.0 for each in report.assessments})
    shown = read(replace(report, utilization=idle))
    assert shown.text("idle").startswith("Held idle 30 pods, 76.5Gi ns/pod-u29 holds 4Gi ")
    assert "22 more" in shown.text("idle")
    assert "ns 30 pods, 76.5Gi used 30 idle" in shown.text("pods")
    assert "30 pods hold 76.5Gi and have computed nothing for long." in shown.text()
    assert "more" not in read(replace(report, utilization=idle), query=PageQuery(shows_all=True)).text("idle")


def test_why_a_limit_is_unknown_stands_beside_it() -> None:
    """A pod whose limit can't be determined says why where it is listed."""
    claimed = replace(container("main", of="u1"), claims=("gpu",))
    reported = read(Story(pods=(trainer(containers=(claimed,)),)).see(trainer_node())).text("pods")
    assert "unknown (container main may have a GPU by a ResourceClaim (gpu), and claims are not read)" in reported


def test_recent_actions_are_rows_with_their_sentences_on_demand() -> None:
    """When, which pod, the result, and what it used of its limit; why and what came of it are collapsed below."""
    done = action(used=int(12.4 * Gi), allowed=int(10.2 * Gi))
    page = read(quiet(40), recent=(done, action(why="")), now_s=at(40).wall_s)
    assert page.rows["recent"][:2] == [
        ["Time (UTC)", "Pod", "Result", "Use of limit"],
        ["08:00:00 40s ago", "a/trainer container main", result_short(done), "12.40Gi of 10.20Gi"],
    ]
    folded = "Why, and what came of it 08:00:00 UTC It was over. It is gone. 08:00:00 UTC It is gone. Older actions"
    assert folded in page.text("recent")
    assert [values for tag, values in page.elements if tag == "details"] == [{}] * 2, "the watchdog's own state too"
    page = read(quiet(40), recent=(done,), query=PageQuery(shows_all=True))
    assert [values for tag, values in page.elements if tag == "details"] == [{"open": ""}] * 2


def test_older_actions_are_collapsed() -> None:
    """All but six, each still with its sentences."""
    text = read(quiet(40), recent=(action(),) * 20, now_s=at(40).wall_s).text("recent")
    assert (text.count(result_short(action())), text.count(action().why)) == (20, 20)
    assert text.partition("14 earlier")[0].count(result_short(action())) == 6


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"used": None, "used_at_least": 3 * Gi, "allowed": 2 * Gi}, "at least 3.0Gi of 2.0Gi"),
        ({"used": Gi, "used_beside": 2 * Gi, "allowed": 2 * Gi}, "3.0Gi of 2.0Gi with others on its claim"),
        ({"used": Gi, "allowed": None}, "1.0Gi"),
        ({"used": None, "used_at_least": None, "allowed": 2 * Gi}, "unknown of 2.0Gi"),
        ({"used": Gi, "allowed": 0}, "1.0Gi of 0.0Gi"),
    ],
)
def test_what_an_action_was_about_is_shown_as_far_as_it_is_known(more: dict[str, Any], shown: str) -> None:
    """The use that was compared with the limit, a lower bound as such, and no limit where there was none."""
    assert read(quiet(40), recent=(action(**more),)).rows["recent"][1][3] == shown


def amounts(page: Read, section: str, *columns: int) -> set[tuple[str, int]]:
    """The unit and the number of decimals of each amount in some columns."""
    found = re.findall(r"(\d+)(?:[.](\d+))?([KMGT]i)?", " ".join(row[n] for row in page.rows[section] for n in columns))
    return {(unit, len(decimals)) for _, decimals, unit in found}


def test_a_column_has_one_notation() -> None:
    """Amounts from MiB to many GiB have one unit and as many decimals, so they compare without reading the unit."""
    declared = {"small": ("512Mi", Gi // 4), "whole": ("8Gi", 8 * Gi), "large": ("64Gi", 70 * Gi), "tiny": ("1Gi", Gi)}
    pods = tuple(pod(uid, container("main", amount, of=uid)) for uid, (amount, _) in declared.items())
    uses = [use(100 + n, used) for n, (_, used) in enumerate(declared.values())]
    listed = [process(100 + n, f"{uid}/main") for n, uid in enumerate(declared)]
    recent = [action(used=used, allowed=used // 2) for _, used in declared.values()]
    page = read(Story(pods=pods).see(snapshot(uses, listed, [gpu(used=79 * Gi)])), recent=recent)
    assert len(page.rows["pods"]) == len(page.rows["recent"]) == 5
    assert amounts(page, "pods", 2, 3, 4) == {("Gi", 2)}
    assert amounts(page, "recent", 3) == {("Gi", 2)}


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
    """A driver that fails gives a gap for each call: what to do is shown once, and GPUs go by their short names."""
    first = Gap(
        reason=GapReason.GPU_ERROR, what="GPU-0 memory", problem=Problem("call 0 failed", "look for NVRM"), gpu="GPU-0"
    )
    second = replace(first, what="GPU-1 memory", problem=Problem("call 1 failed", "look for NVRM"), gpu="GPU-1")
    other = Gap(reason=GapReason.PODS, what="pod list", problem=Problem("no way there", "see the network"))
    report = quiet(snapshot=trainer_node(4.0, gaps=(first, second)), pods=PodList(synced=at(0), gaps=(other,)))
    assert read(report).text("gaps") == (
        "Data gaps GPU 0 memory: call 0 failed GPU 1 memory: call 1 failed What to do: look for NVRM. "
        "pod list: no way there What to do: see the network."
    )
    many = tuple(replace(first, what=f"process {n}", problem=Problem(f"x{n}", "same")) for n in range(50))
    assert "And 46 more like these." in read(quiet(snapshot=trainer_node(4.0, gaps=many))).text("gaps")
    assert read(quiet()).text("gaps") == "Data gaps None."


def test_what_the_headline_has_at_length_is_shown_once() -> None:
    """A driver or an API server that can't be read: the rest of the page points at its error and its remedy."""
    lost, found = Problem("call 0: GPU is lost", "look for Xid"), Problem("call 1 failed", "look for Xid")
    gaps = [
        Gap(reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=replace(lost, remedy="look for Xid; or reset"))
    ]
    gaps += [Gap(reason=GapReason.GPU_ERROR, what=f"GPU-{n}", problem=lost, gpu=f"GPU-{n}") for n in range(2)]
    other = Gap(reason=GapReason.GPU_ERROR, what="driver version", problem=found)
    cards = tuple(gpu(number, up=False, used=None) for number in range(2))
    blind = replace(trainer_node(None, gpus=cards, blind=True), gaps=tuple(gaps))
    page = read(quiet(snapshot=blind))
    assert page.text("gaps") == "Data gaps NVML: see above GPU 0, GPU 1: see above"
    assert page.text("gpus").startswith("GPUs 2 Stub, use unknown, 160Gi in total GPU 0 Not responding.")
    assert read(quiet(snapshot=replace(blind, gpus=()))).text("gpus") == "GPUs Unknown: NVML is not responding."
    page = read(quiet(snapshot=replace(blind, gaps=(*gaps, other))))
    assert page.text("gaps").endswith("driver version: call 1 failed What to do: see above.")
    gap = Gap(reason=GapReason.PODS, what="pods", problem=Problem("no right to list", "grant it"))
    health = structs.replace(WELL, unready=(f"the pod list is old: {gap.problem}",), api=f"pods: {gap.problem}")
    page = read(quiet(pods=PodList(gaps=(gap,))), health=health)
    assert page.text("gaps") == "Data gaps pods: see above"
    assert "Ready the pod list is old: see above " in page.text("health")
    assert "API server pods: see above " in page.text("health")


def test_the_health_says_what_is_wrong() -> None:
    """Each thing that can be wrong is an item of the list, in its own words."""
    unsettled = "the policy file p.toml has not settled within 1m, and the current policy stays"
    health = structs.replace(
        WELL, ready=False, unready=("the pod list is old",), journal="no space left", policy_error=unsettled,
        api="node n1: no right",
    )  # fmt: skip
    page = read(quiet(), health=health)
    shown = page.text("health")
    assert [values for tag, values in page.elements if tag == "details"] == [{"open": ""}]
    assert "Watchdog 4 of 9 need attention" in shown
    assert "Watchdog All is well" in read(quiet()).text("health")
    for item in (
        *("Ready the pod list is old", "Journal no space left", "API server node n1: no right"),
        f"Policy the file on disk is not in effect: {unsettled}",
        "Version 0.1.0 Up since 07:00:00 UTC (1h)",
    ):
        assert item in shown


SINCE = "as of 08:00:09 UTC"
HANGS = structs.replace(WELL, hangs_since=Moment(at(9).wall_s), last_cycle_ago_s=60.0)
GAP = Gap(reason=GapReason.PROCESSES, what="GPU-0 processes", problem=Problem("Not Supported (code 3)"), gpu="GPU-0")
NOT_LISTED = "What runs on GPU 0 is not known."


def later(report: CycleReport) -> Read:
    """The page a minute after a cycle since which none has ended."""
    return read(report, health=HANGS, passed_s=60.0, now_s=report.at.wall_s + 60.0)


def test_while_the_loop_hangs_numbers_are_marked_as_old() -> None:
    """Nothing is promised, no time runs on by itself, and each card, each span and the table name their moment."""
    page = later(climbing(9))
    assert "Kill withheld: hung" in page.text("urgent")
    assert f"over the limit for 9s {SINCE}" in page.text("urgent")
    assert page.text("gpus").count(SINCE) == 2
    assert f"These figures are {SINCE}." in page.text("pods")
    assert "over, kill withheld: hung" in page.text("pods")
    assert SINCE not in "".join(read(climbing(9)).text(part) for part in ("urgent", "gpus", "pods"))


def unlisted(*, declares: bool) -> Read:
    """The page of a vGPU: 60Gi in use, and no list of who uses them."""
    pods = (pod("u9", container("main", "8Gi", of="u9") if declares else container("main", of="u9")),)
    return read(Story(pods=pods).see(snapshot(gpus=(gpu(0, used=60 * Gi, listed=False),), gaps=(GAP,))))


@pytest.mark.parametrize("declares", [True, False])
def test_a_card_without_a_list_is_not_an_idle_card(declares: bool) -> None:
    """Nowhere does it read as if nothing used it: the headline, the table, the bar, unattributed memory."""
    page = unlisted(declares=declares)
    for part in ("", "pods", "unattributed"):
        assert NOT_LISTED in page.text(part), part
    assert "None." not in page.text("unattributed")
    assert "No pod uses" not in page.text()
    assert ("div", "state watch") in [(tag, values.get("class")) for tag, values in page.elements]
    assert "unknown unattributed 60Gi in use, owner unknown" in page.text("gpus")
    drawn = [values for tag, values in page.elements if tag == "rect" and values["width"] != "100%"]
    assert [each["width"] for each in drawn if each["class"] == "unknown"] == ["75%"]


def test_what_is_known_of_a_card_in_part_is_shown_as_such() -> None:
    """Known parts stand for themselves, and the unknown segment is the rest less the driver's reserve."""
    pods = (pod("u1", container("main", "8Gi", of="u1")),)
    seen = snapshot(
        [use(1, 3 * Gi), use(2, 2 * Gi), use(3, None)],
        [process(1, "u1/main"), process(2, None), process(3, None)],
        (gpu(0, used=20 * Gi, reserved=Gi),),
    )
    reported = read(Story(pods=pods, under=policy()).see(seen)).text("gpus")
    assert "3Gi ns/pod-u1 at least 2Gi unattributed 14Gi in use, owner unknown" in reported
    assert "14Gi" not in read(Story(pods=pods).see(snapshot(gpus=(gpu(0, used=14 * Gi),)))).text("pods")


def test_a_lost_card_is_no_idle_card_either() -> None:
    """The page of a card that fell off the bus does not claim that it has no unattributed memory."""
    lost = quiet(snapshot=trainer_node(4.0, gpus=(gpu(0, up=False, listed=False), gpu(1))))
    assert NOT_LISTED in read(lost).text("unattributed")


def test_data_gaps_come_first_when_there_are_any() -> None:
    """Who is paged sees below the headline what is not known; without gaps nothing is in the way of cards and pods."""
    found = [
        Gap(reason=GapReason.CGROUP, what=f"process {n}", problem=Problem(f"unreadable {n}", f"remedy {n}"))
        for n in range(5)
    ]
    for report, is_first in ((climbing(9), False), (quiet(snapshot=trainer_node(4.0, gaps=tuple(found))), True)):
        ids = [each for each in read(report, recent=(action(),)).ids if each in ("gaps", "gpus", "recent", "pods")]
        assert ids == (["gaps", "gpus", "recent", "pods"] if is_first else ["gpus", "recent", "gaps", "pods"])
    page = read(quiet(snapshot=trainer_node(4.0, gaps=tuple(found))))
    assert page.text("gaps").count("What to do") == 5
    assert page.text("gaps").partition("2 more")[0].count("What to do") == 3
    assert next(values["href"] for tag, values in page.elements if values.get("href", "").startswith("#")) == "#gaps"


def test_the_pods_name_the_gpus_that_their_memory_is_on() -> None:
    """By the names of the cards, in their order; the first few where a pod is on many, and the account's own GPU."""
    cards = tuple(gpu(number, used=Gi) for number in range(6))
    pods = tuple(pod(uid, container("main", "8Gi", of=uid)) for uid in ("one", "two", "all", "none"))
    ids = {1: "one", 2: "two", 3: "all"}
    uses = [use(1, Gi, 5), use(2, Gi, 3), use(2, None, 1), *(use(3, Gi, number) for number in range(6))]
    report = Story(pods=pods).see(snapshot(uses, [process(pid, f"{uid}/main") for pid, uid in ids.items()], cards))
    gpus = {row[0].removeprefix("ns/pod-"): row[1] for row in read(report).rows["pods"]}
    assert gpus == {
        "Pod": "GPU", "one": "GPU 5", "two": "GPU 1 and GPU 3", "all": "GPU 0, GPU 1, GPU 2 and 3 more", "none": "none",
    }  # fmt: skip


LONG = trainer(namespace="n" * 50, name=f"{'p' * 100}-{'q' * 100}")
SHORT = f"{'n' * 19}..{'n' * 19}/{'p' * 19}..{'q' * 19}"


def test_long_names_are_cut_in_the_middle_and_whole_on_hover() -> None:
    """More than 40 characters: in the headline, on cards, of who is over, of recent actions and in the table."""
    done = action(namespace=LONG.namespace, pod=LONG.name, uid="gone", container="c" * 63)
    page = read(Story(pods=(LONG,)).run(12.4, 9), recent=(done,))
    for section in ("", "gpus", "urgent", "recent", "pods"):
        assert SHORT in page.text(section), section
        assert LONG.name not in page.text(section), section
    titles = [values.get("title") for tag, values in page.elements if tag == "bdi"]
    assert titles.count(f"{LONG.namespace}/{LONG.name}") == 7
    assert "c" * 63 in titles
    assert {values.get("title") for tag, values in read(climbing(9)).elements if tag == "bdi"} == {
        None,
        "GPU-0",
        "GPU-1",
    }


@pytest.mark.parametrize(
    ("switch", "given", "shown"),
    [
        ("stop_file", {"why": "driver upgrade", "by": "root at 2026-01-02 03:04:05 UTC"},
         'Stopped by root at 2026-01-02 03:04:05 UTC: "driver upgrade".'),
        ("stop_file", {"by": "root at 2026-01-02 03:04:05 UTC"},
         "No reason was given; stopped by root at 2026-01-02 03:04:05 UTC."),
        ("node_annotation", {"why": "driver upgrade"}, 'The reason given: "driver upgrade".'),
        ("node_annotation", {},
         "No reason was given; `kubectl get node n1 -o yaml --show-managed-fields` shows who set it and when."),
    ],
)  # fmt: skip
def test_the_reason_of_a_stop_is_beside_it(switch: str, given: dict[str, str], shown: str) -> None:
    """Who stopped enforcement, when and why: in the headline, and where the command is that resumes it."""
    stopped = replace(climbing(9), stops=(StopNote(switch=switch, **given),), **_off(switch))
    page = read(stopped)
    assert shown in page.text()
    assert f"turns it off. {shown}" in page.text("stop")
    assert shown in read(stopped, health=HANGS).text("stop"), "also while the headline says something worse"


def test_what_is_no_name_leads_nowhere() -> None:
    """The page of a name that Kubernetes never gives can't be asked for."""
    page = read(quiet(40), recent=(action(pod="No Name"),), now_s=at(40).wall_s)
    assert "a/No Name was killed 40s ago" in page.text()
    assert not [values for element, values in page.elements if "Name" in values.get("href", "")]
