"""The hours in which a rule is active: days and a span of the day, by the clock of a time zone."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES: Final = 24 * 60
_EPOCH_DAY: Final = DAYS.index("Thu")  # 1 January 1970
# No two changes of a zone's clocks that undo each other lie closer together (tz database: the shortest are weeks).
_STRIDE_S: Final = 3600
# A week, and another for a zone that skips a day (Samoa had no 30 December 2011).
_HORIZON_S: Final = 15 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Days and a span of the day, by the local clock.

    An hour skipped in spring is in no span, and one repeated in autumn is in its span twice.
    """

    # As written in the policy; it ends with the zone.
    text: str
    # 0 is Monday. A span past midnight belongs to the day on which it starts.
    days: frozenset[int]
    # Minutes since midnight.
    begin: int
    # Minutes since midnight; before `begin` if the span is past midnight.
    end: int
    # Gives the seconds by which the zone's clocks are ahead of UTC at a Unix time.
    offset_s: Callable[[float], int] = field(compare=False, repr=False)

    def holds(self, wall_s: float) -> bool:
        """Whether a Unix time is within these hours."""
        day, minute = divmod(self._local_s(wall_s) // 60, DAY_MINUTES)
        if self.begin < self.end:
            return self._has(day) and self.begin <= minute < self.end
        return (self._has(day) and minute >= self.begin) or (self._has(day - 1) and minute < self.end)

    def next_change_s(self, wall_s: float) -> float:
        """The first later Unix time at which `holds` changes; infinity if it never does."""
        now = self.holds(wall_s)
        at = math.floor(wall_s)
        horizon = at + _HORIZON_S
        while at < horizon:
            at = self._next_step_s(at)
            if self.holds(at) is not now:
                return float(at)
        return math.inf

    def describe(self, wall_s: float) -> str:
        """A Unix time as people in the zone write it: `Mon 08:00 Europe/Berlin`."""
        day, minute = divmod(self._local_s(wall_s) // 60, DAY_MINUTES)
        zone = self.text.rpartition(" ")[2]
        return f"{DAYS[(day + _EPOCH_DAY) % 7]} {minute // 60:02}:{minute % 60:02} {zone}"

    def _has(self, day: int) -> bool:
        return (day + _EPOCH_DAY) % 7 in self.days

    def _local_s(self, wall_s: float) -> int:
        """The local time, as seconds since the local start of 1970."""
        whole_s = math.floor(wall_s)
        return whole_s + self.offset_s(whole_s)

    def _next_step_s(self, at: int) -> int:
        """The next second at which something may change: a boundary of the span, or the clock itself."""
        offset_s = self.offset_s(at)
        second = (at + offset_s) % 86400
        bounds = (self.begin * 60, self.end * 60, 86400)
        until = at + min([_STRIDE_S, *(bound - second for bound in bounds if bound > second)])
        if self.offset_s(until) == offset_s:
            return until
        return self._clock_change_s(at, until, offset_s)

    def _clock_change_s(self, at: int, until: int, offset_s: int) -> int:
        """The second at which the clocks change, known to be after `at` and no later than `until`."""
        while until - at > 1:
            middle = (at + until) // 2
            at, until = (middle, until) if self.offset_s(middle) == offset_s else (at, middle)
        return until
