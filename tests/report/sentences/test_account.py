"""What `explain` says of an account: situations, and the sentences that the pod's owner reads."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.report.build import NOTEBOOKS, Story, acting, activity, climbing, policy, quiet, trainer, trainer_node
from tests.worlds import Gi, at, container, gpu, process, rule, snapshot, step, use
from watchdog.config.fields import hours
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.ledger import UnderWay
from watchdog.core.meter import card_sizes
from watchdog.core.model import Claim, ClaimedDevice, Gap, GapReason, Place, PlaceKind
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Declaration, Protect
from watchdog.core.utilization import CardUtilization
from watchdog.report.sentences.account import account_paragraphs, account_sentences
from watchdog.report.sentences.usage import idle_card_hours, utilization_unknown
from watchdog.report.status import (
    AccountStatus,
    GpuMemory,
    GpuStatus,
    HealthStatus,
    Moment,
    ProcessStatus,
    Status,
    decode,
    encode,
)
from watchdog.report.status_build import status_of

NOTHING = trainer(containers=(container("main", None, of="u1"),))
PINNING = trainer(
    claims={"gpu": Claim(name="gpu", devices=(ClaimedDevice(request="gpu", name="gpu-0", pinned_limit=3 * Gi),))}
)
TOO_MUCH = trainer(containers=(container("main", "900Gi", of="u1"),))
NOTED = replace(NOTHING, annotations={"vram": "900Gi"})
BY_NOTE = (Declaration(annotation="vram", unit=1),)
PROTECTING = policy(protect=Protect(namespaces=("a",)))


def why(report: CycleReport) -> list[str]:
    """The paragraphs about every account of a report, through the JSON as a daemon sends it."""
    status = decode(json.dumps(encode(status_of(report))).encode())
    return [" ".join(paragraph) for each in status.accounts for paragraph in account_paragraphs(each, status)]


def held(brake: Brake, **more: object) -> CycleReport:
    """A kill of a/trainer that this brake holds back after 31 s."""
    report = climbing(31)
    entries = tuple(
        replace(each, withheld_by=brake, taken=False, **more) if each.do.enforces else each  # type: ignore[arg-type]
        for each in report.plan.entries
    )
    return replace(report, plan=replace(report.plan, entries=entries))


def assessed_as(**more: object) -> CycleReport:
    """A quiet cycle whose one account is changed in this."""
    report = quiet()
    return replace(report, assessments=tuple(replace(each, **more) for each in report.assessments))  # type: ignore[arg-type]


def test_a_pod_in_the_time_that_its_rule_allows() -> None:
    """The whole answer for the commonest question: how much, how much is allowed and why, what comes, what to do."""
    assert why(climbing(9)) == [
        (
            "Pod a/trainer uses 12.4Gi of GPU memory. Its limit is 10.2Gi: 8Gi declared by veriff.com/gpu-memory, "
            "plus 2.2Gi driver allowance (2% of 8Gi, plus 512Mi for each of 4 CUDA contexts). That is 2.2Gi over "
            "its limit, exceeded since 08:00:00 UTC."
        ),
        (
            'Its rule is "notebooks". In 1s, at 08:00:10 UTC, if its use stays above the threshold: kill all '
            'processes of container main (SIGTERM, then SIGKILL after 10s). Rule "notebooks": above 110% of the 10.2Gi '
            "allowed for 10s. Higher steps of that rule: kill all processes of container main above 15.2Gi (150% of "
            "its limit), immediately."
        ),
        (
            "To stay within its limit, use less GPU memory or declare more: set "
            'resources.limits["veriff.com/gpu-memory"] of container main to at least 11Gi (the allowance is '
            "added to this)."
        ),
    ]


def test_a_pod_that_is_within() -> None:
    """An owner who asks why nothing happened reads that nothing has to, and where that would change."""
    first, second = why(quiet())
    assert first.endswith("That is within its limit.")
    assert second == (
        'Its rule is "notebooks". The steps of that rule: warn above 10.2Gi (100% of its limit) for 5s; kill '
        "all processes of container main above 11.2Gi (110% of its limit) for 10s; kill all processes of container "
        "main above 15.2Gi (150% of its limit), immediately."
    )


def _gapped() -> CycleReport:
    gaps = tuple(
        Gap(
            reason=GapReason.PROCESSES, what=f"{what} processes", problem=Problem(f"call {number} failed; tried again.")
        )
        for number, what in enumerate(["GPU-1", "GPU-0", "pod file", "GPU-0 more", "GPU-0 again", "GPU-0 still"])
    )
    return Story().see(trainer_node(None, gaps=gaps))


def _of_others() -> CycleReport:
    named = {
        "labels of namespace a": "not read",
        "labels of namespace team-b": "not read",
        "namespace team-b": "odd",
        "namespaces": "nothing is known",
        "pod a/trainer": "odd",
        "pod team-b/other": "odd",
        "pods of node n1": "nothing is known",
    }
    gaps = tuple(Gap(reason=GapReason.PODS, what=what, problem=Problem(why)) for what, why in named.items())
    return Story().see(trainer_node(None, gaps=gaps))


def _ruleless() -> CycleReport:
    gap = Gap(reason=GapReason.NAMESPACES, what="labels of namespace a", problem=Problem("no labels"))
    report = assessed_as(rule=None, verdict=Verdict.UNKNOWN, rule_gap=gap)
    return replace(report, snapshot=replace(report.snapshot, gaps=(gap,)))


def _let_go() -> CycleReport:
    silent = Gap(reason=GapReason.MAINTENANCE, what="NVML", problem=Problem("the driver is upgraded"))
    seen = snapshot([use(pid, None) for pid in (101, 102)], trainer_node(1.0).processes.values(), gaps=(silent,))
    return Story(maintenance=True).see(replace(seen, blind=True), maintenance="the driver is upgraded")


def _unknown_container() -> CycleReport:
    stray = process(7, "u1/main", place=Place(kind=PlaceKind.POD, pod="u1"))
    seen = snapshot([use(7, Gi)], [stray])
    return Story(under=policy(rule(step(), name="r", account="container")), pods=(NOTHING,)).see(seen)


def _observing(**more: object) -> CycleReport:
    """A node whose one rule only observes; what the rule says of itself is in `more`."""
    report = Story(under=policy()).run(12.4, 3)
    observing = replace(NOTEBOOKS, **more)  # type: ignore[arg-type]

    def own(each: Assessment) -> Assessment:
        return replace(each, rule=observing, observes=True)

    entries = tuple(replace(each, assessment=own(each.assessment)) for each in report.plan.entries)
    plan = replace(report.plan, entries=entries)
    return replace(report, assessments=tuple(own(each) for each in report.assessments), plan=plan)


def _under_way(step_: int = 1, until_s: float | None = None, **more: Any) -> CycleReport:
    signature = NOTEBOOKS.steps[step_].signature
    return acting(held(Brake.PENDING), UnderWay(step=signature, victim="main", until_s=until_s, **more))


def _by(*steps: object, used: float = 12.4, until: int = 3, **more: object) -> Callable[[], CycleReport]:
    under = policy(rule(*steps, name="r", **more))  # type: ignore[arg-type]
    return lambda: Story(under=under).run(used, until)


PRESSED = step("100%", 5, "kill", "process", under_pressure=True)
PER_GPU = Declaration(resource="veriff.com/gpu-memory", unit=1, per="gpu")
HOURS = hours().read("Mon-Thu 08:00-18:00 UTC")

BARE: dict[str, Any] = {"pods": (NOTHING,)}
FORBIDDING = policy(replace(NOTEBOOKS, default=0))
DEFAULTING = policy(replace(NOTEBOOKS, default=4 * Gi), declarations=BY_NOTE)
SOFT = policy(rule(step("100%", 30, "warn"), name="soft"))
NO_LABELS = Gap(reason=GapReason.NODE, what="labels", problem=Problem("no labels"))
PAST = at(20).boottime_s + 40  # of a kill that began at 20 s, with a grace period of 10 s
UNREAD = Gap(reason=GapReason.CGROUP, what="process 7", problem=Problem("unread"))

USES: dict[str, tuple[Callable[[], CycleReport], str]] = {
    "a container": (
        _by(step("100%", 9), account="container"), "Container main of pod a/trainer uses 12.4Gi of GPU memory."),
    "an unknown container": (_unknown_container, (
        "An unknown container of pod a/trainer uses 1Gi of GPU memory. That memory belongs to processes of a "
        "container that is not in the pod list (yet): it is counted, but never leads to a kill or an eviction.")),
    "one GPU": (
        lambda: Story(under=policy(NOTEBOOKS, declarations=(PER_GPU,))).run(13.0, 2),
        "Pod a/trainer uses 12Gi of GPU memory on GPU-0."),
    "nothing": (lambda: Story().see(snapshot()), "Pod a/trainer uses no GPU memory. Its limit"),
    "nothing, beside strangers": (
        lambda: Story().see(snapshot([use(5, 3 * Gi)], [process(5, "gone/main")])), (
        "Pod a/trainer uses no GPU memory. Processes whose pod is unknown use 3Gi on this node; no pod is charged for "
        "it. Its limit")),
    "a container that the list does not have yet": (
        lambda: Story().see(snapshot([use(1, 3 * Gi)], [process(1, "u1/new")])), (
        "How much GPU memory pod a/trainer uses is currently unknown. According to its GPU's memory counter it is at "
        "most 3Gi. 3Gi is used by a container that is not in the pod list yet. It counts once the container is listed, "
        "or a minute after it was first seen. The container is not killed until it is listed.")),
    "unknown in part": (lambda: Story().see(trainer_node(None)), (
        "uses at least 3Gi of GPU memory; the rest is currently unknown. According to its GPU's memory counter it is "
        "at most 3Gi in total. Its limit")),
    "unknown, within at most": (lambda: Story().see(trainer_node(None)), (
        "Whether it is over its limit is currently unknown, so no action is taken. Even at the maximum of 3Gi it would "
        "be within its limit. The driver reports no usage for 1 of its processes.")),
    "maintenance": (
        _let_go, "What pod a/trainer uses is unknown while the driver is released for maintenance. Its limit is"),
    "maintenance, without a guess at who is silent": (_let_go, "so no action is taken. Its rule"),
    "gaps of its GPUs": (_gapped, (
        "Data gap: GPU-1 processes: call 0 failed; tried again. Data gap: GPU-0 processes: call 1 failed; tried again. "
        "Data gap: GPU-0 more processes: call 3 failed; tried again. Data gaps not shown: 2.")),
    "gaps of other tenants are not shown": (_of_others, (
        "Data gap: labels of namespace a: not read. Data gap: pod a/trainer: odd. Data gap: pods of node n1: nothing "
        "is known. Its rule")),
    "gaps of the node": (lambda: Story().see(trainer_node(None, gaps=(UNREAD,))), "Data gap: process 7: unread."),
}  # fmt: skip
LIMITS: dict[str, tuple[Callable[[], CycleReport], str]] = {
    "undeclared": (lambda: Story(**BARE).run(12.4, 3), (
        "It has no declaration that the policy recognizes, so it is only measured and no action is taken on it. It can "
        "declare GPU memory with veriff.com/gpu-memory, which then sets its limit.")),
    "the rule has no default": (
        lambda: Story(**BARE).run(12.4, 3),
        'Its rule is "notebooks", which has no default for a pod that declares nothing.'),
    "default": (lambda: Story(**BARE, under=DEFAULTING).run(12.4, 3), (
        "It declares no GPU memory, so the default of its rule applies: its limit is 6.1Gi: 4Gi from that default, "
        "plus 2.1Gi driver")),
    "forbidden": (
        lambda: Story(**BARE, under=FORBIDDING).run(12.4, 3),
        "its limit is 0 (from that default). That is 12.4Gi over its limit"),
    "misdeclared": (lambda: Story(pods=(NOTED,), under=policy(declarations=BY_NOTE)).run(12.4, 3), (
        "Its declaration is invalid and no other applies, so it is only measured and no action is taken on it. The "
        "declaration vram of the pod is ignored: 900Gi is more than all cards together (160Gi); is the unit right?")),
    "misdeclared, used as written": (lambda: Story(pods=(TOO_MUCH,)).run(12.4, 3), (
        "The declaration veriff.com/gpu-memory of container main is used as written: 900Gi is more than all cards "
        "together (160Gi); is the unit right?")),
    "misdeclared, with a default": (
        lambda: Story(pods=(NOTED,), under=DEFAULTING).run(12.4, 3),
        "is the unit right?; the limit above applies instead."),
    "unknown": (
        lambda: assessed_as(allowed=None, declared=None, verdict=Verdict.UNKNOWN),
        "Its limit is currently unknown, so no action is taken."),
    "a request below the limit": (lambda: assessed_as(requested=4 * Gi, allowed_by_request=6 * Gi), (
        "It has set a limit above the 4Gi that it requested: while its GPU is short of memory only the request counts, "
        "and its limit is 6Gi.")),
    "of its clients, by a claim": (lambda: Story(pods=(PINNING,)).run(4.0, 1), (
        "By its claim each of its MPS clients may pin at most 3Gi; that is no limit for all of them together. Its ")),
    "no rule": (
        lambda: Story(under=policy(rules=())).run(12.4, 3),
        "No rule of the policy matches this pod, so it is only measured and no action is taken on it."),
    "rule unknown": (
        lambda: assessed_as(rule=None, rule_gap=NO_LABELS), "Which rule applies to it is unknown: no labels."),
    "rule unknown, named once": (
        _ruleless, "so no action is taken. Which rule applies to it is unknown: no labels."),
    "rule only warns": (lambda: climbing(30, under=SOFT), 'Its rule is "soft", which only warns. Due now: warn. Rule'),
    "rule observes": (lambda: _observing(mode="observe"), (
        'Its rule is "notebooks". This rule only observes: it records what it would do and takes no action. In 2s, at '
        "08:00:05 UTC, if its use stays above the threshold: would warn. Rule")),
    "outside hours": (lambda: _observing(active=HOURS), (
        "This rule only observes outside its hours (Mon-Thu 08:00-18:00 UTC): now it records what it would do and "
        "takes no action. Its hours start Mon 08:00 UTC (2027-01-18 08:00:00 UTC).")),
    "protected": (
        lambda: Story(under=PROTECTING).run(12.4, 31),
        "This pod is never killed or evicted, whatever it uses: the policy protects namespace a. Due now: kill"),
}  # fmt: skip
FOLLOWING: dict[str, tuple[Callable[[], CycleReport], str]] = {
    "due now": (lambda: Story().run(17, 2), (
        'Due now: kill all processes of container main (SIGKILL immediately). Rule "notebooks": above 150% of the '
        "10.2Gi allowed, immediately.")),
    "an amount above the limit": (
        _by(step(f"+{2 * Gi}", 9)), 'Rule "r": more than 2Gi above the 10.2Gi allowed for 9s.'),
    "a limit of nothing": (
        lambda: Story(**BARE, under=FORBIDDING).run(12.4, 3), 'Rule "notebooks": above 150%, immediately.'),
    "warned before": (
        lambda: climbing(60, under=SOFT),
        "In 59m 30s, at 09:00:30 UTC, if its use stays above the threshold: warn again."),
    "would be warned again": (
        lambda: climbing(60, under=replace(SOFT, mode="observe")), "stays above the threshold: would warn again."),
    "evicted": (
        lambda: Story(under=policy(rule(step("100%", 5, "evict"), name="r"))).run(12.4, 2),
        "In 3s, at 08:00:05 UTC, if its use stays above the threshold: evict the pod with a grace period of 10s."),
    "a whole pod": (_by(step("100%", 0, scope="pod")), "Due now: kill all processes of the pod (SIG"),
    "one process": (
        _by(step("100%", 9, scope="process")), "threshold: kill the largest GPU process of container main (SIGTERM"),
    "withheld": (
        lambda: held(Brake.NAMESPACE, releases_in_s=90.0),
        "allowed for 10s. Withheld for another 1m 30s, until 08:02:01 UTC, because"),
    "withheld, and a warning": (lambda: Story(journal_writable=False).run(12.4, 31), (
        "takes no action without a record. In 59m 34s, at 09:00:05 UTC, if its use stays above the threshold: warn")),
    "to be withheld": (
        lambda: held(Brake.OWNER, due_in_s=7.0, releases_in_s=49.0), "allowed for 10s. Withheld then, until 08:01:20"),
    "only observed": (
        lambda: _observing(mode="observe"),
        "In 7s, at 08:00:10 UTC, if its use stays above the threshold: would kill all processes of container main ("),
    "suspended": (
        lambda: Story().see(trainer_node(12.4), enforcing=False, suspended=("stop_file",)),
        "if its use stays above the threshold: would kill all processes"),
    "on an old pod list": (
        lambda: Story(pods_stale=True).run(12.4, 3), "In 10s, at 08:00:13 UTC, if its use stays above the threshold: "),
    "in progress": (lambda: _under_way(sent=("SIGTERM",)), (
        "A kill of container main is in progress: its processes got SIGTERM, and those still running get SIGKILL after "
        "10s; the watchdog then waits up to 30s for their memory to be freed. Higher steps of that rule: kill "
        "all processes of container main above 15.2Gi")),
    "in progress, both signals sent": (lambda: _under_way(until_s=PAST, sent=("SIGTERM", "SIGKILL")), (
        "its processes got SIGTERM at 08:00:20 UTC, and those still running got SIGKILL at 08:00:30 UTC; the")),
    "in progress, SIGKILL about to be sent": (lambda: _under_way(until_s=PAST, sent=("SIGTERM",)), (
        "got SIGTERM at 08:00:20 UTC, and those still running were due SIGKILL at 08:00:30 UTC; the")),
    "in progress, ended on SIGTERM": (
        lambda: _under_way(until_s=PAST, sent=("SIGTERM",), ended=True),
        "its processes got SIGTERM at 08:00:20 UTC and have ended; the watchdog then waits up to 30s for"),
    "in progress, ended before a signal": (
        lambda: _under_way(until_s=PAST, ended=True), "its processes had ended before a signal was sent; the"),
    "in progress, at once": (
        lambda: _under_way(2, sent=("SIGKILL",)), "its processes got SIGKILL; the watchdog then waits"),
    "in progress, SIGKILL earlier than planned": (
        lambda: _under_way(2, until_s=at(25).boottime_s + 40), "its processes got SIGKILL; the watchdog then waits"),
    "higher steps, under pressure": (_by(PRESSED, used=4), (
        "The steps of that rule: kill the largest GPU process of container main above 10.2Gi (100% of its limit) while "
        "its GPU is short of memory (less than 5% free) for 5s.")),
    "higher steps, of a request under pressure": (
        lambda: assessed_as(requested=4 * Gi, allowed_by_request=6 * Gi, rule=rule(PRESSED, name="r")),
        "above 6Gi (100% of its requested limit) while its GPU is short of memory"),
    "higher steps, above nothing": (
        lambda: Story(**BARE, under=policy(rule(step("100%", 5), name="r", default=0))).see(
            snapshot([use(101, 0)], [process(101, "u1/main")])),
        "The steps of that rule: kill all processes of container main above zero for 5s."),
}  # fmt: skip


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(*row, id=f"{part}: {name}")
        for part, table in (("uses", USES), ("limit", LIMITS), ("following", FOLLOWING))
        for name, row in table.items()
    ],
)
def test_each_situation_has_its_words(made: Callable[[], CycleReport], says: str) -> None:
    """Every way in which an account can be is put into sentences that need no source to be understood."""
    assert says in " ".join(why(made()))


def test_a_step_that_is_held_back_leaves_no_promise_of_another() -> None:
    """Where a brake holds one step, the paragraph does not say of a later one that it will be done."""
    report = Story(under=policy(rule(step("100%", 0), step("110%", 60), name="r"))).run(12.4, 2)
    later, due = sorted(report.plan.entries, key=lambda each: -each.due_in_s)
    entries = (replace(due, withheld_by=Brake.NODE, taken=False, releases_in_s=300.0), later)
    text = " ".join(why(replace(report, plan=replace(report.plan, entries=entries))))
    assert "Withheld for another 5m" in text
    assert "if its use stays above the threshold: kill" not in text
    report = Story(under=policy(NOTEBOOKS)).run(12.4, 3)
    warning, kill = report.plan.entries
    foreseen = (warning, replace(kill, withheld_by=Brake.OWNER, releases_in_s=300.0))
    text = " ".join(why(replace(report, plan=replace(report.plan, entries=foreseen))))
    assert (
        "Higher steps of that rule (not currently enforced): kill all processes of container main above 15.2Gi" in text
    )


def test_a_protected_pod_is_not_advised_to_change_anything() -> None:
    """The owner of a pod that is never acted on need not declare more."""
    assert "declare more" not in " ".join(why(Story(under=PROTECTING).run(12.4, 31)))


def active(ratio: float | None, idle_s: float | None = None, *, card: CardUtilization | None = None) -> str:
    """What is said of how busy a/trainer is in a cycle of a daemon."""
    report = quiet(31, utilization=activity(ratio, idle_s, card))
    status = decode(json.dumps(encode(status_of(report, (), HealthStatus()))).encode())
    (account,) = status.accounts
    return " ".join(account_sentences(account, status).activity)


@pytest.mark.parametrize(
    ("ratio", "idle_s", "words"),
    [
        (0.35, None, "Its processes use 35% of the time of its 2 GPUs on average."),
        (0.001, None, "Its processes use <1% of the time of its 2 GPUs on average."),
        (0.0, None, "Its processes use none of the time of its 2 GPUs on average."),
        (0.0, 1200.0, "It has computed nothing for 20m."),
        (
            0.0,
            7800.0,
            (
                "It has computed nothing for 2h 10m while it holds 4Gi; it is reported as idle, and nothing is done "
                "about it. That began at 05:50:31 UTC or earlier: time for which its utilisation is unknown doesn't "
                "count. At what it holds now, that is 0.11 card-hours."
            ),
        ),
        (
            None,
            None,
            "How busy it is isn't known: the driver does not reliably say which processes keep GPU 0 and GPU 1 busy.",
        ),
    ],
)
def test_how_busy_an_account_is(ratio: float | None, idle_s: float | None, words: str) -> None:
    """What it uses of the time, and idle only what is reported as idle; what is unknown accuses nobody."""
    assert active(ratio, idle_s) == words


def test_why_it_is_unknown_how_busy_an_account_is() -> None:
    """The driver's own reason, which stays text, or that it was not read; what was idle before stays so."""
    silent = CardUtilization(gpu="GPU-0", why="no \x1b[2J utilisation")
    assert active(None, card=silent) == "How busy it is isn't known: no \\x1b[2J utilisation."
    assert active(None, card=CardUtilization(gpu="GPU-0")).endswith("it has not been read in the last 30s.")
    assert "it is reported as idle" in active(None, 7800.0)
    status = decode(json.dumps(encode(status_of(quiet(31), (), HealthStatus()))).encode())
    gpus = tuple(structs.replace(gpu, utilization_unknown="\x1b[2J") for gpu in status.gpus)
    assert utilization_unknown(status.accounts[0], structs.replace(status, gpus=gpus)) == "\\x1b[2J"


def test_idle_on_several_cards_of_unknown_size_costs_nothing_known() -> None:
    """No card-hours are made up where the size of a card, or what a process holds, is unknown."""
    processes = (ProcessStatus(pid=1, gpu="a", used=40 * Gi), ProcessStatus(pid=2, gpu="b", used=20 * Gi))
    idle = AccountStatus(processes=processes, idle_s=36000)
    sized = (GpuStatus(uuid="a", memory=GpuMemory(total=80 * Gi)), GpuStatus(uuid="b", memory=GpuMemory(total=80 * Gi)))
    status = Status(node="n", at=Moment(1.8e9), accounts=(idle,), gpus=sized, plan=())
    assert idle_card_hours(idle, status) == "7.5"
    assert not idle_card_hours(idle, structs.replace(status, gpus=sized[:1]))
    unknown = structs.replace(idle, processes=(ProcessStatus(pid=1, gpu="a"),))
    assert not idle_card_hours(unknown, status)


def test_card_hours_are_those_of_the_report() -> None:
    """The page's share of a card is that of the card-seconds: of what is left besides the driver's own memory."""
    memory = GpuMemory(total=80 * Gi, reserved=16 * Gi)
    idle = AccountStatus(processes=(ProcessStatus(pid=1, gpu="a", used=32 * Gi),), idle_s=36000)
    gpus = (GpuStatus(uuid="a", memory=memory),)
    status = Status(node="n", at=Moment(1.8e9), accounts=(idle,), gpus=gpus, plan=())
    card = gpu(0, 80 * Gi, uuid="a", reserved=memory.reserved)
    share = 32 * Gi / card_sizes(snapshot(gpus=(card,)))["a"]
    assert idle_card_hours(idle, status) == f"{10 * share:.2g}" == "5"
