"""The gate: the one place where a due step is let through or held back by a brake."""

from collections.abc import Iterator
from dataclasses import replace

from watchdog.core.brakes import Begun, Brake, owner_of
from watchdog.core.breaker import breaker_wait_s
from watchdog.core.findings import Assessment
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, PlanEntry
from watchdog.core.policy import Brakes, Do

_Held = tuple[Brake, float | None]  # the brake, and the seconds until it lets go (None: not a matter of time)


def urgency(assessment: Assessment) -> tuple[int, int, str, str, str]:
    """Who comes first where a brake lets only some through: most bytes over, then lower priority, then UID."""
    over = assessment.used_at_least - (assessment.allowed or 0)
    return (-over, assessment.pod.priority or 0, *assessment.account.sort_key)


class Gate:
    """Lets the steps of one account after the other through; `states` is what is remembered afterwards.

    The brakes count what this pass lets through before, but remember only what has really begun.
    """

    def __init__(self, conditions: Conditions, brakes: Brakes, ledger: Ledger, now: Now) -> None:
        self.conditions = conditions
        self.states = dict(ledger.accounts)
        self._now = now
        self._brakes = brakes
        self._memory = {False: ledger.brakes, True: ledger.trial}
        # A container that a deed is under way on, by whichever account; None stands for the whole pod.
        self._busy: set[tuple[str, str | None]] = set()
        self._busy_cards: set[str | None] = set()  # None: one whose cards are not known
        for key, state in self.states.items():
            under_way = state.under_way
            if under_way is not None:
                self._occupy(key.uid, under_way.victim, whole_pod=under_way.whole_pod)
                self._busy_cards |= {None} if under_way.cards is None else under_way.cards

    def pass_through(self, entries: tuple[PlanEntry, ...]) -> Iterator[PlanEntry]:
        """Give an account's entries as they go into the plan: of the due ones the last, and what comes later.

        Where force is held back, the last due warning is given all the same: a pod that is protected, say, is still
        told of. A step under pressure that is held back holds back no other.
        """
        for entry in entries:
            if entry.due_in_s > 0:
                yield replace(entry, withheld_by=self._standing_brake(entry) if entry.do.is_force else None)
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
        hastens = self._hastens(entry, state)
        held = self._held(entry, hastens=hastens, observed=state.observed)
        if held is not None:
            brake, lets_go_in_s = held
            # That a kill is not begun again while it is under way is no news.
            own = brake is Brake.PENDING and state.under_way is not None and entry.step <= state.under_way.step
            if not own:
                self.states[entry.account] = replace(state, reported=state.reported | {brake.value})
            is_news = not own and brake.value not in state.reported
            return replace(entry, withheld_by=brake, lets_go_in_s=lets_go_in_s, news=is_news)
        if state.observed:
            return entry
        self._let_through(entry, hastens=hastens)
        return replace(entry, taken=True, hastens=hastens)

    def _hastens(self, entry: PlanEntry, state: AccountState) -> bool:
        """Whether a stronger step has come due on the very victim of this account's deed under way."""
        under_way = state.under_way
        return (
            under_way is not None
            and entry.do is Do.KILL
            and entry.step > under_way.step
            and entry.victim == under_way.victim
        )

    def _held(self, entry: PlanEntry, *, hastens: bool, observed: bool) -> _Held | None:
        standing = self._standing_brake(entry)
        if standing is not None:
            return standing, None
        if not hastens and self._is_busy(entry):
            return Brake.PENDING, None
        if self.conditions.pods_stale:
            return Brake.STALE, None
        # A deed that is hastened has been counted, and so has the one that this incident had in observe mode.
        counted = None if hastens or observed else self._counted(entry)
        if counted is not None:
            return counted
        return None if self.conditions.journal_writable else (Brake.JOURNAL, None)

    def _counted(self, entry: PlanEntry) -> _Held | None:
        """The brakes that count deeds."""
        memory, now_s = self._memory[entry.assessment.observes], self._now.boottime_s
        held = memory.holds(owner_of(entry.assessment.pod), self._brakes, now_s)
        if held is not None:
            return held.brake, held.lets_go_in_s
        wait_s = breaker_wait_s(memory, self._brakes.breaker, now_s)
        return (Brake.BREAKER, wait_s) if wait_s > 0 else None

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
        self._occupy(entry.account.uid, entry.victim, whole_pod=entry.definition.scope == "pod")
        self._busy_cards |= entry.cards
        if not hastens:
            observes = entry.assessment.observes
            owner, begun = owner_of(entry.assessment.pod), Begun(self._now.boottime_s)
            self._memory[observes] = self._memory[observes].note(owner, begun)

    def _occupy(self, uid: str, victim: str, *, whole_pod: bool) -> None:
        self._busy.add((uid, None if whole_pod else victim))

    def _is_busy(self, entry: PlanEntry) -> bool:
        # A card that is short gets room by one victim; whether it was enough shows once its memory is free.
        if entry.card is not None and not self._busy_cards.isdisjoint({entry.card, None}):
            return True
        uid = entry.account.uid
        own = self.states[entry.account].under_way is not None
        if entry.definition.scope == "pod" or entry.do is Do.EVICT:
            return own or any(busy == uid for busy, _ in self._busy)
        return own or (uid, None) in self._busy or (uid, entry.victim) in self._busy
