"""The last hour: what each account and card used against what it may use, in points of 15 s.

A point has the lowest, highest and last amount of its time. An amount holds until the next one, so only changes take
memory, and a node that is quiet takes next to none. Utilisation differs in every reading: each point has a byte of it,
for each account, card, and container on a card. Of an account that is one container on one card they are the same.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Gpu
from watchdog.core.policy import Do
from watchdog.core.units import LARGEST
from watchdog.core.utilization import NO_UTILIZATION, CardUtilization, Holder, Utilization

POINT_S: Final = 15
MOST_POINTS: Final = 240
HOUR_S: Final = float(POINT_S * MOST_POINTS)
# Characters of a sparkline: two minutes each.
LEVELS: Final = 30
# The level of what is above its limit; 0 is nothing, and those between are sevenths of the limit.
ABOVE: Final = 8
_POINTS_A_LEVEL: Final = MOST_POINTS // LEVELS
# Of series whose accounts are gone the newest stay: a crash loop makes a new one every few seconds.
_MOST_GONE: Final = 100
# Of one series; only a loop has more actions in an hour.
_MOST_MARKS: Final = 60
_UNKNOWN: Final = -1
# The columns of a row: the number of its point, the lowest, highest and last amount in it, and what was allowed last.
_SLOT, _LOW, _HIGH, _LAST, _ALLOWED = range(5)
_WIDTH: Final = 5
_GAP: Final = (_UNKNOWN,) * (_WIDTH - 1)
# The byte of a point of which no utilisation is known; others are per cents.
_NOT_READ: Final = 255


@dataclass(frozen=True, slots=True)
class Point:
    """The amounts in the time of one point, in bytes; None: unknown in all of it."""

    # Its beginning, as CLOCK_BOOTTIME.
    at_s: float
    low: int | None = None
    high: int | None = None
    last: int | None = None
    # None: nothing is, or what is allowed is unknown.
    allowed: int | None = None
    # As the driver last said it in that time, from 0 to 1; None: unknown in all of it.
    utilization: float | None = None


class Mark(NamedTuple):
    """An action on an account, or on one that had memory on a card."""

    # When it had its effect, as CLOCK_BOOTTIME.
    at_s: float
    do: Do
    # Whose account it was on.
    account: AccountKey


class Busy(NamedTuple):
    """The utilisation of an hour, a byte for each point."""

    # The number of the last point in which it is known.
    last: int = -1
    # Those up to it, the oldest first.
    percents: bytes = b""

    def put(self, slot: int, ratio: float) -> "Busy":
        """The same with a ratio from 0 to 1 in the last point or a later one."""
        last, percents = self
        # Little is not nothing.
        percent = max(round(100 * ratio), 1) if ratio else 0
        if slot == last and percent == percents[-1]:
            return self
        skipped = min(slot - last - 1, MOST_POINTS) if percents else 0
        if skipped > 0:
            percents += bytes([_NOT_READ]) * skipped
        known = (percents if slot > last else percents[:-1]) + bytes((percent,))
        return Busy(slot, known[-MOST_POINTS - 1 :])

    def at(self, at_s: float) -> float | None:
        """The ratio in the point of a moment (CLOCK_BOOTTIME); None: unknown."""
        place = int(at_s // POINT_S) - self.last - 1
        percent = self.percents[place] if -len(self.percents) <= place < 0 else _NOT_READ
        return None if percent == _NOT_READ else percent / 100


_NEVER_READ: Final = Busy()
_NO_PARTS: Final[Mapping[Holder, float]] = {}


class Series:
    """The hour of one account or card. One thread puts amounts in, any thread may read."""

    __slots__ = (
        "_allowed", "_busy", "_drawn", "_only", "_parts", "_rows", "_used", "first_s", "marks", "name", "seen_s",
    )  # fmt: skip

    def __init__(self, name: tuple[str, str]) -> None:
        # The namespace and the name of its pod; empty for a card.
        self.name = name
        # The CLOCK_BOOTTIME of the first and the last cycle that had it.
        self.first_s = self.seen_s = math.inf
        # Oldest first; replaced whole.
        self.marks: tuple[Mark, ...] = ()
        self._rows: array[int] = array("q")
        self._used: int | None = None
        self._allowed: int | None = None
        # Its utilisation; replaced whole.
        self._busy = _NEVER_READ
        # The only container on a card that it has consisted of, whose utilisation is the same; or that of each of them,
        # replaced whole.
        self._only: Holder | None = None
        self._parts: Mapping[Holder, Busy] = {}
        # The last sparkline, and what it was drawn from.
        self._drawn: tuple[object, str] = (None, "")

    def add_cycle(self, at_s: float, used: int | None, allowed: int | None, gap_s: float) -> None:
        """Take in a cycle; what no cycle had for more than `gap_s` was unknown in between."""
        if at_s - self.seen_s > gap_s:
            self.put(self.seen_s, None, None)
        if self.seen_s == math.inf:
            self.first_s = at_s
        self.seen_s = at_s
        if used != self._used or allowed != self._allowed or not self._rows:
            self.put(at_s, used, allowed)

    def see_utilization(self, at_s: float, ratio: float | None, parts: Mapping[Holder, float] = _NO_PARTS) -> None:
        """Take in the utilisation as of a cycle, from 0 to 1, and that of those of its parts of which it is known."""
        slot = int(at_s // POINT_S)
        self._see_parts(slot, ratio, parts)  # first: a reader takes the account's for that of its only part
        if ratio is not None:
            self._busy = self._busy.put(slot, ratio)

    def _see_parts(self, slot: int, ratio: float | None, known: Mapping[Holder, float]) -> None:
        parts = {**self._parts}
        if not parts:
            if len(known) < 2:
                part, own = next(iter(known.items()), (self._only, ratio))
                if not self._busy.percents:
                    self._only = part
                if own == ratio and part == self._only:
                    return
            if self._only is not None:
                parts[self._only] = self._busy
        for part, own in known.items():
            parts[part] = parts.get(part, _NEVER_READ).put(slot, own)
        if len(parts) > len(known):
            parts = {part: busy for part, busy in parts.items() if busy.last > slot - MOST_POINTS}
        self._parts, self._only = parts, None

    @property
    def parts(self) -> Mapping[Holder, Busy]:
        """The utilisation of each container on a card that an account has consisted of; without those never known."""
        busy, only = self._busy, self._only  # before its parts: they are put in first
        return self._parts or ({only: busy} if only is not None and busy.percents else {})

    def put(self, at_s: float, used: int | None, allowed: int | None) -> None:
        """Put in what is used from a moment on (CLOCK_BOOTTIME); None: it is unknown."""
        slot = int(at_s // POINT_S)
        if used is not None:
            self._put_known(slot, _bounded(used), _UNKNOWN if allowed is None else _bounded(allowed))
        elif self._used is not None or not self._rows:
            # If something is known in this point, the gap begins with the next one.
            self._put_row((slot + (self._used is not None), *_GAP))
        self._used, self._allowed = used, allowed

    def _put_known(self, slot: int, used: int, allowed: int) -> None:
        rows, end = self._rows, len(self._rows)
        if rows and rows[end - _WIDTH + _SLOT] > slot:  # it was unknown for less than a point
            end -= _WIDTH
        held = rows[end - _WIDTH + _LAST] if end else _UNKNOWN
        low = high = used if held == _UNKNOWN else held
        if end and rows[end - _WIDTH + _SLOT] == slot:
            end -= _WIDTH
            if held != _UNKNOWN:
                low, high = rows[end + _LOW], rows[end + _HIGH]
        self._put_row((slot, min(low, used), max(high, used), used, allowed), end)
        while len(rows) > _WIDTH and rows[_WIDTH + _SLOT] <= slot - MOST_POINTS:
            del rows[:_WIDTH]

    def _put_row(self, row: tuple[int, ...], start: int | None = None) -> None:
        """Put a row in the place of those from a start on, or behind all: at once, since others read."""
        self._rows[len(self._rows) if start is None else start :] = array("q", row)

    def mark(self, mark: Mark) -> None:
        """Mark an action."""
        marks = (*(each for each in self.marks if each.at_s > mark.at_s - HOUR_S), mark)
        self.marks = _kept(marks) if len(marks) > _MOST_MARKS else marks

    def follow(self, earlier: "Series") -> None:
        """Put what was known before in front; between the two nothing is known."""
        if earlier.seen_s != math.inf:
            earlier.put(earlier.seen_s, None, None)
        rows, own = earlier._rows[:], self._rows[:]
        while rows and own and rows[_SLOT - _WIDTH] >= own[_SLOT]:
            same = rows[-_WIDTH:]
            del rows[-_WIDTH:]
            if same[_SLOT] == own[_SLOT] and _UNKNOWN not in (same[_LOW], own[_LOW]):
                own[_LOW], own[_HIGH] = min(same[_LOW], own[_LOW]), max(same[_HIGH], own[_HIGH])
        self._rows, self.first_s = rows + own, min(earlier.first_s, self.first_s)
        self.marks = _kept((*earlier.marks, *self.marks))

    def points(self, since_s: float, known_s: float, now_s: float) -> Iterator[Point]:
        """The points since a moment, or since its first amount, up to now; those after `known_s` are unknown."""
        rows = self._rows[:]  # in one step, so that the thread that puts amounts in can't interfere
        if not rows:
            return
        known, row, following = int(known_s // POINT_S), 0, 0
        busy = self._busy
        for slot in range(max(int(since_s // POINT_S), rows[_SLOT]), int(now_s // POINT_S) + 1):
            while following < len(rows) and rows[following + _SLOT] <= slot:
                row, following = following, following + _WIDTH
            begins, low, high, last, allowed = rows[row : row + _WIDTH]
            at_s = float(slot * POINT_S)
            utilization = busy.at(at_s)
            if slot > known or last == _UNKNOWN:
                yield Point(at_s, utilization=utilization)
            else:
                low, high = (low, high) if begins == slot else (last, last)
                yield Point(at_s, low, high, last, None if allowed == _UNKNOWN else allowed, utilization)

    def levels(self, known_s: float, now_s: float) -> str:
        """Its sparkline: a character for each two minutes of the last hour, the oldest first.

        A digit is the highest amount of that time, in sevenths of what was allowed, rounded up; 8 is above it, and a
        space is unknown. Without a limit the highest amount of the hour takes its place.
        """
        slot = int(now_s // POINT_S)
        state = len(self._rows), self._rows[-_WIDTH:].tobytes(), slot, int(known_s // POINT_S)
        if self._drawn[0] != state:
            self._drawn = state, self._draw(known_s, now_s)
        return self._drawn[1]

    def letters(self, now_s: float) -> str:
        """Its actions below the sparkline: the first letter of each, rather of one that is no warning."""
        marks: dict[int, Do] = {}
        for mark in self.marks:
            place = place_of(mark.at_s, now_s)
            if place not in marks or mark.do.enforces:
                marks[place] = mark.do
        return "".join(marks[place].value[0] if place in marks else " " for place in range(LEVELS)).rstrip()

    def _draw(self, known_s: float, now_s: float) -> str:
        points = [*self.points(now_s - HOUR_S + POINT_S, known_s, now_s)]
        most, levels = max((point.high or 0 for point in points), default=0), dict[int, int]()
        for point in points:
            if point.high is not None:
                place, whole = place_of(point.at_s, now_s), most if point.allowed is None else point.allowed
                levels[place] = max(levels.get(place, 0), _level(point.high, whole))
        return "".join(str(levels.get(place, " ")) for place in range(LEVELS))


def _bounded(amount: int) -> int:
    """An amount that a row can hold: a driver's counters are unsigned, and a broken driver fills them."""
    return max(0, min(amount, LARGEST))


def _kept(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The newest marks, and no warning rather than another action."""
    excess = len(marks) - _MOST_MARKS
    warnings = [number for number, mark in enumerate(marks) if not mark.do.enforces][: max(excess, 0)]
    left = tuple(mark for number, mark in enumerate(marks) if number not in set(warnings))
    return left[-_MOST_MARKS:]


def place_of(at_s: float, now_s: float) -> int:
    """The place of a moment in a sparkline; negative if it was more than an hour ago."""
    return LEVELS - 1 - (int(now_s // POINT_S) - int(at_s // POINT_S)) // _POINTS_A_LEVEL


def _level(high: int, whole: int) -> int:
    if high > whole:
        return ABOVE
    return -(-high * (ABOVE - 1) // whole) if high > 0 else 0


def amount_of(assessment: Assessment) -> int | None:
    """What an account uses, with what others use of the claims that it shares; None: that is unknown.

    If a part is unknown, the rest counts once it is above the limit alone.
    """
    is_over = assessment.allowed is not None and assessment.compared > assessment.allowed
    return assessment.compared if assessment.is_compared_known or is_over else None


def card(uuid: str) -> AccountKey:
    """The key of a card's series."""
    return AccountKey(uid="", gpu=uuid)


class Hour:
    """The series of all accounts and cards. The loop adds cycles, and any thread may read."""

    def __init__(self) -> None:
        self._series: dict[AccountKey, Series] = {}
        # The CLOCK_BOOTTIME of the last cycle, and of the last sweep.
        self._seen_s = self._swept_s = -math.inf
        # Until when the last series was seen that was one too many of those that are gone.
        self._dropped_s = -math.inf
        # The utilisation that was added last, and the number of the point.
        self._busy_of: tuple[Mapping[str, CardUtilization], int] = ({}, -1)
        self._earlier: Hour | None = None

    def add(
        self,
        at_s: float,
        assessments: Iterable[Assessment],
        gpus: Iterable[Gpu],
        utilization: Utilization = NO_UTILIZATION,
        *,
        gap_s: float,
        blind: bool = False,
    ) -> None:
        """Add a cycle at a CLOCK_BOOTTIME; in a `blind` one nothing is known.

        What no cycle had for more than `gap_s` was unknown in between.
        """
        if (earlier := self._earlier) is not None:
            self._earlier = None
            self._follow(earlier)
        self.add_cycle(at_s, assessments, gpus, gap_s=gap_s, blind=blind)
        self._seen_s = at_s
        if not blind:
            self._add_utilization(at_s, utilization)
        if at_s - self._swept_s >= POINT_S:
            self._sweep(at_s)

    def add_cycle(
        self, at_s: float, assessments: Iterable[Assessment], gpus: Iterable[Gpu], *, gap_s: float, blind: bool = False
    ) -> None:
        """Take in a part of a cycle, as `add` does the whole: what it does not have is neither changed nor gone."""
        known = self._series
        for each in assessments:
            name, series = (each.pod.namespace, each.pod.name), known.get(each.account)
            if series is None or series.name != name:  # a UID that somebody gave again is another pod's
                series = self._begin(each.account, name)
            series.add_cycle(at_s, None if blind else amount_of(each), each.allowed, gap_s)
        for gpu in gpus:
            key = card(gpu.uuid)
            series = known.get(key) or self._begin(key, ("", ""))
            series.add_cycle(at_s, gpu.used if gpu.up and not blind else None, gpu.total, gap_s)

    def _add_utilization(self, at_s: float, utilization: Utilization) -> None:
        """Add it once for each reading and each point: most cycles only repeat it."""
        of = utilization.cards, int(at_s // POINT_S)
        if of[0] is self._busy_of[0] and of[1] == self._busy_of[1]:
            return
        self._busy_of = of
        by_holder = utilization.by_holder
        for key, ratio in utilization.by_account.items():
            if (series := self._series.get(key)) is not None:
                holders = utilization.holders.get(key, ())
                known = {each: own for each in holders if (own := by_holder.get(each)) is not None}
                series.see_utilization(at_s, ratio, known)
        for gpu, busy in utilization.cards.items():
            if busy.ratio is not None and (series := self._series.get(card(gpu))) is not None:
                series.see_utilization(at_s, busy.ratio)

    def _begin(self, key: AccountKey, name: tuple[str, str]) -> Series:
        series = self._series[key] = Series(name)
        return series

    def mark(self, cards: Iterable[str], mark: Mark) -> None:
        """Mark an action on an account that has memory on these cards."""
        for key in (mark.account, *map(card, cards)):
            if (series := self._series.get(key)) is not None:
                series.mark(mark)

    def begin_with(self, earlier: "Hour") -> None:
        """Put an earlier daemon's in front; from any thread, and in effect with the next cycle."""
        self._earlier = earlier

    def _follow(self, earlier: "Hour") -> None:
        self._dropped_s = max(self._dropped_s, earlier._dropped_s)
        for key, before in earlier._series.items():
            if (series := self._series.get(key)) is not None:
                series.follow(before)
            else:
                self._series[key] = before

    def _sweep(self, at_s: float) -> None:
        """Forget what has been gone for an hour, and the oldest of too many that are gone."""
        self._swept_s = at_s
        gone = [(series.seen_s, key) for key, series in self._series.items() if series.seen_s < at_s]
        gone.sort(key=lambda each: each[0])
        excess = len(gone) - _MOST_GONE
        for number, (seen_s, key) in enumerate(gone):
            if number < excess or seen_s < at_s - HOUR_S:
                self._dropped_s = max(self._dropped_s, seen_s)
                del self._series[key]

    def has(self, series: Series) -> bool:
        """Whether the last cycle had it."""
        return series.seen_s == self._seen_s

    def points(self, series: Series, since_s: float, known_s: float, now_s: float) -> Iterator[Point]:
        """The points of one of its series since a moment; the last cycle's amounts hold until `known_s`.

        Of an account that is gone, up to its end, which is no gap.
        """
        if self.has(series):
            return series.points(since_s, known_s, now_s)
        return series.points(since_s, series.seen_s, series.seen_s)

    def of_pod(self, namespace: str, name: str) -> tuple[tuple[AccountKey, Series], ...]:
        """The series of a pod's accounts, and of those of its predecessors of the same name, the oldest first."""
        found = [(key, series) for key, series in tuple(self._series.items()) if series.name == (namespace, name)]
        return tuple(sorted(found, key=lambda each: (each[1].seen_s, each[0].sort_key)))

    def is_whole(self, lives: Sequence[Series], now_s: float) -> bool:
        """Whether it is certain that no action of these lives of an account, and no earlier life, was forgotten."""
        has_all = len(lives) < 2 or self._dropped_s < now_s - HOUR_S
        return has_all and all(len(each.marks) < _MOST_MARKS for each in lives)

    def get(self, key: AccountKey) -> Series | None:
        """The series of an account, or of a card by its key; None: it has none."""
        return self._series.get(key)
