"""Helpers for text: escaping and shortening names, spans and moments, amounts in columns, colours."""

import math
import os
import re
from datetime import UTC, datetime
from functools import partial
from typing import Final, TextIO

from watchdog.core.units import format_bytes

# A pod's name may have 253 characters, a container's 63 (RFC 1123); what is longer is no name that Kubernetes gave.
LONGEST_NAME: Final = 253


def inert(text: str, limit: int = LONGEST_NAME) -> str:
    """Escape what a terminal, log or browser could take for a command, and cut out the middle of a long text.

    Names reach the daemon from tenants: a process can call itself by an escape sequence or a line break.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escape(c) for c in text[: 4 * limit])
    return shorten(text, limit)


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shorten(text: str, limit: int) -> str:
    """Cut out the middle of a text that is longer than `limit`; Kubernetes names differ at their ends."""
    if len(text) <= limit:
        return text
    head = max((limit - 2) // 2, 0)
    tail = max(limit - 2 - head, 0)
    return f"{text[:head]}..{text[len(text) - tail :]}"


def quoted(text: str, limit: int) -> str:
    """Escape another program's message and drop its full stop; one that is too long ends at a word.

    Only names are cut in the middle: that of a sentence has its verb.
    """
    text = inert(text, 4096).rstrip(".")
    if len(text) <= limit:
        return text
    kept = text[: limit - 3]
    return f"{kept.rpartition(' ')[0] or kept}..."


def clip(text: str, size: int) -> str:
    """Cut a text to `size` bytes of UTF-8, between characters; what cannot be encoded becomes `?`."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= size:
        return data.decode("utf-8")
    return data[: size - 3].decode("utf-8", errors="ignore") + "..."


def span(seconds: float) -> str:
    """Format a measured span with the precision that people need: `0.4s`, `31s`, `5m 10s`, `3h 5m`, `2d 3h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for size, unit, rest_size, rest_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // rest_size
            return f"{whole // size}{unit} {rest}{rest_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def whole_intervals(seconds: float, interval_s: float) -> float:
    """A wait rounded up to whole intervals, for texts that anybody can read; it can't be used to time a dip."""
    return math.ceil(seconds / interval_s - 1e-6) * interval_s if seconds > 0 else seconds


def rfc3339(wall_s: float) -> str:
    """Unix time as RFC 3339 in UTC with milliseconds (`2026-01-02T03:04:05.678Z`)."""
    return datetime.fromtimestamp(wall_s, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def date_time(wall_s: float) -> str:
    """Unix time for people: `2026-01-02 14:05:10 UTC`."""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# An RFC 3339 moment, of which the end may be missing; also as `date_time` writes one.
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?(?:[Zz]|UTC)|[+-]\d\d:\d\d)?)?", re.ASCII
)


def parse_moment(text: str) -> float | None:
    """The Unix time of an RFC 3339 moment, in UTC unless it says otherwise; its end may be missing.

    None: it is written otherwise. ValueError: there is no such day or time.
    """
    if not _MOMENT.fullmatch(text):
        return None
    given = datetime.fromisoformat(text.upper().removesuffix("UTC").removesuffix("Z").rstrip())
    return (given if given.tzinfo is not None else given.replace(tzinfo=UTC)).timestamp()


def clock_time(wall_s: float, seen_from_s: float) -> str:
    """Unix time for people: `14:05:10 UTC`, with its date if that differs from the date of `seen_from_s`."""
    text = date_time(wall_s)
    return text.partition(" ")[2] if text[:10] == date_time(seen_from_s)[:10] else text


def byte_cell(amount: int | None) -> str:
    """Bytes in a column: as in a sentence, or `unknown`."""
    return "unknown" if amount is None else format_bytes(amount)


def percent(ratio: float) -> str:
    """A share in per cent: `35%`; little is not nothing: `<1%`."""
    return "<1%" if 0 < ratio < 0.005 else f"{round(100 * ratio)}%"


def busy(ratio: float | None) -> str:
    """How busy something is: `35% busy`; empty: that is unknown."""
    return "" if ratio is None else f"{percent(ratio)} busy"


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 process`, `3 processes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def capital(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


# The API server refuses an Event whose note is longer (k8s.io/kubernetes pkg/apis/core/validation/events.go).
LONGEST_NOTE: Final = 1024


def fit(text: str, size: int = LONGEST_NOTE) -> str:
    """Cut a text to `size` bytes of UTF-8: first its long names, and if that is not enough, its end."""
    return clip(shorten_names(text, size), size)


def shorten_names(text: str, size: int) -> str:
    """Shorten the long names in a text of more than `size` bytes; it may still be longer."""
    for limit in (63, 24):
        if size_of(text) > size:
            # The names of Kubernetes' objects and the parts of their keys consist of these characters.
            text = re.sub(rf"[\w.-]{{{limit + 1},}}", partial(_shorten_match, limit), text)
    return text


def _shorten_match(limit: int, name: re.Match[str]) -> str:
    return shorten(name[0], limit)


def size_of(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", errors="replace"))


# Terminal escape sequences for the log and for output without tables.
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
