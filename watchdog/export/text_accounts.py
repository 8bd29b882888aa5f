"""The accounts of a node as `scan` prints them, each with its processes and what is odd about it."""

from collections.abc import Iterator, Mapping

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.plan import CycleReport
from watchdog.export.bounds import Bounds
from watchdog.export.declaring import declare_by
from watchdog.export.idle_words import observing_because
from watchdog.export.phrases import byte_cell, elapsed_s, inert, span
from watchdog.export.table import GREEN, RED, YELLOW, Cell, Column, Row, table
from watchdog.export.text_lines import cannot_say, labels_of, wrapped

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
        yield f"which rule is for it can't be said: {assessment.rule_gap.why}"
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
