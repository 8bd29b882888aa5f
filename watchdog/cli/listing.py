"""Tables whose last column is sentences, for commands that do not load the library which `tables` needs."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from watchdog.report.text import BOLD, has_colour, inert, paint

_UNCUT: Final = 10**6
_LEAST: Final = 40  # characters of a sentence in a line, however narrow the terminal is
_GAP: Final = 2


def listing(
    titles: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str], width: int | None = None
) -> list[str]:
    """Titles and rows in aligned columns, cells in the colour of their text; if a width is given, sentences wrap."""
    cells = [titles, *([inert(cell, _UNCUT) for cell in row] for row in rows)]
    sizes = [max(map(len, column)) + _GAP for column in list(zip(*cells, strict=True))[:-1]]
    indent, lines = sum(sizes), []
    for number, (*first, sentence) in enumerate(cells):
        parts = [sentence]
        if width is not None:
            room = max(width - indent, _LEAST)
            parts = textwrap.wrap(sentence, room, break_long_words=False, break_on_hyphens=False) or [""]
        shown = [
            f"{paint(cell, colours.get(cell, '') if number else BOLD, is_on=bool(colours))}{' ' * (size - len(cell))}"
            for cell, size in zip(first, sizes, strict=True)
        ]
        title = paint(parts[0], "" if number else BOLD, is_on=bool(colours))
        lines += ["".join([*shown, title]).rstrip(), *(f"{' ' * indent}{part}" for part in parts[1:])]
    return lines


def output_style(colours: Mapping[str, str]) -> tuple[Mapping[str, str], int | None]:
    """The colours and the width that `listing` has on standard output; a pipe has neither."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return colours if has_colour(sys.stdout) else {}, width
