"""A terminal's screen, as far as `top` uses one: its text, its cursor, and which screen it is."""

import re
from dataclasses import dataclass, field
from typing import Final

_CONTROL: Final = re.compile(rb"\x1b\[(?P<mark>\??)(?P<numbers>[0-9;]*)(?P<final>[A-Za-z])")


@dataclass(slots=True)
class Screen:
    """A screen of a size, fed with what a program writes; AssertionError on a control code that it should not write."""

    columns: int
    rows: int
    is_other: bool = False
    is_cursor_shown: bool = True
    was_other: int = 0
    colours: set[str] = field(default_factory=set)
    lines: list[list[str]] = field(default_factory=list)
    usual: str = ""
    _row: int = 0
    _column: int = 0
    _pending: bytes = b""

    def __post_init__(self) -> None:
        self._clear()

    @property
    def text(self) -> str:
        """Its text."""
        return "\n".join("".join(line).rstrip() for line in self.lines)

    def resize(self, columns: int, rows: int) -> None:
        """Another size; the text is gone."""
        self.columns, self.rows = columns, rows
        self._clear()

    def feed(self, data: bytes) -> None:
        """What a program has written."""
        data = self._pending + data
        self._pending = b""
        while data:
            if data[:1] == b"\x1b":
                if len(data) < 3 or (data[1:2] == b"[" and not re.search(rb"[A-Za-z]", data[2:16])):
                    self._pending = data
                    return
                data = self._control(data)
                continue
            text, data = self._text(data)
            for character in text:
                self._put(character)

    def _text(self, data: bytes) -> tuple[str, bytes]:
        end = data.find(b"\x1b")
        piece = data if end < 0 else data[:end]
        try:
            return piece.decode(), data[len(piece) :]
        except UnicodeDecodeError as error:
            if end < 0 and error.end >= len(piece) - 3:
                self._pending = data[error.start :]
                return piece[: error.start].decode(), b""
            raise

    def _control(self, data: bytes) -> bytes:
        match = _CONTROL.match(data)
        assert match is not None, data[:20]
        numbers, final = match["numbers"].decode(), match["final"].decode()
        if match["mark"]:
            self._mode(numbers, is_on=final == "h")
        elif final == "m":
            self.colours.add(numbers)
        elif final == "H":
            self._row = self._column = 0
        elif final == "J":
            self._clear()
        elif final in "KA" and not self.is_other:
            # Erases the last line, or goes up from it, where nothing has been written below.
            self.usual = self.usual.rpartition("\n")[0] + ("\n" if final == "K" and "\n" in self.usual else "")
        else:
            raise AssertionError(data[:20])
        return data[match.end() :]

    def _mode(self, number: str, *, is_on: bool) -> None:
        assert number in ("25", "1049"), number
        if number == "25":
            self.is_cursor_shown = is_on
            return
        self.is_other = is_on
        self.was_other += is_on
        self._clear()

    def _clear(self) -> None:
        self.lines = [[] for _ in range(self.rows)]
        self._row = self._column = 0

    def _put(self, character: str) -> None:
        if not self.is_other:
            self.usual += character
        elif character == "\r":
            self._column = 0
        elif character == "\n":
            self._row = min(self._row + 1, self.rows - 1)
        else:
            assert character.isprintable(), repr(character)
            line = self.lines[self._row]
            line.extend(" " * (self._column + 1 - len(line)))
            line[self._column] = character
            self._column += 1
