"""Whether the containers of processes that have ended still have processes: a living process of each is known."""

from collections.abc import Callable, Collection
from typing import Final

from watchdog import clock
from watchdog.core.model import Now, Place, ProcessKey

# A search reads the cgroup of every process on the node. The first process of a container lives as long as it does, so
# a search that finds none has missed none, unless that process could not be read at that moment.
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 60.0


class Survivors:
    """Remembers one living process of each of these containers, and searches for another one once it has ended.

    `lives` says whether a process still runs.
    """

    def __init__(self, lives: Callable[[ProcessKey], bool], now: Callable[[], Now] = clock.now) -> None:
        self._now = now
        self._lives = lives
        self._known: dict[Place, ProcessKey] = {}
        self._pauses: dict[Place, tuple[float, float]] = {}  # where none was found: when to search again, and the pause

    def exist(self, place: Place, find: Callable[[Place], ProcessKey | None]) -> bool:
        """Whether the container of this place has a living process; `find` gives one, or None."""
        known = self._known.get(place)
        if known is not None and self._lives(known):
            return True
        now_s = self._now().boottime_s
        next_s, pause_s = self._pauses.get(place, (now_s, _FIRST_S))
        if known is None and now_s < next_s:
            return False
        found = find(place)
        if found is not None:
            self._known[place] = found
            self._pauses.pop(place, None)
            return True
        self._known.pop(place, None)
        self._pauses[place] = (now_s + pause_s, min(2 * pause_s, _LONGEST_S))
        return False

    def forget_except(self, places: Collection[Place]) -> None:
        """Forget all other containers."""
        if self._known or self._pauses:
            self._known = {place: key for place, key in self._known.items() if place in places}
            self._pauses = {place: pause for place, pause in self._pauses.items() if place in places}
