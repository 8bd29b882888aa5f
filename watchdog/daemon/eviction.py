"""One eviction, from its first attempt until its memory is seen free.

What decides about a further attempt, in order: the meaning of an answer (`kube/evict.read_response`, `read_pod`) and
the wait after it (`kube/evict._again`); whether that was the last attempt (`Eviction._wait`, by the bounds in
`core/eviction`); what ends it meanwhile (`Evictions.on_reading`, `Evictions.advance`); that it is `pending` until then
(`Gate._busy_until_s`); the attempt itself, after a last look (`Cycle._retry`, `Evictions.try_again`). Once it has been
given up, `Ledger.note_failed` determines when the step may begin a new one.

If the pod has clients of a shared MPS server, the first request is a dry run. After it the clients are drained, and
then the eviction no longer depends on the pod's use: it is requested as soon as they are, and only once, since a
program whose clients were drained often starts again (ADR 16).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil
from typing import Final

from watchdog.core.eviction import (
    GIVE_UP_AFTER_S,
    MOST_TRIES,
    EvictionAnswer,
    EvictionRequest,
    EvictionResult,
)
from watchdog.core.ledger import PendingEviction, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.mps import DRAIN
from watchdog.core.plan import Outcome, PlanEntry, Result, Sent
from watchdog.core.units import format_duration
from watchdog.daemon.drain import Drain, Drains, SeenClients
from watchdog.daemon.kill import ActionRecord, reaction_s

# How long a reading without MPS clients permits an eviction after a drain; as old as a last look may be.
_PERMITS_S: Final = 2.0
_ENDS = {
    EvictionAnswer.GONE: Result.GONE,
    EvictionAnswer.SPARED: Result.INTERRUPTED,
    EvictionAnswer.REFUSED: Result.FAILED,
}


class Eviction:
    """An eviction that has begun. `pending` is its state as long as the API server has not accepted it."""

    def __init__(
        self, entry: PlanEntry, number: int, request_id: int, began: Now, release_timeout_s: float, record: ActionRecord
    ) -> None:
        self.entry = entry  # of the last attempt
        self.request_id = request_id  # of all its attempts
        self.is_over = False
        self.accepted: Now | None = None
        self.pending: PendingEviction | None = None
        self._number = number  # in the journal
        self._began = began
        self._release_timeout_s = release_timeout_s
        self._record = record
        self._keys: set[ProcessKey] = set()
        self._tries = 0
        self._is_unsure = False
        self._was_blocked = False
        self._given_up: tuple[Result, str] | None = None
        self._request: EvictionRequest | None = None  # the last one
        self._drain: Drain | None = None
        self._drained: list[ProcessKey] = []
        self._drained_since: Now | None = None

    @property
    def has_drained(self) -> bool:
        """Whether a client was or is being drained, which is its first signal."""
        return self._drained_since is not None or (self._drain is not None and self._drain.has_sent)

    @property
    def is_draining(self) -> bool:
        """Whether it waits for its clients to be drained, or for a reading that shows so."""
        return self._drain is not None

    @property
    def is_awaited(self) -> bool:
        """Whether the answer to an attempt is still awaited."""
        return self.pending is not None and self.pending.next_s is None

    @property
    def until_s(self) -> float:
        """CLOCK_BOOTTIME at which it is given up unless it has been accepted by then."""
        return self._began.boottime_s + GIVE_UP_AFTER_S

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of its own next step; infinity if only an answer or a cycle continues it."""
        if self.pending is None or self._given_up is not None:
            return float("inf")
        next_s = self.pending.next_s if self.has_drained and self.pending.next_s is not None else self.until_s
        return min(next_s, self.until_s)

    @property
    def under_way(self) -> UnderWay:
        """The action in progress, once the API server has accepted it."""
        accepted = self.accepted or self._began
        under_way = self.entry.under_way(accepted, self._release_timeout_s)
        return replace(under_way, until_s=accepted.boottime_s + self._ends_within_s)

    def next_request(
        self,
        entry: PlanEntry,
        keys: Iterable[ProcessKey],
        objection: Callable[[Pod], str | None],
        is_fresh: Callable[[], bool],
        *,
        is_dry_run: bool,
    ) -> EvictionRequest:
        """The next attempt, with the account and the pod's processes as of the last look."""
        self.entry = entry
        self._keys.update(keys)
        self._tries += 1
        self.pending = self._awaiting_answer
        pod = entry.assessment.pod
        self._request = EvictionRequest(
            request_id=self.request_id,
            number=self._tries,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            grace_s=max(ceil(entry.definition.grace_s), 1),
            is_unsure=self._is_unsure,
            objection=objection,
            is_wanted=lambda: self._given_up is None and not self.is_over,
            is_fresh=is_fresh,
            deadline_s=pod.deletion_deadline_s,
            is_dry_run=is_dry_run,
        )
        return self._request

    def on_result(self, result: EvictionResult, now: Now) -> Outcome | None:
        """Process a result; the outcome to report, if any. If it sets `accepted`, the outcome is that it has begun."""
        if result.answer is EvictionAnswer.ACCEPTED:
            return self._accept(result.reason, now)
        if result.answer is EvictionAnswer.DRY_RUN_PASSED:
            return None if self._given_up is None else self._end(*self._given_up, now)
        self._is_unsure = self._is_unsure or result.answer is EvictionAnswer.UNKNOWN
        if result.answer in _ENDS:
            ended = self._end(_ENDS[result.answer], result.reason, now)
            return replace(ended, for_owner=result.for_owner)
        return self._wait(result, now) if self._given_up is None else self._end(*self._given_up, now)

    def begin_draining(self, drains: Drains, seen: SeenClients, objection: str | None, now: Now) -> Outcome | None:
        """Drain the clients, now that a dry run was accepted; the outcome to report, if any."""
        if objection is not None:
            return self._end(Result.INTERRUPTED, objection, now)
        clients, request = self.entry.to_drain, self._request
        why = drains.why_not(clients, accepts_clients=seen.accepts_clients)
        if request is not None and not request.is_fresh():
            why = "the API server took so long for the dry run that the pod's last measured use was too old"
        if why is not None:
            return self._repeat_dry_run(why, now)
        is_fresh = request.is_fresh if request is not None else lambda: True
        self._drain = Drain(drains, self.entry, seen, note=self._note_drained, is_fresh=is_fresh)
        return self.continue_drain(now)

    def continue_drain(self, now: Now) -> Outcome | None:
        """Continue to drain; the outcome if that has failed, or if the eviction was given up meanwhile."""
        if self._drain is None:
            return None
        why = self._drain.advance(now, may_ask=self._given_up is None)
        if self._given_up is not None and not self._drain.is_asking:
            return self._end(*self._given_up, now)
        if why is not None and not self.has_drained:
            self._cancel_drain(now)
        if why is not None and not self.has_drained:
            self._drain = None
            return self._repeat_dry_run(why, now)
        return None if why is None else self._end(Result.FAILED, f"{why}; the pod was not evicted", now)

    def _repeat_dry_run(self, why: str, now: Now) -> Outcome | None:
        """Wait for another dry run, since nothing was drained after this one."""
        answer = EvictionAnswer.LATER
        return self._wait(EvictionResult(request_id=self.request_id, answer=answer, reason=why, wait_s=5.0), now)

    def on_clients(self, seen: SeenClients) -> None:
        """Process a reading: clients that it shows are drained too."""
        if self._drain is not None:
            self._drain.on_clients(seen)

    def take_request(self, clock: Callable[[], Now]) -> EvictionRequest | None:
        """The attempt once all clients are drained; None if it is not its time.

        It does not depend on the pod's use, which falls as its clients are drained, but on a recent reading without
        clients.
        """
        drain, request = self._drain, self._request
        if drain is None or request is None or not drain.is_clear or self._given_up is not None:
            return None
        self._drain = None
        fresh_until_s = drain.seen_s + _PERMITS_S
        is_fresh = (lambda: clock().boottime_s <= fresh_until_s) if self.has_drained else request.is_fresh
        return self.next_request(self.entry, (), request.objection, is_fresh, is_dry_run=False)

    def end_unanswered(self, now: Now) -> Outcome | None:
        """End it once the pod list has had time to show whether an attempt after a drain was carried out."""
        pending = self.pending
        is_due = pending is not None and pending.next_s is not None and now.boottime_s >= pending.next_s
        return self._fail_drained(pending.refused, now) if self.has_drained and pending and is_due else None

    def _fail_drained(self, reason: str, now: Now) -> Outcome:
        known = "it is not known whether the pod was evicted" if self._is_unsure else "the pod was not evicted"
        return self._end(Result.FAILED, f"{known} after its MPS clients were drained: {reason}", now)

    def _note_drained(self, key: ProcessKey, now: Now) -> None:
        self._drained.append(key)
        self._drained_since = self._drained_since or now
        self._record.signalled(self._number, now, DRAIN, [key])

    def give_up(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Stop trying; the outcome comes at once, or with the awaited answer. An accepted eviction continues.

        Once a client was drained, it continues although the pod uses less.
        """
        if self.pending is None or (result is Result.GONE and self.has_drained):
            return None
        if self.is_awaited:
            has_drained = self._drain is not None and self._drain.cancel()
            if result is not Result.GONE or not has_drained:
                self._given_up = self._given_up or (result, reason)
            return None
        return self._end(result, reason, now)

    def on_deletion(self, why: str, now: Now) -> Outcome | None:
        """The pod is being deleted or gone, by an attempt whose answer was lost or for another reason."""
        if self.pending is None or self.is_awaited:
            return None
        return self._accept(why, now) if self._is_unsure else self._end(Result.GONE, why, now)

    def on_reading(
        self, still_listed: Callable[[ProcessKey], bool], keys: Iterable[ProcessKey], now: Now
    ) -> Outcome | None:
        """Process a reading; the outcome once the memory is free, or was not freed in time."""
        if self.accepted is None or self.is_over:
            return None
        self._keys.update(keys)
        waited_s = now.boottime_s - self.accepted.boottime_s
        if not any(still_listed(key) for key in self._keys):
            reason, release_s = "", waited_s
        elif waited_s >= self._ends_within_s:
            reason, release_s = "the driver still lists its memory after the grace period and release_timeout", None
        else:
            return None
        self._record.released(self._number, now, release_s, reason)
        self.is_over = True
        return replace(self._outcome(Result.DONE, reason, now), release_s=release_s)

    def stop(self, now: Now) -> Outcome | None:
        """End it because the daemon stops; the next daemon reads the journal and waits for its memory."""
        if self.is_over:
            return None
        if self.accepted is not None:
            self.is_over = True
            return self._outcome(Result.DONE, "the watchdog was stopped before its memory was seen free", now)
        reason = "the watchdog was stopped before the eviction was accepted"
        self._given_up = self._given_up or (Result.INTERRUPTED, reason)
        if not self.is_awaited and not self._is_unsure:
            return self._end(Result.INTERRUPTED, reason, now)
        self._record.end(self._number, Result.INTERRUPTED, reason, now)
        return self._finish(Result.INTERRUPTED, reason, now)

    @property
    def _awaiting_answer(self) -> PendingEviction:
        was = self.pending
        return PendingEviction(
            step=self.entry.definition.signature,
            tries=self._tries,
            until_s=self.until_s,
            refused=was.refused if was is not None else "",
            is_blocked=was is not None and was.is_blocked,
            cards=self.entry.cards,
        )

    @property
    def _ends_within_s(self) -> float:
        return max(ceil(self.entry.definition.grace_s), 1) + self._release_timeout_s

    def _accept(self, reason: str, now: Now) -> Outcome:
        if self._given_up is not None:
            reason = f"the API server had accepted it before it was given up: {self._given_up[1]}"
        self.accepted, self.pending = now, None
        self._record.end(self._number, Result.DONE, reason, now)
        first = self._drained_since or now
        return replace(self._outcome(Result.DONE, reason, now), reaction_s=reaction_s(self.entry, first))

    def _wait(self, result: EvictionResult, now: Now) -> Outcome | None:
        """Schedule another attempt after a failed one, or give up; after a drain, only wait for what became of it."""
        if self.has_drained and result.answer is not EvictionAnswer.UNKNOWN:
            return self._fail_drained(result.reason, now)
        next_s = now.boottime_s + result.wait_s
        if self._tries >= MOST_TRIES or next_s > self.until_s:
            took = format_duration(round(now.boottime_s - self._began.boottime_s))
            times = "once" if self._tries == 1 else f"{self._tries} times"
            unsure = "; whether one of these was carried out is not known" if self._is_unsure else ""
            return self._end(Result.FAILED, f"given up, tried {times} in {took}: {result.reason}{unsure}", now)
        is_blocked = result.answer is EvictionAnswer.BLOCKED
        self.pending = replace(self._awaiting_answer, next_s=next_s, refused=result.reason, is_blocked=is_blocked)
        if not is_blocked or self._was_blocked:
            return None
        self._was_blocked = True
        return self._outcome(Result.BLOCKED, result.reason, now)

    def _end(self, result: Result, reason: str, now: Now) -> Outcome:
        """End it without success: its memory is not waited for."""
        self._cancel_drain(now)
        self._record.end(self._number, result, reason, now)
        if result is Result.INTERRUPTED:
            known = "whether it was evicted is not known" if self._is_unsure else "it was not evicted"
            self._record.released(self._number, now, None, known)
        return self._finish(result, reason, now)

    def _cancel_drain(self, now: Now) -> None:
        """Send no further request; one that was sent since the last step is recorded."""
        if self._drain is not None:
            self._drain.cancel()
            self._drain.note_sent(now)

    def _finish(self, result: Result, reason: str, now: Now) -> Outcome:
        self._cancel_drain(now)
        self.is_over, self.pending, self._drain = True, None, None
        return self._outcome(result, reason, now)

    def _outcome(self, result: Result, reason: str, now: Now) -> Outcome:
        sent: tuple[Sent, ...] = ()
        if self._drained_since is not None:
            after_s = self._drained_since.boottime_s - self._began.boottime_s
            sent = (Sent(signal=DRAIN, keys=frozenset(self._drained), after_s=after_s),)
        return Outcome(entry=self.entry, result=result, at=now, reason=reason, number=self._number, sent=sent)
