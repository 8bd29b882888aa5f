"""Evictions that have not come about yet: why, and that they are tried again; the ends of sentences, for people."""

from typing import Final

from watchdog.core.eviction import GIVE_UP_AFTER_S, MOST_TRIES
from watchdog.core.ledger import Trying
from watchdog.core.units import format_duration
from watchdog.export.phrases import said

_LONGEST: Final = 400
_BOUND: Final = f"at most {MOST_TRIES} times in {format_duration(GIVE_UP_AFTER_S)}"
AGAIN: Final = f"and is tried again {_BOUND}"


def trying_because(trying: Trying) -> str:
    """Why an eviction has not come about, as the end of a sentence."""
    if trying.next_s is None:
        which = "" if trying.tries == 1 else f", for the {_ordinal(trying.tries)} time"
        return f"the API server is being asked to evict it{which}"
    times = "once" if trying.tries == 1 else f"{trying.tries} times"
    whom = "its disruption budget does not let the eviction through" if trying.is_blocked else "it has not come about"
    return f"{whom} ({refusal(trying.refused)}), tried {times} so far and {_BOUND}"


def refusal(reason: str) -> str:
    """What the API server said, made harmless, as a part of a sentence."""
    return said(reason, _LONGEST)


def brief(reason: str, limit: int) -> str:
    """Likewise, in a note whose names have at most `limit` characters: a sentence has room for a few of them."""
    return said(reason, max(3 * limit, 120))


def _ordinal(number: int) -> str:
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"
