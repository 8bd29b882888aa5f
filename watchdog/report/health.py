"""The health of the watchdog itself: how long its cycles take, and whether the API server answers."""

from array import array
from typing import Final

from watchdog.core.model import OBJECT_GAPS, PodList

OK: Final = "ok"
NO_CYCLE_YET: Final = "no cycle has completed yet"
_MOST: Final = 600  # ten minutes at the default interval


class Durations:
    """How long the last 600 cycles took, in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self._last = array("d", bytes(8 * _MOST))

    def add(self, seconds: float) -> None:
        """Add the duration of a cycle."""
        self._last[self.count % _MOST] = seconds
        self.count += 1

    @property
    def last(self) -> float | None:
        """The duration of the last cycle; None before the first."""
        return self._last[(self.count - 1) % _MOST] if self.count else None

    @property
    def p99(self) -> float | None:
        """Their 99th percentile by nearest rank; None before the first cycle."""
        known = sorted(self._last[: min(self.count, _MOST)])
        return known[-(-99 * len(known) // 100) - 1] if known else None


def api_state(pods: PodList) -> str | None:
    """`HealthStatus.api`: whether everything that the API server is asked for has arrived."""
    if pods.by_file:
        return None
    gaps = [gap for gap in pods.gaps if gap.reason in OBJECT_GAPS]
    return f"{gaps[0].what}: {gaps[0].problem}" if gaps else OK
