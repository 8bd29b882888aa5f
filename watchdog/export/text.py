"""What a pass saw and what would follow, for people: the output of `scan`."""

import textwrap
from collections.abc import Iterator, Mapping

from watchdog.core.findings import Assessment, Reason, Verdict
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_bytes
from watchdog.export.phrases import elapsed_s, inert, rfc3339, span
from watchdog.export.sums import all_gaps, residual_by_gpu
from watchdog.export.table import BOLD, GREEN, RED, WIDTH, YELLOW, Cell, Column, Row, bar, paint, table
from watchdog.export.words import forecast

_COLOURS: Mapping[Verdict, str] = {
    Verdict.OVER: RED,
    Verdict.WITHIN: GREEN,
    Verdict.MISDECLARED: YELLOW,
    Verdict.UNKNOWN: YELLOW,
}


_RANK = (Verdict.OVER, Verdict.UNKNOWN, Verdict.MISDECLARED, Verdict.WITHIN, Verdict.UNDECLARED)
_REASONS: Mapping[Reason, str] = {
    Reason.HOST: "a process of the host",
    Reason.GONE: "gone, but its memory is still listed",
    Reason.ZOMBIE: "a zombie: its parent has not waited for it",
    Reason.UNKNOWN_POD: "of a pod that the pod list does not have",
    Reason.SPOOFED: "its cgroup claims a container of another pod",
    Reason.MPS_SERVER: "the MPS server, which holds its clients",
}


def scan_text(report: CycleReport, *, colour: bool = False) -> str:
    """A report as tables and sentences in lines of at most 100 characters, ending with a line break."""
    sections = (
        ("GPUs", _gpus(report, colour=colour)),
        ("Accounts", _accounts(report, colour=colour)),
        ("Processes of no pod", _unattributed(report, colour=colour)),
        (
            "Not known",
            [line for gap in all_gaps(report) for line in _item(f"{inert(gap.what)}: {inert(gap.why, 600)}")],
        ),
        ("What would follow", _plan(report)),
    )
    lines = _head(report)
    for title, body in sections:
        if body:
            lines += ["", paint(title, BOLD, is_on=colour), *body]
    return "\n".join(lines) + "\n"


def _head(report: CycleReport) -> list[str]:
    policy = report.policy
    text = (
        f"Node {inert(report.node.name)} at {rfc3339(report.at.wall_s)}, policy {inert(policy.source)}: {policy.mode}."
    )
    if report.suspended:
        text += f" Enforcement is suspended: {', '.join(inert(reason) for reason in report.suspended)}."
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def _gpus(report: CycleReport, *, colour: bool) -> list[str]:
    if not report.snapshot.gpus:
        return ["None seen."]
    residual = residual_by_gpu(report)
    columns = (
        Column(title="GPU"),
        Column(title="NAME", flexible=True),
        Column(title="UUID", flexible=True),
        Column(title="USED OF TOTAL"),
        Column(title="RESERVED", right=True),
        Column(title="RESIDUAL", right=True),
    )
    rows = [_gpu(gpu, residual[gpu.uuid]) for gpu in report.snapshot.gpus]
    return table(columns, rows, colour=colour)


def _gpu(gpu: Gpu, residual: int | None) -> tuple[Cell, ...]:
    memory = f"{bar(gpu.used, gpu.total)} {_bytes(gpu.used)} of {_bytes(gpu.total)}"
    name = f"{gpu.name} {gpu.profile}" if gpu.profile else gpu.name
    state = Cell(memory) if gpu.up else Cell("does not answer", RED)
    return Cell(_label(gpu)), Cell(name), Cell(gpu.uuid), state, Cell(_bytes(gpu.reserved)), Cell(_bytes(residual))


def _label(gpu: Gpu) -> str:
    return str(gpu.index) if gpu.gi is None else f"{gpu.index}/{gpu.gi}"


def _labels(report: CycleReport) -> dict[str, str]:
    return {gpu.uuid: _label(gpu) for gpu in report.snapshot.gpus}


def _accounts(report: CycleReport, *, colour: bool) -> list[str]:
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
        Column(title="RULE", flexible=True),
    )
    ordered = sorted(report.assessments, key=lambda each: (_RANK.index(each.verdict), each.pod.title))
    labels = _labels(report)
    return table(columns, (row for each in ordered for row in _account(each, report, labels)), colour=colour)


def _account(assessment: Assessment, report: CycleReport, labels: Mapping[str, str]) -> Iterator[Row | str]:
    account = assessment.account
    used = f"{'>=' if assessment.used is None else ''}{_bytes(assessment.used_at_least)}"
    yield (
        Cell(assessment.pod.title),
        Cell("all" if account.container is None else account.container or "unknown"),
        Cell("all" if account.gpu is None else labels.get(account.gpu, account.gpu)),
        Cell(used),
        Cell("-" if assessment.declared is None else _bytes(assessment.declared)),
        Cell("-" if assessment.allowed is None else _bytes(assessment.allowed)),
        Cell(assessment.verdict.value, _COLOURS.get(assessment.verdict, "")),
        Cell(assessment.rule.name if assessment.rule is not None else "none"),
    )
    for use in assessment.uses:
        who, where = f"  {use.key.pid} {use.name}", labels.get(use.gpu, use.gpu)
        blank = (Cell(""), Cell(""), Cell(""), Cell(""))
        yield Cell(who), Cell(use.container or "unknown"), Cell(where), Cell(_bytes(use.used)), *blank
    for remark in _remarks(assessment, report):
        yield from textwrap.wrap(inert(remark, 600), WIDTH, initial_indent="  ", subsequent_indent="    ")


def _remarks(assessment: Assessment, report: CycleReport) -> Iterator[str]:
    state = report.plan.ledger.accounts.get(assessment.account)
    if state is not None and state.over_since is not None and assessment.verdict is Verdict.OVER:
        over_s = elapsed_s(state.over_since, report.at)
        if over_s >= 1:
            yield f"over for {span(over_s)}"
    if assessment.protected is not None:
        yield f"never acted on: {assessment.protected}"
    for skipped in assessment.misdeclarations:
        yield f"{skipped.source} is skipped: {skipped.why}"


def _unattributed(report: CycleReport, *, colour: bool) -> list[str]:
    columns = (
        Column(title="PID", right=True),
        Column(title="NAME", flexible=True),
        Column(title="GPU"),
        Column(title="USED", right=True),
        Column(title="WHY"),
    )
    labels = _labels(report)
    rows = [
        (
            Cell(str(use.pid)),
            Cell(use.name or "-"),
            Cell(labels.get(use.gpu, use.gpu)),
            Cell(_bytes(use.used)),
            Cell(_REASONS[use.reason]),
        )
        for use in report.attribution.unattributed
    ]
    return table(columns, rows, colour=colour) if rows else []


def _plan(report: CycleReport) -> list[str]:
    if not report.plan.entries:
        return ["Nothing: no account is above the mark of a step."]
    return [line for entry in report.plan.entries for line in _item(forecast(entry))]


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _bytes(amount: int | None) -> str:
    return "unknown" if amount is None else format_bytes(amount)
