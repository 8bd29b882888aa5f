"""Quantities, durations and percentages: read exactly, rejected if invalid, and written so that they parse back."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.core.units import (
    ByteColumn,
    format_bytes,
    format_duration,
    format_percent,
    format_quantity,
    parse_duration,
    parse_number,
    parse_percent,
    parse_quantity,
)

# None of these is an amount of any kind.
HOSTILE = [
    *("", " ", "\n", " 1", "1 ", "1\n", "\t1", "1 Gi", "1 %", "%", "%1", "$1", "1;2", "[1]", "1/2", "1,5", "1_000"),
    *("inf", "-inf", "Infinity", "nan", "NaN", "None", "null", "true", "1e999", "1E+100", "e3", "1e", "1e1.5"),
    *("--1", "++1", "+-1", "-", "+", ".", "..1", "1..", "1.2.3", "0x10", "9" * 31, "1" * 100_000, "0." + "0" * 31),
    *("1gi", "1GI", "1gI", "1Kb", "1GB", "1B", "1K", "1ki", "1g", "1t", "Gi", "Gi1", "1Gi1", "1GiGi", "1Zi", "1Y"),
    *("\u0661", "\u0663Mi", "\uff11\uff12", "\u00b2", "1\u00a0", "\u22121", "1\u200b", "\u2460", "1\u212a"),
    *("1y", "1f", "1\x00", "\x001", "1e" + "9" * 1000),
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("parse", [parse_number, parse_quantity, parse_duration, parse_percent])
def test_what_is_no_amount_is_refused(parse: Callable[[str], object], text: str) -> None:
    """An invalid quantity, duration or percentage is a readable ValueError, never a number or another error."""
    with pytest.raises(ValueError, match=r"is not a (quantity|duration|percentage); write a number"):
        parse(text)


SUFFIXES = {
    suffix: Fraction(10) ** (3 * number)
    for number, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
} | {suffix: Fraction(2) ** (10 * number) for number, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((f"1{suffix}", size) for suffix, size in SUFFIXES.items()),
        *(("0", 0), ("-0", 0), ("+1", 1), ("-1", -1), ("007", 7), ("1.", 1), (".5", Fraction(1, 2))),
        *(("1.5Gi", 3 * 2**29), ("1e3", 1000), ("1E3", 1000), ("1e+3", 1000), ("12e-3", Fraction(12, 1000))),
        *(("104857600", 104857600), ("1e99", 10**99), ("9" * 30, 10**30 - 1)),
    ],
)
def test_a_quantity_is_read_exactly(text: str, number: Fraction | int) -> None:
    """Each form of the Kubernetes grammar is read without rounding; `E` alone is exa, before digits an exponent."""
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "amount"),
    [("104Mi", 109051904), ("1n", 1), ("1500m", 2), ("0.1", 1), ("1.3Gi", 1395864372), ("0", 0), ("-0", 0), ("0m", 0)],
)
def test_a_quantity_is_rounded_up_to_whole_units(text: str, amount: int) -> None:
    """Fractions of a unit are rounded up, as the API server does."""
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["-1", "-1n", "-.5Gi", "-1e-9"])
def test_a_negative_amount_is_refused(text: str) -> None:
    """An amount below zero is an error of its own, so that it can be reported as misdeclared."""
    assert parse_number(text) < 0
    with pytest.raises(ValueError, match="is negative; an amount is 0 or more"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0s", 0.0), ("0ms", 0.0), ("250ms", 0.25), ("30s", 30.0), ("1.5s", 1.5)),
        *(("10m", 600.0), ("2h", 7200.0), ("30d", 2592000.0), ("0.125h", 450.0)),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    """Each unit of the contract, whole and with a fraction; `m` is minutes here."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_duration, text) for text in ("1", "10", "1.5", "-1s", "+1s", "1S", "1min", "1sec", "1m30s")),
        *((parse_duration, text) for text in ("1us", "1w", ".5s", "1.s", "1.0001s")),
        *((parse_percent, text) for text in ("1", "-1%", "+1%", "1%%", ".5%", "1.%", "1e2%", "1000000%")),
        *((parse_percent, text) for text in ("0.0000001%", "110 %", "1Gi")),
    ],
)
def test_what_is_nearly_one_is_refused(parse: Callable[[str], object], text: str) -> None:
    """Without its unit or sign, with two, with those of others, or too fine to be written: an error, never a guess."""
    with pytest.raises(ValueError, match=r"is not a (duration|percentage)"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("0%", Fraction(0)),
        ("100%", Fraction(1)),
        ("110%", Fraction(11, 10)),
        ("2.5%", Fraction(1, 40)),
        ("0.000001%", Fraction(1, 10**8)),
        ("999999.999999%", Fraction(999999999999, 10**8)),
    ],
)
def test_a_percentage_is_read_exactly(text: str, share: Fraction) -> None:
    """A percentage is an exact fraction: 110% of allowed is not 1.1 as a float."""
    assert parse_percent(text) == share


def test_what_is_refused_is_not_quoted_at_length() -> None:
    """An annotation may have 256 KiB, and the sentence about it is shown in many places."""
    with pytest.raises(ValueError, match=r"'x+\.\.\.' is not a quantity") as caught:
        parse_quantity("x" * 200_000)
    assert len(str(caught.value)) < 200


@given(st.integers(0, 2**80))
def test_a_quantity_that_is_written_reads_back(amount: int) -> None:
    """Law 9, "Everything that is written parses back: quantities, durations"."""
    assert parse_quantity(format_quantity(amount)) == amount


@given(st.integers(0, 2**20), st.sampled_from([2**10, 2**20, 2**30, 2**40, 2**50, 2**60]))
def test_a_round_quantity_is_written_with_its_suffix(amount: int, size: int) -> None:
    """Law 9: whole multiples of a binary suffix read back too, and are written short, as people write them."""
    text = format_quantity(amount * size)
    assert (parse_quantity(text), len(text) <= 10) == (amount * size, True)


@given(st.integers(0, 10 * 365 * 86_400_000))
def test_a_duration_that_is_written_reads_back(milliseconds: int) -> None:
    """Law 9, "Everything that is written parses back: quantities, durations"."""
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.integers(0, 10**14 - 1))
def test_a_percentage_that_is_written_reads_back(number: int) -> None:
    """Law 9: whatever is written parses back, down to the millionth of a percent."""
    share = Fraction(number, 10**8) if number < 10**8 * 10**4 else Fraction(number // 100, 10**8)
    assert parse_percent(format_percent(share)) == share


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text whatever brings the parsers down: each gives a number or a ValueError."""
    for parse in (parse_number, parse_quantity, parse_duration, parse_percent):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value >= 0 or parse is parse_number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.sampled_from([*SUFFIXES]))
def test_an_amount_is_the_number_times_its_suffix(number: object, suffix: str) -> None:
    """A quantity with a suffix is exactly its number times what the suffix means."""
    text = f"{number:f}"
    if len(text) <= 30:
        assert parse_number(f"{text}{suffix}") == Fraction(text) * SUFFIXES[suffix]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        *((0, "0"), (1, "1"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (8 * 2**30, "8Gi"), (-(2**30), "-1Gi")),
        *((int(12.4 * 2**30), "12.4Gi"), (10995116278, "10.2Gi"), (100 * 2**20 + 1, "100Mi")),
        *((2**60, "1Ei"), (2**70, "1024Ei"), (2**30 - 1, "1.0Gi"), (640 * 2**30 + 2**28, "640Gi")),
    ],
)
def test_bytes_for_people(amount: int, text: str) -> None:
    """Bytes are shown with at most one digit after the point and the suffix that people use."""
    assert format_bytes(amount) == text


GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ((12.4 * GIB, 8 * GIB, 640 * GIB, 0), ("12.4Gi", "8.0Gi", "640.0Gi", "0.0Gi")),
        ((12.4 * GIB, 180 * MIB, 512 * MIB), ("12.40Gi", "0.18Gi", "0.50Gi")),
        ((180 * GIB, 640.5 * GIB), ("180Gi", "640Gi")),
        ((180 * MIB, 1023 * MIB), ("180Mi", "1023Mi")),
        ((1.5 * MIB, 512 * MIB, 1), ("1.50Mi", "512.00Mi", "<0.01Mi")),
        ((4096, 2**63 - 1, -GIB), ("<0.01Gi", "8589934592.00Gi", "-1.00Gi")),
        ((0,), ("0.0Gi",)),
    ],
)
def test_a_column_has_one_notation(amounts: tuple[float, ...], texts: tuple[str, ...]) -> None:
    """One unit and as many decimals in each row; nothing that is in use reads as 0."""
    column = ByteColumn.of([*map(int, amounts), None])
    assert tuple(column.text(int(amount)) for amount in amounts) == texts


@given(st.lists(st.integers(0, 2**50)))
def test_amounts_of_a_column_compare_by_their_texts(amounts: list[int]) -> None:
    """All have the same unit and number of decimals, and what is larger never reads as smaller."""
    column = ByteColumn.of(amounts)
    texts = [column.text(amount) for amount in sorted(amounts)]
    shown = [text.removesuffix(column.suffix).removeprefix("<") for text in texts]
    assert all(text.endswith(column.suffix) for text in texts)
    assert {len(number.partition(".")[2]) for number in shown} <= {column.digits}
    assert list(map(float, shown)) == sorted(map(float, shown))
