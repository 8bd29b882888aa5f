"""Tables of the live picture: columns that give way one by one until a line fits, cells cut to the terminal's cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from watchdog.cli.top.state import Selection, chosen
from watchdog.cli.top.values import AccountView, NodeView, Signs
from watchdog.report.text import shorten

_GAP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColumn:
    """A column; `least` is what it may shrink to (0: it does not), `rank` when it goes: the highest first (0: never).

    The `last` characters of what is cut are kept too, where `is_name`: the names of Kubernetes differ at their ends.
    """

    title: str
    right: bool = False
    least: int = 0
    rank: int = 0
    is_name: bool = False


Piece = tuple[str, Style]
Cell = str | Piece | tuple[Piece, ...]
"""A text, one with its style, or several of these."""


def pieces(cell: Cell) -> tuple[Piece, ...]:
    """The texts of a cell with their styles."""
    if isinstance(cell, str):
        return ((cell, Style.null()),)
    return (cell,) if isinstance(cell[0], str) else cell


def plain(cell: Cell) -> str:
    """A cell without its styles."""
    return "".join(text for text, _ in pieces(cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Columns with their widths, as they fit a line; `shown` are the numbers of those that are there."""

    columns: tuple[GridColumn, ...]
    shown: tuple[int, ...]
    widths: tuple[int, ...]

    def heading(self, style: Style) -> Text:
        """The titles."""
        return self.line([(column.title, style) for column in self.columns])

    def line(self, cells: Sequence[Cell]) -> Text:
        """A row; each cell is as wide as its column."""
        line = Text(no_wrap=True, end="")
        for place, (number, width) in enumerate(zip(self.shown, self.widths, strict=True)):
            if place:
                line.append(" " * _GAP)
            line.append_text(_fitted(cells[number], self.columns[number], width))
        return line


def grid(columns: Sequence[GridColumn], rows: Sequence[Sequence[Cell]], width: int) -> Grid:
    """Find the columns and widths for all rows, the ones that are scrolled away too: nothing shall jump about."""
    natural = [
        max(cell_len(column.title), *(cell_len(plain(row[number])) for row in rows), 0)
        for number, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while (excess := _excess([natural[i] for i in shown], width)) > 0:
        spare = sum(max(natural[i] - columns[i].least, 0) for i in shown if columns[i].least)
        going = max((i for i in shown if columns[i].rank), key=lambda i: columns[i].rank, default=None)
        if excess <= spare or going is None:
            break
        shown.remove(going)
    widths = {i: natural[i] for i in shown}
    for _ in range(max(_excess(list(widths.values()), width), 0)):
        widest = max((i for i in shown if columns[i].least), key=lambda i: widths[i] - columns[i].least, default=None)
        if widest is None or widths[widest] <= 1:
            break
        widths[widest] -= 1
    return Grid(columns=tuple(columns), shown=tuple(shown), widths=tuple(widths[i] for i in shown))


def cut(line: Text, width: int) -> Text:
    """A line, with a mark at its end where it is longer than the terminal: a number must not seem to be another."""
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        line.append("~")
    return line


def _excess(widths: Sequence[int], width: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) - width


def _fitted(cell: Cell, column: GridColumn, width: int) -> Text:
    told, size = plain(cell), cell_len(plain(cell))
    if size > width:
        cut = shorten(told, width) if column.is_name else f"{told[: max(width - 1, 0)]}~"
        return Text(set_cell_size(cut, width), style=pieces(cell)[0][1])
    text = Text()
    text.append(" " * (width - size if column.right else 0))
    for part, style in pieces(cell):
        text.append(part, style)
    text.append(" " * (0 if column.right else width - size))
    return text


PLAIN: Final = Style.null()
TITLE: Final = Style(bold=True)
# Not bright black: some themes of terminals (Solarized) have the background's colour there.
DIM: Final = Style(dim=True)
GOOD: Final = Style(color="green")
BAD: Final = Style(color="red", bold=True)
ODD: Final = Style(color="yellow")
MARKED: Final = Style(bold=True, reverse=True)
STYLES: Final = {
    "over": BAD,
    "unknown": ODD,
    "misdeclared": ODD,
    "within": GOOD,
    "undeclared": DIM,
    "pods": Style(color="cyan"),
    "no_pod": Style(color="magenta"),
    "rest": ODD,
    "free": DIM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture to draw. `elapsed_s` is how long ago the cycle was, so that what is to come runs down.

    `view` is None before the first answer. `old` says why the picture is an old one, in lines; empty: it is not.
    """

    view: NodeView | None
    state: Selection
    elapsed_s: float
    width: int
    height: int
    signs: Signs
    old: str = ""

    @property
    def rows(self) -> tuple[AccountView, ...]:
        """The accounts that are chosen, in their order."""
        return chosen(self.view, self.state.choice) if self.view is not None else ()
