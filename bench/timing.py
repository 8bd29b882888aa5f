"""Timing: the sides of a comparison in turn, in one process, so that what else the machine does hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

REPEATS: Final = 5
Sides = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians in seconds by side, one of each repeat."""

    medians_s: Mapping[str, tuple[float, ...]]

    def seconds(self, side: str) -> float:
        """The median over the repeats."""
        return statistics.median(self.medians_s[side])

    def ratios(self, side: str, of: str) -> list[float]:
        """How many times as long a side takes as another one, in each repeat, sorted."""
        return sorted(one / other for one, other in zip(self.medians_s[side], self.medians_s[of], strict=True))

    def ratio(self, side: str, of: str) -> str:
        """The median ratio, with the lowest and the highest repeat."""
        found = self.ratios(side, of)
        return f"{statistics.median(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})"


def compare(sides: Sides, rounds: int, before: Callable[[], object] | None = None) -> Timing:
    """Time the sides in turn, every other round the other way about; `before` runs, untimed, ahead of each."""
    medians: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(REPEATS):
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in sides if number % 2 else reversed(list(sides)):
                if before is not None:
                    before()
                taken[name].append(_time(sides[name]))
        for name, seconds in taken.items():
            medians[name].append(statistics.median(seconds))
    return Timing(medians_s={name: tuple(found) for name, found in medians.items()})


def _time(side: Callable[[], object]) -> float:
    began = time.perf_counter()
    side()
    return time.perf_counter() - began
