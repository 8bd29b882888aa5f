"""All evictions in progress: a cycle begins them, and attempts are made on other threads.

No cycle or other action waits for an answer.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from watchdog.core.assessment import AccountKey, Assessment, Attribution, Inputs
from watchdog.core.brakes import Brake
from watchdog.core.eviction import EvictionRequest, EvictionResult, FollowUp, why_spared
from watchdog.core.ladder import Comparison, step_readings
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Moment, Objection, OpenCycle, Outcome, PlanEntry, Result
from watchdog.daemon.actions.action import (
    ActionReading,
    ActionRecord,
    Beginning,
    Judged,
    Progress,
    RecordedAction,
    withdraw,
)
from watchdog.daemon.actions.clearance import Clearances
from watchdog.daemon.actions.eviction import Eviction
from watchdog.daemon.actions.last_look import LastLook


class Evictor(Protocol):
    """Makes attempts on other threads, and wakes the loop for their results."""

    def begin(self, attempt: EvictionRequest) -> None:
        """Hand in an attempt; returns at once."""

    def pop_results(self) -> tuple[EvictionResult, ...]:
        """The results since the last call."""


class Evictions:
    """All evictions, from the first attempt until the memory is seen free. Without an evictor none begins (`lacks`)."""

    def __init__(
        self,
        evictor: Evictor | None,
        record: ActionRecord,
        clock: Callable[[], Now],
        clearances: Clearances,
    ) -> None:
        self._evictor = evictor
        self._clearances = clearances
        self._inputs: Inputs | None = None  # of the last cycle
        self._record = record
        self._clock = clock
        self._all: dict[int, Eviction] = {}
        self._last_request_id = 0
        self._accepted: list[tuple[Outcome, UnderWay]] = []
        self._outcomes: list[Outcome] = []

    @property
    def lacks(self) -> str | None:
        """That there is no API to evict through."""
        return "no API" if self._evictor is None else None

    @property
    def needs_readings(self) -> bool:
        """Whether the memory of any is waited for, or what has to come before the eviction."""
        return any(eviction.accepted is not None or eviction.awaits_clearance for eviction in self._all.values())

    @property
    def pending(self) -> dict[AccountKey, PendingEviction]:
        """The evictions that have not been accepted yet, by account."""
        evictions = self._all.values()
        return {eviction.entry.account: eviction.pending for eviction in evictions if eviction.pending is not None}

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME at which the first of them is given up; infinity if none is pending."""
        return min((eviction.next_wake_s for eviction in self._all.values()), default=float("inf"))

    def intend(self, entry: PlanEntry, attribution: Attribution) -> "Future[int]":
        """Write down the intention of an eviction: its number once that is on disk."""
        return self._record.intend(entry, sorted(_keys_of(entry.account.uid, attribution)), self._clock())

    def takes_long(self, entry: PlanEntry) -> bool:
        """Never: an attempt is handed in."""
        return False

    def release(self) -> None:
        """Nothing is held."""

    def begin(
        self, entry: PlanEntry, number: int, opened: OpenCycle, last_look: LastLook, objection: Objection
    ) -> Beginning:
        """Begin an eviction with its first attempt; one of the same account that has not been accepted is given up."""
        why = objection(entry, Moment.FIRST_SIGNAL)
        if why is not None:
            entry = replace(entry, taken=False)
            outcome = withdraw(self._record, entry, number, why, self._clock(), by_change=True)
            return Beginning(progress=None, at=outcome.at, entry=entry, outcome=outcome)
        reason = f"rule {entry.rule.name} has begun to evict by another step meanwhile"
        self._give_up(entry.account, Result.INTERRUPTED, reason, last_look.at)
        self._last_request_id += 1
        timeout_s = opened.inputs.policy.release_timeout_s
        recorded = RecordedAction(self._record, number, self._clock())
        eviction = Eviction(entry, recorded, self._last_request_id, timeout_s)
        self._all[self._last_request_id] = eviction
        self._submit(eviction, entry, opened, last_look.fresh_until_s)
        pending = self.pending[entry.account]
        return Beginning(progress=pending, at=last_look.at, entry=_pending(entry, pending))

    def carry_on(
        self, entry: PlanEntry, judged: Judged, opened: OpenCycle, last_look: LastLook | None, now: Now
    ) -> PlanEntry | None:
        """Try a pending eviction again, if the last look still justifies it."""
        if isinstance(judged, Outcome):
            self._give_up(entry.account, judged.result, judged.reason, now)
        if last_look is None or not isinstance(judged, PlanEntry):
            return None
        for eviction in self._pending_of(entry.account):
            if not eviction.is_awaited and not eviction.has_sent:
                self._submit(eviction, judged, opened, last_look.fresh_until_s)
        pending = self.pending.get(entry.account)
        return None if pending is None else _pending(judged, pending)  # it may have been given up during the last look

    def give_way(self, begun: Outcome) -> None:
        """Give up an eviction that has not been accepted, since another action of the account has begun."""
        if self.pending:
            reason = f"rule {begun.entry.rule.name} has begun to {begun.entry.do.verb.base} meanwhile"
            self._give_up(begun.entry.account, Result.INTERRUPTED, reason, begun.at)

    def _give_up(self, account: AccountKey, result: Result, reason: str, now: Now) -> None:
        """Stop trying to evict for this account; an accepted eviction continues."""
        for eviction in self._pending_of(account):
            self._report(eviction, eviction.give_up(result, reason, now))

    def advance(self, now: Now, objection: Objection, *, policy_unsettled: bool = False) -> None:
        """Process new results; an attempt to which there is an objection is called off, if that is still possible.

        Objections to an eviction that waits for its next attempt are found by the cycle before that attempt; one that
        waits for its clearance makes its attempt here.
        """
        for result in self._evictor.pop_results() if self._evictor is not None else ():
            eviction = self._all.get(result.request_id)
            if eviction is None:
                continue
            follows, outcome = eviction.on_result(result, now)
            self._report(eviction, outcome)
            if follows is FollowUp.CLEAR:
                why = objection(eviction.entry, Moment.REQUEST)
                self._report(eviction, eviction.get_clearance(self._clearances, why, now))
        for eviction in list(self._all.values()):
            if eviction.is_awaited and (why := objection(eviction.entry, Moment.REQUEST)) is not None:
                self._report(eviction, eviction.give_up(Result.INTERRUPTED, why, now))
            self._report(eviction, eviction.pass_time(now))
            self._report(eviction, eviction.advance_clearance(now))
            request = None if eviction.is_over else eviction.take_request(self._clock)
            if request is not None and self._evictor is not None:
                self._evictor.begin(request)

    def on_reading(self, reading: ActionReading) -> None:
        """Process a cycle: end the evictions whose memory is free, and those that must not be tried again."""
        self._inputs = inputs = reading.inputs
        if not self._all:
            return
        by_account = {assessment.account: assessment for assessment in reading.assessments}
        for eviction in list(self._all.values()):
            eviction.see_clearance()
            if eviction.accepted is not None:
                keys = _keys_of(eviction.entry.account.uid, reading.attribution)
                self._report(eviction, eviction.on_reading(reading.still_listed, keys, reading.now))
            elif not inputs.pods_stale and (deleted := _deletion(eviction.entry, inputs)):
                self._report(eviction, eviction.on_deletion(deleted, reading.now))
            else:
                ended = _why_over(eviction.entry, by_account.get(eviction.entry.account), inputs, reading.now)
                self._report(eviction, None if ended is None else eviction.give_up(*ended, reading.now))

    def interrupt(self, now: Now) -> None:
        """Stop all evictions because the daemon ends."""
        for eviction in list(self._all.values()):
            self._report(eviction, eviction.interrupt(now))

    def pop_progress(self) -> Progress:
        """The evictions that were accepted since the last call, and other outcomes to report."""
        progress = Progress(begun=tuple(self._accepted), ended=tuple(self._outcomes))
        self._accepted, self._outcomes = [], []
        return progress

    def noted_in(self, ledger: Ledger) -> Ledger:
        """The ledger with exactly the evictions that are pending."""
        return ledger.note_pending_evictions(self.pending)

    def _submit(self, eviction: Eviction, entry: PlanEntry, opened: OpenCycle, fresh_until_s: float) -> None:
        if self._evictor is None:
            return
        self._inputs = opened.inputs

        def why(pod: Pod) -> str | None:
            # The API does not report when the pod was first seen terminating.
            known = replace(pod, terminating_since=entry.assessment.pod.terminating_since)
            # What has to come first takes long enough for the policy to change.
            inputs = self._inputs or opened.inputs
            return why_spared(known, entry.definition.grace_s, inputs, self._clock())

        def is_fresh() -> bool:
            return self._clock().boottime_s <= fresh_until_s

        keys = _keys_of(entry.account.uid, opened.attribution)
        is_dry_run = bool(entry.to_drain)
        self._evictor.begin(eviction.next_request(entry, keys, why, is_fresh, is_dry_run=is_dry_run))

    def _pending_of(self, account: AccountKey) -> list[Eviction]:
        pending = (eviction for eviction in self._all.values() if eviction.pending is not None)
        return [eviction for eviction in pending if eviction.entry.account == account]

    def _report(self, eviction: Eviction, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if eviction.is_over or outcome.result is not Result.DONE:
            self._outcomes.append(outcome)
        else:
            self._accepted.append((outcome, eviction.under_way))
        if eviction.is_over:
            del self._all[eviction.request_id]


def _pending(entry: PlanEntry, pending: PendingEviction) -> PlanEntry:
    """The entry as a cycle reports it whose eviction is pending."""
    return replace(entry, taken=False, withheld_by=Brake.PENDING, pending_eviction=pending)


def _keys_of(uid: str, attribution: Attribution) -> frozenset[ProcessKey]:
    """Every GPU process of a pod, whichever of its containers it is in."""
    return frozenset(use.key for use in attribution.attributed if use.uid == uid)


def _deletion(entry: PlanEntry, inputs: Inputs) -> str:
    """That the pod is gone, or that its deletion has begun or been brought forward since; empty otherwise."""
    pod = next((pod for pod in inputs.pods.pods if pod.uid == entry.account.uid), None)
    if pod is None:
        return "the pod is gone"
    is_as_before = pod.deletion_deadline_s in (None, entry.assessment.pod.deletion_deadline_s)
    return "" if is_as_before else "the pod is being deleted"


def _why_over(entry: PlanEntry, assessment: Assessment | None, inputs: Inputs, now: Now) -> tuple[Result, str] | None:
    """Why an eviction must not be tried again; None if it may, or if this cycle is inconclusive."""
    if not inputs.enforcing:
        return Result.INTERRUPTED, "enforcement was turned off before the eviction was accepted"
    if inputs.maintenance:
        return Result.INTERRUPTED, "the GPUs came under maintenance before the eviction was accepted"
    if assessment is None or inputs.pods_stale:
        return None
    spared = why_spared(assessment.pod, entry.definition.grace_s, inputs, now)
    if spared is not None:
        return Result.INTERRUPTED, spared
    signature = entry.definition.signature
    readings = (step.reading for step in step_readings(assessment, stale=False) if step.step.signature == signature)
    if next(readings, None) is not Comparison.BELOW:
        return None
    has_room = entry.gpu is not None and entry.gpu not in assessment.short
    why = "its GPU was no longer short of memory" if has_room else "its use was at or below the threshold again"
    return Result.GONE, why
