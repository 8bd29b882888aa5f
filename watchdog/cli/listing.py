"""Tables whose last column is sentences, for commands that do not load the library which `tables` needs."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

import click

from watchdog.cli.program import CALLER_WIDTH
from watchdog.report.text import BOLD, has_colour, inert, paint

_UNCUT: Final = 10**6
_LEAST: Final = 32  # characters that sentences need beside the other columns; in less room they go below them
_GAP: Final = 2


def listing(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    colours: Mapping[str, str],
    width: int | None = None,
    *,
    least: Sequence[int] = (),
    has_titles: bool = True,
) -> list[str]:
    """Titles and rows in aligned columns, cells in the colour of their text; if a width is given, sentences wrap.

    `least`: the least widths of the columns before the sentences, for a listing that comes in parts.
    """
    cells = [titles, *([inert(cell, _UNCUT) for cell in row] for row in rows)]
    columns = list(zip(*cells, strict=True))[:-1]
    sizes = [max(*map(len, column), *least[number : number + 1]) + _GAP for number, column in enumerate(columns)]
    is_below = width is not None and width - sum(sizes) < _LEAST
    indent, lines = _GAP if is_below else sum(sizes), []
    for number, (*first, sentence) in enumerate(cells[0 if has_titles else 1 :], 0 if has_titles else 1):
        parts = [sentence]
        if width is not None:
            parts = textwrap.wrap(sentence, width - indent, break_long_words=False, break_on_hyphens=False) or [""]
        shown = "".join(
            f"{paint(cell, colours.get(cell, '') if number else BOLD, is_on=bool(colours))}{' ' * (size - len(cell))}"
            for cell, size in zip(first, sizes, strict=True)
        )
        below = [f"{' ' * indent}{paint(part, '' if number else BOLD, is_on=bool(colours))}" for part in parts]
        lines += [shown.rstrip(), *below] if is_below else [f"{shown}{below[0].strip()}".rstrip(), *below[1:]]
    return lines


def output_style(colours: Mapping[str, str]) -> tuple[Mapping[str, str], int | None]:
    """The colours and the width that `listing` has on standard output; a pipe has neither."""
    return colours if has_colour(sys.stdout) else {}, terminal_width()


def terminal_width() -> int | None:
    """The width of the terminal that gets standard output, here or where the caller is; None: a pipe does."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    context = click.get_current_context(silent=True)
    return context.meta.get(CALLER_WIDTH) if context is not None else None
