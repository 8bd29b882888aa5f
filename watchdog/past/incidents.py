"""What a replay finds: the first deed of each incident, what held it back, and the warnings."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Now
from watchdog.core.plan import Plan, PlanEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Withholding:
    """A deed held back from a moment on: the entry says by which brake, and when that was to let go."""

    entry: PlanEntry
    at: Now

    @property
    def lets_go_s(self) -> float | None:
        """The Unix time at which the brake was to let go; None: that was not a matter of time."""
        wait_s = self.entry.lets_go_in_s
        return None if wait_s is None else self.at.wall_s + wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first deed of an incident, or a warning in it: the entry as it stood when it was due.

    `due` is when it first was due, `at` when nothing held it back any more; None: something did until the incident
    ended, or until the end of the past where it `goes_on`.
    """

    entry: PlanEntry
    due: Now
    at: Now | None = None
    withheld: tuple[Withholding, ...] = ()
    goes_on: bool = False

    @property
    def is_let_through(self) -> bool:
        """Whether nothing held it back in the end."""
        return self.at is not None


class Incidents:
    """Collects what plans come to; an incident of an account lasts until a sure reading below all of its marks."""

    def __init__(self) -> None:
        self._open: dict[AccountKey, Found] = {}
        self._warned: set[AccountKey] = set()
        self._closed: list[Found] = []

    def take(self, plan: Plan, assessments: Iterable[Assessment], at: Now, *, stale: bool) -> None:
        """Take in the plan of one pass."""
        above = {entry.account for entry in plan.entries}
        if not stale and (self._open or self._warned) and not (self._open.keys() | self._warned) <= above:
            self._close(above, {each.account: each for each in assessments})
        for entry in plan.entries:
            if entry.do.is_force:
                self._take_force(entry, at)
            elif entry.taken and entry.account not in self._warned:
                self._warned.add(entry.account)
                self._closed.append(Found(entry=entry, due=at, at=at))

    def all(self) -> tuple[Found, ...]:
        """Everything that was found, in the order in which it was due."""
        found = (*self._closed, *(replace(each, goes_on=True) for each in self._open.values()))
        return tuple(sorted(found, key=lambda each: (each.due.wall_s, each.entry.account.sort_key, each.entry.step)))

    def _take_force(self, entry: PlanEntry, at: Now) -> None:
        account = entry.account
        known = self._open.get(account)
        if entry.taken:
            if known is not None and known.at is not None:
                # The ladder has begun anew: another declaration, say, or the account was not there for a while.
                self._closed.append(known)
                known = None
            self._open[account] = replace(known or Found(entry=entry, due=at), entry=entry, at=at)
        elif entry.news and (known is None or known.at is None):
            known = known or Found(entry=entry, due=at)
            self._open[account] = replace(known, withheld=(*known.withheld, Withholding(entry=entry, at=at)))

    def _close(self, above: set[AccountKey], seen: dict[AccountKey, Assessment]) -> None:
        for account in (self._open.keys() | self._warned) - above:
            standing = seen.get(account)
            if standing is not None and standing.used is None:
                continue  # nothing says that it has come down
            self._warned.discard(account)
            if account in self._open:
                self._closed.append(self._open.pop(account))
