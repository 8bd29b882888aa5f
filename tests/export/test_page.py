"""The status page: who is over and what follows, how to stop enforcement, who uses what, and what is not known."""

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.export.page_reader import WELL, Read, action, read
from tests.node.support import run_python
from tests.report.build import KILL, WARN, Story, busy, climbing, many_over, policy, quiet, trainer, trainer_node
from tests.worlds import Gi, at, container, gpu, pod, process, rule, snapshot, use
from watchdog.core.assessment import Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport
from watchdog.core.policy import NO_ALLOWANCE
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
        f"Over limit: what happens next a/trainer {step.short.capitalize()} "
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
    assert "team-1 20 pods, 9Gi used 1 over Pod Use State pod-u4 9Gi of 1.5Gi" in page.text("pods")
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


def test_a_card_shows_what_uses_it() -> None:
    """Every part of the bar is below it as text, with what makes it stand out beside the colour."""
    assert read(climbing(9)).text("gpus") == (
        "GPUs 2 Stub, 14.9Gi of 160Gi in use (9%) GPU 0 12.9Gi of 80Gi (16%) 11.4Gi a/trainer over 1Gi unattributed "
        "256Mi residual 256Mi reserved 67.1Gi free "
        "GPU 1 2Gi of 80Gi (2%) 1Gi a/trainer over 768Mi residual 256Mi reserved 78Gi free "
        "Unattributed: used by processes of no listed pod. Residual: in use, but by no process that the driver lists. "
        "Reserved: by the driver itself."
    )


DARK = "unknown residual unknown reserved unknown free"
DUMB: dict[str, Any] = {"total": None, "used": None, "reserved": None}


@pytest.mark.parametrize(
    ("card", "uses", "reported"),
    [
        (gpu(used=None, reserved=None), [use(1, Gi)], f"Use unknown, 80Gi in total 1Gi ns/pod-a {DARK}"),
        (gpu(0, **DUMB), [use(1, None)], f"Use unknown, total unknown unknown ns/pod-a {DARK}"),
        (
            gpu(used=5 * Gi), [use(1, None), use(2, 2 * Gi)],
            "5Gi of 80Gi (6%) at least 2Gi ns/pod-a 3Gi in use, owner unknown unknown residual 75Gi free",
        ),
        (gpu(used=Gi), [use(1, 2 * Gi)], "1Gi of 80Gi (1%) 2Gi ns/pod-a -1Gi residual 79Gi free"),
        (gpu(up=False), [], "Not responding."),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_card_is_shown_as_unknown(card: object, uses: list[object], reported: str) -> None:
    """Unknown is a word, never 0; numbers that contradict each other are shown as they are."""
    report = Story(pods=(pod(),)).see(snapshot(uses, [], [card]))  # type: ignore[list-item,arg-type]
    assert read(report).text("gpus").startswith(f"GPUs Stub GPU 0 {reported}")


def test_a_full_card_names_the_largest_and_sums_up_the_rest() -> None:
    """Four by name where there are few cards, two where there are many; of the others, how many are over."""
    few = many_over(*[1.75] * 6, *[1.5] * 3, declared="1.6Gi", under=policy(allowance=NO_ALLOWANCE))
    assert "1.8Gi ns/pod-u0 over" in read(few).text("gpus")
    assert "8Gi 5 more pods (2 over)" in read(few).text("gpus")
    many = Story(pods=few.pods.pods, under=few.policy).see(
        replace(few.snapshot, gpus=tuple(gpu(n, used=18 * Gi) for n in range(9)))
    )
    assert "11.5Gi 7 more pods (4 over)" in read(many).text("gpus")


def test_mig_instances_and_maintenance() -> None:
    """An instance is named by its card and its own number; a card that is let go is not one that fails."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-0", gi=3, ci=0, profile="1g.10gb")
    assert "GPUs Stub 1g.10gb GPU 0, instance 3" in read(Story().see(snapshot(gpus=[slice_]))).text("gpus")
    report = quiet(snapshot=trainer_node(4.0, gpus=(gpu(up=False),)), maintenance="the node is being upgraded")
    assert "Released for maintenance." in read(report).text("gpus")


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
    assert "ns/pod-odd unknown, at most 7Gi of 8.7Gi (declared 8Gi) unknown" in reported
    assert "1Gi nothing declared" in reported
    assert reported.count('rule "notebooks"') == 1, "a rule that all have in common is named once"


def test_why_a_limit_is_unknown_stands_beside_it() -> None:
    """A pod whose limit can't be determined says why where it is listed."""
    claimed = replace(container("main", of="u1"), claims=("gpu",))
    reported = read(Story(pods=(trainer(containers=(claimed,)),)).see(trainer_node())).text("pods")
    assert "unknown (container main may have a GPU by a ResourceClaim (gpu), and claims are not read)" in reported


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
