"""Amounts: what the number that a pod declares stands for, in bytes or in parts of the node's cards."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from watchdog.core.cards import Cards, profile_of
from watchdog.core.policy import Allowance, Declaration
from watchdog.core.units import LARGEST, format_bytes, parse_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """So many cards' worth of memory: 1/2 is half a card, 2 are two. `profile`: of MIG instances of that profile."""

    cards: Fraction
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Whole devices, whatever their size: how many of each MIG profile, None standing for cards."""

    counts: tuple[tuple[str | None, int], ...]


Size = int | Part | Devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What one declaration says: `size`, and the `limit` above it that a tenant may have named.

    A size of None can't be determined now: it depends on labels of the node, or on a card, that is not known.
    `total`: over all GPUs. `gpu`: on each, or on the `count` most used where a count is known. `any`: whole devices,
    which go with both.
    """

    source: str
    per: Literal["total", "gpu", "any"]
    size: Size | None
    allowance: Allowance
    limit: int | Part | None = None
    count: int | None = None


def read_size(declaration: Declaration, written: Mapping[str, str], shares: int | None) -> Size | None:
    """What is written under the keys of a declaration, added up; None where it asks for nothing.

    ValueError, in a sentence, for what is no number or cannot be one of this unit. `shares` are those of a card.
    """
    numbers = {key: parse_number(text) for key, text in written.items()}
    if any(number < 0 for number in numbers.values()):
        raise ValueError("it is negative")
    number = sum(numbers.values(), Fraction(0))
    unit = declaration.unit
    if unit == "mig":
        return _devices(numbers)
    if unit == "share":
        profile = profile_of(declaration.key) if declaration.kind == "resource" else None
        # A resource of 0 asks for no share; it does not promise to use none.
        return Part(cards=number / (shares or 1), profile=profile) if number else None
    if unit == "percent":
        return Part(cards=number / 100)
    if unit == "fraction":
        return Part(cards=number)
    exact = number * unit
    return -(-exact.numerator // exact.denominator)


def refuse_beyond_all(size: Size | None) -> None:
    """Refuse, by a ValueError in a sentence, an amount of bytes that no quantity of Kubernetes can have."""
    if isinstance(size, int) and size > LARGEST:
        raise ValueError(f"it comes to more than {LARGEST} bytes, the most that a quantity can be")


def _devices(numbers: Mapping[str, Fraction]) -> Devices | None:
    if any(number.denominator != 1 for number in numbers.values()):
        raise ValueError("it is not a whole number of MIG instances")
    counts = [(profile_of(key), int(number)) for key, number in numbers.items() if number]
    return Devices(counts=tuple(counts)) if counts else None


def excess(size: Size, per: Literal["total", "gpu"], cards: Cards) -> str | None:
    """Say, in a sentence, that a size is more than the cards that are known can hold; None where it is not."""
    if isinstance(size, Devices) or capped(size, per, cards) == size:
        return None
    if isinstance(size, Part):
        have = "a whole card" if per == "gpu" else f"all {cards.number} cards together"
    else:
        amount = format_bytes((cards.largest if per == "gpu" else cards.together) or 0)
        have = f"the largest card ({amount})" if per == "gpu" else f"all cards together ({amount})"
    return f"{describe(size)} is more than {have}; is the unit right?"


def is_beyond_any(size: Size, per: Literal["total", "gpu"]) -> bool:
    """Whether no card that may be out of sight could hold a size."""
    return isinstance(size, Part) and per == "gpu"


def capped(size: int | Part, per: Literal["total", "gpu"], cards: Cards) -> int | Part:
    """A size, or what the cards of the node can hold at most, where that is known and less."""
    if isinstance(size, Part):
        most = 1 if per == "gpu" else cards.number
        return size if most is None or size.cards <= most else Part(cards=Fraction(most), profile=size.profile)
    room = cards.largest if per == "gpu" else cards.together
    return size if room is None or size <= room else room


def describe(size: int | Part) -> str:
    """A size for people: bytes, or a percentage of a card."""
    return format_bytes(size) if isinstance(size, int) else f"{float(size.cards * 100):.4g}% of a card"
