"""Tables of the command line, drawn by rich: a row is one line, and columns shrink or go until a line fits."""

import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.style import StyleType
from rich.table import Table
from rich.text import Span, Text

from watchdog.report.text import inert, shorten

UNCUT: Final = 10**6  # cells: a pipe has no width, and whatever reads it wants names whole
_GAP: Final = 2
_NARROWEST: Final = 8  # cells that a flexible column keeps where nothing fits any more
_LONGEST: Final = 4096  # characters of a cell
_LINE_BREAK: Final = Text("\n", no_wrap=True, end="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. Widths are cells of a terminal.

    `least` is the width that it may shrink to (0: it doesn't), `rank` when it is left out: the highest first (0:
    never). What is too long is cut at its end, in its middle where it `is_name`; in the first column, where that
    `leads`, it is not cut but gets a line of its own: it says what the row is about.
    """

    title: str
    right: bool = False
    least: int = 0
    rank: int = 0
    is_name: bool = False
    leads: bool = False


Cell = str | Text
Row = Sequence[Cell]


def text(words: str, style: StyleType = "") -> Text:
    """A text in one line, without anything that a terminal could take for a command."""
    words = inert(words, _LONGEST)
    # The style is that of the words: as the text's own it would be that of the blanks beside them in a table too.
    return Text(words, no_wrap=True, end="", spans=[Span(0, len(words), style)] if style else None)


def cut(line: Text, width: int) -> Text:
    """A line, with a mark at its end where it is too long: half of a number must not seem to be another."""
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        line.append("~")
    return line


def wrapped(words: str, width: int, first: str = "", later: str = "") -> list[Text]:
    """A text in lines of at most `width`, the first and the later ones indented; names are not cut at their hyphens."""
    lines = text(words).wrap(_console(), max(width - max(len(first), len(later)), 1), no_wrap=False)
    return [text(f"{later if number else first}{line.plain.rstrip()}") for number, line in enumerate(lines)]


def fits(columns: Sequence[Column], rows: Iterable[Row], width: int) -> bool:
    """Whether these rows fit into lines of `width` with every column, and nothing cut."""
    return _excess(_natural(columns, list(rows)), width, _GAP) <= 0


def table(
    columns: Sequence[Column],
    rows: Iterable[Row | str],
    width: int = UNCUT,
    *,
    gap: int = _GAP,
    shown: range | None = None,
) -> list[Text]:
    """The titles and the rows as lines of `width`; a row that is a text is a remark, and stands across all columns.

    With `shown` it is these rows alone, in columns that are laid out for all: nothing jumps when they are scrolled.
    """
    known = list(rows)
    widths = _widths(columns, [row for row in known if not isinstance(row, str)], width, gap)
    picked = known if shown is None else known[shown.start : shown.stop]
    made = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, gap), header_style="")
    for number, size in widths.items():
        column = columns[number]
        made.add_column(
            text(column.title, "bold"), justify="right" if column.right else "left", width=size, no_wrap=True
        )
    cells = [row for row in picked if not isinstance(row, str)]
    if cells:
        # All rows as one, a line each: one by one, a thousand of them take rich more than twice as long.
        made.add_row(*(_stacked(cells, number, columns[number], size) for number, size in widths.items()))
    drawn = _drawn(made, sum(widths.values()) + gap * (len(widths) - 1))
    lines = [next(drawn)]
    for row in picked:
        if isinstance(row, str):
            lines += wrapped(row, width, "  ", "    ")
            continue
        if columns[0].leads and _size(row[0]) > widths[0]:
            lines.append(_shortened(_text(row[0]), width))
        lines.append(next(drawn))
    return lines


def printed(lines: Iterable[Cell], *, colour: bool = False) -> str:
    """Lines as they are written to a stream, each ended by a line break; without colour there is no control code."""
    if not colour:
        return "".join(f"{line}\n" for line in lines)
    console = _console()
    with console.capture() as capture:
        for line in lines:
            console.print(line, end="\n", soft_wrap=True)
    return capture.get()


def _console(width: int = UNCUT) -> Console:
    # Whether there is a terminal, and whether it wants colour, is for the caller that writes to it to find out.
    return Console(
        file=io.StringIO(),
        width=width,
        color_system="standard",
        force_terminal=True,
        no_color=False,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _drawn(made: Table, width: int) -> Iterator[Text]:
    for segments in _console(max(width, 1)).render_lines(made, pad=False):
        line = Text.assemble(*((each.text, each.style or "") for each in segments), no_wrap=True, end="")
        line.rstrip()
        yield line


def _text(cell: Cell) -> Text:
    return text(cell) if isinstance(cell, str) else cell


def _size(cell: Cell) -> int:
    return cell_len(inert(cell, _LONGEST)) if isinstance(cell, str) else cell.cell_len


def _natural(columns: Sequence[Column], rows: Sequence[Row]) -> dict[int, int]:
    """How wide each column is where nothing is cut, by its number."""
    return {
        number: max(cell_len(column.title), *(_size(row[number]) for row in rows), 0)
        for number, column in enumerate(columns)
    }


def _excess(widths: Mapping[int, int], width: int, gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1) - width


def _widths(columns: Sequence[Column], rows: Sequence[Row], width: int, gap: int) -> dict[int, int]:
    """The columns that there is room for, with their widths.

    Rich shrinks the widest column whatever it needs, and at last each of them; a number must not be cut.
    """
    widths = _natural(columns, rows)
    while _excess({i: min(size, columns[i].least or size) for i, size in widths.items()}, width, gap) > 0:
        going = max((i for i in widths if columns[i].rank), key=lambda i: columns[i].rank, default=None)
        if going is None:
            break
        del widths[going]
    for _ in range(max(_excess(widths, width, gap), 0)):
        flexible = [i for i in widths if columns[i].least and widths[i] > _floor(columns[i])]
        if not flexible:
            break
        # What gets a line of its own loses nothing, so it gives way first.
        widths[max(flexible, key=lambda i: _spare(columns[i], widths[i]))] -= 1
    if columns[0].leads:
        staying = (size for row in rows if (size := _size(row[0])) <= widths[0])
        widths[0] = max(cell_len(columns[0].title), *staying, 0)
    return widths


def _floor(column: Column) -> int:
    return max(min(column.least, _NARROWEST), cell_len(column.title))


def _spare(column: Column, width: int) -> tuple[bool, int]:
    return column.leads and width > column.least, width - column.least


def _stacked(rows: Sequence[Row], number: int, column: Column, width: int) -> Text:
    return _LINE_BREAK.join(_fitted(row[number], column, width) for row in rows)


def _fitted(cell: Cell, column: Column, width: int) -> Text:
    whole = _text(cell)
    if whole.cell_len <= width:
        return whole
    if column.leads:
        return Text()
    return _shortened(whole, width) if column.is_name else cut(whole.copy(), width)


def _shortened(name: Text, width: int) -> Text:
    if name.cell_len <= width:
        return name
    return text(set_cell_size(shorten(name.plain, width), width).rstrip(), name.spans[0].style if name.spans else "")


def output_width(otherwise: int = UNCUT) -> int:
    """The width of the terminal that standard output is; another one if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise
