"""How often what recurs with each incident of an account is reported, so that none can flood log, journal and Events.

An account that goes over its limit and back again has a new incident each time.
"""

from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now, elapsed_s
from watchdog.core.plan import PlanEntry
from watchdog.core.repeats import Repeats
from watchdog.core.units import format_duration
from watchdog.report.text import inert

# Of each kind this many are reported of an account at once, and then one in this time (or in the `repeat` of a warning,
# if that is shorter).
_BURST: Final = 3.0
_EVERY_S: Final = 600.0
_MOST_NAMED: Final = 5
_LEAST_KEPT: Final = 1000
_SPENT: Final = "spent"


@dataclass(frozen=True, slots=True)
class _Budget:
    left: float
    at: Now
    every_s: float

    def by(self, now: Now) -> float:
        """How many reports are left by now."""
        return min(self.left + elapsed_s(self.at, now) / self.every_s, _BURST)


class Recurrence:
    """The budget of each account and kind. No account takes that of another, so the first ones of each are reported."""

    def __init__(self) -> None:
        self._budgets: dict[tuple[str, AccountKey], _Budget] = {}
        self._most = _LEAST_KEPT
        self._spent: dict[str, None] = {}  # pods of which something was left out since that was last reported
        self._reports = Repeats(_EVERY_S)

    def admit(self, kind: str, entry: PlanEntry, now: Now) -> bool:
        """Whether one more report of this kind is made of this account, which then counts."""
        every_s = min(_EVERY_S, entry.definition.repeat_s) if not entry.do.enforces else _EVERY_S
        before = self._budgets.get((kind, entry.account)) or _Budget(_BURST, now, every_s)
        left = before.by(now)
        may = left >= 1.0
        self._budgets[kind, entry.account] = _Budget(left - 1.0 if may else left, now, every_s)
        if not may:
            self._spent[entry.assessment.pod.title] = None
        if len(self._budgets) > self._most:
            self._budgets = {key: each for key, each in self._budgets.items() if each.by(now) < _BURST}
            self._most = max(_LEAST_KEPT, 2 * len(self._budgets))
        return may

    def take_spent(self, now: Now) -> str:
        """A sentence about pods of which something was left out; empty if there are none, or it was reported lately."""
        if not self._spent or self._reports.admit(_SPENT, now.boottime_s) is None:
            return ""
        pods, self._spent = [inert(pod) for pod in self._spent], {}
        more = f" and {len(pods) - _MOST_NAMED} more" if len(pods) > _MOST_NAMED else ""
        return (
            f"{', '.join(pods[:_MOST_NAMED])}{more}: use goes above a threshold and back again and again, so only one "
            f"warning in {format_duration(_EVERY_S)} is logged for each; the metrics count all"
        )
