"""Tables for a terminal: columns as wide as their cells, the flexible ones cut so that a line fits."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from watchdog.export.phrases import inert, shorten

WIDTH: Final = 100
_GAP: Final = "  "
_LEAST: Final = 8  # characters that a flexible column keeps

RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
BOLD: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its title, whether its cells stand at the right, and whether they may be cut."""

    title: str
    right: bool = False
    flexible: bool = False


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


def table(columns: Sequence[Column], rows: Iterable[Row | str], *, colour: bool = False) -> list[str]:
    """Lay out rows under their titles in lines of at most WIDTH characters; names in cells are made inert.

    A row that is a text is a remark: it stands across all columns.
    """
    known = [inert(row, WIDTH) if isinstance(row, str) else _clean(row) for row in rows]
    head = [Cell(column.title, BOLD) for column in columns]
    cells = [head, *(row for row in known if not isinstance(row, str))]
    widths = [max(len(row[i].text) for row in cells) for i in range(len(columns))]
    _squeeze(columns, widths)
    return [row if isinstance(row, str) else _line(row, columns, widths, colour=colour) for row in (head, *known)]


def _clean(row: Row) -> list[Cell]:
    return [Cell(inert(cell.text), cell.colour) for cell in row]


def _squeeze(columns: Sequence[Column], widths: list[int]) -> None:
    """Take from the widest flexible column, character by character, until a line fits."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - WIDTH
    flexible = [i for i, column in enumerate(columns) if column.flexible]
    for _ in range(max(excess, 0)):
        widest = max(flexible, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


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
