"""Timers of the oracle: how long each account has been above each mark, by the readings that were given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.soak.policies import PolicyPlan, StepName, StepPlan
from tests.soak.truth import Fact, Key
from watchdog.core.model import Now


@dataclass(slots=True)
class Count:
    """Seconds above a mark: `most_s` grants every doubt, `sure_s` counts only readings that hid nothing."""

    most_s: float = 0.0
    last_s: float = 0.0
    sure_s: float | None = None


@dataclass(slots=True)
class Ladder:
    """What is counted for one account.

    `acted` says that a deed has begun since it was last below all marks, `failed` that one could not.
    """

    rule: str
    declared: int | None
    counts: dict[StepName, Count] = field(default_factory=dict)
    observes: bool = False
    acted: bool = False
    failed: bool = False

    def doubt(self, since_s: float) -> None:
        """A reading said nothing of this account: what has last counted since then is held, and not sure any more."""
        held = {name: count for name, count in self.counts.items() if count.last_s > since_s}
        self.counts = {name: Count(count.most_s, count.last_s, None) for name, count in held.items()}


class Timers:
    """The ladders of all accounts."""

    def __init__(self) -> None:
        self.ladders: dict[Key, Ladder] = {}

    def begin_anew(self) -> None:
        """Nothing is remembered: the daemon has started, or enforcement begins."""
        self.ladders.clear()

    def doubt(self) -> None:
        """Nothing is sure for a while: what is due later than it might be is nobody's fault."""
        for ladder in self.ladders.values():
            for count in ladder.counts.values():
                count.sure_s = None

    def end_force(self, key: Key) -> None:
        """A deed on the account has ended: its steps of force begin anew."""
        ladder = self.ladders.get(key)
        if ladder is not None:
            ladder.counts = {name: count for name, count in ladder.counts.items() if name[3] == "warn"}

    def note_acted(self, key: Key) -> None:
        """A deed on the account has begun."""
        if key in self.ladders:
            self.ladders[key].acted = True

    def note_failed(self, key: Key) -> None:
        """A step on the account has failed: it is tried again later."""
        if key in self.ladders:
            self.ladders[key].failed = True

    def due(self, key: Key, step: StepPlan) -> bool:
        """Whether the time of a step can have passed."""
        ladder = self.ladders.get(key)
        count = ladder.counts.get(step.name) if ladder is not None else None
        return count is not None and count.most_s >= step.for_s

    def surely_due(self, key: Key, step: StepPlan) -> bool:
        """Whether the time of a step has passed in readings that hid nothing."""
        ladder = self.ladders.get(key)
        count = ladder.counts.get(step.name) if ladder is not None else None
        return count is not None and count.sure_s is not None and count.sure_s >= step.for_s

    def read(self, facts: Mapping[Key, Fact], plan: PolicyPlan, now: Now, *, stale: bool, bright: bool) -> None:
        """Take one reading in; an account that is not seen is forgotten if the reading hid nothing."""
        kept: dict[Key, Ladder] = {} if bright else {k: v for k, v in self.ladders.items() if k not in facts}
        for held in kept.values():
            held.doubt(now.boottime_s - reset_after_s(plan))
        for key, fact in facts.items():
            if fact.allowed is None:
                continue
            ladder = self.ladders.get(key)
            observes = fact.rule.mode == "observe"
            begins = ladder is not None and ladder.observes and not observes
            if ladder is None or begins or ladder.rule != fact.rule.name or ladder.declared != fact.declared:
                ladder = Ladder(fact.rule.name, fact.declared)
            ladder.observes = observes
            kept[key] = ladder
            self._read_account(ladder, fact, plan, now, stale=stale)
        self.ladders = kept

    def _read_account(self, ladder: Ladder, fact: Fact, plan: PolicyPlan, now: Now, *, stale: bool) -> None:
        allowed = fact.allowed or 0
        before, ladder.counts = ladder.counts, {}
        above_any = False
        for step in fact.rule.steps:
            count = before.get(step.name)
            if not stale and fact.used > step.height(allowed):
                ladder.counts[step.name] = _above(count, plan, now, sure=fact.is_known)
                above_any = True
            elif not stale and fact.is_known:
                continue  # surely at or below the mark: it begins anew
            elif count is not None:
                above_any = True
                gap_s = now.boottime_s - count.last_s
                if gap_s < reset_after_s(plan):
                    ladder.counts[step.name] = Count(count.most_s, count.last_s, None)
        ladder.acted = ladder.acted and above_any
        ladder.failed = ladder.failed and above_any


def reset_after_s(plan: PolicyPlan) -> float:
    """After how long without a reading that says something every timer begins anew."""
    return max(3 * plan.interval_s, 10.0)


def _above(count: Count | None, plan: PolicyPlan, now: Now, *, sure: bool) -> Count:
    if count is None:
        return Count(0.0, now.boottime_s, 0.0 if sure else None)
    gap_s = now.boottime_s - count.last_s
    if gap_s >= reset_after_s(plan):
        return Count(0.0, now.boottime_s, 0.0 if sure else None)
    more_s = min(gap_s, plan.interval_s)
    sure_s = None if count.sure_s is None or not sure else count.sure_s + more_s
    return Count(count.most_s + more_s, now.boottime_s, sure_s if sure_s is not None else (0.0 if sure else None))
