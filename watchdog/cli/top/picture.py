"""The live picture, line by line: the head, the GPUs, the accounts, and the panels below them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from watchdog.cli.top import values
from watchdog.cli.top.grid import (
    BAD,
    DIM,
    MARKED,
    ODD,
    PLAIN,
    STYLES,
    TITLE,
    Cell,
    Drawing,
    GridColumn,
    Piece,
    cut,
    grid,
    plain,
)
from watchdog.cli.top.reading import total
from watchdog.cli.top.state import VERDICTS
from watchdog.cli.top.values import AccountView, ActionView, CardView, NodeView, amount, card_bar, long, short
from watchdog.core.units import format_bytes
from watchdog.report.text import byte_cell, clock_time, count, span

_MORE = "`gpu-watchdog top --once` tells all"
_FORCE = Style(color="green", bold=True)
_FOOT = "q quit, ? help, f filter, o over, space pause, j k move, sort: u p n t d v"
HELP = (
    ("q, Ctrl-C", "quit"),
    ("up, down, j, k", "select another pod; page up, page down, home, end"),
    ("p", "sort by percent of allowed; the same key again turns the order round"),
    ("u", "sort by what is used"),
    ("d", "sort by what is declared"),
    ("t", "sort by the time left until something happens"),
    ("v", "sort by verdict"),
    ("n", "sort by name"),
    ("f, /", "show only pods with a text in their namespace, name, rule or verdict"),
    ("o", "show only those that are over, or all again"),
    ("escape", "show all again"),
    ("space", "pause, and go on"),
    ("?", "this help; any key leaves it"),
)


def head(view: NodeView, scene: Drawing) -> list[Text]:
    """What node this is and whether force is used; how its GPUs, its pods and the daemon are."""
    shown = clock_time(view.at_s, view.at_s) if view.at_s is not None else "unknown"
    first = Text(no_wrap=True, end="")
    first.append("gpu-watchdog top", TITLE)
    first.append(f"  node {view.node}", TITLE)
    first.append(f"  {shown}")
    first.append(f"  {view.force}", _FORCE if view.force == "enforcing" else ODD)
    if scene.state.paused:
        first.append("  paused", ODD)
    if view.health:
        first.append(f"  {view.health}", DIM)
    return [cut(first, scene.width), _sums(view, scene)]


def _sums(view: NodeView, scene: Drawing) -> Text:
    used = total(card.used for card in view.cards)
    whole = total(card.total for card in view.cards)
    parts = [(f"{count(len(view.cards), 'GPU')}: {amount(used, scene.signs)} of {amount(whole, scene.signs)}", PLAIN)]
    if view.no_pod is not None:
        parts.append((f", {amount(view.no_pod.used, scene.signs)} unattributed", STYLES["no_pod"]))
    pods = count(len({each.key[0] for each in view.accounts}), "pod")
    verdicts = Counter(account.verdict for account in view.accounts)
    told = [verdict for verdict in VERDICTS if verdicts[verdict]]
    parts.append((f"  {pods}:" if told else f"  {pods}", PLAIN))
    parts += [(f" {verdicts[each]} {each}{',' * (each != told[-1])}", STYLES[each]) for each in told]
    line = Text(no_wrap=True, end="")
    for text, style in parts:
        if line.cell_len and line.cell_len + len(text) > scene.width:
            break  # the rest matters less, and half of a number would be another
        line.append(text, style)
    return cut(line, scene.width)


def troubles(scene: Drawing, room: int) -> list[Text]:
    """What is wrong, wrapped, in at most so many lines."""
    told = list(scene.view.troubles) if scene.view is not None else []
    old = [line for part in scene.old.splitlines() for line in _wrapped(part, scene.width)]
    lines = _styled(old[:room], BAD)
    for number, trouble in enumerate(told):
        space = room - len(lines) - (0 if number == len(told) - 1 else 1)
        if space < 1:
            left = len(told) - number
            more = f"! {count(left, 'more thing is', 'more things are')} wrong: {_MORE}"
            return [*lines, *_styled([more], ODD, scene.width)][:room]
        wrapped = _wrapped(f"! {trouble}", scene.width)
        cut_off = len(wrapped) > space
        lines += _styled([*wrapped[: space - 1], f"{wrapped[space - 1]} ..."] if cut_off else wrapped, ODD, scene.width)
    return lines[:room]


def _styled(lines: Iterable[str], style: Style, width: int = 10_000) -> list[Text]:
    return [cut(Text(line, style=style, no_wrap=True, end=""), width) for line in lines]


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(width, 10), break_on_hyphens=False, subsequent_indent="  ")


def foot(scene: Drawing) -> Text:
    """What the keys do, or the filter that is being written."""
    line = Text(no_wrap=True, end="")
    if scene.state.typed is not None:
        line.append(f"show only: {scene.state.typed}_", TITLE)
        line.append("  (Enter takes it, Esc leaves it)", DIM)
        return cut(line, scene.width)
    return cut(Text(_FOOT, style=DIM, no_wrap=True, end=""), scene.width)


def help_lines(width: int) -> list[Text]:
    """The keys, one a line."""
    lines = _styled(["Keys"], TITLE, width)
    lines += [cut(Text.assemble((f"{key:<16}", TITLE), what, end=""), width) for key, what in HELP]
    bars = "Bars of GPUs: processes of pods, unattributed ones, the rest of what is used (driver, residual), free."
    return [*lines, Text(end=""), *_styled(_wrapped(bars, width), PLAIN, width)]


_CARD_COLUMNS = (
    GridColumn(title="GPU"),
    GridColumn(title="MEMORY"),
    GridColumn(title="USED", right=True),
    GridColumn(title="TOTAL", right=True),
    GridColumn(title="UNATTRIBUTED", right=True, rank=1),
    GridColumn(title="RESIDUAL", right=True, rank=2),
    GridColumn(title="RESERVED", right=True, rank=4),
    GridColumn(title="NAME", least=8, rank=3, is_name=True),
)
_BAR = 20
_SMALL_BAR = 8
_BETWEEN = 2


def card_lines(cards: tuple[CardView, ...], scene: Drawing, room: int) -> list[Text]:
    """The GPUs in at most so many lines."""
    if not cards:
        return [Text("No GPU is known.", style=ODD, end="")]
    if len(cards) <= max(room - 1, 2):
        rows = [_card_row(card, scene) for card in cards]
        table = grid(_CARD_COLUMNS, rows, scene.width)
        return [table.heading(TITLE), *(table.line(row) for row in rows)]
    lines = _close([_cell(card, scene) for card in cards], scene.width)
    if len(lines) <= room:
        return lines
    return _close([_small_cell(card, scene) for card in cards], scene.width, room)


def _card_row(card: CardView, scene: Drawing) -> tuple[Cell, ...]:
    wide = min(max(scene.width // 5, _SMALL_BAR), 2 * _BAR)
    return (
        (card.label, TITLE),
        _bar(card, wide, scene),
        (byte_cell(card.used) if card.up else "lost", _tone(card)),
        byte_cell(card.total),
        (amount(card.no_pod, scene.signs), STYLES["no_pod"] if card.no_pod.known != 0 else DIM),
        byte_cell(card.residual),
        byte_cell(card.reserved),
        card.name,
    )


def _tone(card: CardView) -> Style:
    return BAD if not card.up or card.short else ODD if card.used is None else PLAIN


def _bar(card: CardView, width: int, scene: Drawing) -> tuple[Piece, ...]:
    return tuple((text, STYLES.get(kind, ODD)) for kind, text in card_bar(card, width, scene.signs))


def _close(cells: Sequence[tuple[Piece, ...]], width: int, room: int = 1000) -> list[Text]:
    """Several GPUs in a line, as many as fit."""
    size = max(cell_len(plain(cell)) for cell in cells) + _BETWEEN
    across = max((width + _BETWEEN) // size, 1)
    lines = []
    for first in range(0, len(cells), across):
        line = Text(no_wrap=True, end="")
        for cell in cells[first : first + across]:
            for text, style in cell:
                line.append(text, style)
            line.append(" " * (size - cell_len(plain(cell))))
        line.truncate(width)
        lines.append(line)
    if len(lines) > room:
        hidden = len(cells) - across * (room - 1)
        return [*lines[: room - 1], Text(f"and {count(hidden, 'more GPU')}", style=DIM, end="")]
    return lines


def _cell(card: CardView, scene: Drawing) -> tuple[Piece, ...]:
    told = f"{byte_cell(card.used).rjust(7)} of {byte_cell(card.total)}" if card.up else "does not answer"
    return (_name(card), *_bar(card, _SMALL_BAR, scene), (f" {told}", _tone(card)))


def _small_cell(card: CardView, scene: Drawing) -> tuple[Piece, ...]:
    told = "lost"
    if card.up:
        told = f"{round(100 * card.used / card.total)}%" if card.used is not None and card.total else "unknown"
    return (_name(card), *_bar(card, _SMALL_BAR, scene), (f" {told.rjust(4)}", _tone(card)))


def _name(card: CardView) -> Piece:
    return (f"{card.label.rjust(2)} ", TITLE)


_COLUMNS = (
    GridColumn(title=""),
    GridColumn(title="POD", least=24, is_name=True),
    GridColumn(title="USED", right=True),
    GridColumn(title="DECLARED", right=True, rank=5),
    GridColumn(title="ALLOWED", right=True, rank=3),
    GridColumn(title="", rank=4),
    GridColumn(title="%", right=True),
    GridColumn(title="VERDICT", rank=1),
    GridColumn(title="OVER FOR", right=True, rank=6),
    GridColumn(title="RULE", least=8, rank=7, is_name=True),
    GridColumn(title="NEXT", least=19, rank=2),
)


def account_lines(rows: tuple[AccountView, ...], scene: Drawing, room: int) -> list[Text]:
    """What is shown and how it is sorted, the titles, and as many rows as there is room for around the selected one."""
    cells: list[tuple[Cell, ...]] = [(" ", *_row(row, scene)) for row in rows]
    table = grid(_COLUMNS, cells, scene.width)
    space = max(room - 2, 1)
    first = max(min(scene.state.place - space // 2, len(rows) - space), 0)
    shown = range(first, min(first + space, len(rows)))
    lines = [_title(rows, shown, scene), table.heading(TITLE)]
    for number in shown:
        is_selected = number == scene.state.place
        lines.append(table.line((">", *_marked(cells[number][1:])) if is_selected else cells[number]))
    if not rows:
        lines[1:] = [Text(_nothing(scene), style=DIM, end="")]
    return lines[: max(room, 1)]


def _marked(row: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """The row of the selected account: its name stands out, and the colours of the others keep their meaning."""
    return ((plain(row[0]), MARKED), *row[1:])


def _title(rows: tuple[AccountView, ...], shown: range, scene: Drawing) -> Text:
    choice = scene.state.choice
    whole = len(rows)
    which = f"{shown.start + 1}-{shown.stop} of {whole}" if len(shown) < whole else str(whole)
    line = Text(f"Pods: {which}", style=TITLE, no_wrap=True, end="")
    line.append(f", by {choice.sort}{', turned round' if choice.backwards else ''}", DIM)
    if choice.over:
        line.append(", only those that are over", ODD)
    if choice.text:
        line.append(f', only with "{choice.text}"', ODD)
    return cut(line, scene.width)


def _nothing(scene: Drawing) -> str:
    view, choice = scene.view, scene.state.choice
    if view is not None and view.accounts and (choice.text or choice.over):
        return f"None of {count(len(view.accounts), 'account')} is such a one; Esc shows all."
    return "No pod uses GPU memory here or declares any."


def _row(account: AccountView, scene: Drawing) -> tuple[Cell, ...]:
    signs, verdict = scene.signs, account.verdict
    tone = STYLES.get(verdict, PLAIN)
    wide = 5 if scene.width < 100 else 10 if scene.width < 160 else 20
    return (
        (account.title, TITLE if verdict == "over" else DIM if account.is_no_pod else PLAIN),
        values.amount(account.used, signs),
        values.declared(account),
        values.allowed(account),
        (values.share_bar(account, wide, signs), tone),
        (values.percent(account, signs), tone),
        (verdict or "-", tone),
        _over_for(account, scene),
        account.rule or "-",
        (short(account.next, scene.elapsed_s), _urgency(account)),
    )


def _over_for(account: AccountView, scene: Drawing) -> str:
    at_s = scene.view.at_s if scene.view is not None else None
    if account.over_since_s is None or at_s is None:
        return "-"
    return span(float(round(max(at_s - account.over_since_s, 0.0) + scene.elapsed_s)))


def _urgency(account: AccountView) -> Style:
    step = account.next
    if step is None:
        return DIM
    if step.held or step.would or step.put_off:
        return ODD
    return BAD if step.begun or step.do != "warn" else PLAIN


_PROCESSES = (
    GridColumn(title="PID", right=True),
    GridColumn(title="NAME", least=12, is_name=True),
    GridColumn(title="CONTAINER", least=9, rank=1, is_name=True),
    GridColumn(title="GPU", right=True),
    GridColumn(title="USED", right=True),
)
_DEEDS = (
    GridColumn(title="TIME"),
    GridColumn(title="DEED"),
    GridColumn(title="RESULT"),
    GridColumn(title="POD", least=24, is_name=True),
    GridColumn(title="USED", right=True, rank=1),
    GridColumn(title="ALLOWED", right=True, rank=2),
    GridColumn(title="RULE", least=8, rank=3, is_name=True),
    GridColumn(title="WHY", least=30, rank=4),
)
_LIGHT = Style(bold=False)
_RESULTS = {"failed": BAD, "blocked": ODD, "interrupted": ODD, "withdrawn": ODD, "observed": ODD}


def selected_lines(account: AccountView, scene: Drawing, room: int) -> list[Text]:
    """What is known of an account in words, and its processes, the largest first."""
    first = Text(account.title, style=TITLE, no_wrap=True, end="")
    first.append(f": {_standing(account, scene)}", _LIGHT)
    lines = [cut(first, scene.width)]
    if not account.is_no_pod:
        lines.append(cut(Text(f"Next: {long(account, scene.elapsed_s)}", no_wrap=True, end=""), scene.width))
    uses = sorted(account.processes, key=lambda use: -(use.used or 0))
    space = room - len(lines) - 1
    if uses and space > 0:
        cells = [_process(use.pid, use.name, use.where, use.card, use.used) for use in uses]
        table = grid(_PROCESSES, cells, scene.width)
        lines.append(table.heading(DIM))
        hidden = len(uses) - space if len(uses) > space else 0
        lines += [table.line(row) for row in cells[: space - (1 if hidden else 0)]]
        if hidden:
            lines.append(Text(f"and {hidden + 1} more", style=DIM, end=""))
    return lines[:room]


def _process(pid: int, name: str, where: str, card: str, used: int | None) -> tuple[Cell, ...]:
    return str(pid), name or "-", where or "-", card, byte_cell(used)


def _standing(account: AccountView, scene: Drawing) -> str:
    if account.is_no_pod:
        return f"{values.amount(account.used, scene.signs)} in use: held against no limit, and never acted on"
    parts = []
    if account.declared is not None:
        by = f" by {account.declared_by}" if account.declared_by else ""
        parts.append(f"declares {format_bytes(account.declared)}{by}")
    if account.allowed is not None:
        parts.append(f"may use {format_bytes(account.allowed)}")
    parts.append(f"rule {account.rule}" if account.rule else "no rule")
    at_s = scene.view.at_s if scene.view is not None else None
    if account.over_since_s is not None and at_s is not None:
        parts.append(f"over for {span(float(round(at_s - account.over_since_s + scene.elapsed_s)))}")
    return ", ".join(parts)


def action_lines(actions: tuple[ActionView, ...], scene: Drawing, room: int) -> list[Text]:
    """What was done lately, newest first."""
    if not actions or room < 2:
        return []
    at_s = scene.view.at_s if scene.view is not None else None
    cells = [_action(each, at_s, scene) for each in actions]
    table = grid(_DEEDS, cells, scene.width)
    title = Text(f"Recent actions: {len(actions)}", style=TITLE, end="")
    return [title, *(table.line(row) for row in cells[: room - 1])]


def _action(action: ActionView, at_s: float | None, scene: Drawing) -> tuple[Cell, ...]:
    when = "" if action.at_s is None else clock_time(action.at_s, at_s if at_s is not None else action.at_s)
    result = action.result or "under way"
    tone = _RESULTS.get(result, ODD if action.result is None else PLAIN)
    return (
        when.removesuffix(" UTC") or "now",
        action.do,
        (result, tone),
        action.title,
        values.amount(action.used, scene.signs),
        byte_cell(action.allowed),
        action.rule or "-",
        action.why or "-",
    )


_TALL = 32  # from this height on sections stand apart, and have room
_SHORT = 16  # below it there is room for the table alone


def picture(scene: Drawing) -> list[Text]:
    """The lines of a frame: never more than the terminal has, nor wider."""
    return _lines(scene)[: scene.height]


def _lines(scene: Drawing) -> list[Text]:
    view, height = scene.view, scene.height
    if scene.state.help:
        return help_lines(scene.width)
    if view is None:
        return [*troubles(scene, height - 1), foot(scene)]
    rows, gap = scene.rows, [Text(end="")] if height >= _TALL else []
    top = [*head(view, scene), *troubles(scene, 1 if height < _SHORT else 3 if height < _TALL else 5)]
    cards = card_lines(view.cards, scene, max(height // 5, 2))
    selected = rows[scene.state.place] if scene.state.place < len(rows) else None
    below = max(height // 5, 4) if height >= _SHORT else 0
    panel = selected_lines(selected, scene, below) if selected is not None and below else []
    done = action_lines(view.actions, scene, max(height // 7, 3)) if height >= _SHORT else []
    lower = [*(gap + panel if panel else []), *(gap + done if done else [])]
    above = [*top, *gap, *cards, *gap]
    room = height - len(above) - len(lower) - 1
    if room < 4:  # the table is what people come for
        lower, above = [], [*top[:2], *cards[: max(height - 8, 0)]]
        room = height - len(above) - 1
    return [*above, *account_lines(rows, scene, room), *_fill(room, rows, lower), foot(scene)]


def _fill(room: int, rows: tuple[object, ...], lower: list[Text]) -> list[Text]:
    """Keep the keys on the last line, and the panels above them, however few rows there are."""
    empty = max(room - max(len(rows) + 2, 2), 0)
    return [*lower, *(Text(end="") for _ in range(empty))] if empty else lower
