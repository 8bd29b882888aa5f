"""A cycle as text, for `scan`: the GPUs, the accounts, and what is unknown."""

from collections.abc import Iterator, Mapping

from watchdog.cli.tables import Cell, Column, Row, fits, printed, table, text, wrapped
from watchdog.core.assessment import Assessment, Reason, Verdict
from watchdog.core.model import GapReason, Gpu
from watchdog.core.plan import CycleReport
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


def _blind(report: CycleReport) -> str:
    """Why nothing is known of any GPU."""
    return "NVML did not answer" if report.maintenance is None else "NVML is closed during maintenance"


def _unknown_because(report: CycleReport) -> list[Cell]:
    """Why nothing is known of any account, rather than that there is none; nothing where they are known."""
    if report.snapshot.blind:
        return [f"Unknown: {_blind(report)}."]
    if report.pods.synced is None:
        is_told = any(gap.reason is GapReason.PODS for gap in report.pods.gaps)
        cause = "see Data gaps for the reason" if is_told else "give --kubeconfig FILE or --pods FILE"
        return [f"Unknown: there is no pod list; {cause}."]
    return []


def _item(words: str, width: int) -> list[Cell]:
    """A text as an item of a list, in lines of at most `width`."""
    return [*wrapped(words, width, "- ", "  ")]


# At most 40 characters each: with a PID, a name and the bytes before it a line then fits 80 columns.
_REASONS: Mapping[Reason, str] = {
    Reason.HOST: "a process of the host",
    Reason.GONE: "ended, but its memory is still listed",
    Reason.ZOMBIE: "a zombie: not reaped by its parent",
    Reason.UNKNOWN_POD: "its pod is not in the pod list",
    Reason.SPOOFED: "its cgroup names another pod's container",
    Reason.MPS_SERVER: "the MPS server, with its clients' memory",
}


_WIDE_BAR, _SHORT_BAR = 20, 10


def _gpu_lines(report: CycleReport, width: int) -> list[Cell]:
    """A row for each GPU."""
    gpus = report.snapshot.gpus
    if not gpus:
        return [f"Unknown: {_blind(report)}." if report.snapshot.blind else "None found."]
    residual = residual_by_gpu(report)
    columns = (
        Column(title="GPU"),
        Column(title="NAME", least=8, is_name=True),
        Column(title="UUID", rank=1),
        Column(title="USED OF TOTAL"),
        Column(title="RESERVED", right=True),
        Column(title="RESIDUAL", right=True),
    )
    for is_short, marks in ((False, _WIDE_BAR), (True, _WIDE_BAR), (True, _SHORT_BAR)):
        rows = [_gpu(gpu, residual[gpu.uuid], marks, is_short=is_short) for gpu in gpus]
        if fits(columns, rows, width):
            return [*table(columns, rows, width)]
    without = tuple(column for column in columns if column.title != "UUID")
    return [*table(without, [(*row[:2], *row[3:]) for row in rows], width)]


def _gpu(gpu: Gpu, residual: int | None, marks: int, *, is_short: bool) -> Row:
    memory = f"{bar(gpu.used, gpu.total, marks)} {byte_cell(gpu.used)} of {byte_cell(gpu.total)}"
    name = f"{gpu.name} {gpu.profile}" if gpu.profile else gpu.name
    # The first group tells the cards of a node apart: GPU-5d0f6a3e of GPU-5d0f6a3e-1b7c-...
    uuid = "-".join(gpu.uuid.split("-")[:2]) if is_short else gpu.uuid
    state = memory if gpu.up else text("not responding", "red")
    return label_of(gpu), name, uuid, state, byte_cell(gpu.reserved), byte_cell(residual)


def bar(part: int | None, whole: int | None, width: int = _WIDE_BAR) -> str:
    """A bar that is full as `part` is of `whole`; of question marks where either is unknown."""
    if part is None or not whole:
        return f"[{'?' * width}]"
    filled = min(max(round(width * part / whole), 1 if part > 0 else 0), width)
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def _unattributed_lines(report: CycleReport, width: int) -> list[Cell]:
    """A row for each process of no pod, with the reason; nothing where there is none."""
    columns = (
        Column(title="PID", right=True),
        Column(title="NAME", least=8, is_name=True),
        Column(title="GPU"),
        Column(title="USED", right=True),
        Column(title="WHY"),
    )
    labels = labels_of(report)
    rows = [
        (str(use.pid), use.name or "-", labels.get(use.gpu, use.gpu), byte_cell(use.used), _why(use.reason, report))
        for use in report.attribution.unattributed
    ]
    return [*table(columns, rows, width)] if rows else []


def _why(reason: Reason, report: CycleReport) -> str:
    if reason is Reason.UNKNOWN_POD and report.pods.synced is None:
        is_named = any(gap.reason is GapReason.PODS for gap in report.pods.gaps)
        return "of a pod (pod list unreadable)" if is_named else "of a pod (no pod list: give --pods)"
    return _REASONS[reason]


_STYLES: Mapping[Verdict, str] = {
    Verdict.OVER: "red",
    Verdict.WITHIN: "green",
    Verdict.MISDECLARED: "yellow",
    Verdict.UNKNOWN: "yellow",
}
_RANK = (Verdict.OVER, Verdict.UNKNOWN, Verdict.MISDECLARED, Verdict.WITHIN, Verdict.UNDECLARED)
_ACCOUNTS = (
    Column(title="POD", least=20, leads=True),
    Column(title="CONTAINER", least=8, is_name=True),
    Column(title="GPU"),
    Column(title="USED", right=True),
    Column(title="DECLARED", right=True),
    Column(title="ALLOWED", right=True),
    Column(title="VERDICT"),
    Column(title="RULE", least=8, rank=1, is_name=True),
)


def _account_lines(report: CycleReport, width: int) -> list[Cell]:
    """The accounts, those over their limit first."""
    if because := _unknown_because(report):
        return because
    if not report.assessments:
        return ["No pod on this node uses or declares GPU memory."]
    ordered = sorted(report.assessments, key=lambda each: (_RANK.index(each.verdict), each.pod.title))
    labels, bounds = labels_of(report), Bounds.of(report)
    rows = (row for each in ordered for row in _account(each, report, bounds, labels, width))
    return [*table(_ACCOUNTS, rows, width)]


def _account(
    assessment: Assessment, report: CycleReport, bounds: Bounds, labels: Mapping[str, str], width: int
) -> Iterator[Row | str]:
    account = assessment.account
    used = f"{'>=' if assessment.used is None else ''}{byte_cell(assessment.used_at_least)}"
    if assessment.used is None and not assessment.used_at_least:
        used = byte_cell(None)
    yield (
        assessment.pod.title,
        "all" if account.container is None else account.container or "unknown",
        "all" if account.gpu is None else labels.get(account.gpu, account.gpu),
        used,
        "-" if assessment.declared is None else byte_cell(assessment.declared),
        "-" if assessment.allowed is None else byte_cell(assessment.allowed),
        text(assessment.verdict.value, _STYLES.get(assessment.verdict, "")),
        assessment.rule.name if assessment.rule is not None else "none",
    )
    for use in assessment.uses:
        who, where = f"  {use.key.pid} {use.name}", labels.get(use.gpu, use.gpu)
        yield who, use.container or "unknown", where, byte_cell(use.used), "", "", "", ""
    for remark in _remarks(assessment, report, bounds):
        yield from map(str, wrapped(inert(remark, 600), width, "  ", "    "))


def _remarks(assessment: Assessment, report: CycleReport, bounds: Bounds) -> Iterator[str]:
    state = report.plan.ledger.accounts.get(assessment.account)
    if state is not None and state.over_since is not None and assessment.verdict is Verdict.OVER:
        over_s = elapsed_s(state.over_since, report.at)
        if over_s >= 1:
            yield f"over for {span(over_s)}"
    most = bounds.used_at_most(assessment)
    if most is not None:
        yield f"at most {byte_cell(most)}, by the memory counter of its GPU; no action is based on that"
    if assessment.protected is not None:
        yield f"protected, no action is taken: {assessment.protected}"
    if assessment.rule_gap is not None:
        yield f"which rule applies is unknown: {assessment.rule_gap.problem}"
    if assessment.verdict is Verdict.UNDECLARED and assessment.account.container != "":
        key = declare_by(report.policy)
        how = f"; it can declare some with {key}" if key is not None else ""
        yield f"no limit applies: it declares no GPU memory in any way that the policy reads{how}"
    if assessment.observes:
        yield f"no action is taken: {observing_because(assessment)}"
    for skipped in assessment.misdeclarations:
        yield f"{skipped.source} {'counts as written' if skipped.counts else 'is skipped'}: {skipped.why}"
    if assessment.behind and assessment.account.container is None:
        yield "the pod list lacks some of its containers so far: its limit is that of its largest phase"


_FROM_NOW = "Counted from now, without a daemon's timers and brakes; for those use `gpu-watchdog explain NS/POD`."
_NARROWEST = 60  # below that no table can be read, and lines are left to wrap
WIDTH = 100


def scan_text(report: CycleReport, *, colour: bool = False, width: int = WIDTH) -> str:
    """A report as tables and sentences in lines of at most `width` cells (60 at least), ending with a line break.

    Where lines are short, what `scan --json` has as well is left out first: the GPU's UUID, the name of the rule.
    """
    width = max(width, _NARROWEST)
    gaps = (
        line for gap in all_gaps(report) for line in _item(f"{inert(gap.what)}: {inert(str(gap.problem), 600)}", width)
    )
    sections: tuple[tuple[str, list[Cell]], ...] = (
        ("GPUs", _gpu_lines(report, width)),
        ("Accounts", _account_lines(report, width)),
        ("Unattributed processes", _unattributed_lines(report, width)),
        ("Data gaps", list(gaps)),
        ("What would happen next", _plan(report, width)),
    )
    lines = _head(report, width)
    for title, body in sections:
        if body:
            lines += ["", text(title, "bold"), *body]
    return printed(lines, colour=colour)


def _head(report: CycleReport, width: int) -> list[Cell]:
    policy = report.policy
    words = (
        f"Node {inert(report.node.name)} at {rfc3339(report.at.wall_s)}, policy {inert(policy.source)}: {policy.mode}"
    )
    words += ", takes no action." if policy.mode == "observe" else "."
    if report.suspended:
        words += f" Enforcement is suspended: {', '.join(inert(reason) for reason in report.suspended)}."
    if report.maintenance is not None:
        words += f" The GPUs are under maintenance: {inert(report.maintenance, 600)}."
    return [*wrapped(words, width)]


def _plan(report: CycleReport, width: int) -> list[Cell]:
    if because := _unknown_because(report):
        return because
    unknown = _unknown(report)
    if report.plan.entries:
        return [
            *(line for words in outlook(report) for line in _item(words, width)),
            *wrapped(_FROM_NOW + unknown, width),
        ]
    open_ = sum(each.verdict is Verdict.UNKNOWN and each.rule is not None for each in report.assessments)
    also = f" Unknown for {count(open_, 'account')}." if open_ else ""
    known = "known to be " if open_ else ""
    pods = " of a listed pod" if unknown else ""
    return [*wrapped(f"Nothing: no account{pods} is {known}above the threshold of a step.{also}{unknown}", width)]


def _unknown(report: CycleReport) -> str:
    """That there are processes whose pods are not known, so that what happens to them is not either."""
    unknown = {use.pid for use in report.attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
    who = count(len(unknown), "process whose pod is", "processes whose pods are")
    return f" Unknown for {who} not in the pod list." if unknown else ""
