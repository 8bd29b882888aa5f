"""What `scan` prints for people."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.export.build import Story, climbing, hostile_pod, policy, quiet, trainer, trainer_node
from tests.worlds import Gi, container, gpu, process, snapshot, use
from watchdog.cli.scan import WIDTH, bar, scan_text
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList
from watchdog.core.plan import CycleReport
from watchdog.report.status_build import status_of
from watchdog.report.text import byte_cell, has_colour

PAGE = """\
Node n1 at 2027-01-15T08:00:09.000Z, policy /etc/gpu-watchdog/policy.toml: enforce.

GPUs
GPU  NAME  UUID   USED OF TOTAL                            RESERVED  RESIDUAL
0    Stub  GPU-0  [###.................] 12.9Gi of 80.0Gi   256.0Mi   256.0Mi
1    Stub  GPU-1  [#...................] 2.0Gi of 80.0Gi    256.0Mi   768.0Mi

Accounts
POD            CONTAINER  GPU    USED  DECLARED  ALLOWED  VERDICT  RULE
a/trainer      all        all  12.4Gi     8.0Gi   10.2Gi  over     notebooks
  101 python3  main       0     9.4Gi
  102 python3  main       0     1.0Gi
  103 python3  main       0     1.0Gi
  103 python3  main       1     1.0Gi

Unattributed processes
PID  NAME  GPU   USED  WHY
  9  Xorg  0    1.0Gi  a process of the host

What would happen next
- Pod a/trainer, in 1s: kill 3 processes of container main (SIGTERM, then SIGKILL after 10s). Rule
  "notebooks": above 110% of the 10.2Gi allowed for 10s.
Counted from now, without a daemon's timers and brakes; for those use `gpu-watchdog explain NS/POD`.
"""
GAP = Gap(
    reason=GapReason.GPU_LOST,
    what="GPU-1 processes",
    problem=Problem("the card fell off the bus: look for Xid in dmesg"),
)


def printed(report: CycleReport, *, colour: bool = False, width: int = WIDTH) -> str:
    """What `scan` prints of a cycle."""
    return scan_text(status_of(report), report.policy.source, colour=colour, width=width)


def test_a_pass_as_people_read_it() -> None:
    """GPUs, accounts with their processes, the rest with its reasons, and what would follow, in this very form."""
    assert printed(climbing(9)) == PAGE


def test_gaps_protection_and_skipped_declarations_are_told() -> None:
    """Whoever reads why a pod is left alone, or what is not known, finds the reason and the remedy."""
    spared = trainer(namespace="kube-system", containers=(container("main", "8 GB", of="u1"),))
    text = printed(Story(pods=(spared,)).see(trainer_node(12.4, 9, gaps=(GAP,))))
    assert "- GPU-1 processes: the card fell off the bus: look for Xid in dmesg" in text
    assert "  protected, no action is taken: it is in kube-system" in text
    assert "veriff.com/gpu-memory of container main is ignored: '8 GB' is not a quantity" in text


def test_what_holds_back_is_told() -> None:
    """A step that a brake holds stands in the plan with the reason."""
    text = printed(Story(journal_writable=False).run(12.4, 12))
    assert "Held back, because the watchdog can't write its journal" in " ".join(text.split())


def test_unknown_numbers_are_words() -> None:
    """An unknown amount never shows as a number, and a GPU that does not answer is said to."""
    cards = (gpu(0, up=False, used=None), replace(gpu(1), total=None, used=None, reserved=None))
    text = printed(Story().see(trainer_node(None, 1, gpus=cards)))
    assert "not responding" in text
    assert "[????????????????????] unknown of unknown" in text
    assert ">=3.0Gi" in text


def _section(text: str, title: str) -> str:
    """What stands under a title, in one line."""
    return " ".join(text.partition(f"\n{title}\n")[2].partition("\n\n")[0].split())


def test_an_empty_node_is_told_in_words() -> None:
    """Where there is nothing, that is what one reads, instead of empty tables."""
    text = printed(Story(pods=()).see(snapshot(gpus=())))
    assert _section(text, "GPUs") == "None found."
    assert _section(text, "Accounts") == "No pod on this node uses or declares GPU memory."
    assert _section(text, "What would happen next") == "Nothing: no account is above the threshold of a step."
    assert "Unattributed processes" not in text


def test_a_driver_that_does_not_answer_is_no_empty_node() -> None:
    """Law 3: Unknown or stale input never leads to force; nor is it told as if there were nothing to see."""
    gap = Gap(reason=GapReason.NVML_UNAVAILABLE, what="NVML", problem=Problem("libnvidia-ml.so.1 was not found"))
    text = printed(Story().see(snapshot(gpus=(), blind=True, gaps=(gap,))))
    assert _section(text, "GPUs") == "Unknown: NVML did not answer."
    assert _section(text, "Accounts") == "Unknown: NVML did not answer."
    assert _section(text, "What would happen next") == "Unknown: NVML did not answer."


@pytest.mark.parametrize(
    ("gaps", "why"),
    [
        ((), "of a pod (no pod list: give --pods)"),
        ((Gap(reason=GapReason.PODS, what="p", problem=Problem("w")),), "of a pod (pod list unreadable)"),
    ],
)
def test_without_a_pod_list_nothing_is_said_of_pods(gaps: tuple[Gap, ...], why: str) -> None:
    """Who has given no list of pods learns that, and not that no pod uses anything or that the list lacks some."""
    text = printed(Story(pods=()).see(trainer_node(), pods=PodList(gaps=gaps)))
    cause = "see Data gaps for the reason" if gaps else "give --kubeconfig FILE or --pods FILE"
    assert _section(text, "Accounts") == f"Unknown: there is no pod list; {cause}."
    assert _section(text, "What would happen next") == f"Unknown: there is no pod list; {cause}."
    assert why in text
    assert "not in the pod list" not in text


def test_nothing_is_not_said_of_pods_that_are_not_known() -> None:
    """With a wrong --node all use is of unknown pods: that nobody would be acted on is no word of how much they use."""
    text = printed(Story(pods=()).see(trainer_node()))
    assert _section(text, "What would happen next") == (
        "Nothing: no account of a listed pod is above the threshold of a step. "
        "Unknown for 3 processes whose pods are not in the pod list."
    )


def test_suspended_enforcement_stands_in_the_first_line() -> None:
    """Whoever thinks that the node is guarded must see at once that it is not."""
    head = printed(quiet(suspended=("lock",), enforcing=False)).partition("\n\n")[0]
    assert " ".join(head.split()).endswith("enforce. Enforcement is suspended: lock.")


def test_the_offenders_come_first() -> None:
    """On a node with many pods the ones over their limit are on top."""
    others = tuple(
        trainer(name=f"idle-{i}", uid=f"i{i}", namespace="0", containers=(container("main", "1Gi", of=f"i{i}"),))
        for i in range(5)
    )
    lines = printed(Story(pods=(*others, trainer())).see(trainer_node())).splitlines()
    assert lines[lines.index("Accounts") + 2].startswith("a/trainer ")


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets no escape sequence; a terminal gets the verdict in colour, unless NO_COLOR says otherwise."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert has_colour(Terminal())
    assert not has_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())
    assert "\x1b" not in printed(climbing(9))
    assert "\x1b[31mover\x1b[0m" in printed(climbing(9), colour=True)


names = st.text(min_size=1, max_size=300)


@given(names, names, names, st.sampled_from([80, 100, 160]))
def test_every_line_fits_and_is_inert(pod_name: str, container_name: str, process_name: str, width: int) -> None:
    """Whatever names there are, no line is longer than asked for and none carries a control character."""
    pod = trainer(name=pod_name, containers=(container(container_name, "8 GB", of="u1"),))
    seen = trainer_node(14)
    processes = {pid: replace(each, name=process_name) for pid, each in seen.processes.items()}
    gap = replace(GAP, what=process_name, problem=Problem(pod_name))
    text = printed(Story(pods=(pod,)).see(replace(seen, processes=processes, gaps=(gap,))), width=width)
    assert all(cell_len(line) <= width and line.isprintable() for line in text.splitlines())
    assert text.count("\n") == len(text.splitlines())


def test_hostile_names_in_colour() -> None:
    """In colour too, the only escape sequences are our own."""
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b[31m")], second=3)
    text = printed(Story(pods=(hostile_pod(),)).see(seen), colour=True)
    own = ("\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m")
    for sequence in own:
        text = text.replace(sequence, "")
    assert "\x1b" not in text
    assert r"\x1b[31m" in text


@pytest.mark.parametrize(
    ("part", "whole", "drawn"),
    [(0, 100, "...."), (1, 100, "#..."), (50, 100, "##.."), (100, 100, "####"), (130, 100, "####"), (None, 100, "????"),
     (5, None, "????"), (5, 0, "????")],
)  # fmt: skip
def test_bars(part: int | None, whole: int | None, drawn: str) -> None:
    """A bar shows the least use as one mark, never overflows, and shows what is unknown as unknown."""
    assert bar(part, whole, 4) == f"[{drawn}]"


LONG = "notebooks/jupyter-alice-7f9c5d8b4-x2x9k-of-the-second-floor"
CARD = replace(gpu(0), uuid="GPU-5d0f6a3e-1b7c-4c8d-9e2f-a1b2c3d4e5f6", name="NVIDIA H100 80GB HBM3")


def real_size(width: int) -> str:
    """A node with names as long as real ones."""
    namespace, _, name = LONG.partition("/")
    seen = trainer_node(gpus=(CARD,))
    uses = tuple(replace(each, gpu=CARD.uuid) for each in seen.uses)
    pod = trainer(namespace=namespace, name=name)
    return printed(Story(pods=(pod,)).see(replace(seen, uses=uses)), width=width)


@pytest.mark.parametrize("width", [60, 72, 80, 100, 160])
def test_numbers_verdicts_and_pods_are_whole_at_any_width(width: int) -> None:
    """Whoever is paged and looks at a narrow terminal can copy the pod's name, and reads every number whole."""
    text = real_size(width)
    assert all(len(line) <= width for line in text.splitlines())
    assert f"\n{LONG}" in text
    for word in ("12.4Gi", "8.0Gi", "9.7Gi", "over", "of 80.0Gi", "a process of the host"):
        assert word in text
    assert all(title in text for title in ("USED OF TOTAL", "DECLARED", "ALLOWED", "VERDICT"))


def test_a_narrow_terminal_costs_the_uuid_and_the_rule_first() -> None:
    """What stands elsewhere too gives way: at 160 columns all is there, at 80 neither."""
    assert CARD.uuid in real_size(160)
    assert "  GPU-5d0f6a3e  " in real_size(100)
    assert "NVIDIA H100 80GB HBM3" in real_size(80)
    assert "UUID" not in real_size(80)
    assert "RULE" in real_size(100)
    assert "RULE" not in real_size(80)
    assert "RULE" in printed(climbing(9), width=80)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "unknown"), (0, "0"), (1023, "1023"), (1024, "1.0Ki"), (7 * Gi, "7.0Gi"), (7 * Gi + Gi // 2, "7.5Gi"),
     (Gi - 1, "1.0Gi"), (128 * Gi, "128.0Gi"), (-3 * 2**20, "-3.0Mi"), (2**70, "1024.0Ei")],
)  # fmt: skip
def test_a_column_of_bytes_has_one_decimal(amount: int | None, text: str) -> None:
    """Numbers below each other are written alike, so that they can be compared at a glance."""
    assert byte_cell(amount) == text


def test_why_an_account_is_left_alone_is_told() -> None:
    """A rule that only observes, and one that can't be named, are said beside the account."""
    report = climbing(9)
    (account,) = report.assessments
    observing = replace(report, assessments=(replace(account, observes=True),))
    assert "no action is taken: this rule only observes" in printed(observing)
    gap = Gap(reason=GapReason.NODE, what="labels", problem=Problem("no labels of the node", "give --node-object FILE"))
    unnamed = replace(report, assessments=(replace(account, rule=None, rule_gap=gap),))
    assert "which rule applies is unknown: no labels of the node; give --node-object FILE" in printed(unnamed)


def _plan_of(report: CycleReport) -> str:
    return _section(printed(report), "What would happen next")


def test_a_plan_in_observe_mode_promises_nothing() -> None:
    """Whoever only observes reads what would be done, at the top too, and never that it is."""
    report = climbing(31, under=policy(mode="observe"))
    assert " ".join(printed(report).partition("\n\n")[0].split()).endswith(": observe, takes no action.")
    assert "Pod a/trainer, due now: would kill 3 processes of container main" in _plan_of(report)
    assert "No action will be taken: the watchdog is in observe mode." in _plan_of(report)
    suspended = climbing(31)
    suspended = replace(suspended, enforcing=False, suspended=("stop_file",))
    assert "No action will be taken: enforcement is suspended (a stop file exists on the node)." in _plan_of(suspended)


def test_after_a_kill_at_once_the_lesser_steps_do_not_follow() -> None:
    """A container that gets SIGKILL now is neither warned in 28 s nor killed in 8 s; one that is spared is."""
    plan = _plan_of(Story().run(17, 2))
    assert 'due now: kill 3 processes of container main (SIGKILL immediately). Rule "notebooks": above 150% of' in plan
    assert plan.count("Pod a/trainer") == 1
    spared = _plan_of(Story(pods=(trainer(namespace="kube-system"),)).run(17, 2))
    assert spared.count("Pod kube-system/trainer, in ") == 2
    assert "due now: kill 3 processes of container main (SIGKILL immediately)." in spared


def test_a_pod_that_declares_nothing_is_told_how() -> None:
    """Whoever wonders why a pod is left alone finds the key that would change it."""
    nothing = trainer(containers=(container("main", None, of="u1"),))
    told = " ".join(printed(Story(pods=(nothing,)).see(trainer_node(4.0))).split())
    assert (
        "no limit applies: it declares no GPU memory in any way that the policy reads; it can declare some with veriff"
        in told
    )
    bare = Story(pods=(nothing,), under=policy(declarations=())).see(trainer_node(4.0))
    assert "in any way that the policy reads Unattributed processes" in " ".join(printed(bare).split())
