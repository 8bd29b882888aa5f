"""Brakes of the oracle: every action that was begun, and whether one more was allowed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.soak.clock import QUANTUM_S
from tests.soak.timers import Timers
from tests.soak.truth import Fact, Key, protected, threshold_bytes, victims
from tests.soak.turnbook import TurnBook
from tests.soak.violation import fail
from watchdog.core.model import Now
from watchdog.core.policy import Brakes, Policy

LAW = "law 6, the brakes hold over any history"
FIRST = "point 25, bytes over and byte-seconds withheld come first by turns if a brake lets only some through"
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
        self.turns = TurnBook()
        self._second: set[tuple[str, ...]] = set()  # the scopes whose next turn goes by byte-seconds
        self._unsure: set[tuple[str, ...]] = set()  # those of which that is not known
        self._unknown_s: float | None = None
        self._lost: Now | None = None
        self._lost_s = 0.0

    def forget(self, now: Now, *, lost: bool) -> None:
        """The journal is gone. `lost`: that can be seen, so every window and back-off counts as full once from now."""
        self.begun.clear()
        self.turns.reset()
        self._second.clear()
        self._unsure.clear()
        self.opened_s = self._unknown_s = None
        self._lost, self._lost_s = (now if lost else None), now.boottime_s

    def daemon_starts(self, now: Now) -> None:
        """A daemon starts: what an earlier boot left has the age that the wall clock gives it at this moment."""
        for each in self.begun:
            if each.at.boot_id != now.boot_id:
                each.at_s = now.boottime_s - max(now.wall_s - each.at.wall_s, 0.0)
        self.reads(now)
        self.turns.reset()
        self._unsure = {scope for each in self.perhaps for scope in _scopes(each.owner)}
        if self._lost is not None and self._lost.boot_id != now.boot_id:
            self._lost_s = now.boottime_s - max(now.wall_s - self._lost.wall_s, 0.0)

    def reads(self, now: Now) -> None:
        """A daemon reads a journal, be it once more."""
        for each in self.begun:
            if each.at.boot_id == now.boot_id:
                each.at_s = each.at.boottime_s
        self.begun.sort(key=lambda each: each.at_s)
        self._second.clear()
        for each in self.begun:
            self._second ^= _scopes(each.owner)

    def doubt(self, now: Now) -> None:
        """It is no longer known whether the breaker is open: what was said of it may not have reached the disk."""
        self._doubt(now.boottime_s)

    def ends_unused(self, owner: Workload) -> None:
        """An action did not begin: it has had its turn if that went by bytes."""
        self._second |= _scopes(owner)

    def ends_unseen(self, owner: Workload, now: Now) -> None:
        """An action has ended without a signal, and may have begun."""
        self.perhaps.append(Begun(owner, now, now.boottime_s))
        self._unsure |= _scopes(owner)

    def begin(self, owner: Workload, brakes: Brakes, intended: Now, now: Now) -> None:
        """An action begins: no brake may forbid it. The journal has it from when it was intended."""
        why = self.forbids(owner, brakes, now.boottime_s)
        if why:
            fail(LAW, why)
        self.begun.append(Begun(owner, intended, now.boottime_s))
        self._second ^= _scopes(owner)

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
        chosen: Fact,
        others: list[Begun],
        ready: Iterable[Fact],
        waiting: list[Fact],
        brakes: Brakes,
        asked: Now,
    ) -> None:
        """An action is about to begin: no account that is ready may lose its place by that unless it comes later.

        In every other turn of an owner, a namespace and the node, the most byte-seconds withheld come first instead of
        the most bytes over. `asked` is when the facts were read; `others` are actions that are about to begin as well,
        `waiting` all accounts that may be due.
        """
        if self._unknown_s is not None:
            return
        owner, now_s, before = chosen.tenant.workload, asked.boottime_s, len(self.begun)
        self.begun += others
        free = [each for each in ready if not self.forbids(each.tenant.workload, brakes, now_s)]
        self.begun.append(Begun(owner, asked, now_s))
        lost = [each for each in free if self.forbids(each.tenant.workload, brakes, now_s)]
        del self.begun[before:]
        for each in lost:
            shared = _scopes(owner) & _scopes(each.tenant.workload)
            choosing = _limited(chosen, brakes) | _limited(each, brakes)
            if not any(_rivals(fact, waiting, choosing - shared) for fact in (chosen, each)):
                self._compare(chosen, each, self._turns_of(shared, others))

    def _turns_of(self, shared: set[tuple[str, ...]], others: list[Begun]) -> set[int]:
        """Which turns an action may take in these scopes: 0 goes by bytes, 1 by byte-seconds; both if not known."""
        if shared & self._unsure or any(shared & _scopes(other.owner) for other in others):
            return {0, 1}
        return {int(scope in self._second) for scope in shared}

    def _compare(self, first: Fact, second: Fact, turns: set[int]) -> None:
        if 0 in turns and _over(first) >= _over(second):
            return
        most, least = self.turns.most(first.key), self.turns.least(second.key)
        if 1 in turns and most >= least:
            return
        over = f"{_over(first)} over, at most {most} byte-seconds"
        fail(FIRST, f"{first.key}, {over}, goes before {second.key}, {_over(second)} over, at least {least} ({turns})")

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
        counted = [fact for fact in facts.values() if counts(fact, policy, now)]
        base = {fact.tenant.workload for fact in counted}
        perhaps = {fact.tenant.workload for fact in facts.values() if perhaps_due(fact, timers)}
        may_open = bool(perhaps) and (not sure or _are_enough(perhaps, base, breaker.offenders, breaker.of_at_least))
        since_s = self.opened_s if self.opened_s is not None else self._unknown_s
        if since_s is None:
            # Where a container is unknown, there may be no victim, and none where each is within its own declaration: a
            # step that is withheld for that says nothing.
            named = [fact for fact in counted if fact.key in free and all(use.container for use in fact.uses)]
            named = [fact for fact in named if victims(fact)]
            due = {fact.tenant.workload for fact in named if _surely_due(fact, timers)}
            if sure and enforcing and _are_enough(due, base, breaker.offenders, breaker.of_at_least):
                self.opened_s = now_s
            elif may_open:
                self._unknown_s = now_s
            return self.opened_s is not None
        if self._unknown_s is not None and may_open:
            self._unknown_s = now_s
        elif now_s >= since_s + breaker.hold_s:
            self._look_whether_closed(
                counted, max(now_s - breaker.hold_s, since_s), breaker.offenders, now_s, sure=sure
            )
        return False

    def _look_whether_closed(
        self, counted: list[Fact], lately_s: float, share: Fraction, now_s: float, *, sure: bool
    ) -> None:
        """It closes once the share of owners above a threshold, or acted on recently, has fallen, however few."""
        base = {fact.tenant.workload for fact in counted}
        above = {fact.tenant.workload for fact in counted if _above(fact)}
        lately = {each.owner for each in self.begun if each.at_s > lately_s}
        # Between an intention and its signal time may pass: which of the two counts is not for the oracle to say.
        is_close = any(abs(each.at_s - lately_s) <= 2 * QUANTUM_S for each in self.begun)
        if not sure or is_close:
            self._doubt(now_s)
        elif not _are_enough(above | lately, base | lately, share, 0):
            self.opened_s = self._unknown_s = None

    def _doubt(self, since_s: float | None) -> None:
        self.opened_s, self._unknown_s = None, since_s


def counts(fact: Fact, policy: Policy, now: Now) -> bool:
    enforces = any(step.do != "warn" for step in fact.rule.steps)
    is_known = fact.allowed is not None and (fact.is_known or fact.used > fact.allowed)
    return enforces and is_known and fact.rule.mode != "observe" and not protected(fact.tenant, policy, now)


def _above(fact: Fact) -> bool:
    return any(step.do != "warn" and fact.used > threshold_bytes(step, fact.allowed or 0) for step in fact.rule.steps)


def _scopes(owner: Workload) -> set[tuple[str, ...]]:
    return {(), owner[:1], owner}


def _limited(fact: Fact, brakes: Brakes) -> set[tuple[str, ...]]:
    """The namespace and the owner of an account, if they have a brake: only then they choose among their own."""
    owner = fact.tenant.workload
    is_limited = brakes.owner is not None or brakes.owner_backoff is not None
    return {scope for scope, has_brake in ((owner[:1], brakes.namespace is not None), (owner, is_limited)) if has_brake}


def _rivals(fact: Fact, waiting: Iterable[Fact], choosing: set[tuple[str, ...]]) -> bool:
    """Whether another account may have had the turn of this one in a scope that chooses."""
    own = _scopes(fact.tenant.workload) & choosing
    return any(each.key != fact.key and own & _scopes(each.tenant.workload) for each in waiting)


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


def perhaps_due(fact: Fact, timers: Timers) -> bool:
    return any(step.do != "warn" and timers.due(fact, step) for step in fact.rule.steps)


def _are_enough(offenders: set[Workload], owners: set[Workload], share: Fraction, at_least: int) -> bool:
    return bool(offenders) and len(owners) >= at_least and len(offenders) >= len(owners) * share
