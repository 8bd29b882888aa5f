"""The tables of the live view: GPUs, accounts, the selected account with its processes, recent actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.style import Style
from rich.text import Text

from watchdog.cli.tables import Cell, Column, cut, table, text
from watchdog.cli.top import rows as derived
from watchdog.cli.top.problems import why
from watchdog.cli.top.progress import AccountProgress
from watchdog.cli.top.rows import (
    AccountRow,
    MemorySum,
    Signs,
    amount,
    floor,
    labels_of,
    limit,
    percent,
    recent_title,
    sums_by_gpu,
)
from watchdog.cli.top.state import Selection
from watchdog.core.units import format_bytes
from watchdog.report.status import AccountStatus, GpuStatus, ProcessStatus, RecentStatus, Status
from watchdog.report.text import byte_cell, clock_time, count, span

PLAIN: Final = Style.null()
TITLE: Final = Style(bold=True)
# Not bright black: some themes of terminals (Solarized) have the background's colour there.
DIM: Final = Style(dim=True)
BAD: Final = Style(color="red", bold=True)
WARN: Final = Style(color="yellow")
STYLES: Final = {
    "over": BAD,
    "unknown": WARN,
    "misdeclared": WARN,
    "within": Style(color="green"),
    "undeclared": DIM,
    "pods": Style(color="cyan"),
    "unattributed": Style(color="magenta"),
    "rest": WARN,
    "free": DIM,
}
_MARKED: Final = Style(bold=True, reverse=True)
_RESULTS: Final = {"failed": BAD, **dict.fromkeys(("blocked", "interrupted", "withdrawn", "observed"), WARN)}
_BAR: Final = 40
_SMALL_BAR: Final = 8
_BETWEEN: Final = 2
_TITLED: Final = 4  # lines, from which on recent actions have titles

_GPUS: Final = (
    Column(title="GPU"),
    Column(title="MEMORY"),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True),
    Column(title="UNATTRIBUTED", right=True, rank=1),
    Column(title="RESIDUAL", right=True, rank=2),
    Column(title="RESERVED", right=True, rank=4),
    Column(title="NAME", least=8, rank=3, is_name=True),
)
_ACCOUNTS: Final = (
    Column(title=""),
    Column(title="POD", least=24, is_name=True),
    Column(title="USED", right=True),
    Column(title="DECLARED", right=True, rank=5),
    Column(title="ALLOWED", right=True, rank=3),
    Column(title="", rank=4),
    Column(title="%", right=True),
    Column(title="VERDICT", rank=1),
    Column(title="OVER FOR", right=True, rank=6),
    Column(title="RULE", least=8, rank=7, is_name=True),
    Column(title="NEXT", least=19, rank=2),
)
_PROCESSES: Final = (
    Column(title="PID", right=True),
    Column(title="NAME", least=12, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="GPU", right=True),
    Column(title="USED", right=True),
)
_ACTIONS: Final = (
    Column(title="TIME"),
    Column(title="ACTION"),
    Column(title="RESULT"),
    Column(title="POD", least=24, is_name=True),
    Column(title="USED", right=True, rank=1),
    Column(title="ALLOWED", right=True, rank=2),
    Column(title="RULE", least=8, rank=3, is_name=True),
    Column(title="WHY", least=30, rank=4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFrame:
    """A frame to draw: `rows` are the accounts that are chosen, in their order.

    `elapsed_s` is how long ago the cycle was, so that what is to come counts down. `status` is None before the first
    answer. `problem` says why there is none or why it is an old one, in lines;
    empty: it is not.
    """

    status: Status | None
    rows: tuple[AccountRow, ...] = ()
    selection: Selection
    elapsed_s: float
    width: int
    height: int
    signs: Signs
    problem: str = ""


def gpu_lines(status: Status, frame: ScreenFrame, room: int) -> list[Text]:
    """The GPUs in at most this many lines."""
    gpus, sums = status.gpus, sums_by_gpu(status)
    if not gpus:
        return [text("No GPU is known.", WARN)]
    if len(gpus) <= max(room - 1, 2):
        rows = [_gpu(gpu, *sums[gpu.uuid], status.free_share, frame) for gpu in gpus]
        return table(_GPUS, rows, frame.width, gap=1)
    for is_small in (False, True):
        cells = [_gpu_cell(gpu, *sums[gpu.uuid], status.free_share, frame, is_small=is_small) for gpu in gpus]
        lines = _side_by_side(cells, frame.width)
        if len(lines) <= room:
            return lines
    hidden = len(cells) - _across(cells, frame.width) * (room - 1)
    return [*lines[: room - 1], text(f"and {count(hidden, 'more GPU')}", DIM)]


def _gpu(
    gpu: GpuStatus, pods: MemorySum, unattributed: MemorySum, free_share: float, frame: ScreenFrame
) -> tuple[Cell, ...]:
    memory, wide = gpu.memory, min(max(frame.width // 5, _SMALL_BAR), _BAR)
    return (
        text(gpu.number, TITLE),
        _gpu_bar(gpu, pods, unattributed, wide, frame.signs),
        text(byte_cell(memory.used) if gpu.up else "lost", _gpu_style(gpu, free_share)),
        byte_cell(memory.total),
        text(
            amount(unattributed.total, unattributed.at_least, frame.signs),
            DIM if unattributed.total == 0 else STYLES["unattributed"],
        ),
        byte_cell(memory.residual),
        byte_cell(memory.reserved),
        f"{gpu.name} {gpu.profile or ''}".strip(),
    )


def _gpu_style(gpu: GpuStatus, free_share: float) -> Style:
    if not gpu.up or derived.is_short(gpu, free_share):
        return BAD
    return WARN if gpu.memory.used is None else PLAIN


def _gpu_bar(gpu: GpuStatus, pods: MemorySum, unattributed: MemorySum, width: int, signs: Signs) -> Text:
    """The memory of a GPU: what pods use, what unattributed processes use, the rest of what is used, what is free."""
    total, used = gpu.memory.total, gpu.memory.used
    if not gpu.up or not total or used is None:
        return text("?" * width, STYLES["unknown"])
    made, upto = text(""), 0
    for kind, part in (("pods", pods.at_least), ("unattributed", unattributed.at_least), ("rest", used)):
        # What is known of the parts may exceed the whole: the lists and the sum are read one after the other.
        upto = min(part if kind == "rest" else upto + part, used)
        size = max(min(round(width * upto / total), width) - made.cell_len, 0)
        made.append(getattr(signs, kind) * size, STYLES[kind])
    return made.append(signs.free * (width - made.cell_len), STYLES["free"])


def _gpu_cell(
    gpu: GpuStatus, pods: MemorySum, unattributed: MemorySum, free_share: float, frame: ScreenFrame, *, is_small: bool
) -> Text:
    """A GPU in little room, beside others."""
    used, total = gpu.memory.used, gpu.memory.total
    if is_small:
        told = f"{round(100 * used / total)}%" if used is not None and total else "unknown"
        told = f" {(told if gpu.up else 'lost').rjust(4)}"
    else:
        told = f" {byte_cell(used).rjust(7)} of {byte_cell(total)}" if gpu.up else " not responding"
    bar = _gpu_bar(gpu, pods, unattributed, _SMALL_BAR, frame.signs)
    return text(f"{gpu.number.rjust(2)} ", TITLE) + bar + text(told, _gpu_style(gpu, free_share))


def _across(cells: Sequence[Text], width: int) -> int:
    return max((width + _BETWEEN) // (max(cell.cell_len for cell in cells) + _BETWEEN), 1)


def _side_by_side(cells: Sequence[Text], width: int) -> list[Text]:
    """As many in a line as fit."""
    size, across = max(cell.cell_len for cell in cells) + _BETWEEN, _across(cells, width)
    for cell in cells:
        cell.pad_right(size - cell.cell_len)
    lines = [text("").join(cells[first : first + across]) for first in range(0, len(cells), across)]
    for line in lines:
        line.truncate(width)
    return lines


def account_lines(frame: ScreenFrame, room: int) -> list[Text]:
    """What is shown and how it is sorted, the titles, and as many rows as there is room for around the selected one."""
    rows, place = frame.rows, frame.selection.place
    space = max(room - 2, 1)
    first = max(min(place - space // 2, len(rows) - space), 0)
    shown = range(first, min(first + space, len(rows)))
    title = _title(shown, frame)
    if not rows:
        return [title, text(_nothing(frame), DIM)][:room]
    cells = [_account(row, frame, is_selected=number == place) for number, row in enumerate(rows)]
    return [title, *table(_ACCOUNTS, cells, frame.width, gap=1, shown=shown)][: max(room, 1)]


def _title(shown: range, frame: ScreenFrame) -> Text:
    choice, whole = frame.selection.choice, len(frame.rows)
    which = f"{shown.start + 1}-{shown.stop} of {whole}" if len(shown) < whole else str(whole)
    line = text(f"Pods: {which}", TITLE)
    line.append(f", sorted by {choice.sort}{', reversed' if choice.backwards else ''}", DIM)
    if choice.over:
        line.append(", over limit only", WARN)
    if choice.text:
        line.append_text(text(f', filter "{choice.text}"', WARN))
    return cut(line, frame.width)


def _nothing(frame: ScreenFrame) -> str:
    status, choice = frame.status, frame.selection.choice
    if status is not None and status.accounts and (choice.text or choice.over):
        return f"No match among {count(len(status.accounts), 'account')}; Esc shows all."
    return "No pod on this node uses or declares GPU memory."


def _account(row: AccountRow, frame: ScreenFrame, *, is_selected: bool) -> tuple[Cell, ...]:
    account, signs = row.account, frame.signs
    style = STYLES.get(account.verdict, PLAIN)
    wide = 5 if frame.width < 100 else 10 if frame.width < 160 else 20
    name = TITLE if account.verdict == "over" else DIM if row.is_unattributed else PLAIN
    return (
        ">" if is_selected else " ",
        text(row.title, _MARKED if is_selected else name),
        derived.used_of(account, signs),
        limit(account, account.declared),
        limit(account, account.allowed),
        text(_share_bar(account, wide, signs), style),
        text(percent(account, signs), style),
        text(account.verdict or "-", style),
        _over_for(account, frame) or "-",
        account.rule or "-",
        text(row.progress.short(frame.elapsed_s), _next_style(row.progress)),
    )


def _share_bar(account: AccountStatus, width: int, signs: Signs) -> str:
    """A bar that is full where an account uses all that it is allowed."""
    used = floor(account)
    if not account.allowed:
        return (" " if account.allowed is None else signs.pods if used else signs.free) * width
    if account.used is None and not used:
        return "?" * width
    filled = min(max(width * used // account.allowed, 1 if used else 0), width)
    return signs.pods * filled + signs.free * (width - filled)


def _over_for(account: AccountStatus, frame: ScreenFrame) -> str:
    if account.over_since is None or frame.status is None:
        return ""
    return span(float(round(max(frame.status.at - account.over_since, 0.0) + frame.elapsed_s)))


def _next_style(progress: AccountProgress) -> Style:
    if progress.is_acting:
        return BAD
    if progress.next is None:
        return DIM
    if progress.is_waiting:
        return WARN
    return BAD if progress.next.do.is_force else PLAIN


def selected_lines(row: AccountRow, frame: ScreenFrame, room: int) -> list[Text]:
    """What is known of an account in words, and its processes, the largest first."""
    first = text(row.title, TITLE)
    lines = [cut(Text.assemble(first, text(f": {_standing(row, frame)}"), no_wrap=True, end=""), frame.width)]
    if not row.is_unattributed:
        lines.append(cut(text(f"Next: {row.progress.full(frame.elapsed_s)}"), frame.width))
    uses = sorted(row.account.processes, key=lambda use: -(use.used or 0))
    space = room - len(lines) - 1
    if uses and space > 0:
        labels = labels_of(frame.status) if frame.status is not None else {}
        cells = [_process(use, labels.get(use.gpu)) for use in uses]
        hidden = len(uses) - space + 1 if len(uses) > space else 0
        lines += table(_PROCESSES, cells, frame.width, gap=1, shown=range(len(uses) - hidden))
        if hidden:
            lines.append(text(f"and {hidden} more", DIM))
    return lines[:room]


def _process(use: ProcessStatus, label: str | None) -> tuple[Cell, ...]:
    return str(use.pid), use.name or "-", use.container or "-", label or use.gpu or "unknown", byte_cell(use.used)


def _standing(row: AccountRow, frame: ScreenFrame) -> str:
    account = row.account
    if row.is_unattributed:
        return f"{derived.used_of(account, frame.signs)} in use; no limit applies and no action is taken"
    over_for = _over_for(account, frame)
    parts = (
        f"declares {format_bytes(account.declared)}" if account.declared is not None else "",
        f"by {account.declared_by}" if account.declared_by and account.declared is not None else "",
    )
    facts = (
        " ".join(filter(None, parts)),
        f"allowed {format_bytes(account.allowed)}" if account.allowed is not None else "",
        f'rule "{account.rule}"' if account.rule else "no rule",
        f"over for {over_for}" if over_for else "",
    )
    return ", ".join(filter(None, facts))


def action_lines(status: Status, frame: ScreenFrame, room: int) -> list[Text]:
    """The recent actions, newest first."""
    recent = status.recent
    if not recent or room < 2:
        return []
    lines = table(_ACTIONS, [_action(each, status, frame) for each in recent], frame.width, gap=1)
    # Where there is little room the rows count, and their columns are told apart without titles.
    return [text(f"Recent actions: {len(recent)}", TITLE), *lines[room < _TITLED :]][:room]


def _action(recent: RecentStatus, status: Status, frame: ScreenFrame) -> tuple[Cell, ...]:
    when = "now" if recent.at is None else clock_time(recent.at, status.at)
    style = WARN if recent.result is None else _RESULTS.get(recent.result, PLAIN)
    return (
        when.removesuffix(" UTC"),
        recent.do,
        text(recent.result or "in progress", style),
        recent_title(recent),
        amount(recent.used, recent.used_at_least, frame.signs),
        byte_cell(recent.allowed),
        recent.rule or "-",
        why(recent) or "-",
    )
