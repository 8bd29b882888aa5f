"""How the watchdog itself is: how long its cycles take, and what is said of what it reads."""

from array import array
from typing import Final

from watchdog.core.model import GapReason, PodList

OK: Final = "ok"
NO_CYCLE_YET: Final = "no cycle has completed yet"
_MOST_PASSES: Final = 600  # ten minutes at the default interval
_OF_API: Final = frozenset({GapReason.PODS, GapReason.NODE, GapReason.NAMESPACES})


class Durations:
    """How long the last cycles took, in seconds, in a few KiB whatever their number."""

    def __init__(self) -> None:
        self.count = 0
        self._last = array("d", bytes(8 * _MOST_PASSES))

    def add(self, seconds: float) -> None:
        """A cycle has taken so long."""
        self._last[self.count % _MOST_PASSES] = seconds
        self.count += 1

    @property
    def last(self) -> float | None:
        """The last one; None: there was none."""
        return self._last[(self.count - 1) % _MOST_PASSES] if self.count else None

    @property
    def p99(self) -> float | None:
        """What 99 of 100 of the last 600 passes stayed below, by nearest rank; None: there was none."""
        known = sorted(self._last[: min(self.count, _MOST_PASSES)])
        return known[-(-99 * len(known) // 100) - 1] if known else None


def api_state(pods: PodList) -> str | None:
    """Whether all that the API server is asked for has come, as `Health.api` says it."""
    if pods.by_file:
        return None
    gaps = [gap for gap in pods.gaps if gap.reason in _OF_API]
    return f"{gaps[0].what}: {gaps[0].problem}" if gaps else OK
