"""What a pass saw and what would follow, for people: the output of `scan`."""

from watchdog.core.assessment import Reason, Verdict
from watchdog.core.plan import CycleReport
from watchdog.export.outlook import outlook
from watchdog.export.phrases import count, inert, rfc3339
from watchdog.export.sums import all_gaps
from watchdog.export.table import BOLD, WIDTH, paint
from watchdog.export.text_accounts import account_lines
from watchdog.export.text_cards import gpu_lines, unattributed_lines
from watchdog.export.text_lines import cannot_say, item, wrapped

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
            [line for gap in all_gaps(report) for line in item(f"{inert(gap.what)}: {inert(gap.why, 600)}", width)],
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
