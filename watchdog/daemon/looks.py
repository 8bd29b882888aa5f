"""The looks of the pulse: full readings that a rise of a memory counter may bring forward, and whose they are."""

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

from watchdog.core.policy import Window

# A card that has found no look left is reported again only once it has had enough of them for so long.
_INCIDENT_S: Final = 600.0


class Looks:
    """Shares `[pulse] looks` out among the cards and MIG instances whose counters are read.

    Half of the looks belong to them in equal shares, at least one each; the rest is for the first to come. So none
    can take the last looks of the others, and a single busy one has more than its share. If there are fewer looks than
    cards, each has one at most. `spent` counts the rises that found none left. Times are CLOCK_BOOTTIME.
    """

    def __init__(self) -> None:
        self.spent = 0
        self._own: defaultdict[str, deque[float]] = defaultdict(deque)
        self._common: deque[float] = deque()
        self._all: deque[float] = deque()
        self._planned: tuple[float, str, Window, int] | None = None
        self._short_s: dict[str, float] = {}

    def free_s(self, risen: Iterable[str], window: Window, cards: int) -> tuple[float, str]:
        """When the first of these cards may have its next look, and which that is; `cards` is how many the node has."""
        return min((self._free_s(card, window, cards), len(self._own.get(card, ())), card) for card in risen)[::2]

    def plan(self, at_s: float, card: str, window: Window, cards: int) -> None:
        """Plan a look for this card; it counts once it is taken, and the earlier of two is kept."""
        if self._planned is None or at_s < self._planned[0]:
            self._planned = at_s, card, window, cards

    def begin(self, now_s: float) -> None:
        """Count the planned look if it is due: a full reading begins. One before its time saves it."""
        planned, self._planned = self._planned, None
        if planned is None or now_s < planned[0]:
            return
        _, card, window, cards = planned
        for times in (self._all, self._common, *self._own.values()):
            while times and times[0] <= now_s - window.per_s:
                times.popleft()
        self._own = defaultdict(deque, {other: times for other, times in self._own.items() if times})
        share, _ = _shares(window, cards)
        self._all.append(now_s)
        (self._own[card] if _next_s(self._own[card], share, window) <= now_s else self._common).append(now_s)

    def note_spent(self, risen: Iterable[str], now_s: float) -> tuple[str, ...]:
        """Count a rise that found no look left; the cards for which that is new."""
        self.spent += 1
        before, cards = self._short_s, sorted(risen)
        self._short_s = {card: at_s for card, at_s in before.items() if now_s - at_s < _INCIDENT_S}
        new = tuple(card for card in cards if card not in self._short_s)
        self._short_s |= dict.fromkeys(cards, now_s)
        return new

    def _free_s(self, card: str, window: Window, cards: int) -> float:
        share, common = _shares(window, cards)
        own_s = _next_s(self._own.get(card, deque()), share, window)
        return max(_next_s(self._all, window.count, window), min(own_s, _next_s(self._common, common, window)))


def _shares(window: Window, cards: int) -> tuple[int, int]:
    """How many looks each card has for itself, and how many are for all of them."""
    share = max(window.count // (2 * cards), 1)
    return share, max(window.count - share * cards, 0)


def _next_s(times: deque[float], most: int, window: Window) -> float:
    """When there is room for one more of `most` in the window."""
    if not most:
        return math.inf
    return -math.inf if len(times) < most else times[-most] + window.per_s
