"""The GPUs of a node as `scan` prints them, and the processes on them that belong to no pod."""

from collections.abc import Mapping

from watchdog.core.assessment import Reason
from watchdog.core.model import GapReason, Gpu
from watchdog.core.plan import CycleReport
from watchdog.export.phrases import byte_cell
from watchdog.export.sums import residual_by_gpu
from watchdog.export.table import RED, Cell, Column, bar, fits, table
from watchdog.export.text_lines import blind, label_of, labels_of

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
