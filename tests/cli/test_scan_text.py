"""What `scan` prints for people."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as msgspec_replace
from rich.cells import cell_len

from tests.cli.build import full
from tests.report.build import Story, climbing, policy, quiet, trainer, trainer_node
from tests.worlds import Gi, container, gpu, snapshot
from watchdog.cli.scan import scan_text
from watchdog.cli.tables import UNCUT
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport
from watchdog.report.status import ProcessStatus
from watchdog.report.status_build import status_of
from watchdog.report.text import byte_cell, has_colour

PAGE = """\
Node n1 at 2027-01-15 08:00:09 UTC, policy /etc/gpu-watchdog/policy.toml: enforce.

GPUs
GPU  STATE    USED  TOTAL  RESERVED  RESIDUAL  UNATTRIBUTED  UUID   NAME
0    up     12.9Gi   80Gi     256Mi     256Mi           1Gi  GPU-0  Stub
1    up        2Gi   80Gi     256Mi     768Mi             0  GPU-1  Stub

Pods
POD        CONTAINER  GPU    USED  DECLARED  ALLOWED  PERCENT  VERDICT  RULE
a/trainer  -          0,1  12.4Gi       8Gi   10.2Gi     122%  over     notebooks

Processes
PID  POD        CONTAINER  GPU   USED  NAME
101  a/trainer  main       0    9.4Gi  python3
102  a/trainer  main       0      1Gi  python3
103  a/trainer  main       0      1Gi  python3
103  a/trainer  main       1      1Gi  python3

Unattributed processes
PID  GPU  USED  NAME  WHY
  9  0     1Gi  Xorg  a process of the host

What would happen next
- Pod a/trainer, in 1s: kill all processes of container main (SIGTERM, then SIGKILL after 10s). Rule
  "notebooks": above 110% of the 10.2Gi allowed for 10s.
Counted from now, without a daemon's timers and brakes; for those use `gpu-watchdog explain NS/POD`.
"""
GAP = Gap(
    reason=GapReason.GPU_LOST,
    what="GPU-1 processes",
    problem=Problem("the card fell off the bus: look for Xid in dmesg"),
)


def printed(report: CycleReport, *, colour: bool = False, width: int = 100) -> str:
    """What `scan` prints of a cycle."""
    return scan_text(status_of(report), report.policy.source, colour=colour, width=width)


def section(report: CycleReport, title: str) -> str:
    """The text under a title, in one line."""
    return " ".join(printed(report).partition(f"\n{title}\n")[2].partition("\n\n")[0].split())


def test_the_whole_text() -> None:
    """A table with titles for GPUs, pods, processes and unattributed ones, and what would follow, in this very form."""
    assert printed(climbing(9)) == PAGE


def remarked(**changes: object) -> CycleReport:
    """A cycle whose one account differs in these things."""
    report = climbing(9)
    return replace(report, assessments=tuple(replace(each, **changes) for each in report.assessments))  # type: ignore[arg-type]


SPARED = trainer(namespace="kube-system", containers=(container("main", "8 GB", of="u1"),))
UNDECLARED = trainer(containers=(container("main", None, of="u1"),))
NO_LABELS = Gap(
    reason=GapReason.NODE, what="labels", problem=Problem("no labels of the node", "give --node-object FILE")
)
CARDS = (gpu(0, up=False, used=None), replace(gpu(1), total=None, used=None, reserved=None))

SPARED_AND_BLIND = Story(pods=(SPARED,)).see(trainer_node(12.4, 9, gaps=(GAP,)))
NO_NUMBERS = Story().see(trainer_node(None, 1, gpus=CARDS))
BY_NOTHING = Story(pods=(UNDECLARED,), under=policy(declarations=()))
BESIDE = {
    "a data gap": (SPARED_AND_BLIND, "- GPU 1 processes: the card fell off the bus: look for Xid in dmesg"),
    "a protected pod": (SPARED_AND_BLIND, "- kube-system/trainer: protected, no action is taken: it is in kube-system"),
    "an ignored declaration": (SPARED_AND_BLIND, "of container main is ignored: '8 GB' is not"),
    "a brake": (Story(journal_writable=False).run(12.4, 12), "Withheld"),
    "a lost GPU": (NO_NUMBERS, "0 lost unknown"),
    "unknown memory": (NO_NUMBERS, "1 up unknown unknown unknown unknown"),
    "unknown use": (NO_NUMBERS, ">=3Gi"),
    "suspended enforcement": (quiet(suspended=("lock",), enforcing=False), "Enforcement is suspended: lock. GPUs"),
    "observe mode": (climbing(31, under=policy(mode="observe")), ": observe, takes no action. GPUs"),
    "a rule that observes": (remarked(observes=True), "no action is taken: this rule only observes"),
    "an unknown rule": (remarked(rule=None, rule_gap=NO_LABELS), "no labels of the node; give --node-object FILE"),
    "no declaration": (Story(pods=(UNDECLARED,)).see(trainer_node(4.0)), "reads; it can declare some with veriff"),
    "no way to declare": (BY_NOTHING.see(trainer_node(4.0)), "in any way that the policy reads What would"),
}


@pytest.mark.parametrize(("report", "says"), BESIDE.values(), ids=BESIDE.keys())
def test_what_explains_a_reading_is_beside_it(report: CycleReport, says: str) -> None:
    """What is unknown, left alone or withheld is never silent, and unknown amounts are words."""
    assert says in " ".join(printed(report).split())


NO_DRIVER = Gap(reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=Problem("libnvidia-ml.so.1 was not found"))
BLIND = "Unknown: NVML is not responding."
NO_LIST = "Unknown: there is no pod list; "
NOTHING_LISTED = (
    "Nothing: no account of a listed pod is above the threshold of a step. "
    "Unknown for 3 processes whose pods are not in the pod list."
)

NO_PODS = "No pod on this node uses or declares GPU memory."
UNREADABLE = PodList(gaps=(replace(GAP, reason=GapReason.PODS),))
SECTIONS = {
    "an empty node": (
        Story(pods=()).see(snapshot(gpus=())),
        ("None found.", NO_PODS, "Nothing: no account is above the threshold of a step."),
    ),
    "no driver": (Story().see(snapshot(gpus=(), blind=True, gaps=(NO_DRIVER,))), (BLIND, BLIND, BLIND)),
    "no pod list": (
        Story(pods=()).see(trainer_node(), pods=PodList()),
        ("", *2 * (NO_LIST + "give --kubeconfig FILE or --pods FILE.",)),
    ),
    "an unreadable pod list": (
        Story(pods=()).see(trainer_node(), pods=UNREADABLE),
        ("", *2 * (NO_LIST + "see Data gaps for the reason.",)),
    ),
    "a wrong --node": (Story(pods=()).see(trainer_node()), ("", NO_PODS, NOTHING_LISTED)),
}


@pytest.mark.parametrize(("report", "sections"), SECTIONS.values(), ids=SECTIONS.keys())
def test_nothing_and_unknown_are_different_words(report: CycleReport, sections: tuple[str, str, str]) -> None:
    """Law 3: nothing is enforced on unknown input; nor is it reported as if there were nothing to see."""
    gpus, accounts, plan = sections
    assert section(report, "GPUs") == gpus or not gpus
    assert (section(report, "Pods"), section(report, "What would happen next")) == (accounts, plan)
    assert ("of a pod (" in printed(report)) is accounts.startswith(NO_LIST)


def test_pods_over_their_limit_come_first() -> None:
    """On a node with many pods the ones over their limit are on top."""
    others = tuple(
        trainer(name=f"idle-{i}", uid=f"i{i}", namespace="0", containers=(container("main", "1Gi", of=f"i{i}"),))
        for i in range(5)
    )
    lines = printed(Story(pods=(*others, trainer())).see(trainer_node())).splitlines()
    assert lines[lines.index("Pods") + 2].startswith("a/trainer ")


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets no escape sequence; a terminal gets the verdict in colour, unless NO_COLOR says otherwise."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert (has_colour(Terminal()), has_colour(io.StringIO())) == (True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())
    assert "\x1b[31mover\x1b[0m" in printed(climbing(9), colour=True)


names = st.text(min_size=1, max_size=300)


@given(names, names, names, st.sampled_from([80, 100, 160]), st.booleans())
def test_every_line_is_inert_and_sentences_fit(pod: str, of: str, process: str, width: int, colour: bool) -> None:
    """Whatever names there are, sentences fit the width, and the only control codes are our own colours."""
    seen = trainer_node(14)
    processes = {pid: replace(each, name=process) for pid, each in seen.processes.items()}
    seen = replace(seen, processes=processes, gaps=(replace(GAP, what=process, problem=Problem(pod)),))
    report = Story(pods=(trainer(name=pod, containers=(container(of, "8 GB", of="u1"),)),)).see(seen)
    text = re.sub(r"\x1b\[(0|1|31|32|33)m", "", printed(report, colour=colour, width=width))
    assert text.replace("\n", "").isprintable()
    assert all(cell_len(line) <= width for line in text.partition("\nNotes\n")[2].splitlines())
    assert text.count("\n") == len(text.splitlines())


LONG = "notebooks/jupyter-alice-7f9c5d8b4-x2x9k-of-the-second-floor"
CARD = replace(gpu(0), uuid="GPU-5d0f6a3e-1b7c-4c8d-9e2f-a1b2c3d4e5f6", name="NVIDIA H100 80GB HBM3")


def test_a_pipe_has_everything_whole() -> None:
    """Without a width each row is on one line, with names, numbers and columns whole, however long they are."""
    namespace, _, name = LONG.partition("/")
    seen = trainer_node(gpus=(CARD,))
    seen = replace(seen, uses=tuple(replace(each, gpu=CARD.uuid) for each in seen.uses))
    report = Story(pods=(trainer(namespace=namespace, name=name),)).see(seen)
    lines = printed(report, width=UNCUT).splitlines()
    (row,) = (line.split() for line in lines if line.startswith(LONG))
    assert row == [LONG, "-", "0", "12.4Gi", "8Gi", "9.7Gi", "128%", "over", "notebooks"]
    assert any(CARD.uuid in line and line.endswith(CARD.name) for line in lines)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "unknown"), (0, "0"), (1023, "1023"), (1024, "1Ki"), (7 * Gi, "7Gi"), (7 * Gi + Gi // 2, "7.5Gi"),
     (Gi - 1, "1.0Gi"), (128 * Gi, "128Gi"), (-3 * 2**20, "-3Mi"), (2**70, "1024Ei")],
)  # fmt: skip
def test_a_column_of_bytes_has_one_decimal(amount: int | None, text: str) -> None:
    """Numbers below each other are written alike, so that they can be compared at a glance."""
    assert byte_cell(amount) == text


def test_a_plan_that_is_not_carried_out_promises_nothing() -> None:
    """In observe mode and while enforcement is suspended the plan is what would be done, never what is."""
    plan = section(climbing(31, under=policy(mode="observe")), "What would happen next")
    assert "Pod a/trainer, due now: would kill all processes of container main" in plan
    assert "No action will be taken: the watchdog is in observe mode." in plan
    suspended = replace(climbing(31), enforcing=False, suspended=("stop_file",))
    assert "No action will be taken: enforcement is suspended" in section(suspended, "What would happen next")


def test_after_a_kill_at_once_the_lesser_steps_do_not_follow() -> None:
    """A container that gets SIGKILL now is neither warned in 28 s nor killed in 8 s; one that is spared is."""
    plan = section(Story().run(17, 2), "What would happen next")
    assert 'due now: kill all processes of container main (SIGKILL immediately). Rule "notebooks": above 150%' in plan
    assert plan.count("Pod a/trainer") == 1
    spared = section(Story(pods=(trainer(namespace="kube-system"),)).run(17, 2), "What would happen next")
    assert spared.count("Pod kube-system/trainer, in ") == 2


@pytest.mark.parametrize(
    ("declared", "remark"),
    [
        ("12Gi", ""),
        ("1Gi", ""),
        ("12Mi", "it uses 12.4Gi, about a thousand times the 12Mi that it declares by veriff.com/gpu-memory"),
        ("12Ki", "about a million times the 12Ki that it declares"),
        ("12", "about a billion times the 12 that it declares"),
    ],
)
def test_a_unit_that_can_hardly_be_right_is_remarked(declared: str, remark: str) -> None:
    """Who reads MiB as bytes sees it in `scan`; a pod that is merely over is no such case."""
    tenant = trainer(containers=(container("main", declared, of="u1"),))
    reported = " ".join(printed(Story(pods=(tenant,)).see(trainer_node(second=9))).split())
    assert remark in reported
    assert ("is the unit of that table right?" in reported) is bool(remark)


def test_why_a_limit_is_unknown_is_remarked() -> None:
    """Every unknown limit names its cause where its owner or an operator looks."""
    claimed = replace(container("main", of="u1"), claims=("gpu",))
    reported = " ".join(printed(Story(pods=(trainer(containers=(claimed,)),)).see(trainer_node())).split())
    assert "a/trainer: its limit is unknown: container main may have a GPU by a ResourceClaim (gpu)" in reported


@pytest.mark.parametrize("width", [60, 80, 120, UNCUT])
def test_it_fits_a_terminal(width: int) -> None:
    """Every table fits: numbers whole, names cut in the middle, fewer columns."""
    shown = full(7, 3)
    cards = tuple(
        msgspec_replace(each, uuid=f"GPU-{'0123' * 8}-{n}", name="NVIDIA H100 80GB HBM3")
        for n, each in enumerate(shown.gpus)
    )
    used = ProcessStatus(pid=410_001, gpu=cards[0].uuid, used=Gi, container="main", name="ray::TrainWorker.execute")
    accounts = tuple(msgspec_replace(each, processes=(used,)) for each in shown.accounts)
    text = scan_text(msgspec_replace(shown, gpus=cards, accounts=accounts), "policy.toml", width=width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line.split() for line in text.splitlines() if re.match("GPU |POD | *PID ", line)]
    gpus, pods, processes, _ = heads
    assert {"USED", "TOTAL", "NAME"} <= set(gpus)
    assert {"POD", "CONTAINER", "USED", "PERCENT", "VERDICT"} <= set(pods)
    assert processes == ["PID", "POD", "CONTAINER", "GPU", "USED", "NAME"]
    assert ("UUID" in gpus, "RULE" in pods, "DECLARED" in pods) == (width > 80, width > 80, width > 60)
    assert ("ns/finetune-llama3-70b-00005  " in text.partition("Processes")[0]) is (width > 80)
    assert len(re.findall("ray::TrainWorker.execute", text)) == (7 if width > 80 else 0)
