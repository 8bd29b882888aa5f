"""Where the demo is shown: frames drawn in place on a terminal, plain lines everywhere else."""

import os
import textwrap
from collections.abc import Iterable
from typing import Final, Protocol, TextIO

from watchdog.demo.frame import ASCII, BLOCKS, NOTICE, frame, plain_line, plain_occurrence
from watchdog.demo.scene import Scene
from watchdog.export.table import has_colour

_LEAST_COLUMNS: Final = 72
_LEAST_ROWS: Final = 20
_WIDEST: Final = 100
_LONG: Final = 10_000
_PLAIN_EVERY_S: Final = 1.0


class Screen(Protocol):
    """Shows scenes one after the other, the last of them to stay, and then texts."""

    def show(self, scene: Scene) -> None:
        """Show a scene."""

    def finish(self, scene: Scene) -> None:
        """Show the last scene, with all that happened."""

    def say(self, title: str, text: str) -> None:
        """Write a text below."""

    def close(self) -> None:
        """Give the terminal back as it was."""


def screen_for(out: TextIO) -> Screen:
    """Frames on a terminal that is large enough and knows colour, else lines."""
    columns, rows = _size(out)
    if has_colour(out) and columns >= _LEAST_COLUMNS and rows >= _LEAST_ROWS:
        return FrameScreen(out)
    return LineScreen(out)


class LineScreen:
    """Writes a line for each occurrence, and about every second one for the whole node; no control codes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = 0
        self._next_s = 0.0
        self._write((NOTICE,))

    def show(self, scene: Scene) -> None:
        """Write what is new."""
        self._tell(scene)
        if scene.second >= self._next_s:
            self._next_s = scene.second + _PLAIN_EVERY_S
            self._write((plain_line(scene),))

    def finish(self, scene: Scene) -> None:
        """Write how it ended."""
        self._tell(scene)
        self._write((plain_line(scene),))

    def say(self, title: str, text: str) -> None:
        """Write a text in lines of 79 characters."""
        self._write(("", title, *_wrapped(text, 79)))

    def close(self) -> None:
        """Nothing is to be given back."""

    def _tell(self, scene: Scene) -> None:
        self._write(plain_occurrence(each) for each in scene.occurrences[self._told :])
        self._told = len(scene.occurrences)

    def _write(self, lines: Iterable[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


class FrameScreen:
    """Draws each scene over the one before it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0
        encoding = (out.encoding or "").lower().replace("-", "")
        self._signs = BLOCKS if encoding == "utf8" else ASCII
        self._hidden = False

    def show(self, scene: Scene) -> None:
        """Draw a scene as far as it fits the terminal."""
        columns, rows = _size(self._out)
        self._draw(frame(scene, self._signs, min(columns, _WIDEST) - 1, rows - 1))

    def finish(self, scene: Scene) -> None:
        """Draw the last scene whole; it may scroll."""
        self._draw(frame(scene, self._signs, min(_size(self._out)[0], _WIDEST) - 1, _LONG))

    def say(self, title: str, text: str) -> None:
        """Write a text below the last scene."""
        width = min(_size(self._out)[0], _WIDEST) - 1
        lines = ("", f"\x1b[1m{title}\x1b[0m", *_wrapped(text, width))
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

    def close(self) -> None:
        """Show the cursor again."""
        if self._hidden:
            self._out.write("\x1b[?25h")
            self._out.flush()

    def _draw(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn}F" if self._drawn else "\x1b[?25l"
        self._hidden = True
        # Line by line over the old ones, not a clearing first: that would flicker.
        self._out.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._drawn = len(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _size(out: TextIO) -> tuple[int, int]:
    """Columns and rows; 80 x 24 where the terminal does not say."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
