"""How much GPU memory a process holds over time."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

_GI: Final = 2**30
# The CUDA driver hands out memory in pages of this size (cuMemGetAllocationGranularity).
_PAGE: Final = 2 * 2**20


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight lines between points of (second, GiB), level before the first and after the last."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        seconds = [second for second, _ in self.points]
        if not seconds or sorted(set(seconds)) != seconds or any(gib < 0 for _, gib in self.points):
            raise ValueError("a curve needs points whose seconds rise and whose amounts are 0 or more")

    def at(self, second: float) -> int:
        """The bytes held at this second, in whole pages."""
        after = bisect_right(self.points, second, key=lambda point: point[0])
        if after in (0, len(self.points)):
            gib = self.points[min(after, len(self.points) - 1)][1]
        else:
            (second_0, gib_0), (second_1, gib_1) = self.points[after - 1 : after + 1]
            gib = gib_0 + (gib_1 - gib_0) * (second - second_0) / (second_1 - second_0)
        return int(gib * _GI) // _PAGE * _PAGE


NOTHING: Final = Curve(((0.0, 0.0),))
