"""Brakes of the oracle: every action that was begun, and whether one more was allowed."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.soak.actionbook import TrackedAction
from tests.soak.clock import QUANTUM_S
from tests.soak.timers import Timers
from tests.soak.truth import Fact, Key, protected, threshold_bytes
from tests.soak.violation import fail
from watchdog.core.model import Now
from watchdog.core.policy import Brakes, Policy

LAW = "law 6, the brakes hold over any history"
FIRST = "point 25, the account most bytes over goes first if a brake lets only some through"
Workload = tuple[str, str, str]


@dataclass(slots=True)
class Begun:
    """An action: when it began, and in the time of the present boot as the daemon that runs now must take it."""

    owner: Workload
    at: Now
    at_s: float


class BrakeBook:
    """Remembers every action for ever: no restart, reload or switch makes it forget."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []
        self.perhaps: list[Begun] = []  # what has ended before any signal
        self.opened_s: float | None = None
        self._unknown_s: float | None = None
        self._lost: Now | None = None
        self._lost_s = 0.0

    def forget(self, now: Now, *, lost: bool) -> None:
        """The journal is gone. `lost`: that can be seen, so every window and back-off counts as full once from now."""
        self.begun.clear()
        self.opened_s = self._unknown_s = None
        self._lost, self._lost_s = (now if lost else None), now.boottime_s

    def daemon_starts(self, now: Now) -> None:
        """A daemon starts: what an earlier boot left has the age that the wall clock gives it at this moment."""
        for each in self.begun:
            if each.at.boot_id != now.boot_id:
                each.at_s = now.boottime_s - max(now.wall_s - each.at.wall_s, 0.0)
        self.reads(now)
        if self._lost is not None and self._lost.boot_id != now.boot_id:
            self._lost_s = now.boottime_s - max(now.wall_s - self._lost.wall_s, 0.0)

    def reads(self, now: Now) -> None:
        """A daemon reads a journal, be it once more."""
        for each in self.begun:
            if each.at.boot_id == now.boot_id:
                each.at_s = each.at.boottime_s
        self.begun.sort(key=lambda each: each.at_s)

    def doubt(self, now: Now) -> None:
        """It is no longer known whether the breaker is open: what was said of it may not have reached the disk."""
        self._doubt(now.boottime_s)

    def begin(self, owner: Workload, brakes: Brakes, intended: Now, now: Now) -> None:
        """An action begins: no brake may forbid it. The journal has it from when it was intended."""
        why = self.forbids(owner, brakes, now.boottime_s)
        if why:
            fail(LAW, why)
        self.begun.append(Begun(owner, intended, now.boottime_s))

    def is_free(self, owner: Workload, brakes: Brakes, now_s: float) -> bool:
        """Whether one more action on a pod of this owner is allowed now, whatever else counts."""
        known = len(self.begun)
        self.begun += self.perhaps
        is_allowed = not self.forbids(owner, brakes, now_s)
        del self.begun[known:]
        return is_allowed

    def forbids(self, owner: Workload, brakes: Brakes, now_s: float) -> str:
        """What forbids one more action on a pod of this owner now; empty if it is allowed."""
        windows = (
            ("owner", brakes.owner, owner),
            ("namespace", brakes.namespace, owner[:1]),
            ("node", brakes.node, ()),
        )
        for name, window, whom in windows:
            if window is None:
                continue
            if self._lost is not None and now_s < self._lost_s + window.per_s:
                return f"the journal was lost {now_s - self._lost_s} s ago, {name}: {window}"
            recent = sum(1 for e in self.begun if e.owner[: len(whom)] == whom and e.at_s + window.per_s > now_s)
            if recent >= window.count:
                return f"{recent} actions for {name} {whom} within {window}"
        backoff = brakes.owner_backoff
        if self._lost is not None and backoff is not None and now_s < self._lost_s + backoff.max_s:
            return f"the journal was lost {now_s - self._lost_s} s ago, {backoff}"
        wait_s = self._backoff_s(owner, brakes)
        last_s = max((e.at_s for e in self.begun if e.owner == owner), default=None)
        if last_s is not None and wait_s is not None and now_s < last_s + wait_s:
            return f"back-off of {owner}: {now_s - last_s} s after the last action, {wait_s} s to wait"
        return self._breaker(brakes, now_s)

    def in_its_turn(
        self,
        chosen: TrackedAction,
        facts: Mapping[Key, Fact],
        ready: Iterable[Fact],
        timers: Timers,
        brakes: Brakes,
        asked: Now,
    ) -> None:
        """An action is about to begin: no account that is ready and more bytes over may lose its place by that.

        Where the breaker is half open, every other turn is that of those that have been over for the most actions.
        `asked` is when the facts were read; actions that are about to begin as well are to be in `begun` already.
        """
        if chosen.key not in facts or self._unknown_s is not None:
            return
        fact, now_s = facts[chosen.key], asked.boottime_s
        by_age = self._let_through_by(math.inf) % 2
        over, place = _over(fact), (by_age * self._let_through_by(timers.since_s(fact)[0]), -_over(fact))
        turns = ((by_age * self._let_through_by(timers.since_s(each)[1]), -_over(each), each) for each in ready)
        first = [each for *turn, each in turns if tuple(turn) < place]
        free = [fact for fact in first if not self.forbids(fact.tenant.workload, brakes, now_s)]
        self.begun.append(Begun(chosen.owner, asked, now_s))
        for fact in free:
            if self.forbids(fact.tenant.workload, brakes, now_s):
                fail(FIRST, f"{chosen.key} is {over} over and goes before {fact.key}, {_over(fact)} over")
        self.begun.pop()

    def _let_through_by(self, at_s: float) -> int:
        """How many actions had begun by a moment since the breaker opened; 0 where it is closed."""
        return 0 if self.opened_s is None else sum(self.opened_s < each.at_s < at_s for each in self.begun)

    def _backoff_s(self, owner: Workload, brakes: Brakes) -> float | None:
        """How long the owner has to wait after its last action."""
        backoff = brakes.owner_backoff
        if backoff is None:
            return None
        moments = [e.at_s for e in self.begun if e.owner == owner]
        row = 0
        for index, moment in enumerate(moments):
            row = 1 if index == 0 or moment - moments[index - 1] > 2 * backoff.max_s else row + 1
        return min(backoff.first_s * backoff.factor ** max(row - 1, 0), backoff.max_s) if row else None

    def _breaker(self, brakes: Brakes, now_s: float) -> str:
        if brakes.breaker is None or self.opened_s is None:
            return ""
        hold_s = brakes.breaker.hold_s
        if now_s < self.opened_s + hold_s:
            return f"the breaker is open since {now_s - self.opened_s} s, {hold_s} s to hold"
        last_s = max((e.at_s for e in self.begun), default=self.opened_s)
        if last_s >= self.opened_s and now_s < last_s + hold_s:
            return f"half open: {now_s - last_s} s after the last action, one a {hold_s} s is allowed"
        return ""

    def look(
        self,
        facts: Mapping[Key, Fact],
        timers: Timers,
        policy: Policy,
        now: Now,
        *,
        sure: bool,
        enforcing: bool,
        free: Collection[Key],
    ) -> bool:
        """See by a reading whether the breaker opens, or closes; whether it has just opened.

        `sure`: the reading hid nothing. `free`: the accounts that are certainly not withheld for MPS. What can't be
        known is taken for the state that allows more.
        """
        breaker, now_s = policy.brakes.breaker, now.boottime_s
        if breaker is None:
            self.opened_s = self._unknown_s = None
            return False
        crowd = [fact for fact in facts.values() if counts(fact, policy, now)]
        base = {fact.tenant.workload for fact in crowd}
        perhaps = {fact.tenant.workload for fact in facts.values() if _perhaps_due(fact, timers)}
        may_open = bool(perhaps) and (not sure or _crowded(perhaps, base, breaker.offenders, breaker.of_at_least))
        since_s = self.opened_s if self.opened_s is not None else self._unknown_s
        if since_s is None:
            due = {fact.tenant.workload for fact in crowd if fact.key in free and _surely_due(fact, timers)}
            if sure and enforcing and _crowded(due, base, breaker.offenders, breaker.of_at_least):
                self.opened_s = now_s
            elif may_open:
                self._unknown_s = now_s
            return self.opened_s is not None
        if self._unknown_s is not None and may_open:
            self._unknown_s = now_s
        elif now_s >= since_s + breaker.hold_s:
            self._look_whether_closed(crowd, max(now_s - breaker.hold_s, since_s), breaker.offenders, now_s, sure=sure)
        return False

    def _look_whether_closed(
        self, crowd: list[Fact], lately_s: float, share: Fraction, now_s: float, *, sure: bool
    ) -> None:
        """It closes once the share of owners above a threshold, or acted on recently, has fallen, however few."""
        base = {fact.tenant.workload for fact in crowd}
        above = {fact.tenant.workload for fact in crowd if _above(fact)}
        lately = {each.owner for each in self.begun if each.at_s > lately_s}
        # Between an intention and its signal time may pass: which of the two counts is not for the oracle to say.
        is_close = any(abs(each.at_s - lately_s) <= 2 * QUANTUM_S for each in self.begun)
        if not sure or is_close:
            self._doubt(now_s)
        elif not _crowded(above | lately, base | lately, share, 0):
            self.opened_s = self._unknown_s = None

    def _doubt(self, since_s: float | None) -> None:
        self.opened_s, self._unknown_s = None, since_s


def counts(fact: Fact, policy: Policy, now: Now) -> bool:
    enforces = any(step.do != "warn" for step in fact.rule.steps)
    is_known = fact.allowed is not None and (fact.is_known or fact.used > fact.allowed)
    return enforces and is_known and fact.rule.mode != "observe" and not protected(fact.tenant, policy, now)


def _above(fact: Fact) -> bool:
    return any(step.do != "warn" and fact.used > threshold_bytes(step, fact.allowed or 0) for step in fact.rule.steps)


def _over(fact: Fact) -> int:
    return fact.used - (fact.allowed or 0)


def _surely_due(fact: Fact, timers: Timers) -> bool:
    ladder = timers.ladders.get(fact.key)
    return ladder is not None and not ladder.acted and is_ready(fact, timers)


def is_ready(fact: Fact, timers: Timers) -> bool:
    """Whether a kill on this account is due for sure, with nothing but kills after it, and has not failed before."""
    ladder, steps = timers.ladders.get(fact.key), fact.rule.steps
    if ladder is None or ladder.failed:
        return False
    due = [index for index, step in enumerate(steps) if timers.surely_due(fact, step)]
    return bool(due) and all(step.do == "kill" for step in steps[due[0] :])


def _perhaps_due(fact: Fact, timers: Timers) -> bool:
    return any(step.do != "warn" and timers.due(fact, step) for step in fact.rule.steps)


def _crowded(offenders: set[Workload], owners: set[Workload], share: Fraction, at_least: int) -> bool:
    return bool(offenders) and len(owners) >= at_least and len(offenders) >= len(owners) * share
