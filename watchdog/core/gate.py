"""The gate: the one place where a due step is let through or held back by a brake."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from watchdog.core.brakes import Begun, Brake, owner_of
from watchdog.core.breaker import breaker_wait_s
from watchdog.core.findings import Assessment
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, PlanEntry
from watchdog.core.policy import Do, Policy

_Held = tuple[Brake, float | None]  # the brake, and the seconds until it lets go (None: not a matter of time)


def urgency(assessment: Assessment) -> tuple[int, int, str, str, str]:
    """Who comes first where a brake lets only some through: most bytes over, then lower priority, then UID."""
    over = assessment.used_at_least - (assessment.allowed or 0)
    return (-over, assessment.pod.priority or 0, *assessment.account.sort_key)


class Gate:
    """Lets the steps of one account after the other through; `states` is what is remembered afterwards.

    The brakes count what this pass lets through before, but remember only what has really begun.
    """

    def __init__(self, conditions: Conditions, policy: Policy, ledger: Ledger, now: Now) -> None:
        self.conditions = conditions
        self.states = dict(ledger.accounts)
        self._now = now
        self._brakes = policy.brakes
        self._release_timeout_s = policy.release_timeout_s
        self._memory = {False: ledger.brakes, True: ledger.trial}
        # Until when a container that a deed is under way on is waited for at most, by whichever account; None: the
        # whole pod. Likewise a card that is to get room; None: a deed whose cards are not known.
        self._busy: dict[tuple[str, str | None], float] = {}
        self._busy_cards: dict[str | None, float] = {}
        for key, state in self.states.items():
            if state.under_way is not None:
                self._occupy(key.uid, state.under_way)

    def reserve(self, cards: Iterable[str]) -> None:
        """Keep cards from having a victim now: they had one that was only observed, and are as short as before."""
        self._busy_cards |= dict.fromkeys(cards, math.inf)

    def pass_through(self, entries: tuple[PlanEntry, ...]) -> Iterator[PlanEntry]:
        """Give an account's entries as they go into the plan: of the due ones the last, and what comes later.

        Where force is held back, the last due warning is given all the same: a pod that is protected, say, is still
        told of. A step under pressure that is held back holds back no other.
        """
        yield from (self._foresee(entry) for entry in entries if entry.due_in_s > 0)
        due = [entry for entry in entries if entry.due_in_s <= 0]
        warnings = [entry for entry in due if entry.do is Do.WARN]
        while due and due[-1].do.is_force:
            judged = self._judge(due.pop())
            yield judged
            if judged.taken:
                return
            if not judged.definition.under_pressure:
                break
        if warnings:
            yield self._warn(warnings[-1])

    def _warn(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        warned_s = {**state.warned_s, entry.definition.signature: self._now.boottime_s}
        self.states[entry.account] = replace(state, warned_s=warned_s)
        return replace(entry, taken=True)

    def _judge(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        standing = self._standing_brake(entry)
        if standing is None and state.observed:
            return entry  # this incident has had its deed
        under_way = state.under_way
        rung = under_way.rung(entry.rule) if under_way is not None else None
        # A stronger step that has come due on the very victim of the deed under way ends its grace.
        is_stronger = rung is not None and entry.step > rung
        hastens = is_stronger and entry.do is Do.KILL and under_way is not None and entry.victim == under_way.victim
        held = (standing, None) if standing is not None else self._held(entry, hastens=hastens)
        if held is None:
            self._let_through(entry, hastens=hastens)
            return replace(entry, taken=True, hastens=hastens)
        brake, lets_go_in_s = held
        # That a kill is not begun again while it is under way is no news.
        own = brake is Brake.PENDING and under_way is not None and not is_stronger
        if not own:
            self.states[entry.account] = replace(state, reported=state.reported | {brake.value})
        is_news = not own and brake.value not in state.reported
        return replace(entry, withheld_by=brake, lets_go_in_s=lets_go_in_s, news=is_news)

    def _held(self, entry: PlanEntry, *, hastens: bool) -> _Held | None:
        """The brake that holds back a due step which could be acted on; what is hastened has been counted already."""
        busy_until_s = None if hastens else self._busy_until_s(entry)
        if busy_until_s is not None:
            wait_s = busy_until_s - self._now.boottime_s
            return Brake.PENDING, max(wait_s, 0.0) if math.isfinite(wait_s) else None
        if self.conditions.pods_stale:
            return Brake.STALE, None
        counted = None if hastens else self._counted(entry)
        if counted is not None:
            return counted
        return None if self.conditions.journal_writable else (Brake.JOURNAL, None)

    def _foresee(self, entry: PlanEntry) -> PlanEntry:
        """A step that is not due yet, with the brake that would hold it back when it is, as far as that is known."""
        if not entry.do.is_force:
            return entry
        standing = self._standing_brake(entry)
        if standing is not None:
            return replace(entry, withheld_by=standing)
        held = None if self.states[entry.account].observed else self._counted(entry)
        return entry if held is None else replace(entry, withheld_by=held[0], lets_go_in_s=held[1])

    def _counted(self, entry: PlanEntry) -> tuple[Brake, float] | None:
        """The first brake that holds of those that count deeds, and when the last of them lets go."""
        memory, now_s = self._memory[entry.assessment.observes], self._now.boottime_s
        waits = [*memory.waits(owner_of(entry.assessment.pod), self._brakes, now_s + entry.due_in_s)]
        breaker_s = breaker_wait_s(memory, self._brakes.breaker, now_s + entry.due_in_s)
        if breaker_s > 0:
            waits.append((Brake.BREAKER, breaker_s))
        if not waits:
            return None
        return waits[0][0], entry.due_in_s + max(wait_s for _, wait_s in waits)

    def _standing_brake(self, entry: PlanEntry) -> Brake | None:
        """The brakes that time does not lift."""
        owner = entry.assessment.pod.owner
        # The DaemonSet controller puts an evicted pod back on the same node at once.
        is_daemon = entry.do is Do.EVICT and owner is not None and owner.kind == "DaemonSet"
        if entry.assessment.protected is not None or is_daemon:
            return Brake.PROTECTED
        needs_victim = entry.do is Do.KILL and not entry.victim
        return Brake.UNKNOWN_CONTAINER if needs_victim else None

    def _let_through(self, entry: PlanEntry, *, hastens: bool) -> None:
        if hastens:
            return  # neither a new victim nor a new deed
        step, now_s = entry.definition, self._now.boottime_s
        until_s = now_s + step.grace_s + self._release_timeout_s
        whole_pod = step.scope == "pod"
        under_way = UnderWay(
            step=step.signature, victim=entry.victim, whole_pod=whole_pod, cards=entry.cards, until_s=until_s
        )
        self._occupy(entry.account.uid, under_way)
        observes = entry.assessment.observes
        self._memory[observes] = self._memory[observes].note(owner_of(entry.assessment.pod), Begun(now_s))

    def _occupy(self, uid: str, under_way: UnderWay) -> None:
        until_s = math.inf if under_way.until_s is None else under_way.until_s
        victim = uid, None if under_way.whole_pod else under_way.victim
        self._busy[victim] = max(until_s, self._busy.get(victim, 0.0))
        self._busy_cards |= dict.fromkeys([None] if under_way.cards is None else under_way.cards, until_s)

    def _busy_until_s(self, entry: PlanEntry) -> float | None:
        """Until when an entry waits for deeds under way, at most; None: for none."""
        uid = entry.account.uid
        waits = [self._busy.get((uid, None)), self._busy.get((uid, entry.victim))]
        if entry.definition.scope == "pod" or entry.do is Do.EVICT:
            waits = [until_s for (busy, _), until_s in self._busy.items() if busy == uid]
        under_way = self.states[entry.account].under_way
        if under_way is not None:
            waits.append(math.inf if under_way.until_s is None else under_way.until_s)
        if entry.card is not None:
            # A card that is short gets room by one victim; whether it was enough shows once its memory is free.
            waits += [self._busy_cards.get(entry.card), self._busy_cards.get(None)]
        return max((until_s for until_s in waits if until_s is not None), default=None)
