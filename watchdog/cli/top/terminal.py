"""The terminal: taken over while the view is shown, restored afterwards; and its bytes decoded as keys."""

import contextlib
import os
import select
import termios
import tty
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.screen import Screen
from rich.text import Text

# What terminals send in their normal and in their application mode (xterm's control sequences, "PC-Style Function
# Keys"; the Linux console and rxvt differ in home and end).
_SEQUENCES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "up": (b"\x1b[A", b"\x1bOA"),
    "down": (b"\x1b[B", b"\x1bOB"),
    "pageup": (b"\x1b[5~",),
    "pagedown": (b"\x1b[6~",),
    "home": (b"\x1b[H", b"\x1bOH", b"\x1b[1~", b"\x1b[7~"),
    "end": (b"\x1b[F", b"\x1bOF", b"\x1b[4~", b"\x1b[8~"),
    "ctrl-c": (b"\x03", b"\x04"),  # an end of input ends it too
    "backspace": (b"\x08", b"\x7f"),
    "enter": (b"\n", b"\r"),
    "ctrl-u": (b"\x15",),
    "escape": (b"\x1b",),
}
_KEYS: Final = {sequence: key for key, sequences in _SEQUENCES.items() for sequence in sequences}
_ESCAPE: Final = 0x1B
_LONGEST: Final = 32


def keys_of(data: bytes, *, is_all: bool = False) -> tuple[tuple[str, ...], bytes]:
    """The keys in these bytes, and the rest, which may be the start of another key; `is_all`: no more bytes follow.

    An unknown escape sequence is skipped whole, so that its letters are not taken for keys.
    """
    found: list[str] = []
    while data:
        size = _length(data)
        if size is None and not is_all:
            return tuple(found), data
        size = size or 1
        found += filter(None, (_key(data[:size]),))
        data = data[size:]
    return tuple(found), b""


def _length(data: bytes) -> int | None:
    """The length of the first key in bytes; None if it is incomplete."""
    if data[0] == _ESCAPE:
        return _escaped(data) if len(data) > 1 else None
    if data[0] < 0xC0:
        return 1
    size = 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    return size if len(data) >= size else None


def _escaped(data: bytes) -> int | None:
    """The length of an escape sequence, by ECMA-48: parameters, and a final byte from @ to ~."""
    if data[1:2] == b"O":
        return 3 if len(data) >= 3 else None
    if data[1:2] != b"[":
        return 1  # the escape key, followed by another key
    for number, byte in enumerate(data[2:_LONGEST], start=3):
        if 0x40 <= byte <= 0x7E:
            return number
        if not 0x20 <= byte <= 0x3F:
            return number - 1
    return None if len(data) < _LONGEST else _LONGEST


def _key(data: bytes) -> str:
    """The name of a key, or the character it types; empty for an unknown key."""
    if data in _KEYS:
        return _KEYS[data]
    if data[0] >= 0xC0:
        return data.decode("utf-8", errors="ignore")
    return data.decode("ascii") if len(data) == 1 and 0x20 <= data[0] < 0x7F else ""


_USUAL: Final = (80, 24)


def size_of(out: TextIO) -> tuple[int, int]:
    """The columns and rows of a terminal; 80 by 24 if it does not say."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _USUAL
    return size.columns or _USUAL[0], size.lines or _USUAL[1]


class Terminal:
    """Draws frames and reads keys as they are pressed. `keys` is the descriptor to read them from, if there is one.

    `take` and `give_back` may be called repeatedly, as for Ctrl-Z and `fg`.
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
        """Switch to the alternate screen without a cursor; keys arrive unbuffered and are not echoed.

        OSError if the terminal has gone away.
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
        """Restore the terminal as it was before `take`; no error if it has gone away."""
        if not self._is_taken:
            return
        self._is_taken = False
        try:
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)
            self._out.flush()
        except (OSError, ValueError):
            self._discard_output()
        if self.keys is not None and self._before is not None:
            with contextlib.suppress(termios.error):
                # Keys typed and not read yet were meant for the view, not for the shell.
                termios.tcsetattr(self.keys, termios.TCSAFLUSH, self._before)

    def _discard_output(self) -> None:
        """Send buffered output to /dev/null: at exit Python would flush it, fail, and return 120."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._out.fileno())
            os.close(null)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return size_of(self._out)

    def draw(self, lines: Sequence[Text], width: int, height: int) -> None:
        """Draw a frame over the previous one; OSError if the terminal has gone away."""
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
        """The bytes typed since the last call; OSError if the terminal has gone away."""
        if self.keys is None or not select.select([self.keys], [], [], 0)[0]:
            return b""
        data = os.read(self.keys, 4096)
        if not data:
            raise EOFError
        return data
