"""The tally: a step's second count, which dips below the threshold do not end, but count double against.

A stretch ends with every reading at or below the threshold, so use that dips now and then would never be due.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from watchdog.core.model import Now
from watchdog.core.policy import Policy, Step, StepSignature

StepKey = tuple[str, StepSignature]  # the name of a rule, and one of its steps

# A tally comes due at this many times `for`, and time below the threshold counts this many times.
TIMES: Final = 2


class Seen(Enum):
    """What one reading says to a tally."""

    ABOVE = auto()
    BELOW = auto()  # at or below the threshold
    HELD = auto()  # neither: another rule is in force, and use may still be above the threshold of this one
    UNSURE = auto()  # inconclusive: it may be above the threshold

    @classmethod
    def of(cls, used: int, threshold_bytes: int | None, before: "Tally | None", *, is_sure: bool) -> "Seen":
        """What a reading says; `threshold_bytes` is None if it does not count for the step."""
        if threshold_bytes is not None and used > threshold_bytes:
            return cls.ABOVE
        if threshold_bytes is None and (before is None or not is_sure or used > before.threshold_bytes):
            return cls.HELD  # whatever is hidden cannot count either
        return cls.BELOW if is_sure else cls.UNSURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The time above a step's threshold minus twice the time below it, never under 0 nor over twice `for`.

    The time between a reading above and one below counts half as each.
    """

    # That time.
    counted_s: float = 0.0
    # The time above the threshold since `since`.
    above_s: float = 0.0
    # When it was last 0.
    since: Now
    # The last conclusive reading.
    last: Now
    # What the last reading that counted saw.
    is_above: bool = True
    # The last threshold.
    threshold_bytes: int
    # Whether the step's rule only observed.
    observes: bool = False

    def then(self, seen: Seen, alone: "Tally", for_s: float, policy: Policy) -> "Tally | None":
        """The tally after one more reading, given as one of its own; None: it is 0 and the reading starts none."""
        started = alone if seen is Seen.ABOVE else None
        gap_s = alone.last.boottime_s - self.last.boottime_s
        is_near = alone.last.boot_id == self.last.boot_id and 0 <= gap_s < policy.reset_after_s
        if not is_near or (self.observes and not alone.observes):
            return started
        if seen is Seen.UNSURE:
            return self
        if seen is Seen.HELD:
            return replace(self, last=alone.last, observes=alone.observes)
        is_above = seen is Seen.ABOVE
        passed_s = min(gap_s, policy.interval_s)
        above_s = passed_s * (self.is_above + is_above) / 2
        counted_s = min(self.counted_s + above_s - TIMES * (passed_s - above_s), TIMES * for_s)
        if counted_s <= 0 and not (is_above and self.is_above):
            return started
        return replace(
            self,
            counted_s=counted_s,
            above_s=self.above_s + above_s,
            last=alone.last,
            is_above=is_above,
            threshold_bytes=alone.threshold_bytes if is_above else self.threshold_bytes,
            observes=alone.observes,
        )

    def left_s(self, step: Step) -> float:
        """Seconds above the threshold until it is due."""
        return TIMES * step.for_s - self.counted_s


def is_tallied(step: Step) -> bool:
    """Whether a step keeps a tally: not under pressure, nor if it is due at once."""
    return step.for_s > 0 and not step.under_pressure


def tallied(before: Tally | None, seen: Seen, alone: Tally, for_s: float, policy: Policy) -> Tally | None:
    """The tally of a step after one more reading, which is given as a tally of its own; None: there is none."""
    if before is None:
        return alone if seen is Seen.ABOVE else None
    return before.then(seen, alone, for_s, policy)


def seen_of_pod(accounts: Iterable[Seen], *, is_sure: bool) -> Seen:
    """What a reading of all accounts of a pod says: above if any is, below if all are and it is `is_sure`."""
    found = set(accounts)
    if Seen.ABOVE in found:
        return Seen.ABOVE
    if Seen.UNSURE in found or not is_sure:
        return Seen.UNSURE
    return Seen.HELD if Seen.HELD in found else Seen.BELOW
