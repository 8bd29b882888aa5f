"""How one value of the policy file is read: a kind for each sort of value, strict, with errors that name the remedy.

A kind stands beside a field's type (`Annotated[float, duration("1s", "5m")]`). The policy reference is written from
the same kinds, so that it cannot say anything else than what is checked.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")
Plain = str | int | float | bool

# Longer than any name, key or quantity can be: bounds what the parsers and the error lines have to do with.
MAX_TEXT: Final = 400


class FieldError(ValueError):
    """A value that a field cannot have, in plain words with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """One sort of value.

    `words` says it in a few words. `read` takes what the TOML parser gives and raises ValueError in plain words.
    `write` gives what a file would say, so that `read` gives the same back.
    """

    words: str
    read: Callable[[object], T]
    write: Callable[[T], Plain]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)


def quote(text: str) -> str:
    """Put a text in quotes, in ASCII and on one line, shortened where it is long."""
    return json.dumps(text if len(text) <= 60 else f"{text[:57]}...")


def describe(value: object) -> str:
    """Name a TOML value for an error line; never long, whatever the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"  # writing it out may be refused by Python itself
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    names: dict[type, str] = {list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def expect_text(value: object, like: str) -> str:
    """Give the value if it is a text of bearable length; FieldError with the example `like` otherwise."""
    if not isinstance(value, str):
        raise FieldError(f"must be a text in quotes, like {quote(like)}, not {describe(value)}")
    if len(value) > MAX_TEXT:
        raise FieldError(f"is {len(value)} characters long; at most {MAX_TEXT} are allowed")
    return value


def choice(*options: str) -> Kind[str]:
    """One of a few words."""
    words = " or ".join(quote(option) for option in options)

    def read(value: object) -> str:
        if isinstance(value, str) and value in options:
            return value
        close = get_close_matches(value.lower(), options, n=1) if isinstance(value, str) and len(value) < 60 else []
        meant = f"; did you mean {quote(close[0])}?" if close else ""
        raise FieldError(f"must be {words}, not {describe(value)}{meant}")

    return Kind(words=words, read=read, write=str)


def flag() -> Kind[bool]:
    """True or false; a text or a number is neither."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise FieldError(f"must be true or false, without quotes, not {describe(value)}")

    return Kind(words="true or false", read=read, write=bool)


def whole(low: int, high: int) -> Kind[int]:
    """A whole number in a range; a text, a float and a bool are none."""
    words = f"a whole number, {low} to {high}" if low < high else f"the number {low}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(f"must be a whole number without quotes, like {max(low, 1)}, not {describe(value)}")
        if not low <= value <= high:
            raise FieldError(f"must be {words}, not {describe(value)}")
        return value

    return Kind(words=words, read=read, write=int)


def number(low: float, high: float) -> Kind[float]:
    """A number in a range, whole or not."""
    words = f"a number, {low:g} to {high:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(f"must be a number without quotes, like {high:g}, not {describe(value)}")
        if not low <= value <= high:  # false for not-a-number too
            raise FieldError(f"must be {words}, not {describe(value)}")
        return float(value)

    return Kind(words=words, read=read, write=lambda value: int(value) if value.is_integer() else value)


def line(longest: int, *, may_be_empty: bool = True) -> Kind[str]:
    """A line of text for people."""

    def read(value: object) -> str:
        text = expect_text(value, "text")
        if not text and not may_be_empty:
            raise FieldError("must not be empty")
        if len(text) > longest:
            raise FieldError(f"is {len(text)} characters long; at most {longest} are allowed")
        if not text.isprintable() or text != text.strip():
            raise FieldError(f"{quote(text)} must be one line, without blanks at its ends and control characters")
        return text

    return Kind(words=f"a text, at most {longest} characters", read=read, write=str)
