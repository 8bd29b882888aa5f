"""The live view of a cluster as lines: its head, what is the matter with nodes, the nodes, the pods, the keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.style import Style
from rich.text import Text

from watchdog.cli.cluster_rows import (
    NODES,
    PODS,
    NodeAnswer,
    NodeRow,
    PodRow,
    laid_out,
    node_cells,
    pod_cells,
    remarks_on,
    totals_of,
    ways_short,
    why_not_by_proxy,
)
from watchdog.cli.tables import Cell, Column, Row, cut, table, text, wrapped
from watchdog.cli.top_keys import Selection
from watchdog.cli.top_view import BAD, DIM, MARKED, PLAIN, STYLES, TITLE, WARN, help_lines, spark_text
from watchdog.cli.views import Signs
from watchdog.core.model import Now
from watchdog.report.summary import Summary
from watchdog.report.text import byte_cell, clock_time, count, percent

_MARK: Final = Column(title="")
_STATES: Final[Mapping[str, Style]] = {
    "enforcing": Style(color="green"),
    "observing": DIM,
    "NOT enforcing": WARN,
    "no answer": BAD,
    "no daemon": BAD,
}
_FOOT: Final = "q quit, ? help, Enter open, f filter, o order, v over, i idle, a all nodes"
_HELP: Final = (
    ("q, Ctrl-C", "quit"),
    ("up, down, j, k", "select another node or pod; page up, page down, home, end"),
    ("Enter", "open the selected node, or explain the selected pod"),
    ("o", "the next order of pods: urgency, use, over, age, namespace, node"),
    ("r", "reverse the order"),
    ("f, /", "show only pods with a text in node, namespace, name or verdict"),
    ("v", "show only pods over their limit, or all again"),
    ("i", "show only pods that have held memory idle for long, or all again"),
    ("a", "show each node, or sum up those where all is well again"),
    ("escape", "show all pods again"),
    ("space", "pause and resume"),
    ("?", "this help; any key closes it"),
)


_MOST_OF_ONE: Final = 2  # lines of what is the matter with one node; opened, it has them all


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFrame:
    """A frame to draw."""

    answers: Sequence[NodeAnswer[Summary]]
    # Those that are listed, and how many are summed up.
    nodes: Sequence[NodeRow]
    calm: Sequence[NodeRow]
    pods: Sequence[PodRow]
    selection: Selection
    now: Now
    width: int
    height: int
    signs: Signs
    # Why nodes are not known, or nothing is.
    problem: str = ""

    @property
    def rows(self) -> tuple[NodeRow | PodRow, ...]:
        """What can be selected, from top to bottom."""
        return *self.nodes, *self.pods


def draw_cluster(frame: ClusterFrame) -> list[Text]:
    """The lines of a frame, within the terminal's height and width."""
    return [cut(line, frame.width) for line in _lines(frame)[: frame.height]]


def _lines(frame: ClusterFrame) -> list[Text]:
    if frame.selection.help:
        return help_lines(_HELP, frame.width)
    head = _head(frame)
    if not frame.answers:
        waiting = frame.problem or "Waiting for the API server."
        return [*head, *_styled(waiting, BAD if frame.problem else PLAIN, frame), text(""), _foot(frame)]
    room = frame.height - len(head) - 1
    remarks = _remarks(frame, max(room // 4, 2))
    room -= len(remarks)
    wanted = len(frame.nodes) + 1 + bool(frame.calm)
    for_nodes = min(wanted, max(room // 3, room - len(frame.pods) - 2, 3))
    nodes = _node_lines(frame, for_nodes)
    pods = _pod_lines(frame, room - len(nodes))
    empty = room - len(nodes) - len(pods)
    return [*head, *remarks, *nodes, *pods, *(text("") for _ in range(empty)), _foot(frame)]


def _head(frame: ClusterFrame) -> list[Text]:
    line = text("gpu-watchdog top", TITLE)
    line.append_text(text(f"  cluster  {clock_time(frame.now.wall_s, frame.now.wall_s)}", TITLE))
    if frame.selection.paused:
        line.append("  paused", WARN)
    if frame.answers:
        line.append_text(text(f"  {ways_short(frame.answers)}", DIM))
    if not frame.answers:
        return [line]
    totals = totals_of(frame.answers)
    second = text(count(totals.nodes, "node"))
    if any(each.answer is not None for each in frame.answers):
        second.append(f", {count(totals.gpus, 'GPU')}: {byte_cell(totals.used)} of {byte_cell(totals.total)}")
    second.append("" if totals.utilization is None else f", {percent(totals.utilization)} busy")
    numbers = [(f"{many} {verdict}", STYLES[verdict]) for verdict, many in totals.verdicts.items()]
    if totals.idle:
        numbers.insert("over" in totals.verdicts, (f"{totals.idle} idle", WARN))
    for number, (words, style) in enumerate(numbers):
        second.append("  accounts: " if not number else ", ")
        second.append(words, style)
    return [line, second]


def _remarks(frame: ClusterFrame, room: int) -> list[Text]:
    why = why_not_by_proxy(frame.answers)
    whole = [f"! {frame.problem}" if frame.problem else "", f"! Some by port-forward: {why}" if why else ""]
    lines = [line for words in whole if words for line in _styled(words, WARN, frame)][:room]
    told = remarks_on(frame.nodes)
    for number, (words, is_silent) in enumerate(told):
        left = len(told) - number
        space = room - len(lines) - (1 if left > 1 else 0)
        if space < 1:
            return [*lines, text(f"! and {count(left, 'more remark')}: Enter on a node shows what is the matter", WARN)]
        remark = _styled(words, BAD if is_silent else WARN, frame)
        most = min(space, _MOST_OF_ONE)
        if len(remark) > most:
            remark[most - 1].append(" ...")
        lines += remark[:most]
    return lines


def _styled(words: str, style: Style, frame: ClusterFrame) -> list[Text]:
    lines = wrapped(words, max(frame.width, 10), "", "  ")
    for line in lines:
        line.stylize(style)
    return lines


def _window(many: int, place: int, space: int) -> range:
    """The rows to show around a place."""
    first = max(min(place - space // 2, many - space), 0)
    return range(first, min(first + space, many))


# Columns are laid out for this many rows above and below those that are shown: for all of 60,000 it would take seconds.
_MOST_LAID_OUT: Final = 250


def _laid_out(
    columns: Sequence[Column],
    cells: Callable[[int], Row],
    many: int,
    shown: range,
    frame: ClusterFrame,
    *,
    are_pods: bool = False,
) -> list[Text]:
    """The titles and the shown ones of many rows."""
    near = range(max(shown.start - _MOST_LAID_OUT, 0), min(shown.stop + _MOST_LAID_OUT, many))
    layout = laid_out(columns, map(cells, near), frame.answers, are_pods=are_pods)
    within = range(shown.start - near.start, shown.stop - near.start)
    return table(*layout, frame.width, gap=1, shown=within, fills=are_pods)


def _node_lines(frame: ClusterFrame, room: int) -> list[Text]:
    many = len(frame.nodes)
    # A last line says how many are not listed, if any.
    space = max(room - 1 - bool(frame.calm or many > room - 1), 1)
    shown = _window(many, min(frame.selection.place, many), space)

    def cells(number: int) -> Row:
        return _node(frame.nodes[number], is_selected=number == frame.selection.place)

    lines = _laid_out((_MARK, *NODES), cells, many, shown, frame) if frame.nodes else []
    unlisted = _unlisted(frame, shown)
    return [*lines, *([text(unlisted, DIM)] if unlisted else [])][: max(room, 1)]


def _unlisted(frame: ClusterFrame, shown: range) -> str:
    """Which nodes are listed, if not all, and the others where all is well together; empty if there are none."""
    which = f"Nodes {shown.start + 1}-{shown.stop} of {len(frame.nodes)}" if len(shown) < len(frame.nodes) else ""
    if not frame.calm:
        return which
    totals = totals_of([row.of for row in frame.calm])
    more = f"and {len(frame.calm)} more" if which else count(len(frame.calm), "more node" if frame.nodes else "node")
    words = f"{more} where all is well: {count(totals.gpus, 'GPU')}, {byte_cell(totals.used)} of"
    words += f" {byte_cell(totals.total)}{f', {totals.idle} idle' if totals.idle else ''}"
    # What there is no room for is not to be shown each.
    return f"{which}, {words}" if which else f"{words} (a: show each)"


def _node(row: NodeRow, *, is_selected: bool) -> tuple[Cell, ...]:
    cluster, name, *rest, state = node_cells(row)
    return (
        ">" if is_selected else " ",
        cluster,
        text(name, MARKED if is_selected else TITLE),
        *rest,
        text(state, _STATES.get(state, PLAIN)),
    )


def _pod_lines(frame: ClusterFrame, room: int) -> list[Text]:
    space = max(room - 2, 1)
    place = frame.selection.place - len(frame.nodes)
    shown = _window(len(frame.pods), max(place, 0), space)
    choice = frame.selection.choice
    known = sum(node.idle if choice.idle else node.accounts_in_all for each in frame.answers if (node := each.answer))
    which = f"{shown.start + 1}-{shown.stop} of {len(frame.pods)}" if len(shown) < len(frame.pods) else len(frame.pods)
    title = text(f"Pods: {which}", TITLE)
    title.append(f", by {choice.sort}{', reversed' if choice.backwards else ''}", DIM)
    if choice.over:
        title.append(", over limit only", WARN)
    if choice.idle:
        title.append(", idle only", WARN)
    if choice.text:
        title.append_text(text(f', filter "{choice.text}"', WARN))
    elif known > len(frame.pods) and not choice.over:
        # A summary has the most urgent accounts of its node.
        left_out = "more" if choice.idle else "less urgent"
        title.append(f", and {known - len(frame.pods)} {left_out}: open their node", DIM)
    if not frame.pods:
        return [title, text(_no_pods(frame), DIM)][: max(room, 1)]

    def cells(number: int) -> Row:
        return _pod(frame.pods[number], frame, is_selected=number == place)

    return [title, *_laid_out((_MARK, *PODS), cells, len(frame.pods), shown, frame, are_pods=True)][: max(room, 1)]


def _no_pods(frame: ClusterFrame) -> str:
    """Why there is no pod to show; what has not answered has pods that nobody knows."""
    lost = sum(each.answer is None for each in frame.answers)
    if lost == len(frame.answers):
        return "Unknown: no node has answered."
    where = " on the nodes that have answered" if lost else ""
    return f"None{where}{'; Esc shows all' if frame.selection.choice.is_filtered else ''}."


def _pod(row: PodRow, frame: ClusterFrame, *, is_selected: bool) -> tuple[Cell, ...]:
    pod, cluster, node, *amounts, verdict, busy, idle, _, following = pod_cells(row, frame.signs)
    style = STYLES.get(row.account.verdict, PLAIN)
    name = TITLE if row.account.verdict == "over" else PLAIN
    next_style = BAD if row.account.acting else DIM if row.account.do is None else WARN
    return (
        ">" if is_selected else " ",
        text(pod, MARKED if is_selected else name),
        cluster,
        node,
        *amounts,
        text(verdict, style),
        busy,
        text(idle, WARN if row.idle else PLAIN),
        spark_text(row.account.hour, frame.signs),
        text(following, next_style),
    )


def _foot(frame: ClusterFrame) -> Text:
    typed = frame.selection.typed
    if typed is None:
        return text(_FOOT, DIM)
    return Text.assemble(text(f"show only: {typed}_", TITLE), ("  (Enter: apply, Esc: cancel)", DIM))


def draw_lines(title: str, lines: Sequence[str], first: int, width: int, height: int) -> list[Text]:
    """A long text from one of its lines on, below its title."""
    room = max(height - 2, 1)
    shown = [text(line) for line in lines[first : first + room]]
    below = len(lines) - first - len(shown)
    more = f", {count(below, 'more line')}" if below > 0 else ""
    filled = [*shown, *(text("") for _ in range(room - len(shown)))]
    return [cut(line, width) for line in (text(title, TITLE), *filled, text(f"q back, j k move{more}", DIM))]
