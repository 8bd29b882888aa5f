"""The terminal of the live view: taken over while the view is shown, and restored afterwards."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Sequence
from typing import Any, Final, Self, TextIO

import click
from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.screen import Screen
from rich.text import Text

_USUAL: Final = (80, 24)


def size_of(out: TextIO) -> tuple[int, int]:
    """The columns and rows of a terminal; 80 by 24 if unknown."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _USUAL
    return size.columns or _USUAL[0], size.lines or _USUAL[1]


def is_live() -> bool:
    """Whether standard output is a terminal that supports the live view."""
    if not sys.stdout.isatty():
        return False
    if os.environ.get("TERM", "") not in ("", "dumb"):
        return True
    click.echo("TERM does not name a terminal that supports the live view; printing the status once.", err=True)
    return False


class Terminal:
    """Draws frames and reads keys as they are pressed. `keys` is the descriptor to read them from, if there is one.

    `take_over` and `give_back` may be called repeatedly, as for Ctrl-Z and `fg`. Once the terminal has gone away, all
    methods but `give_back` raise OSError.
    """

    def __init__(self, keys: int | None, out: TextIO) -> None:
        self.keys = keys
        self._out = out
        self._console = Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._modes: list[Any] | None = None
        self._is_taken = False
        self._drawn: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self.take_over()
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take_over(self) -> None:
        """Switch to the alternate screen without a cursor; keys arrive unbuffered and are not echoed."""
        if self._is_taken:
            return
        self._is_taken = True
        if self.keys is not None:
            try:
                self._modes = termios.tcgetattr(self.keys)
                # Not raw: Ctrl-C and Ctrl-Z stay signals.
                tty.setcbreak(self.keys, termios.TCSADRAIN)
            except termios.error as error:
                raise OSError(*error.args) from error
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)
        self._drawn = None

    def give_back(self) -> None:
        """Restore the terminal as it was before `take_over`."""
        if not self._is_taken:
            return
        self._is_taken = False
        try:
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)
            self._out.flush()
        except (OSError, ValueError):
            self._discard_output()
        if self.keys is not None and self._modes is not None:
            with contextlib.suppress(termios.error):
                # Keys typed and not read yet were meant for the view, not for the shell.
                termios.tcsetattr(self.keys, termios.TCSAFLUSH, self._modes)

    def _discard_output(self) -> None:
        """Send buffered output to /dev/null: at exit Python would flush it, fail, and return 120."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._out.fileno())
            os.close(null)

    def draw(self, lines: Sequence[Text], width: int, height: int) -> None:
        """Draw a frame over the previous one."""
        console = self._console
        console.size = ConsoleDimensions(width, height)
        whole = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        # Within `with` everything is written at once, which avoids flicker.
        with console:
            if self._drawn != (width, height):
                console.control(Control.clear())
            console.control(Control.home())
            console.print(Screen(whole), end="", no_wrap=True, overflow="crop", crop=False)
        self._drawn = (width, height)

    def read(self) -> bytes:
        """The bytes typed since the last call; EOFError at their end."""
        if self.keys is None or not select.select([self.keys], [], [], 0)[0]:
            return b""
        data = os.read(self.keys, 4096)
        if not data:
            raise EOFError
        return data
