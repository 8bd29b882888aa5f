"""Tables of the command line: a row is one line; in the live view columns shrink or are dropped until it fits."""

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.style import StyleType
from rich.text import Span, Text

from watchdog.cli.listing import terminal_width
from watchdog.report.text import inert, shorten

UNCUT: Final = 10**6  # cells: a pipe has no width, and whatever reads it wants names whole
_GAP: Final = 2
_NARROWEST: Final = 8  # cells that a flexible column keeps even if its row does not fit
_LONGEST: Final = 4096  # characters of a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. Widths are in cells of the terminal."""

    title: str
    # Whether cells are aligned to the right.
    right: bool = False
    # The width that it may shrink to; 0: it does not shrink.
    least: int = 0
    # The order in which columns are dropped, the highest first; 0: never.
    rank: int = 0
    # Whether a cell that is too long is cut in its middle, and not at its end.
    is_name: bool = False


Cell = str | Text
Row = Sequence[Cell]


def text(words: str, style: StyleType = "") -> Text:
    """A text in one line, without anything that a terminal could take for a command."""
    words = inert(words, _LONGEST)
    # The style is a span: as the style of the whole text it would apply to the padding in a table too.
    return Text(words, no_wrap=True, end="", spans=[Span(0, len(words), style)] if words and style else None)


def cut(line: Text, width: int) -> Text:
    """A line, with `~` at its end if it is too long: half of a number must not read as another number."""
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        line.append("~")
    return line


def wrapped(words: str, width: int, first: str = "", later: str = "") -> list[Text]:
    """A text in lines of at most `width`, after the given indents; names are not broken at hyphens."""
    lines = text(words).wrap(_console(), max(width - max(len(first), len(later)), 1), no_wrap=False)
    return [text(f"{later if number else first}{line.plain.rstrip()}") for number, line in enumerate(lines)]


def table(
    columns: Sequence[Column],
    rows: Iterable[Row],
    width: int = UNCUT,
    *,
    gap: int = _GAP,
    shown: range | None = None,
    fills: bool = False,
) -> list[Text]:
    """The titles and the rows as lines of at most `width`.

    `shown`: only these rows, in columns laid out for all of them, so that nothing moves while scrolling. `fills`: the
    first column of names gets the width that is left.
    """
    every: list[Row] = [[inert(cell, _LONGEST) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = _widths(columns, every, width, gap)
    if fills:
        widths[next(i for i in widths if columns[i].is_name)] += max(-_excess(widths, width, gap), 0)
    titles = [text(column.title, "bold") for column in columns]
    some = every if shown is None else every[shown.start : shown.stop]
    return [_line(row, columns, widths, gap) for row in (titles, *some)]


def without(columns: Sequence[Column], rows: Iterable[Row], titles: Collection[str]) -> tuple[list[Column], list[Row]]:
    """Columns and rows for a table, without the columns of these titles."""
    kept = [number for number, column in enumerate(columns) if column.title not in titles]
    return [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]


def notes(remarks: Iterable[str], width: int) -> list[Text]:
    """Sentences below a table as a list, each wrapped to `width`."""
    return [line for remark in remarks for line in wrapped(remark, width, "- ", "  ")]


def printed(lines: Iterable[Cell], *, colour: bool = False) -> str:
    """Lines as one text, each ended by a line break; without control codes unless in colour."""
    if not colour:
        return "".join(f"{line}\n" for line in lines)
    console = _console()
    with console.capture() as capture:
        for line in lines:
            console.print(line, end="\n", soft_wrap=True)
    return capture.get()


def _console() -> Console:
    # Whether the output is a terminal that supports colour is up to the caller.
    return Console(
        file=io.StringIO(),
        width=UNCUT,
        color_system="standard",
        force_terminal=True,
        no_color=False,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _text(cell: Cell) -> Text:
    return text(cell) if isinstance(cell, str) else cell


def _size(cell: Cell) -> int:
    """The cells that it takes; a character of printable ASCII takes one, and most names have no others."""
    if isinstance(cell, str):
        return len(cell) if cell.isascii() else cell_len(cell)
    return cell.cell_len


def _natural(columns: Sequence[Column], rows: Sequence[Row]) -> dict[int, int]:
    """The width of each column with nothing cut, by its number."""
    return {
        number: max(cell_len(column.title), *(_size(row[number]) for row in rows), 0)
        for number, column in enumerate(columns)
    }


def _excess(widths: Mapping[int, int], width: int, gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1) - width


def _widths(columns: Sequence[Column], rows: Sequence[Row], width: int, gap: int) -> dict[int, int]:
    """The columns that there is room for, with their widths.

    Rich's own tables shrink the widest column, regardless of its content, and then all others; a number must not be
    cut.
    """
    widths = _natural(columns, rows)
    while _excess({i: min(size, columns[i].least or size) for i, size in widths.items()}, width, gap) > 0:
        dropped = max((i for i in widths if columns[i].rank), key=lambda i: columns[i].rank, default=None)
        if dropped is None:
            break
        del widths[dropped]
    for _ in range(max(_excess(widths, width, gap), 0)):
        flexible = [i for i in widths if columns[i].least and widths[i] > _floor(columns[i])]
        if not flexible:
            break
        widths[max(flexible, key=lambda i: widths[i] - columns[i].least)] -= 1
    return widths


def _floor(column: Column) -> int:
    return max(min(column.least, _NARROWEST), cell_len(column.title))


def _line(cells: Row, columns: Sequence[Column], widths: Mapping[int, int], gap: int) -> Text:
    # By hand: Rich's own joining and aligning of a text for each cell takes three times as long for many rows.
    plain, spans = "", list[Span]()
    for number, width in widths.items():
        cell, is_right = _fitted(cells[number], columns[number], width), columns[number].right
        words = cell if isinstance(cell, str) else cell.plain
        padding = " " * (width - _size(words))
        plain += padding if is_right else ""
        if not isinstance(cell, str):
            spans += [span.move(len(plain)) for span in cell.spans]
        plain += words + ("" if is_right else padding) + " " * gap
    if not spans:
        return Text(plain.rstrip(), no_wrap=True, end="")
    line = Text(plain, no_wrap=True, end="", spans=spans)
    line.rstrip()
    return line


def _fitted(cell: Cell, column: Column, width: int) -> Cell:
    """A cell cut to a width."""
    if isinstance(cell, str) and _size(cell) <= width:
        return cell
    whole = _text(cell).copy()
    if whole.cell_len <= width:
        return whole
    return _shortened(whole, width) if column.is_name else cut(whole, width)


def _shortened(name: Text, width: int) -> Text:
    if name.cell_len <= width:
        return name
    return text(set_cell_size(shorten(name.plain, width), width).rstrip(), name.spans[0].style if name.spans else "")


def output_width() -> int:
    """The width that sentences have on standard output; a pipe has whole ones."""
    width = terminal_width()
    return UNCUT if width is None else width
