"""The gate: the one place where a due step is let through or held back by a brake."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.brakes import Begun, Brake, breaker_wait_s, owner_of
from watchdog.core.eviction import DELETED, against_evicting
from watchdog.core.ledger import Ledger, Trying, UnderWay
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, PlanEntry
from watchdog.core.policy import Do, Policy
from watchdog.core.rules import TERMINATING

_Held = tuple[Brake, float | None]  # the brake, and the seconds until it lets go (None: not a matter of time)


def urgency(assessment: Assessment) -> tuple[int, int, str, str, str]:
    """Who comes first where a brake lets only some through: most bytes over, then lower priority, then UID."""
    over = assessment.used_at_least - (assessment.allowed or 0)
    return (-over, assessment.pod.priority or 0, *assessment.account.sort_key)


class Gate:
    """Lets the steps of one account after the other through; `states` is what is remembered afterwards.

    The brakes count what this cycle lets through before, but remember only what has really begun.
    """

    def __init__(self, conditions: Conditions, policy: Policy, ledger: Ledger, now: Now) -> None:
        self.conditions = conditions
        self.states = dict(ledger.accounts)
        self._now = now
        self._brakes = policy.brakes
        self._release_timeout_s = policy.release_timeout_s
        self._memory = {False: ledger.brakes, True: ledger.trial}
        # Until when a container that an action is in progress on is waited for at most, by whichever account; None: the
        # whole pod. Likewise a card that is to get room; None: an action whose cards are not known.
        self._busy: dict[tuple[str, str | None], float] = {}
        self._busy_cards: dict[str | None, float] = {}
        # Evictions that the API server has not carried out: they keep no other step waiting, but a card that is to get
        # room gets it from one pod, as long as an answer is awaited.
        self._tried = {key: state.trying for key, state in self.states.items() if state.trying is not None}
        # The API server may have carried out already what its answer is awaited of.
        self._asked = {key.uid for key, trying in self._tried.items() if trying.next_s is None}
        for key, state in self.states.items():
            if state.under_way is not None:
                self._occupy(key.uid, state.under_way)

    def reserve(self, cards: Iterable[str]) -> None:
        """Keep cards from having a victim now: they had one that was only observed, and are as short as before."""
        self._busy_cards |= dict.fromkeys(cards, math.inf)

    def pass_through(self, entries: tuple[PlanEntry, ...]) -> Iterator[PlanEntry]:
        """Give an account's entries as they go into the plan: of the due ones the last, and what comes later.

        Where force is held back, the last due warning is given all the same: a pod that is protected, say, is still
        told of. A step under pressure that is held back holds back no other, nor does the eviction of a pod that is
        being deleted, nor one that has begun and has not come about; that goes on whatever is held back above it.
        A warning that comes after a kill or an eviction is none, and stands in no plan.
        """
        due = [entry for entry in entries if entry.due_in_s <= 0]
        later = [self._foresee(self._with_trying(entry)) for entry in entries if entry.due_in_s > 0]
        judged = list(self._judge_due(due))
        ends = [_acts_in_s(each) for each in (*later, *judged) if each.do.is_force]
        is_ending = self.states[entries[0].account].under_way is not None
        for entry in (*later, *judged):
            if entry.do.is_force:
                yield entry
            elif entry.due_in_s <= 0 and not is_ending:
                yield self._warn(entry)
            elif entry.due_in_s < min(ends, default=math.inf) and not is_ending:
                yield entry

    def _judge_due(self, due: list[PlanEntry]) -> Iterator[PlanEntry]:
        """Of the steps that are due those of force as far as one is taken, or else the last warning too."""
        is_held = False
        for entry in (self._with_trying(each) for each in reversed(due) if each.do.is_force):
            if is_held and entry.trying is None:
                continue
            judged = self._judge(entry)
            yield judged
            if judged.taken:
                return
            lets_others = judged.definition.under_pressure or judged.trying is not None or self._is_in_vain(judged)
            is_held = is_held or not lets_others
        warnings = [entry for entry in due if entry.do is Do.WARN]
        yield from warnings[-1:]

    def _with_trying(self, entry: PlanEntry) -> PlanEntry:
        trying = self._tried.get(entry.account)
        is_own = trying is not None and trying.step == entry.definition.signature
        return replace(entry, trying=trying) if is_own else entry

    def _warn(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        warned_s = {**state.warned_s, entry.assessment.observes: self._now.boottime_s}
        self.states[entry.account] = replace(state, warned_s=warned_s)
        return replace(entry, taken=True)

    def _judge(self, entry: PlanEntry) -> PlanEntry:
        state = self.states[entry.account]
        standing = self._standing_brake(entry)
        if standing is None and entry.assessment.observes in state.observed:
            return entry  # this incident has had its action
        under_way = state.under_way
        index = under_way.step_of(entry.rule) if under_way is not None else None
        # A stronger step that has come due on the very victim of the kill in progress ends its grace. The grace of an
        # eviction is the kubelet's: such a pod is left alone until it is over.
        is_stronger = index is not None and entry.step > index
        is_kill = index is not None and entry.do is entry.rule.steps[index].do is Do.KILL
        escalates = is_stronger and is_kill and under_way is not None and entry.victim == under_way.victim
        held = self._held(entry, escalates=escalates) if standing is None else self._held_standing(entry, standing)
        if held is None:
            self._let_through(entry, escalates=escalates)
            return replace(entry, taken=True, escalates=escalates)
        brake, lets_go_in_s = held
        # That an action is not begun again while it is in progress, or being tried, is no news; nor is what it brings
        # about.
        goes_on = entry.trying is not None or (under_way is not None and not is_stronger)
        own = brake is Brake.PENDING and (goes_on or standing is Brake.PENDING or self._is_ending(entry))
        if not own:
            self.states[entry.account] = replace(state, reported=state.reported | {brake.value})
        is_news = not own and brake.value not in state.reported
        presumed = self._presumes(entry, brake)
        return replace(entry, withheld_by=brake, lets_go_in_s=lets_go_in_s, presumed=presumed, news=is_news)

    def _held_standing(self, entry: PlanEntry, brake: Brake) -> _Held:
        wait_s = None if brake is not Brake.PENDING else self._busy_until_s(entry)
        return brake, None if wait_s is None else self._seconds_until(wait_s)

    def _held(self, entry: PlanEntry, *, escalates: bool) -> _Held | None:
        """The brake that holds back a due step which could be acted on.

        What is hastened, or tried again, has been counted already. Maintenance comes first: the others say when they
        let go, and as long as it lasts that would be a promise that nobody keeps.
        """
        if self.conditions.maintenance:
            return Brake.MAINTENANCE, None
        busy_until_s = None if escalates else self._busy_until_s(entry)
        if busy_until_s is not None:
            return Brake.PENDING, self._seconds_until(busy_until_s)
        if self.conditions.pods_stale:
            return Brake.STALE, None
        counted = None if escalates or entry.trying is not None else self._counted(entry)
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
        held = None if entry.assessment.observes in self.states[entry.account].observed else self._counted(entry)
        if held is None:
            return entry
        return replace(entry, withheld_by=held[0], lets_go_in_s=held[1], presumed=self._presumes(entry, held[0]))

    def _counted(self, entry: PlanEntry) -> tuple[Brake, float] | None:
        """The first brake that holds of those that count actions, and when the last of them lets go."""
        memory, now_s = self._memory[entry.assessment.observes], self._now.boottime_s
        waits = [*memory.waits(owner_of(entry.assessment.pod), self._brakes, now_s + entry.due_in_s)]
        breaker_s = breaker_wait_s(memory, self._brakes.breaker, now_s + entry.due_in_s)
        if breaker_s > 0:
            waits.append((Brake.BREAKER, breaker_s))
        if not waits:
            return None
        return waits[0][0], entry.due_in_s + max(wait_s for _, wait_s in waits)

    def _presumes(self, entry: PlanEntry, brake: Brake) -> bool:
        memory, at_s = self._memory[entry.assessment.observes], self._now.boottime_s + entry.due_in_s
        return memory.presumes(brake, owner_of(entry.assessment.pod), self._brakes, at_s)

    def _seconds_until(self, at_s: float) -> float | None:
        return max(at_s - self._now.boottime_s, 0.0) if math.isfinite(at_s) else None

    def _standing_brake(self, entry: PlanEntry) -> Brake | None:
        """The brakes that time does not lift.

        A pod that terminates while an action of ours is in progress on it is not protected from us: the action is
        pending.
        """
        why = entry.assessment.protected or self._against_evicting(entry)
        if why is not None:
            return Brake.PENDING if why in (TERMINATING, DELETED) and self._is_hit(entry) else Brake.PROTECTED
        needs_victim = entry.do is Do.KILL and not entry.victim
        if needs_victim:
            return Brake.UNKNOWN_CONTAINER
        return Brake.MPS if entry.mps_hazard is not None else None

    def _against_evicting(self, entry: PlanEntry) -> str | None:
        ends_s = self._now.wall_s + entry.definition.grace_s
        return against_evicting(entry.assessment.pod, ends_s) if entry.do is Do.EVICT else None

    def _is_in_vain(self, entry: PlanEntry) -> bool:
        """Whether all that speaks against an eviction is that the pod is being deleted anyway: a kill may help then."""
        return entry.assessment.protected is None and self._against_evicting(entry) == DELETED

    def _let_through(self, entry: PlanEntry, *, escalates: bool) -> None:
        if escalates:
            return  # neither a new victim nor a new action
        step, now_s = entry.definition, self._now.boottime_s
        under_way = UnderWay(
            step=step.signature,
            victim=entry.victim,
            whole_pod=entry.hits_whole_pod,
            cards=entry.cards,
            until_s=now_s + step.grace_s + self._release_timeout_s,
        )
        self._occupy(entry.account.uid, under_way)
        if entry.trying is not None:
            return
        observes = entry.assessment.observes
        self._memory[observes] = self._memory[observes].note(owner_of(entry.assessment.pod), Begun(now_s))

    def _is_hit(self, entry: PlanEntry) -> bool:
        """Whether an action of ours is in progress on the account, its victim or the whole pod."""
        is_own = self.states[entry.account].under_way is not None
        return is_own or self._is_ending(entry) or (entry.account.uid, entry.victim) in self._busy

    def _is_ending(self, entry: PlanEntry) -> bool:
        """Whether an action of ours is ending the whole pod, or the API server is being asked to."""
        uid = entry.account.uid
        return (uid, None) in self._busy or uid in self._asked

    def _occupy(self, uid: str, under_way: UnderWay) -> None:
        until_s = math.inf if under_way.until_s is None else under_way.until_s
        victim = uid, None if under_way.whole_pod else under_way.victim
        self._busy[victim] = max(until_s, self._busy.get(victim, 0.0))
        self._busy_cards |= dict.fromkeys([None] if under_way.cards is None else under_way.cards, until_s)

    def _busy_until_s(self, entry: PlanEntry) -> float | None:
        """Until when an entry waits for actions in progress, at most; None: for none."""
        uid = entry.account.uid
        waits = [self._busy.get((uid, None)), self._busy.get((uid, entry.victim))]
        if entry.hits_whole_pod:
            waits = [until_s for (busy, _), until_s in self._busy.items() if busy == uid]
        under_way = self.states[entry.account].under_way
        if under_way is not None:
            waits.append(math.inf if under_way.until_s is None else under_way.until_s)
        if entry.card is not None:
            # A card that is short gets room by one victim; whether it was enough shows once its memory is free.
            waits += [self._busy_cards.get(entry.card), self._busy_cards.get(None)]
        waits += [math.inf for key, trying in self._tried.items() if _keeps_waiting(key, trying, entry)]
        if entry.trying is not None:
            next_s = math.inf if entry.trying.next_s is None else entry.trying.next_s
            waits.append(next_s if next_s > self._now.boottime_s else None)
        return max((until_s for until_s in waits if until_s is not None), default=None)


def _acts_in_s(entry: PlanEntry) -> float:
    """Seconds until a step of force acts; infinity: nobody knows, as of an eviction that is tried again."""
    if entry.withheld_by is None:
        return entry.due_in_s
    is_open = entry.lets_go_in_s is None or entry.withheld_by is Brake.PENDING
    return math.inf if is_open else max(entry.due_in_s, entry.lets_go_in_s or 0.0)


def _keeps_waiting(key: AccountKey, trying: Trying, entry: PlanEntry) -> bool:
    """Whether an entry waits for an eviction of another account that has not come about yet.

    A pod is evicted once, whichever of its accounts wants it; and while an answer is awaited its card may get room.
    """
    if key == entry.account:
        return False
    is_same_pod = entry.do is Do.EVICT and key.uid == entry.account.uid
    return is_same_pod or (trying.next_s is None and entry.card in trying.cards)
