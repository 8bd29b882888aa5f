"""Quantities, durations and percentages: parsed as a policy or a pod writes them, and formatted."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

# The largest Kubernetes quantity and SQLite integer, and the most that readers of JSON accept as bytes.
LARGEST: Final = 2**63 - 1
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)}
# The grammar of k8s.io/apimachinery/pkg/api/resource.Quantity. The exponent is bounded here: "1e999999999" is
# a legal text whose value would take the daemon's memory.
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,3})?)(?P<unit>ms|s|m|h|d)")
_SECONDS: Final = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_PERCENT: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?%")


def brief(text: str, longest: int = 60) -> str:
    """External text, cut to a length that can be stored and shown: an annotation can have 256 KiB."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


@lru_cache(maxsize=4096)
def parse_number(text: str) -> Fraction:
    """Read a Kubernetes quantity exactly, negative and fractional ones too; ValueError on anything else."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        hint = 'write a number with an optional suffix, like "500Mi" or "24Gi"'
        raise ValueError(f"{brief(text)!r} is not a quantity; {hint}")
    written = match["number"]
    number = Fraction(int(written) if written.isdigit() else Decimal(written))
    if match["exponent"]:
        return number * Fraction(10) ** int(match["exponent"])
    suffix = match["suffix"] or ""
    return number * (_BINARY[suffix] if suffix in _BINARY else _DECIMAL[suffix])


def parse_quantity(text: str) -> int:
    """Read a Kubernetes quantity as whole units, rounded up as the API server does; ValueError if negative."""
    number = parse_number(text)
    if number < 0:
        raise ValueError(f"{brief(text)!r} is negative; an amount is 0 or more")
    return math.ceil(number)


def format_quantity(amount: int) -> str:
    """Write bytes so that `parse_quantity` reads the same number back: the largest binary suffix that divides it."""
    for suffix, size in reversed(_BINARY.items()):
        if amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)


def format_bytes(amount: int) -> str:
    """Write bytes for people, the one notation in sentences and for terminals: `12.4Gi`, `640Gi`, `8Gi`, `512Mi`.

    Three significant digits with a binary suffix, and no `.0` where an amount is whole: a pod that declares `8Gi` reads
    `8Gi`. What would round to 1024 of a suffix is one of the next.
    """
    for suffix, size in reversed(_BINARY.items()):
        if abs(amount) >= size - size // 2048:
            scaled = amount / size
            digits = 0 if abs(scaled) >= 99.95 or amount % size == 0 else 1
            return f"{scaled:.{digits}f}{suffix}"
    return str(amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteColumn:
    """The notation of all amounts in a column: one unit and one number of decimals, so that they compare at a glance.

    The unit is Gi, or Mi where nothing reaches 1 Gi. The smallest amount decides on the decimals: none from 100 units
    on, one from 1 unit on, two below that.
    """

    suffix: str
    size: int
    digits: int

    @classmethod
    def of(cls, amounts: Iterable[int | None]) -> Self:
        """The notation for these amounts; zeros and unknown ones need no digits."""
        known = [abs(amount) for amount in amounts if amount]
        suffix = "Mi" if known and max(known) < _BINARY["Gi"] else "Gi"
        size = _BINARY[suffix]
        smallest = min(known, default=size)
        return cls(suffix=suffix, size=size, digits=0 if smallest >= 99.95 * size else 1 if smallest >= size else 2)

    def text(self, amount: int) -> str:
        """An amount: `12.4Gi`, `0.18Gi`, `<0.01Gi`."""
        shown = f"{amount / self.size:.{self.digits}f}{self.suffix}"
        return f"<0.01{self.suffix}" if amount > 0 and shown.startswith("0.00") else shown


def parse_duration(text: str) -> float:
    """Read a duration ("250ms", "30s", "10m", "2h", "30d") as seconds; ValueError on anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f'{brief(text)!r} is not a duration; write a number with ms, s, m, h or d, like "30s"')
    return float(Fraction(match["number"]) * _SECONDS[match["unit"]])


def format_duration(seconds: float) -> str:
    """Write seconds (milliseconds at the finest) so that `parse_duration` reads the same number back."""
    milliseconds = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        size = int(_SECONDS[unit] * 1000)
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    if milliseconds >= 10**9:  # more digits than `parse_duration` takes before the point
        return f"{milliseconds // 1000}.{milliseconds % 1000:03}s"
    return f"{milliseconds}ms" if milliseconds else "0s"


def parse_percent(text: str) -> Fraction:
    """Read a share of a whole ("110%") as an exact fraction; ValueError on anything else."""
    if _PERCENT.fullmatch(text) is None:
        raise ValueError(f'{brief(text)!r} is not a percentage; write a number with a percent sign, like "110%"')
    return Fraction(text[:-1]) / 100


def format_percent(share: Fraction) -> str:
    """Write a share of a whole so that `parse_percent` reads the same fraction back."""
    text = f"{float(share * 100):.6f}".rstrip("0").rstrip(".")
    return f"{text}%"
