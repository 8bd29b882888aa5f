"""The first lines of the picture: the node, its health, what is wrong; and the last one, with the keys."""

from collections import Counter
from collections.abc import Iterable
from textwrap import wrap

from rich.style import Style
from rich.text import Text

from watchdog.export.phrases import clock_time, count
from watchdog.top.amounts import amount
from watchdog.top.grid import cut
from watchdog.top.order import VERDICTS
from watchdog.top.reading import total
from watchdog.top.scene import BAD, DIM, ODD, PLAIN, STYLES, TITLE, Scene
from watchdog.top.values import View

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


def head(view: View, scene: Scene) -> list[Text]:
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


def _sums(view: View, scene: Scene) -> Text:
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


def troubles(scene: Scene, room: int) -> list[Text]:
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


def foot(scene: Scene) -> Text:
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
