"""From a path to a TOML document: everything that can be wrong before a policy's own keys are looked at."""

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from watchdog.config.fields import quote
from watchdog.config.problems import PolicyError, Problem

MAX_BYTES: Final = 2**20
MAX_LINE: Final = 4096  # tomllib's time grows with the square of a dotted key's length
MAX_DEPTH: Final = 16
_BOM: Final = b"\xef\xbb\xbf"
_PLACE: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z")
# tomllib's words say what its parser could not do; these say what stands in the file.
_REMEDIES: Final = (
    (re.compile(r"Cannot overwrite a value"), "the same key stands twice in one table; leave one of them"),
    (re.compile(r"Cannot declare .* twice"), "the same table stands twice; tables of a list are written [[name]]"),
)


def read_bytes(path: Path) -> bytes:
    """Read a policy file of bearable size; PolicyError says in one line why it cannot be read."""
    source = str(path)
    try:
        # Without blocking: opening a pipe would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _refuse(source, "is not a regular file")
            return read_stream(file, source)
    except FileNotFoundError:
        raise _refuse(source, "there is no such file; config/policy.toml of the project is a beginning") from None
    except IsADirectoryError:
        raise _refuse(source, "is a directory; name the policy file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refuse(source, f"can't be read: {reason}") from None


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """Read a policy of bearable size from a stream that is open; PolicyError where it is larger, OSError."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _refuse(source, f"is larger than {MAX_BYTES // 2**20} MiB: that is no policy")
    return data


def parse_document(data: bytes, source: str) -> dict[str, Any]:
    """Parse the bytes of a file as TOML 1.0; PolicyError says in one line, with its place, why that cannot be done."""
    text = _decode(data, source)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            raise _refuse(source, f"the line is longer than {MAX_LINE} characters; break it up", number)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise _refuse(source, "is nested too deeply to be read; a policy has four levels at most") from None
    except ValueError as error:  # TOMLDecodeError, and what Python says of numbers with thousands of digits
        raise _syntax_error(source, text, str(error)) from None
    if not document:
        raise _refuse(source, 'is empty; a policy that only measures says at least mode = "observe"')
    if not _is_shallow(document):
        raise _refuse(source, "is nested too deeply; a policy has four levels at most")
    return document


def _decode(data: bytes, source: str) -> str:
    if data.startswith(_BOM):
        raise _refuse(source, "begins with a byte order mark; save it as UTF-8 without one", 1)
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise _refuse(source, "holds NUL bytes; save it as plain UTF-8 text, not as UTF-16", line)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refuse(
            source, f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line
        ) from None


def _syntax_error(source: str, text: str, message: str) -> PolicyError:
    place = _PLACE.search(message)
    what = message[: place.start()] if place else message
    for pattern, remedy in _REMEDIES:
        if pattern.match(what):
            what = remedy
    if len(what) > 200:
        what = quote(what)
    if place is None:
        return _refuse(source, f"not TOML: {what}")
    if place["line"] is None:
        return _refuse(source, f"not TOML: {what}, at the end of the file", text.rstrip("\n").count("\n") + 1)
    return _refuse(source, f"not TOML: {what} (column {place['column']})", int(place["line"]))


def _refuse(source: str, what: str, line: int | None = None) -> PolicyError:
    return PolicyError([Problem(source=source, what=what, line=line)])


def _is_shallow(document: dict[str, Any]) -> bool:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = list(_children(level))
        if not level:
            return True
    return False


def _children(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
