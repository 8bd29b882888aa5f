"""The terminal: taken while the picture is shown, and given back as it was, whatever ends it."""

import contextlib
import os
import select
import termios
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.screen import Screen
from rich.text import Text

_USUAL: Final = (80, 24)


class Terminal:
    """Draws frames, and reads keys as they are pressed; `keys` is the descriptor they come from (None: there is none).

    `take` and `give_back` may be called again and again, as Ctrl-Z and `fg` do.
    """

    def __init__(self, keys: int | None, out: TextIO) -> None:
        self.keys = keys
        self._out = out
        self._console = Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._before: list[Any] | None = None
        self._is_taken = False
        self._drawn: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def take(self) -> None:
        """Show an empty screen of our own, without a cursor; keys come at once, and are not shown.

        OSError where the terminal has gone away.
        """
        if self._is_taken:
            return
        self._is_taken = True
        if self.keys is not None:
            try:
                self._before = termios.tcgetattr(self.keys)
                # Not raw: Ctrl-C and Ctrl-Z stay signals.
                tty.setcbreak(self.keys, termios.TCSADRAIN)
            except termios.error as error:
                raise OSError(*error.args) from error
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)
        self._drawn = None

    def give_back(self) -> None:
        """Let everything be as it was before `take`; a terminal that has gone away is no error any more."""
        if not self._is_taken:
            return
        self._is_taken = False
        try:
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)
            self._out.flush()
        except (OSError, ValueError):
            self._let_go()
        if self.keys is not None and self._before is not None:
            with contextlib.suppress(termios.error):
                # What was typed and not read yet was meant for the picture, not for the shell.
                termios.tcsetattr(self.keys, termios.TCSAFLUSH, self._before)

    def _let_go(self) -> None:
        """Send what is still held back nowhere: at its end Python would flush it, fail, and exit with 120."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._out.fileno())
            os.close(nowhere)

    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 by 24 where the terminal does not say."""
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            return _USUAL
        return size.columns or _USUAL[0], size.lines or _USUAL[1]

    def draw(self, lines: Sequence[Text], width: int, height: int) -> None:
        """Draw a frame over the one before it; OSError where the terminal has gone away."""
        console = self._console
        console.size = ConsoleDimensions(width, height)
        whole = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        # Within `with` all is written in one go, which does not flicker.
        with console:
            if self._drawn != (width, height):
                console.control(Control.clear())
            console.control(Control.home())
            console.print(Screen(whole), end="", no_wrap=True, overflow="crop", crop=False)
        self._drawn = (width, height)

    def read(self) -> bytes:
        """What was typed since; OSError where the terminal has gone away."""
        if self.keys is None or not select.select([self.keys], [], [], 0)[0]:
            return b""
        data = os.read(self.keys, 4096)
        if not data:
            raise EOFError
        return data
