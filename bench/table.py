"""The table: each row compares a figure of the watchdog with that of a program running at the same time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["ms", "MiB", "kB", "%", ""]


def line(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*columns: str) -> str:
    """The header of a Markdown table."""
    return f"{line(*columns)}\n|{'---|' * len(columns)}"


HEAD: Final = head(
    "figure", "cards / processes / pods", "driver", "watchdog", "compared with", "its figure", "ratio (range)", "aim"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure, repeated on both sides; `aim` is a bound on the ratio or, with a unit, on the watchdog's figure."""

    what: str
    where: tuple[object, str]
    ours: Sequence[float]
    beside: str
    theirs: Sequence[float]
    unit: Unit
    aim: str = ""

    @property
    def ratios(self) -> list[float]:
        """The ratio of each repeat, sorted."""
        return sorted(one / other for one, other in zip(self.ours, self.theirs, strict=True))

    def __str__(self) -> str:
        low, middle, high = self.ratios[0], statistics.median(self.ratios), self.ratios[-1]
        ratio = f"**{digits(middle)}**" + (f" ({digits(low)}-{digits(high)})" if len(self.ratios) > 1 else "")
        ours, theirs = (f"{digits(statistics.median(each))} {self.unit}".strip() for each in (self.ours, self.theirs))
        return line(self.what, *self.where, ours, self.beside, theirs, ratio, self.aim)


def digits(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
