"""Tables for a terminal: columns as wide as their cells, the flexible ones cut so that a line fits."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from watchdog.report.text import inert, shorten

WIDTH: Final = 100
_GAP: Final = "  "
_LEAST: Final = 8  # characters that a flexible column keeps
_LEAST_LEAD: Final = 20  # and the first column of all, whose longer cells get a line of their own

RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
BOLD: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its title, whether its cells stand at the right, and whether they may be cut.

    A first column that is flexible gives way before all others, and is not cut: what is longer than the column gets a
    line of its own, since it names the thing. `optional` columns are left out where the line would not fit.
    """

    title: str
    right: bool = False
    flexible: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with the colour that it has on a terminal (an SGR parameter)."""

    text: str
    colour: str = ""


def has_colour(stream: TextIO) -> bool:
    """Whether to write colour: to a terminal that knows it, and unless NO_COLOR asks for none (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def paint(text: str, colour: str, *, is_on: bool) -> str:
    """A text in a colour, or as it is."""
    return f"\x1b[{colour}m{text}\x1b[0m" if is_on and colour else text


Row = Sequence[Cell]


def table(
    columns: Sequence[Column], rows: Iterable[Row | str], *, colour: bool = False, width: int = WIDTH
) -> list[str]:
    """Lay out rows under their titles in lines of at most `width` characters; names in cells are made inert.

    A row that is a text is a remark: it stands across all columns.
    """
    known = [inert(row, width) if isinstance(row, str) else _clean(row) for row in rows]
    cells = [row for row in known if not isinstance(row, str)]
    shown = _shown(columns, cells, width)
    columns, cells = [columns[i] for i in shown], [[row[i] for i in shown] for row in cells]
    widths = _tightened(columns, cells, _squeezed(columns, _widths(columns, cells), width))
    lines = [_line([Cell(column.title, BOLD) for column in columns], columns, widths, colour=colour)]
    for row in known:
        if isinstance(row, str):
            lines.append(row)
        else:
            lines += _lines([row[i] for i in shown], columns, widths, width=width, colour=colour)
    return lines


def fits(columns: Sequence[Column], rows: Iterable[Row], width: int) -> bool:
    """Whether these rows fit into lines of `width` characters with every column, and nothing cut."""
    return _excess(_widths(columns, [_clean(row) for row in rows]), width) <= 0


def _clean(row: Row) -> list[Cell]:
    return [Cell(inert(cell.text), cell.colour) for cell in row]


def _widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    return [max(len(column.title), *(len(row[i].text) for row in rows), 0) for i, column in enumerate(columns)]


def _excess(widths: Sequence[int], width: int) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1) - width


def _shown(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """The columns that there is room for: optional ones are left out from the right."""
    shown = list(range(len(columns)))
    widths = _widths(columns, rows)
    if columns[0].flexible:
        widths[0] = min(widths[0], _LEAST_LEAD)
    for i in reversed(range(len(columns))):
        if columns[i].optional and _excess([widths[k] for k in shown], width) > 0:
            shown.remove(i)
    return shown


def _squeezed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Take from the first column and then from the widest flexible one, character by character, until a line fits."""
    flexible = [i for i, column in enumerate(columns) if column.flexible]
    for _ in range(max(_excess(widths, width), 0)):
        if flexible and flexible[0] == 0 and widths[0] > _LEAST_LEAD:
            widths[0] -= 1
            continue
        widest = max(flexible, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def _tightened(columns: Sequence[Column], rows: Sequence[Row], widths: list[int]) -> list[int]:
    """Where cells of the first column get lines of their own, it needs no more room than the others."""
    if columns[0].flexible:
        staying = [len(row[0].text) for row in rows if len(row[0].text) <= widths[0]]
        widths[0] = max(len(columns[0].title), *staying, 0)
    return widths


def _lines(row: Row, columns: Sequence[Column], widths: Sequence[int], *, width: int, colour: bool) -> Iterable[str]:
    if columns[0].flexible and len(row[0].text) > widths[0]:
        yield paint(shorten(row[0].text, width), row[0].colour, is_on=colour)
        row = [Cell(""), *row[1:]]
    yield _line(row, columns, widths, colour=colour)


def _line(row: Row, columns: Sequence[Column], widths: Sequence[int], *, colour: bool) -> str:
    parts = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        text = shorten(cell.text, width)
        padded = text.rjust(width) if column.right else text.ljust(width)
        parts.append(padded.replace(text, paint(text, cell.colour, is_on=colour), 1) if text else padded)
    return _GAP.join(parts).rstrip()


def bar(part: int | None, whole: int | None, width: int = 20) -> str:
    """A bar that is full as `part` is of `whole`; empty of marks where either is unknown."""
    if part is None or not whole:
        return f"[{'?' * width}]"
    filled = min(max(round(width * part / whole), 1 if part > 0 else 0), width)
    return f"[{'#' * filled}{'.' * (width - filled)}]"
