"""Keys from the bytes that a terminal sends."""

from collections.abc import Mapping
from typing import Final

# What terminals send in their normal and in their application mode (xterm's control sequences, "PC-Style Function
# Keys"; the Linux console and rxvt differ in home and end).
_SENT: Final[Mapping[str, tuple[bytes, ...]]] = {
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
_KEYS: Final = {sent: key for key, all_sent in _SENT.items() for sent in all_sent}
_ESCAPE: Final = 0x1B
_LONGEST: Final = 32


def keys_of(data: bytes, *, is_all: bool = False) -> tuple[tuple[str, ...], bytes]:
    """The keys in what has come, and what may be the beginning of one more; `is_all`: nothing more comes.

    An escape sequence that is not known is passed over whole, so that its letters are not taken for keys.
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
    """How many bytes the first key takes; None: its end has not come yet."""
    if data[0] == _ESCAPE:
        return _escaped(data) if len(data) > 1 else None
    if data[0] < 0xC0:
        return 1
    size = 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    return size if len(data) >= size else None


def _escaped(data: bytes) -> int | None:
    """How long an escape sequence is, by ECMA-48: parameters, and a final byte from @ to ~."""
    if data[1:2] == b"O":
        return 3 if len(data) >= 3 else None
    if data[1:2] != b"[":
        return 1  # the escape key, and another one
    for number, byte in enumerate(data[2:_LONGEST], start=3):
        if 0x40 <= byte <= 0x7E:
            return number
        if not 0x20 <= byte <= 0x3F:
            return number - 1
    return None if len(data) < _LONGEST else _LONGEST


def _key(data: bytes) -> str:
    """The name of a key, or what it types; empty for one that means nothing."""
    if data in _KEYS:
        return _KEYS[data]
    if data[0] >= 0xC0:
        return data.decode("utf-8", errors="ignore")
    return data.decode("ascii") if len(data) == 1 and 0x20 <= data[0] < 0x7F else ""
