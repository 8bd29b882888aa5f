"""Colours for the log and for output without tables, as terminal escape sequences."""

import os
from typing import Final, TextIO

RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
BOLD: Final = "1"


def has_colour(stream: TextIO) -> bool:
    """Whether to write colour: to a terminal that supports it, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def paint(text: str, colour: str, *, is_on: bool) -> str:
    """A text in a colour, or unchanged."""
    return f"\x1b[{colour}m{text}\x1b[0m" if is_on and colour else text
