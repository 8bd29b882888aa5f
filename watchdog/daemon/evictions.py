"""All evictions in progress: a cycle begins them, and attempts are made on other threads.

No cycle or other action waits for an answer.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from watchdog.core.assessment import AccountKey, Assessment, Attribution, Inputs
from watchdog.core.eviction import EvictionAnswer, EvictionRequest, EvictionResult, objection_to_evicting
from watchdog.core.ladder import Comparison, step_readings
from watchdog.core.ledger import PendingEviction, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import OpenCycle, Outcome, PlanEntry, Result
from watchdog.daemon.drain import ClientsOf, Drains, no_clients
from watchdog.daemon.eviction import Eviction
from watchdog.daemon.kill import ActionRecord


class Evictor(Protocol):
    """Makes attempts on other threads, and wakes the loop for their results."""

    def begin(self, attempt: EvictionRequest) -> None:
        """Hand in an attempt; returns at once."""

    def pop_results(self) -> tuple[EvictionResult, ...]:
        """The results since the last call."""


class Evictions:
    """All evictions, from the first attempt until the memory is seen free; without an evictor each fails at once."""

    def __init__(
        self,
        evictor: Evictor | None,
        record: ActionRecord,
        clock: Callable[[], Now],
        drains: Drains | None = None,
    ) -> None:
        self._evictor = evictor
        self._drains = drains or Drains()
        self._clients_of: ClientsOf = no_clients
        self._inputs: Inputs | None = None  # of the last cycle
        self._record = record
        self._clock = clock
        self._all: dict[int, Eviction] = {}
        self._last_request_id = 0
        self._accepted: list[tuple[Outcome, UnderWay]] = []
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        """The number of accepted evictions whose memory is waited for."""
        return sum(eviction.accepted is not None for eviction in self._all.values())

    @property
    def are_draining(self) -> bool:
        """Whether clients are being drained, which takes readings."""
        return any(eviction.is_draining for eviction in self._all.values())

    @property
    def are_possible(self) -> bool:
        """Whether there is an API to evict through."""
        return self._evictor is not None

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

    def begin(self, entry: PlanEntry, number: int, opened: OpenCycle, fresh_until_s: float) -> None:
        """Begin an eviction whose intention is on disk and that a last look has justified since then.

        After `fresh_until_s` (CLOCK_BOOTTIME) that look is too old, and the API server is not asked to evict.
        """
        self._last_request_id += 1
        timeout_s = opened.inputs.policy.release_timeout_s
        eviction = Eviction(entry, number, self._last_request_id, self._clock(), timeout_s, self._record)
        self._all[self._last_request_id] = eviction
        self._submit(eviction, entry, opened, fresh_until_s)

    def try_again(self, entry: PlanEntry, opened: OpenCycle, fresh_until_s: float) -> None:
        """Try the eviction of this account again, after a last look at the pod and its use."""
        for eviction in self._pending_of(entry.account):
            if not eviction.is_awaited and not eviction.has_drained:
                self._submit(eviction, entry, opened, fresh_until_s)

    def give_up(self, account: AccountKey, result: Result, reason: str, now: Now) -> None:
        """Stop trying to evict for this account; an accepted eviction continues."""
        for eviction in self._pending_of(account):
            self._report(eviction, eviction.give_up(result, reason, now))

    def advance(self, now: Now, objection: Callable[[PlanEntry], str | None]) -> None:
        """Process new results; an attempt to which there is an objection is called off, if that is still possible.

        Objections to an eviction that waits for its next attempt are found by the cycle before that attempt; one that
        drains makes its attempt here.
        """
        for result in self._evictor.pop_results() if self._evictor is not None else ():
            eviction = self._all.get(result.request_id)
            if eviction is None:
                continue
            outcome = eviction.on_result(result, now)
            self._report(eviction, outcome)
            if result.answer is EvictionAnswer.DRY_RUN_PASSED and not eviction.is_over:
                seen = self._clients_of(eviction.entry)
                why = objection(eviction.entry)
                self._report(eviction, eviction.begin_draining(self._drains, seen, why, now))
        for eviction in list(self._all.values()):
            if eviction.is_awaited and objection(eviction.entry) is not None:
                reason = "enforcement was no longer permitted while the request was in progress"
                self._report(eviction, eviction.give_up(Result.INTERRUPTED, reason, now))
            elif now.boottime_s >= eviction.until_s:
                reason = "given up: it could not be tried again in time"
                self._report(eviction, eviction.give_up(Result.FAILED, reason, now))
            self._report(eviction, eviction.continue_drain(now) or eviction.end_unanswered(now))
            request = None if eviction.is_over else eviction.take_request(self._clock)
            if request is not None and self._evictor is not None:
                self._evictor.begin(request)

    def note_clients(self, clients_of: ClientsOf) -> None:
        """Use the MPS clients of a reading: those of an eviction that drains are drained too."""
        self._clients_of = clients_of
        for eviction in self._all.values():
            if eviction.is_draining:
                eviction.on_clients(clients_of(eviction.entry))

    def on_reading(
        self,
        still_listed: Callable[[ProcessKey], bool],
        attribution: Attribution,
        assessments: Iterable[Assessment],
        inputs: Inputs,
        now: Now,
    ) -> None:
        """Process a cycle: end the evictions whose memory is free, and those that must not be tried again."""
        self._inputs = inputs
        if not self._all:
            return
        by_account = {assessment.account: assessment for assessment in assessments}
        for eviction in list(self._all.values()):
            if eviction.accepted is not None:
                keys = _keys_of(eviction.entry.account.uid, attribution)
                self._report(eviction, eviction.on_reading(still_listed, keys, now))
            elif not inputs.pods_stale and (deleted := _deletion(eviction.entry, inputs)):
                self._report(eviction, eviction.on_deletion(deleted, now))
            else:
                ended = _end(eviction.entry, by_account.get(eviction.entry.account), inputs, now)
                self._report(eviction, None if ended is None else eviction.give_up(*ended, now))

    def interrupt(self, now: Now) -> None:
        """Stop all evictions because the daemon ends."""
        for eviction in list(self._all.values()):
            self._report(eviction, eviction.stop(now))

    def pop_outcomes(self) -> tuple[list[tuple[Outcome, UnderWay]], list[Outcome]]:
        """What has happened since the last call: evictions that were accepted, and other outcomes to report."""
        progress = self._accepted, self._outcomes
        self._accepted, self._outcomes = [], []
        return progress

    def _submit(self, eviction: Eviction, entry: PlanEntry, opened: OpenCycle, fresh_until_s: float) -> None:
        if self._evictor is None:
            return

        def objection(pod: Pod) -> str | None:
            # The API does not report when the pod was first seen terminating.
            known = replace(pod, terminating_since=entry.assessment.pod.terminating_since)
            # A drain takes long enough for the policy to change.
            inputs = self._inputs or opened.inputs
            return objection_to_evicting(known, entry.definition.grace_s, inputs, self._clock())

        def is_fresh() -> bool:
            return self._clock().boottime_s <= fresh_until_s

        keys = _keys_of(entry.account.uid, opened.attribution)
        is_dry_run = bool(entry.to_drain)
        self._evictor.begin(eviction.next_request(entry, keys, objection, is_fresh, is_dry_run=is_dry_run))

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


def _end(entry: PlanEntry, assessment: Assessment | None, inputs: Inputs, now: Now) -> tuple[Result, str] | None:
    """Why an eviction must not be tried again; None if it may, or if this cycle is inconclusive."""
    if not inputs.enforcing:
        return Result.INTERRUPTED, "enforcement was turned off before the eviction was accepted"
    if inputs.maintenance:
        return Result.INTERRUPTED, "the GPUs came under maintenance before the eviction was accepted"
    if assessment is None or inputs.pods_stale:
        return None
    objection = objection_to_evicting(assessment.pod, entry.definition.grace_s, inputs, now)
    if objection is not None:
        return Result.INTERRUPTED, objection
    signature = entry.definition.signature
    readings = (step.reading for step in step_readings(assessment, stale=False) if step.step.signature == signature)
    if next(readings, None) is not Comparison.BELOW:
        return None
    has_room = entry.gpu is not None and entry.gpu not in assessment.short
    why = "its GPU was no longer short of memory" if has_room else "its use was at or below the threshold again"
    return Result.GONE, why
