"""Policies with one change each, of which it is known whether it is a mistake."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.config.toml_text import to_toml
from tests.config.valid import Document, valid_document
from watchdog.config.document import Location, format_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A policy file after a change.

    `mistake` says whether there is one in it, None if the generator cannot know. `path` is where it must be found, None
    if it has no path (the text itself is at fault).
    """

    change: str
    data: bytes
    mistake: bool | None
    path: str | None = None


_HOSTILE: Final = [
    *("", " ", "nan", "inf", "-inf%", "1e999", "1 Gi", "1gi", "--1", "-1", "\u0663Mi", "1Mi ", "9" * 500, "\x1b"),
]
_AMOUNTS: Final = [
    *("interval", "stale_after", "release_timeout", "unit", "per_context", "percent", "default", "above", "for"),
    *("grace", "repeat", "node", "namespace", "owner", "first", "max", "offenders", "hold", "free_below", "amount"),
    *("reserve", "max_age", "max_size"),
]
_OUT_OF_RANGE: Final[dict[str, list[Any]]] = {
    "version": [0, 2, -1, 10**30],
    "interval": ["999ms", "301s"],
    "stale_after": ["0s", "2d"],
    "unit": ["0", "1m", "100Ei"],
    "max_contexts": [-1, 100_001],
    "percent": ["100.000001%", "200%"],
    "at_least": [0, -3, 10**25],
    "for": ["31d", "999999999d"],
    "grace": ["2d"],
    "repeat": ["0s", "999ms", "31d"],
    "priority_at_least": [2**31, -(2**31) - 1],
    "node": ["0 per 10m", "1 per 0s", "1 per 8d", "9999999 per 1m"],
    "factor": [0, 0.5, 101, float("inf"), float("nan")],
    "of_at_least": [0, 2**70],
    "free_below": ["0%", "100%"],
    "max_size": ["0", "2Ti"],
    "max_age": ["0s", "3651d"],
    "shares": [0, -1, 10**7],
}
_REQUIRED: Final = {"name", "above", "for", "do", "unit", "at_least"}
_NO_TOML_BYTE: Final = [*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xC0, 0xFF]
_FREE: Final = ("labels", "namespace_labels", "node_labels")  # tables whose keys are the file's own
_FREE_PARENTS: Final = tuple((name,) for name in _FREE)


def leaves(value: Any, at: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Every place of a document with its value, tables and lists too."""
    if at:
        yield at, value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(item, (*at, key))


def put(document: Document, at: Location, value: Any) -> None:
    """Set the value of a place."""
    target: Any = document
    for part in at[:-1]:
        target = target[part]
    target[at[-1]] = value


def wrong_type(document: Document, random: Random) -> Location:
    """Put a value of another type somewhere: no type is turned into another."""
    at, value = random.choice(list(leaves(document)))
    wrong: list[Any] = [[{}], {"a": 1}, 5, 1.5, True, "text"]
    if at[-1] in ("shares", "factor"):
        wrong = [[], {"a": 1}, True, "text"]
    else:
        wrong = [item for item in wrong if type(item) is not type(value)]
    put(document, at, random.choice(wrong))
    return at


def unknown_key(document: Document, random: Random) -> Location:
    """Put an unknown key into a table."""
    tables = [at for at, value in leaves(document) if isinstance(value, dict) and at[-1] not in _FREE]
    key = random.choice(["zzz", "Mode", "interval ", "x.y", "\u00e9", "rule[0]", "k" * 200])
    at = (*random.choice([(), *tables]), key)
    put(document, at, random.choice([1, "x", [], {}]))
    return at


def out_of_range(document: Document, random: Random) -> Location:
    """Put a value that is beyond its range."""
    return _put_one_of(document, random, _OUT_OF_RANGE)


def hostile_text(document: Document, random: Random) -> Location:
    """Put a text that is no amount where one must stand."""
    return _put_one_of(document, random, dict.fromkeys(_AMOUNTS, _HOSTILE))


def _put_one_of(document: Document, random: Random, values: dict[str, list[Any]]) -> Location:
    # A label may be named as a key of ours is, and have any value.
    places = [at for at, _ in leaves(document) if at[-1] in values and at[-2:-1] not in _FREE_PARENTS]
    at = random.choice(places or [("version",)])
    put(document, at, random.choice(values.get(str(at[-1]), [7])))
    return at


def required_key(document: Document, random: Random) -> Location:
    """Leave a key out that must be there."""
    at = random.choice([at for at, _ in leaves(document) if at[-1] in _REQUIRED and at[-2] not in _FREE])
    target: Any = document
    for part in at[:-1]:
        target = target[part]
    del target[at[-1]]
    return at


_IN_DOCUMENT: Final[tuple[Callable[[Document, Random], Location], ...]] = (
    *(wrong_type, wrong_type, unknown_key, out_of_range, hostile_text, required_key),
)


def truncated(data: bytes, random: Random) -> bytes:
    """Cut a file off within a line; each line is one key with its whole value."""
    begin, end = random.choice(_lines(data))
    return data[: random.randrange(begin + 1, end)]


def forbidden_byte(data: bytes, random: Random) -> bytes:
    """Put a byte somewhere that no TOML file can have."""
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.choice(_NO_TOML_BYTE)]) + data[at:]


def line_twice(data: bytes, random: Random) -> bytes:
    """Repeat a line, and with it a key."""
    begin, end = random.choice(_lines(data))
    return data + data[begin : end + 1]


def _lines(data: bytes) -> list[tuple[int, int]]:
    """Where each line begins and where it ends."""
    ends = [index for index, byte in enumerate(data) if byte == 0x0A]
    return list(zip([0, *(end + 1 for end in ends)], ends, strict=False))


def random_edit(data: bytes, random: Random) -> bytes:
    """Change a few bytes anywhere; the result may be valid."""
    edited = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(edited))
        edited[at : at + random.randrange(3)] = bytes(random.choices(b'09a"=[]{}.,\n% \\', k=random.randrange(3)))
    return bytes(edited)


def random_bytes(data: bytes, random: Random) -> bytes:
    """Noise."""
    return random.randbytes(random.randrange(1, len(data)))


_IN_TEXT: Final = (
    *((truncated, True), (forbidden_byte, True), (line_twice, True)),
    *((random_edit, None), (random_bytes, None)),
)


def changed_policy(seed: int) -> Changed:
    """The changed policy of a number; the same one every time."""
    random = Random(seed)
    document = valid_document(random)
    kind = random.randrange(len(_IN_DOCUMENT) + len(_IN_TEXT) + 1)
    if kind < len(_IN_DOCUMENT):
        change = _IN_DOCUMENT[kind]
        path = format_path(change(document, random))
        return Changed(change=change.__name__, data=to_toml(document).encode(), mistake=True, path=path)
    data = to_toml(document).encode()
    if kind == len(_IN_DOCUMENT) + len(_IN_TEXT):
        return Changed(change="none", data=data, mistake=False)
    edit, mistake = _IN_TEXT[kind - len(_IN_DOCUMENT)]
    return Changed(change=edit.__name__, data=edit(data, random), mistake=mistake)
