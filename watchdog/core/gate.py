"""The gate: the one place where a due step is let through or held back by a brake."""

from collections.abc import Iterator
from dataclasses import replace

from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.ledger import AccountState
from watchdog.core.model import Now
from watchdog.core.plan import Brake, Conditions, PlanEntry
from watchdog.core.policy import Do


def urgency(assessment: Assessment) -> tuple[int, int, str, str, str]:
    """Who comes first where a brake lets only some through: most bytes over, then lower priority, then UID."""
    over = assessment.used_at_least - (assessment.allowed or 0)
    return (-over, assessment.pod.priority or 0, *assessment.account.sort_key)


class Gate:
    """Lets the steps of one account after the other through; `states` is what is remembered afterwards."""

    def __init__(self, conditions: Conditions, states: dict[AccountKey, AccountState], now: Now) -> None:
        self.conditions = conditions
        self.states = states
        self._now = now
        # A container that a deed is under way on, by whichever account; None stands for the whole pod.
        self._busy: set[tuple[str, str | None]] = set()
        for key, state in states.items():
            if state.under_way is not None:
                self._occupy(key.uid, state.under_way.victim, whole_pod=state.under_way.whole_pod)

    def pass_through(self, entries: tuple[PlanEntry, ...]) -> Iterator[PlanEntry]:
        """Give an account's entries as they go into the plan: of the due ones the last, and what comes later.

        Where force is held back, the last due warning is given all the same: a pod that is protected, say, is still
        told of.
        """
        for entry in entries:
            if entry.due_in_s > 0:
                yield replace(entry, withheld_by=self._standing_brake(entry) if entry.do.is_force else None)
        due = [entry for entry in entries if entry.due_in_s <= 0]
        if due and due[-1].do.is_force:
            judged = self._judge(due[-1])
            yield judged
            if judged.taken:
                return
        warnings = [entry for entry in due if entry.do is Do.WARN]
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
        brake = self._brake(entry, hastens=hastens)
        if brake is not None:
            # That a kill is not begun again while it is under way is no news.
            own = brake is Brake.PENDING and state.under_way is not None and entry.step <= state.under_way.step
            if not own:
                self.states[entry.account] = replace(state, reported=state.reported | {brake.value})
            return replace(entry, withheld_by=brake, news=not own and brake.value not in state.reported)
        if state.observed:
            return entry
        self._occupy(entry.account.uid, entry.victim, whole_pod=entry.definition.scope == "pod")
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

    def _brake(self, entry: PlanEntry, *, hastens: bool) -> Brake | None:
        standing = self._standing_brake(entry)
        if standing is not None:
            return standing
        if not hastens and self._is_busy(entry):
            return Brake.PENDING
        if self.conditions.pods_stale:
            return Brake.STALE
        return None if self.conditions.journal_writable else Brake.JOURNAL

    def _standing_brake(self, entry: PlanEntry) -> Brake | None:
        """The brakes that time does not lift."""
        owner = entry.assessment.pod.owner
        # The DaemonSet controller puts an evicted pod back on the same node at once.
        is_daemon = entry.do is Do.EVICT and owner is not None and owner.kind == "DaemonSet"
        if entry.assessment.protected is not None or is_daemon:
            return Brake.PROTECTED
        needs_victim = entry.do is Do.KILL and not entry.victim
        return Brake.UNKNOWN_CONTAINER if needs_victim else None

    def _occupy(self, uid: str, victim: str, *, whole_pod: bool) -> None:
        self._busy.add((uid, None if whole_pod else victim))

    def _is_busy(self, entry: PlanEntry) -> bool:
        uid = entry.account.uid
        own = self.states[entry.account].under_way is not None
        if entry.definition.scope == "pod" or entry.do is Do.EVICT:
            return own or any(busy == uid for busy, _ in self._busy)
        return own or (uid, None) in self._busy or (uid, entry.victim) in self._busy
