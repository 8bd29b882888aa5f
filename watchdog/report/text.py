"""Pieces of text: spans of time, amounts, names made inert and shortened."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from watchdog.core.model import Now

# A pod's name may have 253 characters, a container's 63 (RFC 1123); what is longer is no name that Kubernetes gave.
LONGEST_NAME: Final = 253


def inert(text: str, limit: int = LONGEST_NAME) -> str:
    """Escape what a terminal, a log or a browser could take for a command, and cut out the middle of what is too long.

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
    """Cut out the middle of a text of more than `limit` characters; Kubernetes names differ at their ends."""
    if len(text) <= limit:
        return text
    head = max((limit - 2) // 2, 0)
    tail = max(limit - 2 - head, 0)
    return f"{text[:head]}..{text[len(text) - tail :]}"


def said(text: str, limit: int) -> str:
    """Make what somebody else said harmless, without its full stop; what is too long ends at a word.

    The middle of a sentence has its verb: only names are cut there.
    """
    text = inert(text, 4096).rstrip(".")
    if len(text) <= limit:
        return text
    kept = text[: limit - 3]
    return f"{kept.rpartition(' ')[0] or kept}..."


def clip(text: str, size: int) -> str:
    """Cut a text to `size` bytes of UTF-8, at a character's border; what cannot be encoded becomes `?`."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= size:
        return data.decode("utf-8")
    return data[: size - 3].decode("utf-8", errors="ignore") + "..."


def span(seconds: float) -> str:
    """Write a measured span of time with the precision that people need: `0.4s`, `31s`, `5m 10s`, `3h 5m`, `2d 3h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for size, unit, rest_size, rest_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // rest_size
            return f"{whole // size}{unit} {rest}{rest_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def elapsed_s(since: Now, now: Now) -> float:
    """Seconds from one moment to another, never negative; across boots by the wall clock."""
    if since.boot_id == now.boot_id:
        return max(now.boottime_s - since.boottime_s, 0.0)
    return max(now.wall_s - since.wall_s, 0.0)


def rfc3339(wall_s: float) -> str:
    """Write Unix time as RFC 3339 in UTC with milliseconds (`2026-01-02T03:04:05.678Z`)."""
    return datetime.fromtimestamp(wall_s, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def date_time(wall_s: float) -> str:
    """Write Unix time for people: `2026-01-02 14:05:10 UTC`."""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock_time(wall_s: float, seen_from_s: float) -> str:
    """Write Unix time for people: `14:05:10 UTC`, with its date where that is not the date of `seen_from_s`."""
    text = date_time(wall_s)
    return text.partition(" ")[2] if text[:10] == date_time(seen_from_s)[:10] else text


def byte_cell(amount: int | None) -> str:
    """Write bytes for a column of them: always one decimal with a binary suffix (`7.0Gi`), `0`, or `unknown`.

    In a sentence `core.units.format_bytes` reads better.
    """
    if amount is None:
        return "unknown"
    scaled, suffixes = float(amount), iter(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    suffix = ""
    # What would round to 1024.0 is one of the next suffix already.
    while abs(scaled) >= 1023.95 and (larger := next(suffixes, "")):
        scaled, suffix = scaled / 1024, larger
    return f"{scaled:.1f}{suffix}" if suffix else str(amount)


def count(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: `1 process`, `3 processes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def capital(text: str) -> str:
    """A clause as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


# The API server refuses an Event whose note is longer (k8s.io/kubernetes pkg/apis/core/validation/events.go).
LONGEST_NOTE: Final = 1024


def fit(write: Callable[[int], str], size: int = LONGEST_NOTE) -> str:
    """Write with names as long as they are, or shorter where it would not fit the note of an Event, or `size` bytes."""
    for limit in (LONGEST_NAME, 63):
        text = write(limit)
        if len(text.encode("utf-8", errors="replace")) <= size:
            return text
    return clip(write(24), size)
