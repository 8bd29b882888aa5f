"""Turns of the oracle: by how many byte-seconds each account has been withheld, between two bounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.soak.truth import Fact, Key


@dataclass(slots=True)
class Span:
    """The least and the most byte-seconds of an account, how fast each grows, and the moment they are of."""

    at_s: float
    least: float = 0.0
    most: float = 0.0
    least_over: int = 0
    most_over: int = 0


class TurnBook:
    """Remembers for each account how many byte-seconds brakes have surely withheld, and how many at most."""

    def __init__(self) -> None:
        self._spans: dict[Key, Span] = {}

    def reset(self) -> None:
        """The daemon has forgotten them all, or may have."""
        self._spans.clear()

    def forget(self, key: Key) -> None:
        """An action on the account has begun."""
        self._spans.pop(key, None)

    def read(self, facts: Mapping[Key, Fact], withheld: Iterable[tuple[Fact, int]], now_s: float) -> None:
        """Take one more reading in; `withheld` are the accounts that a brake surely withholds now, and how far over."""
        surely = {fact.key: over for fact, over in withheld}
        for key, span in self._spans.items():
            if key not in facts:  # it may be remembered, or not
                span.most += (now_s - span.at_s) * span.most_over
                span.at_s, span.least, span.least_over = now_s, 0.0, 0
        for key, fact in facts.items():
            span = self._spans.setdefault(key, Span(now_s))
            passed_s, used = now_s - span.at_s, max(fact.used, sum(use.used or 0 for use in fact.uses))
            span.most += passed_s * max(span.most_over, used)
            is_over = fact.is_known and fact.allowed is not None and fact.used > fact.allowed
            span.least = span.least + passed_s * span.least_over if is_over else 0.0
            span.at_s, span.least_over, span.most_over = now_s, surely.get(key, 0), used

    def least(self, key: Key) -> float:
        """The byte-seconds that are certain as of the last reading."""
        return self._spans[key].least if key in self._spans else 0.0

    def most(self, key: Key) -> float:
        """The most byte-seconds that are possible as of the last reading."""
        return self._spans[key].most if key in self._spans else 0.0
