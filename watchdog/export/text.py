"""A cycle as text, for `scan`: the GPUs, the accounts, and what is unknown."""

import textwrap
from collections.abc import Iterator, Mapping

from watchdog.core.assessment import Assessment, Reason, Verdict
from watchdog.core.model import GapReason, Gpu
from watchdog.core.plan import CycleReport
from watchdog.export.table import BOLD, GREEN, RED, WIDTH, YELLOW, Cell, Column, Row, bar, fits, paint, table
from watchdog.report.actions import observing_because
from watchdog.report.advice import declare_by
from watchdog.report.figures import Bounds, all_gaps, residual_by_gpu
from watchdog.report.next import outlook
from watchdog.report.text import byte_cell, count, elapsed_s, inert, rfc3339, span


def label_of(gpu: Gpu) -> str:
    """The short name of a GPU: its number, of a MIG instance `0/1`."""
    return str(gpu.index) if gpu.gi is None else f"{gpu.index}/{gpu.gi}"


def labels_of(report: CycleReport) -> dict[str, str]:
    """The short names of all GPUs, by UUID."""
    return {gpu.uuid: label_of(gpu) for gpu in report.snapshot.gpus}


def blind(report: CycleReport) -> str:
    """Why nothing is known of any GPU."""
    return "NVML did not answer" if report.maintenance is None else "NVML is let go while that lasts"


def cannot_say(report: CycleReport) -> list[str]:
    """Why nothing can be said of any account, rather than that there is none; nothing where it can."""
    if report.snapshot.blind:
        return [f"Can't say: {blind(report)}."]
    if report.pods.synced is None:
        is_told = any(gap.reason is GapReason.PODS for gap in report.pods.gaps)
        cause = "the reason stands under Not known" if is_told else "give --kubeconfig FILE, or --pods FILE"
        return [f"Can't say: no pod list is known; {cause}."]
    return []


def item(text: str, width: int) -> list[str]:
    """A text as an item of a list, in lines of at most `width` characters."""
    return wrapped(text, width, "- ", "  ")


def wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """A text in lines of at most `width` characters, the first and the later ones indented."""
    # Names have hyphens, and whoever copies one must get it whole.
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


# At most 40 characters each: with a PID, a name and the bytes before it a line then fits 80 columns.
_REASONS: Mapping[Reason, str] = {
    Reason.HOST: "a process of the host",
    Reason.GONE: "gone, but its memory is still listed",
    Reason.ZOMBIE: "a zombie: its parent did not wait for it",
    Reason.UNKNOWN_POD: "of a pod that the pod list does not have",
    Reason.SPOOFED: "its cgroup names another pod's container",
    Reason.MPS_SERVER: "the MPS server, which holds its clients",
}


def gpu_lines(report: CycleReport, width: int, *, colour: bool) -> list[str]:
    """A row for each GPU, in lines of at most `width` characters."""
    gpus = report.snapshot.gpus
    if not gpus:
        return [f"Not known: {blind(report)}." if report.snapshot.blind else "None seen."]
    residual = residual_by_gpu(report)
    columns = (
        Column(title="GPU"),
        Column(title="NAME", flexible=True),
        Column(title="UUID", optional=True),
        Column(title="USED OF TOTAL"),
        Column(title="RESERVED", right=True),
        Column(title="RESIDUAL", right=True),
    )
    for is_short, marks in ((False, 20), (True, 20), (True, 10)):
        rows = [_gpu(gpu, residual[gpu.uuid], marks, is_short=is_short) for gpu in gpus]
        if fits(columns, rows, width):
            break
    return table(columns, rows, colour=colour, width=width)


def _gpu(gpu: Gpu, residual: int | None, marks: int, *, is_short: bool) -> tuple[Cell, ...]:
    memory = f"{bar(gpu.used, gpu.total, marks)} {byte_cell(gpu.used)} of {byte_cell(gpu.total)}"
    name = f"{gpu.name} {gpu.profile}" if gpu.profile else gpu.name
    # The first group tells the cards of a node apart: GPU-5d0f6a3e of GPU-5d0f6a3e-1b7c-...
    uuid = "-".join(gpu.uuid.split("-")[:2]) if is_short else gpu.uuid
    state = Cell(memory) if gpu.up else Cell("does not answer", RED)
    return Cell(label_of(gpu)), Cell(name), Cell(uuid), state, Cell(byte_cell(gpu.reserved)), Cell(byte_cell(residual))


def unattributed_lines(report: CycleReport, width: int, *, colour: bool) -> list[str]:
    """A row for each process of no pod, with the reason; nothing where there is none."""
    columns = (
        Column(title="PID", right=True),
        Column(title="NAME", flexible=True),
        Column(title="GPU"),
        Column(title="USED", right=True),
        Column(title="WHY"),
    )
    labels = labels_of(report)
    rows = [
        (
            Cell(str(use.pid)),
            Cell(use.name or "-"),
            Cell(labels.get(use.gpu, use.gpu)),
            Cell(byte_cell(use.used)),
            Cell(_why(use.reason, report)),
        )
        for use in report.attribution.unattributed
    ]
    return table(columns, rows, colour=colour, width=width) if rows else []


def _why(reason: Reason, report: CycleReport) -> str:
    if reason is Reason.UNKNOWN_POD and report.pods.synced is None:
        is_named = any(gap.reason is GapReason.PODS for gap in report.pods.gaps)
        return "of a pod (the pod list can't be read)" if is_named else "of a pod (no pod list was given: --pods)"
    return _REASONS[reason]


_COLOURS: Mapping[Verdict, str] = {
    Verdict.OVER: RED,
    Verdict.WITHIN: GREEN,
    Verdict.MISDECLARED: YELLOW,
    Verdict.UNKNOWN: YELLOW,
}
_RANK = (Verdict.OVER, Verdict.UNKNOWN, Verdict.MISDECLARED, Verdict.WITHIN, Verdict.UNDECLARED)


def account_lines(report: CycleReport, width: int, *, colour: bool) -> list[str]:
    """The accounts, whoever is over first, in lines of at most `width` characters."""
    if cannot := cannot_say(report):
        return cannot
    if not report.assessments:
        return ["No pod of the list uses GPU memory or declares it."]
    columns = (
        Column(title="POD", flexible=True),
        Column(title="CONTAINER", flexible=True),
        Column(title="GPU"),
        Column(title="USED", right=True),
        Column(title="DECLARED", right=True),
        Column(title="ALLOWED", right=True),
        Column(title="VERDICT"),
        Column(title="RULE", flexible=True, optional=True),
    )
    ordered = sorted(report.assessments, key=lambda each: (_RANK.index(each.verdict), each.pod.title))
    labels, bounds = labels_of(report), Bounds.of(report)
    rows = (row for each in ordered for row in _account(each, report, bounds, labels, width))
    return table(columns, rows, colour=colour, width=width)


def _account(
    assessment: Assessment, report: CycleReport, bounds: Bounds, labels: Mapping[str, str], width: int
) -> Iterator[Row | str]:
    account = assessment.account
    used = f"{'>=' if assessment.used is None else ''}{byte_cell(assessment.used_at_least)}"
    if assessment.used is None and not assessment.used_at_least:
        used = byte_cell(None)
    yield (
        Cell(assessment.pod.title),
        Cell("all" if account.container is None else account.container or "unknown"),
        Cell("all" if account.gpu is None else labels.get(account.gpu, account.gpu)),
        Cell(used),
        Cell("-" if assessment.declared is None else byte_cell(assessment.declared)),
        Cell("-" if assessment.allowed is None else byte_cell(assessment.allowed)),
        Cell(assessment.verdict.value, _COLOURS.get(assessment.verdict, "")),
        Cell(assessment.rule.name if assessment.rule is not None else "none"),
    )
    for use in assessment.uses:
        who, where = f"  {use.key.pid} {use.name}", labels.get(use.gpu, use.gpu)
        blank = (Cell(""), Cell(""), Cell(""), Cell(""))
        yield Cell(who), Cell(use.container or "unknown"), Cell(where), Cell(byte_cell(use.used)), *blank
    for remark in _remarks(assessment, report, bounds):
        yield from wrapped(inert(remark, 600), width, "  ", "    ")


def _remarks(assessment: Assessment, report: CycleReport, bounds: Bounds) -> Iterator[str]:
    state = report.plan.ledger.accounts.get(assessment.account)
    if state is not None and state.over_since is not None and assessment.verdict is Verdict.OVER:
        over_s = elapsed_s(state.over_since, report.at)
        if over_s >= 1:
            yield f"over for {span(over_s)}"
    most = bounds.used_at_most(assessment)
    if most is not None:
        yield f"at most {byte_cell(most)}, by the counter of its GPU; nobody is acted on by that"
    if assessment.protected is not None:
        yield f"never acted on: {assessment.protected}"
    if assessment.rule_gap is not None:
        yield f"which rule is for it can't be said: {assessment.rule_gap.problem}"
    if assessment.verdict is Verdict.UNDECLARED and assessment.account.container != "":
        key = declare_by(report.policy)
        how = f"; it can declare some by {key}" if key is not None else ""
        yield f"left alone: it declares no GPU memory in any way that the policy knows{how}"
    if assessment.observes:
        yield f"nothing is done: {observing_because(assessment)}"
    for skipped in assessment.misdeclarations:
        yield f"{skipped.source} {'counts as written' if skipped.counts else 'is skipped'}: {skipped.why}"
    if assessment.behind and assessment.account.container is None:
        yield "the pod list does not have all of its containers yet: what it may use is that of its largest phase"


_FROM_NOW = "Counted from now, without a daemon's timers and brakes: `gpu-watchdog explain NS/POD` has those."
_NARROWEST = 60  # below that no table can be read, and lines are left to wrap


def scan_text(report: CycleReport, *, colour: bool = False, width: int = WIDTH) -> str:
    """A report as tables and sentences in lines of at most `width` characters (60 at least), ending with a line break.

    Where lines are short, what `scan --json` tells as well is left out first: the GPU's UUID, the name of the rule.
    """
    width = max(width, _NARROWEST)
    sections = (
        ("GPUs", gpu_lines(report, width, colour=colour)),
        ("Accounts", account_lines(report, width, colour=colour)),
        ("Unattributed processes", unattributed_lines(report, width, colour=colour)),
        (
            "Not known",
            [
                line
                for gap in all_gaps(report)
                for line in item(f"{inert(gap.what)}: {inert(str(gap.problem), 600)}", width)
            ],
        ),
        ("What would follow", _plan(report, width)),
    )
    lines = _head(report, width)
    for title, body in sections:
        if body:
            lines += ["", paint(title, BOLD, is_on=colour), *body]
    return "\n".join(lines) + "\n"


def _head(report: CycleReport, width: int) -> list[str]:
    policy = report.policy
    text = (
        f"Node {inert(report.node.name)} at {rfc3339(report.at.wall_s)}, policy {inert(policy.source)}: {policy.mode}"
    )
    text += ", nothing is done." if policy.mode == "observe" else "."
    if report.suspended:
        text += f" Enforcement is suspended: {', '.join(inert(reason) for reason in report.suspended)}."
    if report.maintenance is not None:
        text += f" The GPUs are under maintenance: {inert(report.maintenance, 600)}."
    return wrapped(text, width)


def _plan(report: CycleReport, width: int) -> list[str]:
    if cannot := cannot_say(report):
        return cannot
    unknown = _unknown(report)
    if not report.plan.entries:
        who = " of the pods that are known" if unknown else ""
        open_ = sum(each.verdict is Verdict.UNKNOWN and each.rule is not None for each in report.assessments)
        also = f" Of {count(open_, 'account')} it is not known." if open_ else ""
        known = "known to be " if open_ else ""
        return wrapped(f"Nothing{who}: no account is {known}above the mark of a step.{also}{unknown}", width)
    return [*(line for text in outlook(report) for line in item(text, width)), *wrapped(_FROM_NOW + unknown, width)]


def _unknown(report: CycleReport) -> str:
    """That there are processes of which nothing can be said, since nobody knows their pods."""
    unknown = {use.pid for use in report.attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
    who = count(len(unknown), "process whose pod", "processes whose pods")
    return f" Nothing can be said of {who} the list does not have." if unknown else ""
