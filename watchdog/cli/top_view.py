"""The live view as lines: its head, problems, GPUs, accounts, the selected account, recent actions, keys."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from rich.style import Style
from rich.text import Text

from watchdog.cli.rows import (
    GpuRow,
    TopRow,
    absent,
    action_cells,
    daemon_health,
    enforcement,
    gpu_rows,
    labels_of,
    none_chosen,
    problems,
    summed,
    unattributed_row,
)
from watchdog.cli.tables import Cell, Column, cut, table, text, without, wrapped
from watchdog.cli.top_keys import Selection
from watchdog.cli.views import BUSY, HOUR, IDLE, VERDICTS, WARNED, Signs, amount, busy_cell, spark
from watchdog.core.units import format_bytes
from watchdog.report.sentences.usage import utilization_unknown
from watchdog.report.status import AccountStatus, ProcessStatus, Status
from watchdog.report.summary import mean
from watchdog.report.text import byte_cell, clock_time, count, percent, span

PLAIN: Final = Style.null()
TITLE: Final = Style(bold=True)
# Not bright black: some terminal themes (Solarized) use the background colour for it.
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
MARKED: Final = Style(bold=True, reverse=True)
_RESULTS: Final = {"failed": BAD, **dict.fromkeys(("blocked", "interrupted", "withdrawn", "observed"), WARN)}
_BAR: Final = 40
_SMALL_BAR: Final = 8
_LEAST_BAR: Final = 5
_BETWEEN: Final = 2
_TITLED: Final = 4  # lines: from here on the recent actions have column titles

_GPUS: Final = (
    Column(title="GPU"),
    Column(title="MEMORY"),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True),
    Column(title=BUSY, right=True, rank=1),
    Column(title="UNATTRIBUTED", right=True, rank=2),
    Column(title="RESIDUAL", right=True, rank=3),
    Column(title="RESERVED", right=True, rank=6),
    Column(title=HOUR, rank=5),
    Column(title="NAME", least=8, rank=4, is_name=True),
)
_ACCOUNTS: Final = (
    Column(title=""),
    Column(title="POD", least=24, is_name=True),
    Column(title="GPU", least=3),
    Column(title="USED", right=True),
    Column(title="DECLARED", right=True, rank=7),
    Column(title="ALLOWED", right=True, rank=4),
    Column(title="", rank=9),
    Column(title="%", right=True),
    Column(title="VERDICT", rank=1),
    Column(title="OVER FOR", right=True, rank=8),
    Column(title=BUSY, right=True, rank=5),
    Column(title=IDLE, right=True, rank=3),
    Column(title="RULE", least=8, rank=10, is_name=True),
    Column(title=HOUR, rank=6),
    Column(title="NEXT", least=19, rank=2),
)
# Where there is room for more columns, a name matters more than the last of them.
_WIDE: Final = 120
_WIDE_ACCOUNTS: Final = (_ACCOUNTS[0], replace(_ACCOUNTS[1], least=40), *_ACCOUNTS[2:])
_PROCESSES: Final = (
    Column(title="PID", right=True),
    Column(title="NAME", least=12, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="GPU", right=True),
    Column(title="USED", right=True),
)
_ALL_PROCESSES: Final = (Column(title="POD", least=24, is_name=True), *_PROCESSES)
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
    """A frame to draw."""

    # None before the first answer.
    status: Status | None
    # The chosen accounts, in order.
    rows: tuple[TopRow, ...] = ()
    selection: Selection
    # The age of the cycle, so that due times count down.
    elapsed_s: float
    width: int
    height: int
    signs: Signs
    # Explains in lines why there is no status or why it is old.
    problem: str = ""
    # Whether leaving the view leads back to that of the cluster.
    is_inner: bool = False


def gpu_lines(status: Status, frame: ScreenFrame, room: int) -> list[Text]:
    """The GPUs, in at most `room` lines."""
    rows = gpu_rows(status)
    if not rows:
        return [text("No GPUs found.", WARN)]
    if len(rows) <= max(room - 1, 2):
        return table(*without(_GPUS, (_gpu(row, frame) for row in rows), absent(status)), frame.width, gap=1)
    is_read = BUSY not in absent(status) and any(row.gpu.utilization is not None for row in rows)
    for is_small, has_busy in ((False, is_read), (False, False), (True, False)):
        cells = [_gpu_cell(row, frame.signs, is_small=is_small, has_busy=has_busy) for row in rows]
        lines, across = _side_by_side(cells, frame.width)
        if len(lines) <= room:
            return lines
    hidden = len(cells) - across * (room - 1)
    return [*lines[: room - 1], text(f"and {count(hidden, 'more GPU')}", DIM)]


def _gpu(row: GpuRow, frame: ScreenFrame) -> tuple[Cell, ...]:
    gpu, memory, unattributed = row.gpu, row.gpu.memory, row.unattributed
    return (
        text(gpu.number, TITLE),
        _gpu_bar(row, max(frame.width // (5 if frame.width < _WIDE else 3), _SMALL_BAR), frame.signs),
        text(byte_cell(memory.used) if gpu.up else "lost", _gpu_style(row)),
        byte_cell(memory.total),
        busy_cell(gpu.utilization),
        text(
            amount(unattributed.total, unattributed.at_least, frame.signs),
            DIM if unattributed.total == 0 else STYLES["unattributed"],
        ),
        byte_cell(memory.residual),
        byte_cell(memory.reserved),
        spark_text(gpu.hour, frame.signs),
        gpu.model,
    )


def _gpu_style(row: GpuRow) -> Style:
    if not row.gpu.up or row.is_short:
        return BAD
    return WARN if row.gpu.memory.used is None else PLAIN


def _gpu_bar(row: GpuRow, width: int, signs: Signs) -> Text:
    """A bar of a GPU's memory: used by pods, by unattributed processes, by anything else, and free."""
    total, used = row.gpu.memory.total, row.gpu.memory.used
    if not row.gpu.up or not total or used is None:
        return text("?" * width, STYLES["unknown"])
    pods, attributed_or_not = row.pods.at_least, row.pods.at_least + row.unattributed.at_least
    bar = text("")
    for kind, upto in (("pods", pods), ("unattributed", attributed_or_not), ("rest", used)):
        # The parts may exceed the whole: the process lists and the counter are read one after the other.
        size = max(min(round(width * min(upto, used) / total), width) - bar.cell_len, 0)
        bar.append(getattr(signs, kind) * size, STYLES[kind])
    return bar.append(signs.free * (width - bar.cell_len), STYLES["free"])


def _gpu_cell(row: GpuRow, signs: Signs, *, is_small: bool, has_busy: bool) -> Text:
    """A GPU as a short cell, several per line."""
    gpu, used, total = row.gpu, row.gpu.memory.used, row.gpu.memory.total
    if is_small:
        share = f"{round(100 * used / total)}%" if used is not None and total else "unknown"
        label = f" {(share if gpu.up else 'lost').rjust(4)}"
    else:
        label = f" {byte_cell(used).rjust(7)} of {byte_cell(total)}" if gpu.up else " not responding"
    label += f", {busy_cell(gpu.utilization).rjust(4)} busy" if has_busy and gpu.up else ""
    bar = _gpu_bar(row, _SMALL_BAR, signs)
    return text(f"{gpu.number.rjust(2)} ", TITLE) + bar + text(label, _gpu_style(row))


def _side_by_side(cells: Sequence[Text], width: int) -> tuple[list[Text], int]:
    """The cells in lines, as many per line as fit; and that number."""
    size = max(cell.cell_len for cell in cells) + _BETWEEN
    across = max((width + _BETWEEN) // size, 1)
    for cell in cells:
        cell.pad_right(size - cell.cell_len)
    lines = [text("").join(cells[first : first + across]) for first in range(0, len(cells), across)]
    for line in lines:
        line.truncate(width)
    return lines, across


def account_lines(frame: ScreenFrame, room: int) -> list[Text]:
    """A heading with the sort order, the titles, and as many rows around the selected one as there is room for."""
    rows, place = frame.rows, frame.selection.place
    space = max(room - 2, 1)
    first = max(min(place - space // 2, len(rows) - space), 0)
    shown = range(first, min(first + space, len(rows)))
    title = _accounts_title(shown, frame)
    if not rows:
        return [title, text(_none(frame), DIM)][:room]
    cells = [_account(row, frame, is_selected=number == place) for number, row in enumerate(rows)]
    columns = _ACCOUNTS if frame.width < _WIDE else _WIDE_ACCOUNTS
    layout = without(columns, cells, absent(rows[0].status))
    return [title, *table(*layout, frame.width, gap=1, shown=shown, fills=True)][: max(room, 1)]


def _accounts_title(shown: range, frame: ScreenFrame) -> Text:
    choice, whole = frame.selection.choice, sum(not row.is_unattributed for row in frame.rows)
    first, last = min(shown.start + 1, whole), min(shown.stop, whole)
    which = f"{first}-{last} of {whole}" if len(shown) < len(frame.rows) else str(whole)
    line = text(f"Pods: {which}", TITLE)
    line.append(f", sorted by {choice.sort}{', reversed' if choice.backwards else ''}", DIM)
    if choice.over:
        line.append(", over limit only", WARN)
    if choice.idle:
        line.append(", idle only", WARN)
    if choice.gpu:
        line.append_text(text(f", on GPU {choice.gpu}", WARN))
    if choice.text:
        line.append_text(text(f', filter "{choice.text}"', WARN))
    return cut(line, frame.width)


def _none(frame: ScreenFrame) -> str:
    """Why there are no rows, and how to show all if they are filtered."""
    choice = frame.selection.choice
    why = none_chosen(frame.status, choice) if frame.status is not None else ""
    return f"{why}; Esc shows all." if choice.is_filtered else f"{why}."


def _account(row: TopRow, frame: ScreenFrame, *, is_selected: bool) -> tuple[Cell, ...]:
    account, signs = row.account, frame.signs
    style = STYLES.get(account.verdict, PLAIN)
    wide = min(max((frame.width - _WIDE) // 3, _LEAST_BAR), _BAR)
    name = TITLE if account.verdict == "over" else DIM if row.is_unattributed else PLAIN
    return (
        ">" if is_selected else " ",
        text(row.name, MARKED if is_selected else name),
        row.gpus or "-",
        row.used(signs),
        row.declared,
        row.allowed,
        text(_share_bar(account, wide, signs), style),
        text(row.percent(signs), style),
        text(account.verdict or "-", style),
        _over_for(row, frame) or "-",
        "-" if row.is_unattributed else busy_cell(account.utilization),
        text(row.idle or "-", WARN if row.idle else PLAIN),
        account.rule or "-",
        spark_text(account.hour, signs),
        text(row.next_short(frame.elapsed_s), _next_style(row)),
    )


def spark_text(hour: object, signs: Signs) -> Text:
    """The sparkline of an hour, with actions and what is above a limit in colours."""
    line = text("")
    for sign in spark(hour, signs):
        is_above = sign == signs.levels[-1]
        line.append(sign, BAD if is_above or (sign.isalpha() and sign != WARNED) else WARN if sign == WARNED else PLAIN)
    return line


def _share_bar(account: AccountStatus, width: int, signs: Signs) -> str:
    """A bar of `width` cells up to the limit, a mark there, and fewer cells for up to as much again beyond it."""
    used, allowed = account.least, account.allowed
    beyond = max(2 * width // 5, 2)
    if allowed is None:
        return ""
    if account.used is None and not used:
        return f"{'?' * width}{signs.limit}"
    filled = min(max(width * used // allowed, 1 if used else 0), width) if allowed else width * bool(used)
    excess = min(ceil(beyond * (used - allowed) / allowed), beyond) if allowed else beyond * bool(used)
    return f"{signs.pods * filled}{signs.free * (width - filled)}{signs.limit}{signs.pods * max(excess, 0)}"


def _over_for(row: TopRow, frame: ScreenFrame) -> str:
    since_s = row.account.over_since
    return "" if since_s is None else span(float(round(max(row.status.at - since_s, 0.0) + frame.elapsed_s)))


def _next_style(row: TopRow) -> Style:
    if row.is_acting:
        return BAD
    if row.next is None:
        return DIM
    if row.is_waiting:
        return WARN
    return BAD if row.next.do.enforces else PLAIN


def _selected_lines(row: TopRow, frame: ScreenFrame, room: int) -> list[Text]:
    """An account in words, and its processes, the largest first."""
    title, summary = text(row.title, TITLE), text(f": {_summary(row, frame)}")
    lines = [cut(Text.assemble(title, summary, no_wrap=True, end=""), frame.width)]
    if not row.is_unattributed:
        lines.append(cut(text(f"Next: {row.next_full(frame.elapsed_s)}"), frame.width))
        if room > len(lines) + _BETWEEN and (why := utilization_unknown(row.account, row.status)):
            lines.append(cut(text(f"How busy it is isn't known: {why}"), frame.width))
    uses = sorted(row.account.processes, key=lambda use: -(use.used or 0))
    space = room - len(lines) - 1
    if uses and space > 0:
        labels = labels_of(row.status)
        cells = [_process(use, labels.get(use.gpu)) for use in uses]
        hidden = len(uses) - space + 1 if len(uses) > space else 0
        lines += table(_PROCESSES, cells, frame.width, gap=1, shown=range(len(uses) - hidden))
        if hidden:
            lines.append(text(f"and {hidden} more", DIM))
    return lines[:room]


def _process_lines(frame: ScreenFrame, room: int) -> list[Text]:
    """The processes of all accounts, the largest first, unless the selected one has them all."""
    using = [row for row in frame.rows if row.account.processes]
    if room < _TITLED - 1 or not using or using == [frame.rows[frame.selection.place]]:
        return []
    uses = sorted(((use, row) for row in using for use in row.account.processes), key=lambda each: -(each[0].used or 0))
    labels = labels_of(using[0].status)
    shown = len(uses) if len(uses) <= room - 2 else room - 3
    cells = [
        (row.name if row.is_unattributed else row.account.title, *_process(use, labels.get(use.gpu)))
        for use, row in uses
    ]
    lines = [
        text(f"Processes: {len(uses)}", TITLE),
        *table(_ALL_PROCESSES, cells, frame.width, gap=1, shown=range(shown)),
    ]
    return lines if shown == len(uses) else [*lines, text(f"and {len(uses) - shown} more", DIM)]


def _process(use: ProcessStatus, label: str | None) -> tuple[Cell, ...]:
    return str(use.pid), use.name or "-", use.container or "-", label or use.gpu or "unknown", byte_cell(use.used)


def _summary(row: TopRow, frame: ScreenFrame) -> str:
    account = row.account
    if row.is_unattributed:
        return f"{row.used(frame.signs)} in use; no limit applies and no action is taken"
    over_for = _over_for(row, frame)
    by = f" by {account.declared_by}" if account.declared_by else ""
    facts = (
        row.activity,
        f"declares {format_bytes(account.declared)}{by}" if account.declared is not None else "",
        f"allowed {format_bytes(account.allowed)}" if account.allowed is not None else "",
        f'rule "{account.rule}"' if account.rule else "no rule",
        f"over for {over_for}" if over_for else "",
    )
    return ", ".join(filter(None, facts))


def _action_lines(status: Status, frame: ScreenFrame, room: int) -> list[Text]:
    recent = status.recent
    if not recent or room < 2:
        return []
    rows: list[tuple[Cell, ...]] = []
    for action in recent:
        when, do, result, *rest = action_cells(action, status.at, frame.signs)
        style = WARN if action.result is None else _RESULTS.get(action.result, PLAIN)
        rows.append((when, do, text(result, style), *rest))
    lines = table(_ACTIONS, rows, frame.width, gap=1)
    # In little room the rows matter more than their titles.
    return [text(f"Recent actions: {len(recent)}", TITLE), *lines[room < _TITLED :]][:room]


_TALL: Final = 32  # from this height on blank lines separate the sections
_SHORT: Final = 16  # below this height there is room for the table only
_ENFORCING: Final = Style(color="green", bold=True)
_FOOT: Final = "q quit, ? help, f filter, c GPU, o over, i idle, space pause, sort u p n t d v"
HELP: Final = (
    ("q, Ctrl-C", "quit"),
    ("up, down, j, k", "select another pod; page up, page down, home, end"),
    ("p", "sort by percent of allowed; the same key again reverses it"),
    ("u", "sort by used"),
    ("d", "sort by declared"),
    ("t", "sort by the time left until the next step"),
    ("v", "sort by verdict"),
    ("n", "sort by name"),
    ("f, /", "show only pods with a text in namespace, name, rule or verdict"),
    ("c", "show only pods on one GPU (card), by its number or UUID"),
    ("o", "show only pods over their limit, or all again"),
    ("i", "show only pods that have held memory idle for long, or all again"),
    ("escape", "show all again"),
    ("space", "pause and resume"),
    ("?", "this help; any key closes it"),
)


def draw(frame: ScreenFrame) -> list[Text]:
    """The lines of a frame, within the terminal's height and width."""
    return [cut(line, frame.width) for line in _lines(frame)[: frame.height]]


def _lines(frame: ScreenFrame) -> list[Text]:
    status, height = frame.status, frame.height
    if frame.selection.help:
        return _help_lines(frame.width)
    if status is None:
        return [*_problem_lines(frame, height - 1), _foot(frame)]
    rooms, pods = _rooms(height), max(len(frame.rows) + 2, 2)
    above, lower = _sections(status, frame, rooms)
    room = height - len(above) - len(lower) - 1
    if room < 4:  # the table matters most
        above, lower = [*_head(status, frame), *gpu_lines(status, frame, rooms.gpus)[: max(height - 8, 0)]], []
        room = height - len(above) - 1
    elif room > pods:
        above, lower = _filled(status, frame, rooms, room - pods)
        room = height - len(above) - len(lower) - 1
    # The keys stay on the last line, with blank lines above them if there is nothing more to show.
    return [*above, *account_lines(frame, room), *lower, *(text("") for _ in range(max(room - pods, 0))), _foot(frame)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rooms:
    """The lines that each section besides the pods may have."""

    problems: int
    gpus: int
    selected: int
    actions: int
    processes: int = 0


def _rooms(height: int) -> _Rooms:
    """What the sections have however many pods there are."""
    return _Rooms(
        problems=1 if height < _SHORT else 3 if height < _TALL else 5,
        gpus=max(height // 5, 2),
        selected=max(height // 5, 4) if height >= _SHORT else 0,
        actions=max(height // 7, 3) if height >= _SHORT else 0,
    )


def _sections(status: Status, frame: ScreenFrame, rooms: _Rooms) -> tuple[list[Text], list[Text]]:
    """The sections above the pods and those below."""
    gap = [text("")] if frame.height >= _TALL else []
    top = [*_head(status, frame), *_problem_lines(frame, rooms.problems)]
    below = (
        _panel_lines(frame, rooms.selected),
        _action_lines(status, frame, rooms.actions),
        _process_lines(frame, rooms.processes - len(gap)),
    )
    above = [*top, *gap, *gpu_lines(status, frame, rooms.gpus), *gap]
    return above, [line for section in below if section for line in (*gap, *section)]


def _filled(status: Status, frame: ScreenFrame, rooms: _Rooms, spare: int) -> tuple[list[Text], list[Text]]:
    """The sections, in the lines that the pods leave too: each shows what it has no room for otherwise."""
    above, lower = _sections(status, frame, rooms)
    whole = len(above) + len(lower) + spare
    for name in ("problems", "actions", "gpus", "selected", "processes"):
        left = whole - len(above) - len(lower)
        if left > 0:
            rooms = replace(rooms, **{name: getattr(rooms, name) + left})
            above, lower = _sections(status, frame, rooms)
    return above, lower


def _panel_lines(frame: ScreenFrame, room: int) -> list[Text]:
    """The selected account."""
    place = frame.selection.place
    return _selected_lines(frame.rows[place], frame, room) if place < len(frame.rows) and room > 0 else []


def _head(status: Status, frame: ScreenFrame) -> list[Text]:
    state = enforcement(status)
    line = text("gpu-watchdog top", TITLE)
    line.append_text(text(f"  node {status.node}", TITLE))
    line.append(f"  {clock_time(status.at, status.at)}")
    line.append(f"  {state}", _ENFORCING if state == "enforcing" else WARN)
    if frame.selection.paused:
        line.append("  paused", WARN)
    if health := daemon_health(status):
        line.append_text(text(f"  {health}", DIM))
    return [line, _totals(status, frame)]


def _totals(status: Status, frame: ScreenFrame) -> Text:
    used, total = summed(gpu.memory.used for gpu in status.gpus), summed(gpu.memory.total for gpu in status.gpus)
    of = f"{amount(used.total, used.at_least, frame.signs)} of {amount(total.total, total.at_least, frame.signs)}"
    parts = [(f"{count(len(status.gpus), 'GPU')}: {of}", PLAIN)]
    if (ratio := mean(gpu.utilization for gpu in status.gpus)) is not None:
        parts.append((f", {percent(ratio)} busy", PLAIN))
    if idle := len({account.uid for account in status.accounts if account.idle}):
        parts.append((f", {count(idle, 'pod')} idle", WARN))
    unattributed = unattributed_row(status)
    if unattributed is not None:
        parts.append((f", {unattributed.used(frame.signs)} unattributed", STYLES["unattributed"]))
    pods = count(len({account.uid for account in status.accounts}), "pod")
    verdicts = Counter(account.verdict for account in status.accounts)
    present = [verdict for verdict in VERDICTS if verdicts[verdict]]
    parts.append((f"  {pods}:" if present else f"  {pods}", PLAIN))
    numbers = [f"{verdicts[verdict]} {verdict}" for verdict in present]
    parts += [(f"{', ' if i else ' '}{number}", STYLES[present[i]]) for i, number in enumerate(numbers)]
    line = text("")
    for part, style in parts:
        if line.cell_len and line.cell_len + len(part) > frame.width:
            break  # the rest matters less, and half a number would read as another
        line.append(part, style)
    return line


def _problem_lines(frame: ScreenFrame, room: int) -> list[Text]:
    status_problems = problems(frame.status) if frame.status is not None else ()
    lines = [line for part in frame.problem.splitlines() for line in _wrapped(part, BAD, frame)][:room]
    for number, problem in enumerate(status_problems):
        is_last = number == len(status_problems) - 1
        space = room - len(lines) - (0 if is_last else 1)
        if space < 1:
            left = count(len(status_problems) - number, "more problem")
            return [*lines, text(f"! {left}: see `gpu-watchdog top --once`", WARN)][:room]
        wrapped_lines = _wrapped(f"! {problem}", WARN, frame)
        if len(wrapped_lines) > space:
            wrapped_lines[space - 1].append(" ...")
        lines += wrapped_lines[:space]
    return lines[:room]


def _wrapped(words: str, style: Style, frame: ScreenFrame) -> list[Text]:
    lines = wrapped(words, max(frame.width, 10), "", "  ")
    for line in lines:
        line.stylize(style)
    return lines


def _foot(frame: ScreenFrame) -> Text:
    typed = frame.selection.typed
    if typed is None:
        return text(_FOOT.replace("q quit", "q back") if frame.is_inner else _FOOT, DIM)
    what = "show only GPU" if frame.selection.types_gpu else "show only"
    return Text.assemble(text(f"{what}: {typed}_", TITLE), ("  (Enter: apply, Esc: cancel)", DIM))


def help_lines(keys: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """What each key does."""
    lines = [Text.assemble((f"{key:<16}", TITLE), what) for key, what in keys]
    return [text("Keys", TITLE), *(cut(line, width) for line in lines)]


def _help_lines(width: int) -> list[Text]:
    lines = help_lines(HELP, width)
    bars = "Bars of GPUs: processes of pods, unattributed processes, the rest in use (driver, residual), free."
    hours = (
        f"{HOUR}: the highest use of each four minutes of the last hour, up to its limit or size; the tallest is above "
        "it, . is unknown, and w, k, e are a warning, a kill, an eviction."
    )
    times = f"{BUSY}: the share of the time that it computed; - is unknown. {IDLE}: how long it has computed nothing."
    return [*lines, text(""), *(line for words in (bars, hours, times) for line in wrapped(words, max(width, 10)))]
