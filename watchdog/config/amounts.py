"""The kinds of values that are amounts: quantities, durations, percentages, thresholds, windows, units and shares."""

import re
from fractions import Fraction
from typing import Final, get_args

from watchdog.config.fields import FieldError, FieldKind, describe, expect_text, key, quote
from watchdog.core.brakes import MOST_REMEMBERED
from watchdog.core.policy import Special, Threshold, Window
from watchdog.core.units import (
    format_duration,
    format_percent,
    format_quantity,
    parse_duration,
    parse_number,
    parse_percent,
    parse_quantity,
)

SPECIAL_UNITS: Final[tuple[Special, ...]] = get_args(Special)
MAX_AMOUNT: Final = 2**60  # 1Ei: more than any node has, and well within the journal's 64-bit integers
_WINDOW: Final = re.compile(r"(?P<count>[0-9]{1,6}) per (?P<per>[0-9.]{1,12}(?:ms|s|m|h|d))")
_LABEL_KEY: Final = key("the key of a label")


def parse_amount(text: str) -> int:
    """Read an amount of memory as bytes: a quantity, but not in thousandths of a byte; ValueError otherwise.

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
    """Read a threshold: a percentage of allowed ("110%"), an amount above allowed ("+512Mi") or an amount ("20Gi")."""
    try:
        if text.endswith("%"):
            return Threshold(share=parse_percent(text))
        if text.startswith("+") and text[1:2] not in ("+", "-"):
            return Threshold(plus=parse_amount(text[1:]))
        return Threshold(amount=parse_amount(text))
    except ValueError as error:
        raise FieldError(f'{error}; a mark is "110%" of allowed, "+512Mi" above allowed, or "20Gi"') from None


def format_window(window: Window) -> str:
    """Write a window as a policy file would say it."""
    return f"{window.count} per {format_duration(window.per_s)}"


def quantity(low: str = "0", high: str = "1Ei") -> FieldKind[int]:
    """An amount of memory in bytes, written as a quantity."""
    lowest, highest = parse_quantity(low), parse_quantity(high)

    def read(value: object) -> int:
        text = expect_text(value, "512Mi")
        amount = parse_amount(text)
        if not lowest <= amount <= highest:
            raise FieldError(f"must be {low} to {high}, not {quote(text)}")
        return amount

    words = "a quantity" if (low, high) == ("0", "1Ei") else f"a quantity, {low} to {high}"
    return FieldKind(words=words, read=read, write=format_quantity)


def duration(low: str, high: str, *others: str) -> FieldKind[float]:
    """A duration in seconds: in a range, or one of some others; in whole milliseconds, so it can be written exactly."""
    lowest, highest = parse_duration(low), parse_duration(high)
    words = " or ".join((f"{low} to {high}{',' * bool(others)}", *others))
    allowed = [parse_duration(other) for other in others]

    def read(value: object) -> float:
        text = expect_text(value, "30s")
        seconds = parse_duration(text)
        if not lowest <= seconds <= highest and seconds not in allowed:
            raise FieldError(f"must be {words}, not {quote(text)}")
        if seconds != parse_duration(format_duration(seconds)):
            raise FieldError(f'{quote(text)} is finer than a millisecond; write whole ones, like "250ms"')
        return seconds

    return FieldKind(words=f"a duration, {words}", read=read, write=format_duration)


def percent(low: str = "0%", high: str = "100%") -> FieldKind[Fraction]:
    """A share of a whole, written as a percentage."""
    lowest, highest = parse_percent(low), parse_percent(high)

    def read(value: object) -> Fraction:
        text = expect_text(value, "5%")
        share = parse_percent(text)
        if not lowest <= share <= highest:
            raise FieldError(f"must be {low} to {high}, not {quote(text)}")
        return share

    return FieldKind(words=f"a percentage, {low} to {high}", read=read, write=format_percent)


def threshold() -> FieldKind[Threshold]:
    """The threshold of a step."""
    words = 'a mark: "110%" of allowed, "+512Mi" above allowed, or "20Gi"'
    return FieldKind(words=words, read=lambda value: parse_threshold(expect_text(value, "110%")), write=str)


def window() -> FieldKind[Window]:
    """At most a number of actions in a time."""
    per = duration("1s", "7d")

    def read(value: object) -> Window:
        text = expect_text(value, "10 per 10m")
        match = _WINDOW.fullmatch(text)
        if match is None:
            raise FieldError(f'{quote(text)} is not a number in a time; write it like "10 per 10m"')
        if int(match["count"]) < 1:
            raise FieldError('the number must be 1 or more; to act never, write mode = "observe"')
        if int(match["count"]) > MOST_REMEMBERED:
            raise FieldError(f"the number must be at most {MOST_REMEMBERED}: no more deeds are remembered")
        return Window(count=int(match["count"]), per_s=per.read(match["per"]))

    return FieldKind(words='a number in a time of 1s to 7d, like "10 per 10m"', read=read, write=format_window)


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


def shares() -> FieldKind[str | int]:
    """Into how many shares a card is cut: a number, or the node label that says it."""
    words = 'a whole number from 1, or "label:KEY" for a label of the node'

    def read(value: object) -> str | int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6:
            return value
        if isinstance(value, str) and value.startswith("label:"):
            return f"label:{_LABEL_KEY.read(value.removeprefix('label:'))}"
        raise FieldError(f"must be {words}, not {describe(value)}")

    return FieldKind(words=words, read=read, write=lambda value: value)


def cards_or_quantity() -> FieldKind[int | None]:
    """An amount of memory, or None for what NVML reports."""
    # The API server takes no number whose thousandfold exceeds 64 bits (ValidateResourceQuantityValue in
    # k8s.io/kubernetes/pkg/apis/core/validation).
    amount = quantity("1Mi", "1Pi")

    def read(value: object) -> int | None:
        return None if value == "cards" else amount.read(value)

    def write(value: int | None) -> str:
        return "cards" if value is None else format_quantity(value)

    return FieldKind(words='"cards" for what NVML reports, or a quantity', read=read, write=write)
