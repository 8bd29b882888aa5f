"""The live view, line by line: the head, what is wrong, the tables, the keys."""

from collections import Counter
from typing import Final

from rich.style import Style
from rich.text import Text

from watchdog.cli.tables import cut, text, wrapped
from watchdog.cli.top.panels import (
    BAD,
    DIM,
    PLAIN,
    STYLES,
    TITLE,
    WARN,
    ScreenFrame,
    account_lines,
    action_lines,
    gpu_lines,
    selected_lines,
)
from watchdog.cli.top.problems import enforcement, health, problems
from watchdog.cli.top.rows import amount, summed, unattributed_row, used_of
from watchdog.cli.top.state import VERDICTS
from watchdog.report.status import Status
from watchdog.report.text import clock_time, count

_TALL: Final = 32  # from this height on sections stand apart, and have room
_SHORT: Final = 16  # below it there is room for the table alone
_ENFORCING: Final = Style(color="green", bold=True)
_FOOT: Final = "q quit, ? help, f filter, o over, space pause, j k move, sort: u p n t d v"
HELP: Final = (
    ("q, Ctrl-C", "quit"),
    ("up, down, j, k", "select another pod; page up, page down, home, end"),
    ("p", "sort by percent of allowed; the same key again reverses the order"),
    ("u", "sort by used"),
    ("d", "sort by declared"),
    ("t", "sort by the time left until the next step"),
    ("v", "sort by verdict"),
    ("n", "sort by name"),
    ("f, /", "show only pods with a text in their namespace, name, rule or verdict"),
    ("o", "show only pods over their limit, or all again"),
    ("escape", "show all again"),
    ("space", "pause and resume"),
    ("?", "this help; any key closes it"),
)


def draw(frame: ScreenFrame) -> list[Text]:
    """The lines of a frame: never more than the terminal has, nor wider."""
    return [cut(line, frame.width) for line in _lines(frame)[: frame.height]]


def _lines(frame: ScreenFrame) -> list[Text]:
    status, height = frame.status, frame.height
    if frame.selection.help:
        return help_lines(frame.width)
    if status is None:
        return [*problem_lines(frame, height - 1), foot(frame)]
    rows, gap = frame.rows, [text("")] if height >= _TALL else []
    top = [*head(status, frame), *problem_lines(frame, 1 if height < _SHORT else 3 if height < _TALL else 5)]
    gpus = gpu_lines(status, frame, max(height // 5, 2))
    place, below = frame.selection.place, max(height // 5, 4) if height >= _SHORT else 0
    panel = selected_lines(rows[place], frame, below) if place < len(rows) and below else []
    actions = action_lines(status, frame, max(height // 7, 3)) if height >= _SHORT else []
    lower = [*(gap + panel if panel else []), *(gap + actions if actions else [])]
    above = [*top, *gap, *gpus, *gap]
    room = height - len(above) - len(lower) - 1
    if room < 4:  # the table is what people come for
        lower, above = [], [*top[:2], *gpus[: max(height - 8, 0)]]
        room = height - len(above) - 1
    # The keys stay on the last line, and the panels above the empty ones, however few rows there are.
    empty = max(room - max(len(rows) + 2, 2), 0)
    return [*above, *account_lines(frame, room), *lower, *(text("") for _ in range(empty)), foot(frame)]


def head(status: Status, frame: ScreenFrame) -> list[Text]:
    """What node this is and whether it enforces; how its GPUs, its pods and the daemon are."""
    state = enforcement(status)
    line = text("gpu-watchdog top", TITLE)
    line.append_text(text(f"  node {status.node}", TITLE))
    line.append(f"  {clock_time(status.at, status.at)}")
    line.append(f"  {state}", _ENFORCING if state == "enforcing" else WARN)
    if frame.selection.paused:
        line.append("  paused", WARN)
    if daemon := health(status):
        line.append_text(text(f"  {daemon}", DIM))
    return [line, _totals(status, frame)]


def _totals(status: Status, frame: ScreenFrame) -> Text:
    used, total = summed(gpu.memory.used for gpu in status.gpus), summed(gpu.memory.total for gpu in status.gpus)
    of = f"{amount(used.total, used.at_least, frame.signs)} of {amount(total.total, total.at_least, frame.signs)}"
    parts = [(f"{count(len(status.gpus), 'GPU')}: {of}", PLAIN)]
    unattributed = unattributed_row(status)
    if unattributed is not None:
        parts.append((f", {used_of(unattributed.account, frame.signs)} unattributed", STYLES["unattributed"]))
    pods = count(len({account.uid for account in status.accounts}), "pod")
    verdicts = Counter(account.verdict for account in status.accounts)
    told = [verdict for verdict in VERDICTS if verdicts[verdict]]
    parts.append((f"  {pods}:" if told else f"  {pods}", PLAIN))
    parts += [(f"{' ' if each == told[0] else ', '}{verdicts[each]} {each}", STYLES[each]) for each in told]
    line = text("")
    for words, style in parts:
        if line.cell_len and line.cell_len + len(words) > frame.width:
            break  # the rest matters less, and half of a number would be another
        line.append(words, style)
    return line


def problem_lines(frame: ScreenFrame, room: int) -> list[Text]:
    """What is wrong, wrapped, in at most this many lines."""
    told = problems(frame.status) if frame.status is not None else ()
    lines = [line for part in frame.problem.splitlines() for line in _wrapped(part, BAD, frame)][:room]
    for number, problem in enumerate(told):
        space = room - len(lines) - (0 if number == len(told) - 1 else 1)
        if space < 1:
            left = count(len(told) - number, "more problem")
            return [*lines, text(f"! {left}: see `gpu-watchdog top --once`", WARN)][:room]
        found = _wrapped(f"! {problem}", WARN, frame)
        if len(found) > space:
            found[space - 1].append(" ...")
        lines += found[:space]
    return lines[:room]


def _wrapped(words: str, style: Style, frame: ScreenFrame) -> list[Text]:
    lines = wrapped(words, max(frame.width, 10), "", "  ")
    for line in lines:
        line.stylize(style)
    return lines


def foot(frame: ScreenFrame) -> Text:
    """What the keys do, or the filter that is being written."""
    typed = frame.selection.typed
    if typed is None:
        return text(_FOOT, DIM)
    return Text.assemble(text(f"show only: {typed}_", TITLE), ("  (Enter: apply, Esc: cancel)", DIM))


def help_lines(width: int) -> list[Text]:
    """The keys, one a line."""
    lines = [text("Keys", TITLE), *(Text.assemble((f"{key:<16}", TITLE), what) for key, what in HELP)]
    bars = "Bars of GPUs: processes of pods, unattributed processes, the rest in use (driver, residual), free."
    return [*lines, text(""), *wrapped(bars, max(width, 10))]
