"""The kinds of values in a policy file: how each is read, strictly, and written; errors include the remedy."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from typing import Any, Final, Generic, TypeVar, get_args

from watchdog.config.scheme import ALL, all_schemes
from watchdog.core.brakes import MOST_REMEMBERED
from watchdog.core.hours import DAY_MINUTES, DAYS, Hours
from watchdog.core.policy import Draining, Special, Threshold, Window
from watchdog.core.units import (
    format_duration,
    format_percent,
    format_quantity,
    parse_duration,
    parse_number,
    parse_percent,
    parse_quantity,
)

T = TypeVar("T")
N = TypeVar("N", int, float, Fraction)
Plain = str | int | float | bool | dict[str, str]

# Longer than any name, key or quantity can be: limits the work of the parsers and the length of error messages.
MAX_TEXT: Final = 400
CONTAINER: Final = "{container}"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY_DOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*")
_WILD: Final = re.compile(r"[*?]")


class FieldError(ValueError):
    """A value that a field cannot have, with the remedy."""


class EntriesError(ValueError):
    """Invalid entries of a table with arbitrary keys: key and reason of each."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self.entries = entries
        super().__init__(entries)


class ShapeError(TypeError):
    """A value that is not the required table or list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldKind(Generic[T]):
    """One kind of value."""

    # A description.
    words: str
    # Takes what the TOML parser returns, and raises ValueError with a readable sentence.
    read: Callable[[object], T]
    # Returns what a file would contain, so that `read` returns the same value again.
    write: Callable[[T], Plain] = str


def quote(text: str) -> str:
    """Quote a text, in ASCII and on one line, shortened if it is long."""
    return json.dumps(text if len(text) <= 60 else f"{text[:57]}...")


def describe(value: object) -> str:
    """Name a TOML value in an error message; the result is always short."""
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

    return FieldKind(words=words, read=read)


def scheme() -> FieldKind[str]:
    """The name of a scheme, or `*` for all that need no decision."""

    def read(value: object) -> str:
        text = expect_text(value, "hami")
        if text == ALL or text in all_schemes():
            return text
        plain = text.lower() if len(text) < 60 else ""
        parts = [name for name in all_schemes() if len(plain) > 2 and plain in name]  # "mig" is no typing error
        close = parts or get_close_matches(plain, all_schemes(), n=1, cutoff=0.4)
        meant = f"did you mean {quote(close[0])}? " if close else ""
        raise FieldError(f"{quote(text)} is not a scheme; {meant}`gpu-watchdog check --schemes` lists them all")

    return FieldKind(words='the name of a scheme (`gpu-watchdog check --schemes` lists them), or "*"', read=read)


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
    """A line of text."""

    def read(value: object) -> str:
        text = expect_text(value, "text")
        if len(text) < shortest:
            raise FieldError("must not be empty")
        if len(text) > longest:
            raise FieldError(f"is {len(text)} characters long; at most {longest} are allowed")
        if not text.isprintable() or text != text.strip():
            raise FieldError(
                f"{quote(text)} must be one line, without leading or trailing blanks or control characters"
            )
        return text

    return FieldKind(words=f"a text, at most {longest} characters", read=read)


_PAGE_URL: Final = "https://gpu.example.org/{node}/pods/{namespace}/{pod}"
_PAGE_PARTS: Final = ("{node}", "{namespace}", "{pod}")
_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(?:[/?#][!#-;=?-~]*)?", re.ASCII)


def page_url() -> FieldKind[str]:
    """The address of a pod's page, in which the names of node, namespace and pod are put; empty for none."""
    plain = line(0, 200)
    words = f"an address like {quote(_PAGE_URL)}, at most 200 characters; empty for none"

    def read(value: object) -> str:
        text = plain.read(value)
        if not text:
            return text
        bare = text
        for part in _PAGE_PARTS:
            if text.count(part) > 1:
                raise FieldError(f"{quote(text)} has {part} more than once; leave one of them")
            bare = bare.replace(part, "x")
        if set("{}") & set(bare):
            found = re.search(r"\{[^{}]*\}?|\}", bare)
            what = found[0] if found is not None else "{"
            raise FieldError(f"{quote(what)} can't be filled in; use {', '.join(_PAGE_PARTS)}")
        if _ADDRESS.fullmatch(bare) is None:
            raise FieldError(f"{quote(text)} is not an address that begins with https:// or http://, without blanks")
        return text

    return FieldKind(words=words, read=read)


def folder() -> FieldKind[str]:
    """The absolute path of a folder, in which `*` and `?` may stand for parts of names."""
    plain = line(1, MAX_TEXT)

    def read(value: object) -> str:
        text = plain.read(value)
        if not text.startswith("/") or ".." in text.split("/"):
            raise FieldError(f'{quote(text)} must be an absolute path without "..", like "{Draining().pipe[0]}"')
        return text

    return FieldKind(words="an absolute path", read=read)


def pattern(what: str, like: str, *options: str) -> FieldKind[str]:
    """A name in which `*` stands for any characters and `?` for one.

    The options allow another name before a slash ("slash"), or upper and lower case without punctuation ("kind").
    """
    name = r"[A-Za-z0-9*?]{1,253}" if "kind" in options else r"[-a-z0-9.*?]{1,253}"
    whole_pattern = re.compile(f"(?:{name}/)?{name}" if "slash" in options else name)

    def read(value: object) -> str:
        text = expect_text(value, like)
        if whole_pattern.fullmatch(text):
            return text
        raise FieldError(
            f"{quote(text)} can't be {what}, like {quote(like)}; in a name * stands for any characters and ? for one"
        )

    return FieldKind(words=f"{what}, like {quote(like)}", read=read)


def key(what: str, *options: str) -> FieldKind[str]:
    """The key of a label or an annotation.

    The options allow `*` and `?` ("wild"), `{container}` ("container"), or an empty text ("optional").
    """
    words = [what]
    words += ["`*` and `?` are allowed"] * ("wild" in options)
    words += [f"`{CONTAINER}` stands for the container's name"] * ("container" in options)
    words += ["empty for none"] * ("optional" in options)

    def read(value: object) -> str:
        text = expect_text(value, "example.com/gpu-memory")
        if not text and "optional" in options:
            return text
        if CONTAINER in text and "container" not in options:
            raise FieldError(f"{CONTAINER} is allowed only in the key of an annotation or a label")
        plain = _WILD.sub("x", text) if "wild" in options else text
        if not _is_key(plain.replace(CONTAINER, "x")):
            raise FieldError(f'{quote(text)} is not {what}: NAME or DOMAIN/NAME, like "example.com/gpu-memory"')
        return text

    return FieldKind(words="; ".join(words), read=read)


def _is_key(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and (
        not slash or (len(domain) < 254 and bool(_KEY_DOMAIN.fullmatch(domain)))
    )


def resource(*options: str) -> FieldKind[str]:
    """The name of an extended resource; resources without a domain are Kubernetes' own, none of them GPU memory."""
    plain = key("the name of a resource", *options)

    def read(value: object) -> str:
        text = plain.read(value)
        if "/" not in text:
            raise FieldError(f'{quote(text)} has no domain; a GPU resource is named like "example.com/gpu-memory"')
        return text

    return FieldKind(words=plain.words, read=read)


def labels() -> FieldKind[Mapping[str, str]]:
    """Labels with their required values; raises EntriesError, ShapeError."""
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
    """Days, a span of the day (past midnight if it ends before it begins) and a time zone."""
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
    """The offset of a time zone from UTC, by the system's time zone data or that of the package tzdata."""
    import zoneinfo  # noqa: PLC0415 - for the few policies that have hours

    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            raise FieldError(
                f"the time zone {quote(name)} can't be checked: there is no time zone data; install the package tzdata"
            ) from None
        raise FieldError(f'there is no time zone {quote(name)}; write it like "Europe/Berlin"') from None

    return partial(_offset_s, zone)  # which can be pickled (load_in_child)


def _offset_s(zone: tzinfo, wall_s: float) -> int:
    offset = datetime.fromtimestamp(wall_s, zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


SPECIAL_UNITS: Final[tuple[Special, ...]] = get_args(Special)
MAX_AMOUNT: Final = 2**60  # 1Ei: more than any node has, and well within the journal's 64-bit integers
_WINDOW: Final = re.compile(r"(?P<count>[0-9]{1,6}) per (?P<per>[0-9.]{1,12}(?:ms|s|m|h|d))")
_LABEL_KEY: Final = key("the key of a label")


def parse_amount(text: str) -> int:
    """Parse an amount of memory, in bytes: a quantity, but not in fractions of a byte; ValueError otherwise.

    "4m" is a legal quantity, 4 thousandths, which the API server rounds up to 1: as a limit it would kill everything.
    """
    amount = parse_quantity(text)
    if text.endswith(("n", "u", "m")):
        raise FieldError(f'{quote(text)} is in fractions of a byte; mebibytes are written "Mi", like "512Mi"')
    exact = parse_number(text)
    if exact.denominator != 1 and exact < 1024:
        raise FieldError(f'{quote(text)} is not a whole number of bytes; write it with a suffix, like "1.5Gi"')
    if amount > MAX_AMOUNT:
        raise FieldError(f"{quote(text)} is more than {format_quantity(MAX_AMOUNT)}")
    return amount


def parse_threshold(text: str) -> Threshold:
    """Parse a threshold: a percentage of allowed ("110%"), an amount above allowed ("+512Mi") or an amount ("20Gi")."""
    try:
        if text.endswith("%"):
            return Threshold(share=parse_percent(text))
        if text.startswith("+") and text[1:2] not in ("+", "-"):
            return Threshold(plus=_large(text, text[1:]))
        return Threshold(amount=_large(text, text))
    except ValueError as error:
        raise FieldError(f'{error}; a threshold is "110%" of allowed, "+512Mi" above allowed, or "20Gi"') from None


def _large(text: str, written: str) -> int:
    """The amount in a threshold, unless it is one of bytes that was meant as a percentage or as mebibytes."""
    amount = parse_amount(written)
    if 0 < amount < 2**20:
        raise FieldError(f"{quote(text)} is {amount} bytes")
    return amount


def format_window(window: Window) -> str:
    """A window as a policy file would write it."""
    return f"{window.count} per {format_duration(window.per_s)}"


def _ranged(
    parse: Callable[[str], N], write: Callable[[N], str], what: str, like: str, bounds: tuple[str, str], *others: str
) -> FieldKind[N]:
    """A measure written as text: between bounds, or one of `others`."""
    lowest, highest = map(parse, bounds)
    words = " or ".join((f"{bounds[0]} to {bounds[1]}{',' * bool(others)}", *others))
    allowed = [parse(other) for other in others]

    def read(value: object) -> N:
        text = expect_text(value, like)
        measure = parse(text)
        if not lowest <= measure <= highest and measure not in allowed:
            raise FieldError(f"must be {words}, not {quote(text)}")
        return measure

    return FieldKind(words=f"{what}, {words}", read=read, write=write)


def quantity(low: str = "0", high: str = "1Ei") -> FieldKind[int]:
    """An amount of memory in bytes, written as a quantity."""
    kind = _ranged(parse_amount, format_quantity, "a quantity", "512Mi", (low, high))
    return replace(kind, words="a quantity") if (low, high) == ("0", "1Ei") else kind


def duration(low: str, high: str, *others: str) -> FieldKind[float]:
    """A duration in seconds: in a range, or one of `others`; in whole milliseconds, so it can be written exactly."""
    kind = _ranged(parse_duration, format_duration, "a duration", "30s", (low, high), *others)

    def read(value: object) -> float:
        seconds = kind.read(value)
        if seconds != parse_duration(format_duration(seconds)):
            raise FieldError(f'{quote(str(value))} is finer than a millisecond; write whole ones, like "250ms"')
        return seconds

    return replace(kind, read=read)


def percent(low: str, high: str) -> FieldKind[Fraction]:
    """A share of a whole, written as a percentage."""
    return _ranged(parse_percent, format_percent, "a percentage", "5%", (low, high))


def threshold() -> FieldKind[Threshold]:
    """The threshold of a step."""
    words = 'a threshold: "110%" of allowed, "+512Mi" above allowed, or "20Gi"'
    return FieldKind(words=words, read=lambda value: parse_threshold(expect_text(value, "110%")), write=str)


def window() -> FieldKind[Window]:
    """At most a number of actions in a time."""
    per = duration("1s", "7d")

    def read(value: object) -> Window:
        text = expect_text(value, "10 per 10m")
        match = _WINDOW.fullmatch(text)
        if match is None:
            raise FieldError(f'{quote(text)} is not a rate; write it like "10 per 10m"')
        if int(match["count"]) < 1:
            raise FieldError('the number must be 1 or more; to never act, write mode = "observe"')
        if int(match["count"]) > MOST_REMEMBERED:
            raise FieldError(f"the number must be at most {MOST_REMEMBERED}: no more actions are remembered")
        return Window(count=int(match["count"]), per_s=per.read(match["per"]))

    return FieldKind(words='a rate like "10 per 10m", over 1s to 7d', read=read, write=format_window)


def unit() -> FieldKind[int | Special]:
    """What the number 1 of a declaration stands for: an amount, or a unit that depends on the cards."""
    words = f"a quantity of at least 1, or {', '.join(map(quote, SPECIAL_UNITS))}"

    def read(value: object) -> int | Special:
        text = expect_text(value, "1Mi")
        for special in SPECIAL_UNITS:
            if text == special:
                return special
        try:
            amount = parse_amount(text)
        except ValueError as error:
            raise FieldError(f"{error}; a unit is {words}") from None
        if amount < 1:
            raise FieldError(f"must be {words}, not {quote(text)}")
        return amount

    def write(value: int | Special) -> str:
        return format_quantity(value) if isinstance(value, int) else value

    return FieldKind(words=words, read=read, write=write)


def limit_unit() -> FieldKind[int | Special]:
    """The unit of a limit: an amount, or a part of a card."""
    of_all = unit()
    parts = ("percent", "fraction")
    words = f"a quantity of at least 1, or {', '.join(map(quote, parts))}"

    def read(value: object) -> int | Special:
        found = of_all.read(value)
        if isinstance(found, int) or found in parts:
            return found
        raise FieldError(f"must be {words}, not {quote(found)}")

    return replace(of_all, words=words, read=read)


def shares() -> FieldKind[str | int]:
    """The number of shares per card: a number, or the node label that gives it."""
    words = 'a whole number from 1, or "label:KEY" for a label of the node'

    def read(value: object) -> str | int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6:
            return value
        if isinstance(value, str) and value.startswith("label:"):
            return f"label:{_LABEL_KEY.read(value.removeprefix('label:'))}"
        raise FieldError(f"must be {words}, not {describe(value)}")

    return FieldKind(words=words, read=read, write=lambda value: value)


def cards_or_quantity() -> FieldKind[int | None]:
    """An amount of memory, or None for what the driver reports."""
    # The API server takes no number whose thousandfold exceeds 64 bits (ValidateResourceQuantityValue in
    # k8s.io/kubernetes/pkg/apis/core/validation).
    amount = quantity("1Mi", "1Pi")

    def read(value: object) -> int | None:
        return None if value == "cards" else amount.read(value)

    def write(value: int | None) -> str:
        return "cards" if value is None else format_quantity(value)

    return FieldKind(words='"cards" for what the driver reports, or a quantity', read=read, write=write)
