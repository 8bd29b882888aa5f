"""The status page: what a reader finds in it, and what nobody can put into it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.export.build import KILL, WARN, Story, climbing, policy, quiet, trainer, trainer_node
from tests.export.page_reader import WELL, read
from tests.worlds import Gi, Mi, at, container, gpu, pod, process, rule, snapshot, step, use
from watchdog.core.brakes import Brake
from watchdog.core.ledger import UnderWay
from watchdog.core.model import Gap, GapReason, Pod, PodList
from watchdog.core.plan import Conditions, CycleReport
from watchdog.export.recent import RecentDeed


def busy(second: float, until_s: float) -> CycleReport:
    """A pass in which a kill of a/trainer is under way, whose memory is waited for until so many seconds."""
    report = climbing(int(second))
    (key,) = report.plan.ledger.accounts
    under_way = UnderWay(step=KILL.signature, victim="main", until_s=at(until_s).boottime_s)
    state = replace(report.plan.ledger.accounts[key], under_way=under_way)
    ledger = replace(report.plan.ledger, accounts={key: state})
    return replace(report, plan=replace(report.plan, entries=(), ledger=ledger))


def test_the_account_that_is_over_is_told_with_its_next_step() -> None:
    """Who, what comes when, how much against what, why, what comes besides, and what its owner can change."""
    told = read(climbing(9)).text("told")
    assert told == (
        "Over a mark, and what follows a/trainer Kill in 1s "
        "12.4Gi used, 10.2Gi allowed (8Gi declared by veriff.com/gpu-memory), 2.2Gi too much, over for 9s. "
        "Kill 3 processes of container main (SIGTERM, then SIGKILL after 10s). "
        "Rule notebooks: above 110% of the 10.2Gi allowed for 10s. Warn in 21s. " + told.partition("Warn in 21s. ")[2]
    )
    assert "Its owner can use less GPU memory or declare more" in told


def test_the_time_left_counts_from_now_on() -> None:
    """Between two passes the clock of the reader goes on; it never goes below zero."""
    report = climbing(3)
    assert "Kill in 7s" in read(report).text("told")
    assert "Kill in 2.5s" in read(report, passed_s=4.5, now_s=at(7.5).wall_s).text("told")
    assert "Kill now" in read(report, passed_s=60.0, now_s=at(63).wall_s).text("told")


def test_a_step_that_is_held_back_names_the_brake_and_when_it_lets_go() -> None:
    """What is withheld, by what and until when."""
    story = Story(conditions=Conditions(journal_writable=False))
    told = read(story.run(12.4, 12)).text("told")
    assert "Kill held back" in told
    assert "because the watchdog's journal can't be written" in told


def test_who_only_observes_promises_nothing() -> None:
    """In observe mode and while enforcement is suspended all of it is what would be done."""
    suspended = replace(climbing(31), enforcing=False, suspended=("stop_file",))
    for report in (climbing(31, under=policy(mode="observe")), suspended):
        told = read(report).text("told")
        assert "Would kill now" in told
        assert " Kill " not in told
    hours = replace(rule(WARN, KILL, name="notebooks"), mode="observe")
    told = read(climbing(31, under=policy(hours))).text("told")
    assert "Nothing will be done: this rule only observes." in told


@pytest.mark.parametrize(
    ("second", "until_s", "short"),
    [(31, 65, "Being killed, SIGKILL in 4s"), (31, 50, "Killed, waiting for its memory")],
)
def test_a_kill_under_way_is_told(second: float, until_s: float, short: str) -> None:
    """Until its SIGKILL with the time left, from then on that its memory is waited for."""
    assert short in read(busy(second, until_s)).text("told")


def test_on_an_old_pod_list_no_time_is_promised() -> None:
    """A timer that stands still is not counted down."""
    old = replace(climbing(3), pods=PodList(pods=(trainer(),), synced=at(-600)))
    told = read(old, passed_s=5.0).text("told")
    assert "Kill put off" in told
    assert "until it is read anew no time counts" in told
    later = replace(old.plan.entries[0], withheld_by=Brake.OWNER)
    told = read(replace(old, plan=replace(old.plan, entries=(later,))), passed_s=5.0).text("told")
    assert "Kill put off" in told


def test_a_protected_pod_is_told_so() -> None:
    """Whoever is over and never acted on reads why, and gets no advice."""
    under = policy(protect=replace(policy().protect, namespaces=("a",)))
    told = read(climbing(9, under=under)).text("told")
    assert "Never acted on:" in told
    assert "Its owner can" not in told


def test_many_that_are_over_take_little_room_each() -> None:
    """The first three have all sentences, nine more the first lines, and the others a row of the table."""
    pods = tuple(pod(f"u{n}", container("main", "1Gi", of=f"u{n}")) for n in range(20))
    uses = [use(100 + n, (3 + n) * Gi) for n in range(20)]
    seen = snapshot(uses, [process(100 + n, f"u{n}/main") for n in range(20)])
    page = read(Story(pods=pods).see(seen))
    told = page.text("told")
    assert told.count(" used, ") == 12
    assert told.count("Its owner can") == 3
    assert told.endswith("8 more accounts like these: all accounts.")
    assert page.text("accounts").count("over, kill") == 20


def test_a_card_is_told_by_who_uses_it() -> None:
    """Every part of the bar stands below it as text, with what makes it stand out beside the colour."""
    told = read(climbing(9)).text("gpus")
    assert told == (
        "GPUs GPU 0 Stub 12.9Gi of 80Gi (16%) 11.4Gi a/trainer over 1Gi processes of no pod 256Mi residual "
        "256Mi reserved by the driver 67.1Gi free "
        "GPU 1 Stub 2Gi of 80Gi (2%) 1Gi a/trainer over 768Mi residual 256Mi reserved by the driver 78Gi free"
    )


DARK = "unknown residual unknown reserved by the driver unknown free"
DUMB: dict[str, Any] = {"total": None, "used": None, "reserved": None}


@pytest.mark.parametrize(
    ("card", "uses", "told"),
    [
        (gpu(used=None, reserved=None), [use(1, Gi)], f"unknown of 80Gi 1Gi ns/pod-a {DARK}"),
        (gpu(0, **DUMB), [use(1, None)], f"unknown of unknown unknown ns/pod-a {DARK}"),
        (
            gpu(used=5 * Gi), [use(1, None), use(2, 2 * Gi)],
            "5Gi of 80Gi (6%) at least 2Gi ns/pod-a 3Gi in use, by whom is not known unknown residual 75Gi free",
        ),
        (gpu(used=Gi), [use(1, 2 * Gi)], "1Gi of 80Gi (1%) 2Gi ns/pod-a -1Gi residual 79Gi free"),
        (gpu(up=False), [], "Does not answer."),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_card_is_told_so(card: object, uses: list[object], told: str) -> None:
    """Unknown is a word, never 0; numbers that contradict each other are shown as they are."""
    report = Story(pods=(pod(),)).see(snapshot(uses, [], [card]))  # type: ignore[list-item,arg-type]
    assert read(report).text("gpus") == f"GPUs GPU 0 Stub {told}"


def test_a_full_card_names_the_largest_and_sums_up_the_rest() -> None:
    """Four by name where there are few cards, two where there are many; of the others, how many are over."""
    pods = tuple(pod(f"u{n}", container("main", "2Gi" if n > 6 else "1Gi", of=f"u{n}")) for n in range(9))
    uses = [use(100 + n, 1800 * Mi + n) for n in range(9)]
    processes = [process(100 + n, f"u{n}/main") for n in range(9)]
    few, many = [gpu(used=18 * Gi)], [gpu(n, used=18 * Gi) for n in range(9)]
    told = read(Story(pods=pods, under=policy(allowance=NONE)).see(snapshot(uses, processes, few))).text("gpus")
    assert "1.8Gi ns/pod-u6 over" in told
    assert "8.8Gi 5 more pods (3 over)" in told
    told = read(Story(pods=pods, under=policy(allowance=NONE)).see(snapshot(uses, processes, many))).text("gpus")
    assert "12.3Gi 7 more pods (5 over)" in told


NONE = replace(policy().allowance, per_context=0, percent=Fraction(0))


def test_mig_instances_and_maintenance() -> None:
    """An instance is named by its card and its own number; a card that is let go is not one that fails."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-0", gi=3, ci=0, profile="1g.10gb")
    assert "GPU 0, instance 3 Stub 1g.10gb" in read(Story().see(snapshot(gpus=[slice_]))).text("gpus")
    report = quiet(snapshot=trainer_node(4.0, gpus=(gpu(up=False),)), maintenance="the node is being upgraded")
    assert "Let go for maintenance." in read(report).text("gpus")


def test_all_accounts_stand_in_the_table_the_most_urgent_first() -> None:
    """What is over, what is not known, and then by the share of what may be used; who declares nothing comes last."""
    pods = (
        pod("low", container("main", "8Gi", of="low")),
        pod("high", container("main", "8Gi", of="high")),
        pod("over", container("main", "1Gi", of="over")),
        pod("none"),
        pod("odd", container("main", "8Gi", of="odd")),
    )
    ids = {1: ("low", 2 * Gi), 2: ("high", 7 * Gi), 3: ("over", 3 * Gi), 5: ("none", Gi), 6: ("odd", None)}
    seen = snapshot(
        [use(pid, used) for pid, (_, used) in ids.items()],
        [process(pid, f"{uid}/main") for pid, (uid, _) in ids.items()],
        [gpu(used=20 * Gi)],
    )
    told = read(Story(pods=pods).see(seen)).text("accounts")
    order = [told.index(f"ns/pod-{uid} ") for uid in ("over", "odd", "high", "low", "none")]
    assert order == sorted(order)
    assert "ns/pod-odd rule notebooks unknown, at most 7Gi of 8.7Gi (declared 8Gi) not known" in told
    assert "1Gi declares nothing" in told


def deed(**more: object) -> RecentDeed:
    """A kill of a/trainer at the beginning of the test."""
    made = RecentDeed(
        wall_s=at(0).wall_s, namespace="a", pod="trainer", uid="u1", container="main", gpu=None, do="kill",
        scope="container", rule="notebooks", step=1, used=1, used_at_least=1, allowed=1, declared=1, why="It was over.",
        result="done", outcome="It is gone.",
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("do", "result", "told"),
    [
        ("kill", None, "kill is under way"), ("kill", "done", "was killed"), ("kill", "failed", "kill failed"),
        ("kill", "interrupted", "kill was interrupted"), ("kill", "gone", "kill was not needed any more"),
        ("kill", "observed", "would have been killed"), ("evict", "done", "was evicted"),
        ("evict", "blocked", "eviction is blocked"), ("warn", "done", "was warned"),
        ("warn", "observed", "would have been warned"), ("dance", "tired", "deed has ended"),
    ],
)  # fmt: skip
def test_what_was_done_is_told_with_its_end(do: str, result: str | None, told: str) -> None:
    """Each deed with what became of it, when, why and what came of it."""
    text = read(quiet(40), recent=(deed(do=do, result=result),), now_s=at(40).wall_s).text("lately")
    assert f"a/trainer container main {told} 08:00:00 UTC, 40s ago It was over. It is gone." in text


def test_the_older_deeds_have_a_line_each() -> None:
    """Five with their sentences, the others without."""
    text = read(quiet(40), recent=tuple(deed(deed=number) for number in range(20))).text("lately")
    assert (text.count("was killed"), text.count("It was over.")) == (20, 5)


def test_memory_of_no_pod_is_told_by_its_reason() -> None:
    """How much, by how many, what they are, and what to look at."""
    told = read(quiet()).text("unattributed")
    assert told == (
        "Memory of no pod 1Gi by 1 process of the host: Xorg (PID 9) 1Gi on GPU 0. "
        "Nobody acts on them; look what runs on the node beside Kubernetes."
    )
    unknown = Story(pods=()).see(snapshot([use(5, None)], [process(5, None, name="")]))
    assert "An unknown amount by 1 process of the host: unnamed (PID 5) unknown on GPU 0." in read(unknown).text(
        "unattributed"
    )


def test_gaps_with_one_remedy_stand_together() -> None:
    """A driver that fails gives a gap for each call: what to do is said once, and GPUs go by their short names."""
    gaps = tuple(
        Gap(reason=GapReason.GPU_ERROR, what=f"GPU-{n} memory", why=f"call {n} failed; look for NVRM", gpu=f"GPU-{n}")
        for n in range(2)
    )
    other = Gap(reason=GapReason.PODS, what="pod list", why="no way there; see the network")
    report = quiet(snapshot=trainer_node(4.0, gaps=gaps), pods=PodList(synced=at(0), gaps=(other,)))
    assert read(report).text("gaps") == (
        "Not known GPU 0 memory: call 0 failed GPU 1 memory: call 1 failed Do: look for NVRM. "
        "pod list: no way there Do: see the network."
    )
    crowd = tuple(replace(gaps[0], what=f"process {n}", why=f"x{n}; same") for n in range(50))
    assert "And 46 more like these." in read(quiet(snapshot=trainer_node(4.0, gaps=crowd))).text("gaps")
    assert read(quiet()).text("gaps") == "Not known Nothing is missing."


def test_the_health_says_what_is_wrong() -> None:
    """Each thing that can be wrong is a sentence in the list."""
    health = replace(
        WELL, ready=False, unready=("the pod list is old",), journal="no space left", policy_error="line 3",
        api="node n1: no right",
    )  # fmt: skip
    told = read(quiet(), health=health).text("health")
    for expected in ("Ready the pod list is old", "Journal no space left", "API server node n1: no right"):
        assert expected in told
    assert "Policy the file has mistakes, and the policy before it goes on: line 3" in told
    assert "Version 0.1.0 Runs since 07:00:00 UTC, 1h ago" in told


HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "a\u202etxt.exe\u2066\u200f",
    "line\nbreak\r\x00\x1b[2J\x9b",
    "x" * 5000,
    "lone \udc80\ud800 surrogates",
    "&lt;b&gt; &amp; ' \" `",
    "javascript:alert(1)//</style></title>",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
)


def hostile(name: str) -> CycleReport:
    """A pass in which everything that has a name has this one."""
    evil = Pod(
        namespace=name, name=name, uid=name, containers=(replace(container("main", "1Gi", of="evil"), name=name),),
        annotations={name: name}, labels={name: name},
    )  # fmt: skip
    under = policy(
        rule(WARN, KILL, step("150%", grace_s=0.0), name=name, account="container"), contact=name, source=name
    )
    place = replace(process(5, "evil/main").place, pod=name)
    gone = process(6, None, name=name)
    gaps = (Gap(reason=GapReason.CGROUP, what=name, why=f"{name}; {name}"),)
    seen = snapshot(
        [replace(use(5, 3 * Gi), gpu=name), replace(use(6, Gi), gpu=name)],
        [process(5, None, name=name, place=place), gone],
        [replace(gpu(), uuid=name, name=name, profile=name, gi=1)],
        3,
        gaps=gaps,
    )
    report = Story(under=under, pods=(evil,)).see(seen, suspended=(name,), enforcing=False)
    return replace(report, node=replace(report.node, name=name))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    """Whatever a tenant calls things: no element, attribute or character of it gets into the page as anything else."""
    done = deed(namespace=name, pod=name, container=name, rule=name, why=name, outcome=name)
    health = replace(WELL, unready=(name,), journal=name, policy_error=name, api=name, version=name)
    page = read(hostile(name), recent=(done,), health=health, remedies={name: name})
    plain = read(hostile("tame"), recent=(deed(),), remedies={"tame": "tame"})
    kinds = {element for element, _ in plain.elements}
    for element, attributes in page.elements:
        assert element in kinds
        assert not {"style", "src", "action", "srcdoc"} & attributes.keys()
        assert not [key for key in attributes if key.startswith("on")]
        href = attributes.get("href", "#")
        assert href.startswith(("#", "/", "data:image/svg+xml,"))
    text = "".join("".join(parts) for parts in page.sections.values())
    assert text.isprintable()
    assert len(max(text.split(" "), key=len)) <= 2010
    text.encode("utf-8")


@pytest.mark.parametrize(("report", "colour"), [(quiet(), "1b8a4a"), (climbing(9), "b3001b")])
def test_the_icon_of_the_tab_is_in_the_page(report: CycleReport, colour: str) -> None:
    """A browser that is given no icon asks for one elsewhere; ours tells by its colour how things are."""
    (icon,) = [values["href"] for element, values in read(report).elements if element == "link"]
    assert icon.startswith("data:image/svg+xml,")
    assert f"fill='%23{colour}'" in icon


def test_links_within_the_page_lead_somewhere() -> None:
    """Each jump at the top has its heading, also where there is nothing to tell below it."""
    for report in (quiet(), climbing(9), quiet(snapshot=trainer_node(4.0, blind=True, gpus=()))):
        page = read(report)
        jumps = [values["href"][1:] for element, values in page.elements if values.get("href", "").startswith("#")]
        assert len(jumps) >= 6
        assert set(jumps) <= set(page.ids)
