"""Histograms as immutable values, so that a scrape never sees one half counted."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

# From a fast signal to a slow disk; the release of a large card takes seconds.
REACTION_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
RELEASE_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
DURATION_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observations up to each bound in seconds, the last one for what is above all, and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...] = ()
    total: float = 0.0

    def observe(self, seconds: float) -> "Histogram":
        """The histogram with one more observation."""
        place = bisect_left(self.bounds, seconds)
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        counts = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
        return replace(self, counts=counts, total=self.total + seconds)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, with each bound as Prometheus writes it."""
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        names = (*(repr(bound) for bound in self.bounds), "+Inf")
        return list(zip(names, map(float, accumulate(counts)), strict=True))


def series_of(bounds: tuple[float, ...]) -> int:
    """How many series a histogram with these bounds is: its buckets, `+Inf` among them, the sum and the count."""
    return len(bounds) + 3
