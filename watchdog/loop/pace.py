"""Pace: when to look at the node next. The one place where looks are scheduled."""

import math

from watchdog.core.brakes import Brake
from watchdog.core.model import Now
from watchdog.core.plan import Plan

# A look lists processes, which holds the driver's global lock for milliseconds (MangoHud#2104): deadlines that
# lie close together share one.
_CLOSEST_S = 0.1
_SHORTEST_S = 1.0
_LASTING = (Brake.PROTECTED, Brake.UNKNOWN_CONTAINER, Brake.MPS)  # brakes that time does not lift


class Pace:
    """Looks on a grid of `interval_s`, and in between when a step's `for` is over. Times are CLOCK_BOOTTIME."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._tick_s = -math.inf
        self._deadline_s = math.inf
        self._last_s = -math.inf

    @property
    def next_look_s(self) -> float:
        """When to look next; in the past where it is overdue."""
        return min(self._tick_s, self._deadline_s)

    def begin(self, now: Now) -> None:
        """A look begins: the next tick stays on the grid, and ticks that were slept through are left out."""
        self._last_s = now.boottime_s
        due_s = self._tick_s + self.interval_s
        passed = now.boottime_s < self._tick_s  # a deadline brought this look forward
        if not passed:
            self._tick_s = due_s if due_s > now.boottime_s else now.boottime_s + self.interval_s
        self._deadline_s = math.inf

    def plan(self, plan: Plan, now: Now) -> None:
        """A pass has ended with this plan: be there when its first step comes due, or a brake lets go."""
        # What a brake will hold back then is looked at all the same: it may have let go by then.
        waits = [entry.due_in_s for entry in plan.entries if entry.due_in_s > 0 and entry.withheld_by not in _LASTING]
        waits += [entry.lets_go_in_s for entry in plan.entries if entry.lets_go_in_s is not None]
        if waits:
            self._deadline_s = min(self._deadline_s, max(now.boottime_s + min(waits), self._last_s + _CLOSEST_S))

    def hurry(self, now: Now) -> None:
        """Look soon, a second after the last look at the earliest: the pods or the policy have changed."""
        self._deadline_s = min(self._deadline_s, max(now.boottime_s, self._last_s + _SHORTEST_S))
