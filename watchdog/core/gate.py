"""The gate: where due steps are let through or withheld by a brake while a cycle is planned.

After that, `daemon/actions` may still withhold an entry that the gate let through: for maintenance, the journal, or
what the last look shows.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.brakes import COUNT_ACTIONS, Begun, Brake, BrakeMemory, breaker_wait_s, owner_of
from watchdog.core.eviction import DELETED, why_spared_by_state
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.rules import TERMINATING

_Withheld = tuple[Brake, float | None]  # the brake, and the seconds until it releases (None: time alone does not)


def urgency(assessment: Assessment) -> tuple[int, int, str, str, str]:
    """The order if a brake lets only some through: most bytes over the limit, then lower priority, then UID."""
    over = assessment.compared - (assessment.allowed or 0)
    return (-over, assessment.pod.priority or 0, *assessment.account.sort_key)


class Gate:
    """Lets the due steps of accounts through, one account after another; `states` are the accounts' states afterwards.

    Each account counts what was let through before it in this cycle, but only actions that begin are remembered.
    """

    def __init__(self, inputs: Inputs, ledger: Ledger, now: Now) -> None:
        self._inputs = inputs
        self.states = dict(ledger.accounts)
        self._now = now
        self._brakes = inputs.policy.brakes
        self._memory = {False: ledger.brakes, True: ledger.trial}
        # Until when, at most, an action in progress on a container (None: the whole pod) is waited for, whichever
        # account it is for. Likewise for a card on which memory is to be freed; None: an action on unknown cards.
        self._busy: dict[tuple[str, str | None], float] = {}
        # An action of a rule that only observes frees no memory, so that only such rules wait for it (True).
        self._busy_cards: dict[bool, dict[str | None, float]] = {False: {}, True: {}}
        # Evictions that the API server has not carried out: no other step waits for them, except that, while an answer
        # is awaited, no second victim is chosen to free memory on the same card.
        self._pending: dict[AccountKey, PendingEviction] = {}
        for key, state in ledger.where(lambda state: state.has_action):
            if state.pending_eviction is not None:
                self._pending[key] = state.pending_eviction
            if state.under_way is not None:
                self._occupy(key.uid, state.under_way, observes=False)
        # The API server may already have carried out an eviction whose answer is awaited.
        self._asked_uids = {key.uid for key, pending in self._pending.items() if pending.next_s is None}

    def reserve(self, cards: Iterable[tuple[str, bool]]) -> None:
        """Choose no victim for these cards: their last one was only observed, so no memory was freed.

        With each card, whether its rule only observes.
        """
        for card, observes in cards:
            self._keep_busy(card, math.inf, observes=observes)

    def pass_through(self, entries: tuple[PlanEntry, ...]) -> Iterator[PlanEntry]:
        """An account's entries as they go into the plan: the last of the due ones, and those that are not due yet.

        If enforcement is withheld, the last due warning is still included, so that a protected pod, for instance, is
        reported. A step that is withheld by a brake of its pod, owner or node withholds the lower ones; one that is
        withheld for what it would end itself, a step under pressure and a pending eviction do not. A pending eviction
        is never withheld by a higher step. A warning that would come after a kill or an eviction is left out.
        """
        entries = tuple(self._with_pending_eviction(entry) for entry in entries)
        due = [entry for entry in entries if entry.due_in_s <= 0]
        later = [self._foresee(entry) for entry in entries if entry.due_in_s > 0]
        judged = list(self._due_with_brakes(due))
        self._note_withheld(entries, judged)
        ends = [_acts_in_s(entry) for entry in (*later, *judged) if entry.do.enforces]
        is_ending = self.states[entries[0].account].under_way is not None
        for entry in (*later, *judged):
            if entry.do.enforces:
                yield entry
            elif entry.due_in_s <= 0 and not is_ending:
                yield self._warn(entry)
            elif entry.due_in_s < min(ends, default=math.inf) and not is_ending:
                yield entry

    def memory(self, *, observes: bool) -> BrakeMemory:
        """The memory of the brakes with what has been let through, that of rules that only observe or of the others."""
        return self._memory[observes]

    def _note_withheld(self, entries: tuple[PlanEntry, ...], judged: Iterable[PlanEntry]) -> None:
        """Note how far an account is over the lowest threshold of its due steps, while a brake withholds one."""
        over: int | None = None
        if any(entry.withheld_by in COUNT_ACTIONS for entry in judged):
            due = (entry for entry in entries if entry.do.enforces and entry.due_in_s <= 0)
            over = max(entry.assessment.compared - entry.threshold_bytes for entry in due)
        elif any(entry.do.enforces for entry in entries):
            over = 0
        account = entries[0].account
        self.states[account] = self.states[account].with_withheld(over, self._now)

    def _due_with_brakes(self, due: list[PlanEntry]) -> Iterator[PlanEntry]:
        """The due enforcing steps, from the highest down, until one is taken; if none is, also the last warning.

        An action that has failed in this incident comes last: each of its attempts would use up the brakes of a step
        that may succeed.
        """
        is_withheld = is_waiting = False
        for entry in sorted(due, key=lambda each: (self._has_failed(each), -each.step_index)):
            if not entry.do.enforces or (is_withheld and entry.pending_eviction is None):
                continue
            judged = self._with_brake(entry)
            waits = judged.withheld_by is Brake.PENDING and judged.pending_eviction is None
            if not (waits and is_waiting):  # what several steps wait for is reported once
                yield judged
            if judged.taken:
                return
            is_waiting = is_waiting or waits
            is_separate = judged.definition.under_pressure or judged.pending_eviction is not None
            is_withheld = is_withheld or not (is_separate or self._is_for_itself(judged))
        warnings = [entry for entry in due if not entry.do.enforces]
        yield from warnings[-1:]

    def _with_pending_eviction(self, entry: PlanEntry) -> PlanEntry:
        pending = self._pending.get(entry.account)
        is_own = pending is not None and pending.step == entry.definition.signature
        return replace(entry, pending_eviction=pending) if is_own else entry

    def _warn(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        warned_s = {**state.warned_s, entry.assessment.observes: self._now.boottime_s}
        self.states[entry.account] = replace(state, warned_s=warned_s)
        return replace(entry, taken=True)

    def _with_brake(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        by_state = self._by_state(entry)
        if by_state is None and entry.assessment.observes in state.observed:
            return entry  # this incident already had its action
        under_way = state.under_way
        index = under_way.step_of(entry.rule) if under_way is not None else None
        # A stronger step on the victim of a kill in progress ends its grace period. That of an eviction belongs to the
        # kubelet: the pod is left alone until it is over.
        is_stronger = index is not None and entry.step_index > index
        is_kill = index is not None and entry.do is entry.rule.steps[index].do and entry.do.ends_processes
        escalates = is_stronger and is_kill and under_way is not None and entry.victim == under_way.victim
        withheld = (
            self._withheld(entry, escalates=escalates) if by_state is None else self._withheld_by_state(entry, by_state)
        )
        if withheld is None:
            if not escalates:  # an escalation is no new action
                self._let_through(entry)
            return replace(entry, taken=True, escalates=escalates)
        brake, releases_in_s = withheld
        # That an action in progress or pending is not begun again is not reported, nor is what it causes.
        goes_on = entry.pending_eviction is not None or (under_way is not None and not is_stronger)
        own = brake is Brake.PENDING and (goes_on or by_state is Brake.PENDING or self._is_ending(entry))
        if not own:
            self.states[entry.account] = replace(state, reported=state.reported | {brake.value})
        is_new = not own and brake.value not in state.reported
        counts_as_full = self._counts_as_full(entry, brake)
        return replace(
            entry, withheld_by=brake, releases_in_s=releases_in_s, counts_as_full=counts_as_full, is_new=is_new
        )

    def _withheld_by_state(self, entry: PlanEntry, brake: Brake) -> _Withheld:
        until_s = None if brake is not Brake.PENDING else self._busy_until_s(entry)
        return brake, None if until_s is None else self._seconds_until(until_s)

    def _withheld(self, entry: PlanEntry, *, escalates: bool) -> _Withheld | None:
        """The brake that withholds a due step; None if the step is let through.

        An escalation or another attempt has been counted already. Maintenance comes first: the release times of the
        others would be wrong while it lasts.
        """
        if self._inputs.maintenance:
            return Brake.MAINTENANCE, None
        busy_until_s = None if escalates else self._busy_until_s(entry)
        if busy_until_s is not None:
            return Brake.PENDING, self._seconds_until(busy_until_s)
        if self._inputs.pods_stale:
            return Brake.STALE, None
        counted = None if escalates or entry.pending_eviction is not None else self._counted(entry)
        if counted is not None:
            return counted
        return None if self._inputs.journal_writable else (Brake.JOURNAL, None)

    def _foresee(self, entry: PlanEntry) -> PlanEntry:
        """A step that is not due yet, with the brake that will withhold it, as far as that is known."""
        if not entry.do.enforces:
            return entry
        by_state = self._by_state(entry)
        if by_state is not None:
            return replace(entry, withheld_by=by_state)
        withheld = None if entry.assessment.observes in self.states[entry.account].observed else self._counted(entry)
        if withheld is None:
            return entry
        brake, releases_in_s = withheld
        counts_as_full = self._counts_as_full(entry, brake)
        return replace(entry, withheld_by=brake, releases_in_s=releases_in_s, counts_as_full=counts_as_full)

    def _counted(self, entry: PlanEntry) -> tuple[Brake, float] | None:
        """The first of the counting brakes that withhold an entry, and the seconds until the last of them releases."""
        memory, now_s = self._memory[entry.assessment.observes], self._now.boottime_s
        waits = [*memory.waits(owner_of(entry.assessment.pod), self._brakes, now_s + entry.due_in_s)]
        breaker_s = breaker_wait_s(memory, self._brakes.breaker, now_s + entry.due_in_s)
        if breaker_s > 0:
            waits.append((Brake.BREAKER, breaker_s))
        if not waits:
            return None
        return waits[0][0], entry.due_in_s + max(wait_s for _, wait_s in waits)

    def _counts_as_full(self, entry: PlanEntry, brake: Brake) -> bool:
        memory, at_s = self._memory[entry.assessment.observes], self._now.boottime_s + entry.due_in_s
        return memory.counts_as_full(brake, owner_of(entry.assessment.pod), self._brakes, at_s)

    def _seconds_until(self, at_s: float) -> float | None:
        return max(at_s - self._now.boottime_s, 0.0) if math.isfinite(at_s) else None

    def _by_state(self, entry: PlanEntry) -> Brake | None:
        """The brake that time alone does not lift.

        If a pod terminates because of an action in progress, that is reported as pending and not as protected.
        """
        brake = brake_by_state(entry, self._now)
        if brake is not Brake.PROTECTED:
            return brake
        is_ending = _why_protected(entry, self._now) in (TERMINATING, DELETED)
        return Brake.PENDING if is_ending and self._is_acted_on(entry) else Brake.PROTECTED

    def _has_failed(self, entry: PlanEntry) -> bool:
        return entry.pending_eviction is None and entry.do in self.states[entry.account].failures

    def _is_for_itself(self, entry: PlanEntry) -> bool:
        """Whether an entry is withheld for what it would end, so that it must not shield the pod from another step."""
        is_protected = entry.withheld_by is Brake.PROTECTED and entry.assessment.protected is not None
        return not is_protected and entry.withheld_by is not None and entry.withheld_by.is_of_the_step

    def _let_through(self, entry: PlanEntry) -> None:
        observes = entry.assessment.observes
        under_way = entry.under_way(self._now, self._inputs.policy.release_timeout_s)
        self._occupy(entry.account.uid, under_way, observes=observes)
        if entry.pending_eviction is not None:
            return
        self._memory[observes] = self._memory[observes].add_begun(
            owner_of(entry.assessment.pod), Begun(self._now.boottime_s)
        )

    def _is_acted_on(self, entry: PlanEntry) -> bool:
        """Whether an action is in progress on the account, its victim or the whole pod."""
        is_own = self.states[entry.account].under_way is not None
        return is_own or self._is_ending(entry) or (entry.account.uid, entry.victim) in self._busy

    def _is_ending(self, entry: PlanEntry) -> bool:
        """Whether an action is ending the whole pod, or the API server has been asked to evict it."""
        uid = entry.account.uid
        return (uid, None) in self._busy or uid in self._asked_uids

    def _occupy(self, uid: str, under_way: UnderWay, *, observes: bool) -> None:
        until_s = math.inf if under_way.until_s is None else under_way.until_s
        victim = uid, None if under_way.whole_pod else under_way.victim
        self._busy[victim] = max(until_s, self._busy.get(victim, 0.0))
        for card in (None,) if under_way.cards is None else under_way.cards:
            self._keep_busy(card, until_s, observes=observes)

    def _keep_busy(self, card: str | None, until_s: float, *, observes: bool) -> None:
        for busy in (self._busy_cards[True],) if observes else self._busy_cards.values():
            busy[card] = max(until_s, busy.get(card, 0.0))

    def _busy_until_s(self, entry: PlanEntry) -> float | None:
        """The latest time until which an entry waits for actions in progress; None if it waits for none."""
        uid = entry.account.uid
        waits = [self._busy.get((uid, None)), self._busy.get((uid, entry.victim))]
        if entry.definition.hits_whole_pod:
            waits = [until_s for (busy, _), until_s in self._busy.items() if busy == uid]
        under_way = self.states[entry.account].under_way
        if under_way is not None:
            waits.append(math.inf if under_way.until_s is None else under_way.until_s)
        if entry.gpu is not None:
            # Memory on a short card is freed one victim at a time: whether that is enough shows once it is free.
            busy_cards = self._busy_cards[entry.assessment.observes]
            waits += [busy_cards.get(entry.gpu), busy_cards.get(None)]
        waits += [math.inf for key, pending in self._pending.items() if _keeps_waiting(key, pending, entry)]
        if entry.pending_eviction is not None:
            next_s = math.inf if entry.pending_eviction.next_s is None else entry.pending_eviction.next_s
            waits.append(next_s if next_s > self._now.boottime_s else None)
        return max((until_s for until_s in waits if until_s is not None), default=None)


def brake_by_state(entry: PlanEntry, now: Now) -> Brake | None:
    """The brake that time alone does not lift, by the pod and by what a step would end."""
    if _why_protected(entry, now) is not None:
        return Brake.PROTECTED
    if is_behind_another(entry.assessment, entry.threshold_bytes):
        return Brake.CLAIM
    if entry.do.takes_scope and not entry.victim:
        return Brake.UNKNOWN_CONTAINER
    return Brake.HAZARD if entry.hazard is not None else None


def is_behind_another(assessment: Assessment, threshold_bytes: int) -> bool:
    """Whether an account is above a threshold only together with pods on its claim, one of which uses more of it."""
    return bool(assessment.behind_pod) and assessment.used_at_least <= threshold_bytes


def _why_protected(entry: PlanEntry, now: Now) -> str | None:
    if entry.assessment.protected is not None or not entry.do.deletes_pod:
        return entry.assessment.protected
    return why_spared_by_state(entry.assessment.pod, now.wall_s + entry.definition.grace_s)


def _acts_in_s(entry: PlanEntry) -> float:
    """Seconds until an enforcing step acts; infinity if unknown, as for a pending eviction."""
    if entry.withheld_by is None:
        return entry.due_in_s
    is_open = entry.releases_in_s is None or entry.withheld_by is Brake.PENDING
    return math.inf if is_open else max(entry.due_in_s, entry.releases_in_s or 0.0)


def _keeps_waiting(key: AccountKey, pending: PendingEviction, entry: PlanEntry) -> bool:
    """Whether an entry waits for a pending eviction of another account.

    A pod is evicted once, whichever of its accounts causes it; and an awaited eviction may free memory on the card.
    """
    if key == entry.account:
        return False
    is_same_pod = entry.do.deletes_pod and key.uid == entry.account.uid
    return is_same_pod or (pending.next_s is None and entry.gpu in pending.cards)
