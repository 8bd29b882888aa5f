"""The kinds of values in a policy file: how each is read, strictly, and written; errors name the remedy."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from watchdog.core.hours import DAY_MINUTES, DAYS, Hours

T = TypeVar("T")
Plain = str | int | float | bool | dict[str, str]

# Longer than any name, key or quantity can be: bounds the work of the parsers and the length of error lines.
MAX_TEXT: Final = 400
CONTAINER: Final = "{container}"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY_DOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*")
_WILD: Final = re.compile(r"[*?]")


class FieldError(ValueError):
    """A value that a field cannot have, and the remedy."""


class EntriesError(ValueError):
    """What is wrong with the entries of a table whose keys are free: key and reason of each."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self.entries = entries
        super().__init__(entries)


class ShapeError(TypeError):
    """A value that is not the table or list that must be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldKind(Generic[T]):
    """One kind of value.

    `words` describes it. `read` takes what the TOML parser returns and raises ValueError with a sentence for people;
    `write` returns what a file would say, so that `read` gives the same value back.
    """

    words: str
    read: Callable[[object], T]
    write: Callable[[T], Plain]


def quote(text: str) -> str:
    """Put a text in quotes, in ASCII and on one line, shortened if it is long."""
    return json.dumps(text if len(text) <= 60 else f"{text[:57]}...")


def describe(value: object) -> str:
    """Name a TOML value for an error line; never long, whatever the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"  # Python itself may refuse to write it out
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    names: dict[type, str] = {list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def expect_text(value: object, like: str) -> str:
    """Return the value if it is a text of at most `MAX_TEXT` characters; FieldError with the example `like` if not."""
    if not isinstance(value, str):
        raise FieldError(f"must be a text in quotes, like {quote(like)}, not {describe(value)}")
    if len(value) > MAX_TEXT:
        raise FieldError(f"is {len(value)} characters long; at most {MAX_TEXT} are allowed")
    return value


def choice(options: tuple[str, ...], make: Callable[[str], Any] = str) -> FieldKind[Any]:
    """One of a few words."""
    words = " or ".join(quote(option) for option in options)

    def read(value: object) -> Any:
        if isinstance(value, str) and value in options:
            return make(value)
        close = get_close_matches(value.lower(), options, n=1) if isinstance(value, str) and len(value) < 60 else []
        meant = f"; did you mean {quote(close[0])}?" if close else ""
        raise FieldError(f"must be {words}, not {describe(value)}{meant}")

    return FieldKind(words=words, read=read, write=str)


def flag() -> FieldKind[bool]:
    """True or false; a text or a number is neither."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise FieldError(f"must be true or false, without quotes, not {describe(value)}")

    return FieldKind(words="true or false", read=read, write=bool)


def whole(low: int, high: int) -> FieldKind[int]:
    """A whole number in a range; a text, a float and a bool are not."""
    words = f"a whole number, {low} to {high}" if low < high else f"the number {low}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(f"must be a whole number without quotes, like {max(low, 1)}, not {describe(value)}")
        if not low <= value <= high:
            raise FieldError(f"must be {words}, not {describe(value)}")
        return value

    return FieldKind(words=words, read=read, write=int)


def number(low: float, high: float) -> FieldKind[float]:
    """A number in a range, whole or not."""
    words = f"a number, {low:g} to {high:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(f"must be a number without quotes, like {high:g}, not {describe(value)}")
        if not low <= value <= high:  # false for not-a-number too
            raise FieldError(f"must be {words}, not {describe(value)}")
        return float(value)

    return FieldKind(words=words, read=read, write=float)


def line(shortest: int, longest: int) -> FieldKind[str]:
    """A line of text for people."""

    def read(value: object) -> str:
        text = expect_text(value, "text")
        if len(text) < shortest:
            raise FieldError("must not be empty")
        if len(text) > longest:
            raise FieldError(f"is {len(text)} characters long; at most {longest} are allowed")
        if not text.isprintable() or text != text.strip():
            raise FieldError(f"{quote(text)} must be one line, without blanks at its ends and control characters")
        return text

    return FieldKind(words=f"a text, at most {longest} characters", read=read, write=str)


def pattern(what: str, like: str, *, characters: str = "-a-z0-9.", slash: bool = False) -> FieldKind[str]:
    """A name of the given characters in which `*` stands for any characters and `?` for one."""
    part = re.compile(rf"[{characters}*?]{{1,253}}")

    def read(value: object) -> str:
        text = expect_text(value, like)
        if all(part.fullmatch(name) for name in (text.split("/", 1) if slash else [text])):
            return text
        raise FieldError(
            f"{quote(text)} can't be {what}, like {quote(like)}; in a name * stands for any characters and ? for one"
        )

    return FieldKind(words=f"{what}, like {quote(like)}", read=read, write=str)


def pod_pattern(what: str, like: str) -> FieldKind[str]:
    """A pattern with or without a namespace before a slash."""
    return pattern(what, like, slash=True)


def kind_pattern(what: str, like: str) -> FieldKind[str]:
    """A pattern for the kind of an object, in its upper and lower case."""
    return pattern(what, like, characters="A-Za-z0-9")


def key(what: str, *options: str) -> FieldKind[str]:
    """The key of a label or an annotation.

    By its options it can have `*` and `?` ("wild") or `{container}` ("container") in it, or be empty ("optional").
    """
    words = [what]
    words += ["`*` and `?` may stand in it"] * ("wild" in options)
    words += [f"`{CONTAINER}` stands for the container's name"] * ("container" in options)
    words += ["empty for none"] * ("optional" in options)

    def read(value: object) -> str:
        text = expect_text(value, "example.com/gpu-memory")
        if not text and "optional" in options:
            return text
        if CONTAINER in text and "container" not in options:
            raise FieldError(f"{CONTAINER} may stand only in the key of an annotation or a label")
        plain = _WILD.sub("x", text) if "wild" in options else text
        if not _is_key(plain.replace(CONTAINER, "x")):
            raise FieldError(f'{quote(text)} is not {what}: NAME or DOMAIN/NAME, like "example.com/gpu-memory"')
        return text

    return FieldKind(words="; ".join(words), read=read, write=str)


def _is_key(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and (
        not slash or (len(domain) < 254 and bool(_KEY_DOMAIN.fullmatch(domain)))
    )


def resource(*options: str) -> FieldKind[str]:
    """The name of an extended resource; those without a domain are Kubernetes' own, and none of them is GPU memory."""
    plain = key("the name of a resource", *options)

    def read(value: object) -> str:
        text = plain.read(value)
        if "/" not in text:
            raise FieldError(f'{quote(text)} has no domain; a GPU resource is named like "example.com/gpu-memory"')
        return text

    return FieldKind(words=plain.words, read=read, write=str)


def labels() -> FieldKind[Mapping[str, str]]:
    """Labels and the values they must have; raises EntriesError, ShapeError."""
    of_key = key("the key of a label")

    def read(value: object) -> dict[str, str]:
        if not isinstance(value, dict):
            raise ShapeError
        found: list[tuple[str, str]] = []
        for name, wanted in value.items():
            for check, part in ((of_key.read, name), (_label_value, wanted)):
                try:
                    check(part)
                except FieldError as error:
                    found.append((name, str(error)))
        if found:
            raise EntriesError(found)
        return dict(value)

    return FieldKind(words="a table of labels and their values", read=read, write=dict)


def _label_value(value: object) -> str:
    text = expect_text(value, "dev")
    if text and not _KEY_NAME.fullmatch(_WILD.sub("x", text)):
        raise FieldError(f"{quote(text)} can't be a label's value: at most 63 letters, digits, -, _ and .")
    return text


_EXAMPLE: Final = "Mon-Fri 08:00-18:00 Europe/Berlin"
_DAY: Final = f"(?:{'|'.join(DAYS)})"
_HOURS: Final = re.compile(
    rf"(?P<days>{_DAY}(?:-{_DAY})?(?:,{_DAY}(?:-{_DAY})?){{0,6}})"
    r" (?P<begin>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2}) (?P<zone>[A-Za-z0-9_+/-]{1,64})"
)


def hours() -> FieldKind[Hours]:
    """Days, a span of the day (over midnight where it ends before it begins) and a time zone."""
    words = f"days, hours and a time zone, like {quote(_EXAMPLE)}"

    def read(value: object) -> Hours:
        text = expect_text(value, _EXAMPLE)
        match = _HOURS.fullmatch(text)
        if match is None:
            raise FieldError(f"{quote(text)} is not {words}")
        begin, end = _minutes(match["begin"]), _minutes(match["end"])
        if begin % DAY_MINUTES == end % DAY_MINUTES and end - begin != DAY_MINUTES:
            raise FieldError(f"{quote(text)} ends when it begins; a whole day is 00:00-24:00")
        days = frozenset(_days(match["days"]))
        return Hours(text=text, days=days, begin=begin, end=end, offset_s=_offset_of(match["zone"]))

    return FieldKind(words=words, read=read, write=lambda value: value.text)


def _days(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = DAYS.index(first)
        count = (DAYS.index(last or first) - begin) % len(DAYS) + 1
        yield from ((begin + number) % len(DAYS) for number in range(count))


def _minutes(text: str) -> int:
    minutes = int(text[:2]) * 60 + int(text[3:])
    if int(text[3:]) > 59 or minutes > DAY_MINUTES:
        raise FieldError(f"{text} is not a time of day; write 00:00 to 24:00")
    return minutes


def _offset_of(name: str) -> Callable[[float], int]:
    """How far ahead of UTC the clocks of a time zone are, by the system's time zone data or the package tzdata's."""
    import zoneinfo  # noqa: PLC0415 - for the few policies that have hours

    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            raise FieldError(
                f"the time zone {quote(name)} can't be checked: there is no time zone data; install the package tzdata"
            ) from None
        raise FieldError(f'there is no time zone {quote(name)}; write it like "Europe/Berlin"') from None

    def offset_s(wall_s: float) -> int:
        offset = datetime.fromtimestamp(wall_s, zone).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())

    return offset_s
