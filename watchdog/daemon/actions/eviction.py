"""One eviction, from its first attempt until its memory is seen free.

Whether it is tried again is decided by `core/eviction.follow_up`, and what ends it between two
attempts by the cycles (`Evictions.on_reading`). Once it has been given up, `Ledger.note_failed` determines when the
step may begin a new one.

If something has to come before the eviction (ADR 16), its first request is a dry run. After that the eviction no longer
depends on the pod's use: it is requested as soon as nothing stands in its way, and only once, since a program whose
work on the GPU was ended often starts again.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil
from typing import Final

from watchdog.core.eviction import (
    GIVE_UP_AFTER_S,
    Attempts,
    EvictionAnswer,
    EvictionRequest,
    EvictionResult,
    FollowUp,
    follow_up,
)
from watchdog.core.ledger import PendingEviction, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.units import format_duration
from watchdog.daemon.actions.action import RecordedAction, reaction_s
from watchdog.daemon.actions.clearance import Clearance, Clearances
from watchdog.daemon.actions.last_look import FRESH_S

_UNSURE: Final = "; whether one of these was carried out is not known"
_ENDS = {
    EvictionAnswer.GONE: Result.GONE,
    EvictionAnswer.SPARED: Result.INTERRUPTED,
    EvictionAnswer.REFUSED: Result.FAILED,
}


class Eviction:
    """An eviction that has begun. `pending` is its state as long as the API server has not accepted it."""

    def __init__(self, entry: PlanEntry, recorded: RecordedAction, request_id: int, release_timeout_s: float) -> None:
        self.entry = entry  # of the last attempt
        self.request_id = request_id  # of all its attempts
        self.is_over = False
        self.accepted: Now | None = None
        self.pending: PendingEviction | None = None
        self._recorded = recorded
        self._release_timeout_s = release_timeout_s
        self._keys: set[ProcessKey] = set()
        self._tries = 0
        self._is_unsure = False
        self._was_blocked = False
        self._given_up: tuple[Result, str] | None = None
        self._request: EvictionRequest | None = None  # the last one
        self._clearance: Clearance | None = None  # while it is waited for
        self._done_first = ""  # what its clearance has done, as a clause

    @property
    def has_sent(self) -> bool:
        """Whether a request of its clearance was or is being sent, which is its first signal."""
        return bool(self._recorded.sent) or (self._clearance is not None and self._clearance.has_sent)

    @property
    def awaits_clearance(self) -> bool:
        """Whether something still has to come before the eviction, or a reading that shows that it has."""
        return self._clearance is not None

    @property
    def is_awaited(self) -> bool:
        """Whether the answer to an attempt is still awaited."""
        return self.pending is not None and self.pending.next_s is None

    @property
    def until_s(self) -> float:
        """CLOCK_BOOTTIME at which it is given up unless it has been accepted by then."""
        return self._recorded.began.boottime_s + GIVE_UP_AFTER_S

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of its own next step; infinity if only an answer or a cycle continues it."""
        if self.pending is None or self._given_up is not None:
            return float("inf")
        next_s = self.pending.next_s if self.has_sent and self.pending.next_s is not None else self.until_s
        return min(next_s, self.until_s)

    @property
    def under_way(self) -> UnderWay:
        """The action in progress, once the API server has accepted it."""
        accepted = self.accepted or self._recorded.began
        under_way = self.entry.under_way(accepted, self._release_timeout_s)
        return replace(under_way, until_s=accepted.boottime_s + self._ends_within_s)

    def next_request(
        self,
        entry: PlanEntry,
        keys: Iterable[ProcessKey],
        why_spared: Callable[[Pod], str | None],
        is_fresh: Callable[[], bool],
        *,
        is_dry_run: bool,
    ) -> EvictionRequest:
        """The next attempt, with the account and the pod's processes as of the last look."""
        self.entry = entry
        self._keys.update(keys)
        self._tries += 1
        self.pending = _awaiting(self.pending, entry, self._tries, self.until_s)
        pod = entry.assessment.pod
        self._request = EvictionRequest(
            request_id=self.request_id,
            number=self._tries,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            grace_s=max(ceil(entry.definition.grace_s), 1),
            is_unsure=self._is_unsure,
            why_spared=why_spared,
            is_wanted=lambda: self._given_up is None and not self.is_over,
            is_fresh=is_fresh,
            deadline_s=pod.deletion_deadline_s,
            is_dry_run=is_dry_run,
        )
        return self._request

    def on_result(self, result: EvictionResult, now: Now) -> tuple[FollowUp, Outcome | None]:
        """Process a result: what follows, and the outcome to report, if any; with `accepted`, that it has begun."""
        self._is_unsure = self._is_unsure or result.answer is EvictionAnswer.UNKNOWN
        next_s = now.boottime_s + result.wait_s
        outcome: Outcome | None = None
        follows = follow_up(result.answer, self._attempts(next_s), now.boottime_s)
        match follows:
            case FollowUp.ACCEPTED:
                outcome = self._accept(result.reason, now)
            case FollowUp.OVER:
                outcome = replace(self._end(_ENDS[result.answer], result.reason, now), for_owner=result.for_owner)
            case FollowUp.CALLED_OFF:
                outcome = self._end(*(self._given_up or (Result.INTERRUPTED, "")), now)
            case FollowUp.HALF_DONE:
                outcome = self._fail_half_done(result.reason, now)
            case FollowUp.OUT_OF_TRIES:
                took_s, unsure = now.boottime_s - self._recorded.began.boottime_s, _UNSURE if self._is_unsure else ""
                outcome = self._end(Result.FAILED, f"{_tried(self._tries, took_s)}: {result.reason}{unsure}", now)
            case FollowUp.AGAIN:
                outcome = self._wait(result, next_s, now)
            case FollowUp.CLEAR | FollowUp.AWAIT | FollowUp.OUT_OF_TIME:
                pass
        return follows, outcome

    def _attempts(self, next_s: float | None) -> Attempts:
        return Attempts(
            made=self._tries,
            until_s=self.until_s,
            next_s=next_s,
            is_called_off=self._given_up is not None,
            has_sent=self.has_sent,
        )

    def get_clearance(self, clearances: Clearances, objection: str | None, now: Now) -> Outcome | None:
        """Do what has to come first, now that a dry run was accepted; the outcome to report, if any."""
        if objection is not None:
            return self._end(Result.INTERRUPTED, objection, now)
        request = self._request
        why = clearances.why_not(self.entry)
        if request is not None and not request.is_fresh():
            why = "the API server took so long for the dry run that the pod's last measured use was too old"
        if why is not None:
            return self._repeat_dry_run(why, now)
        is_fresh = request.is_fresh if request is not None else lambda: True
        self._clearance = clearances.begin(self.entry, note=self._recorded.note_sent, is_fresh=is_fresh)
        return self.advance_clearance(now)

    def advance_clearance(self, now: Now) -> Outcome | None:
        """Go on with what has to come first; the outcome if that has failed, or if the eviction was called off."""
        clearance = self._clearance
        if clearance is None:
            return None
        why = clearance.advance(now, may_ask=self._given_up is None)
        if self._given_up is not None and not clearance.is_asking:
            return self._end(*self._given_up, now)
        if why is None:
            return None
        if clearance.cancel(now) or self.has_sent:
            return self._end(Result.FAILED, f"{why}; the pod was not evicted", now)
        self._clearance = None
        return self._repeat_dry_run(why, now)

    def _repeat_dry_run(self, why: str, now: Now) -> Outcome | None:
        """Wait for another dry run, since nothing was sent after this one."""
        later = EvictionResult(request_id=self.request_id, answer=EvictionAnswer.LATER, reason=why, wait_s=5.0)
        _, outcome = self.on_result(later, now)
        return outcome

    def see_clearance(self) -> None:
        """Take what the last reading shows of what has to come first."""
        if self._clearance is not None:
            self._clearance.on_reading()

    def take_request(self, clock: Callable[[], Now]) -> EvictionRequest | None:
        """The attempt once nothing stands in its way; None if it is not its time.

        It does not depend on the pod's use, which falls as its clients are drained, but on a recent reading.
        """
        clearance, request = self._clearance, self._request
        if clearance is None or request is None or not clearance.is_clear or self._given_up is not None:
            return None
        self._clearance, self._done_first = None, clearance.in_words
        fresh_until_s = clearance.seen_s + FRESH_S
        is_fresh = (lambda: clock().boottime_s <= fresh_until_s) if self.has_sent else request.is_fresh
        return self.next_request(self.entry, (), request.why_spared, is_fresh, is_dry_run=False)

    def pass_time(self, now: Now) -> Outcome | None:
        """End it once its time is over, or once the pod list has had time to show what became of its last attempt."""
        pending = self.pending
        match follow_up(None, self._attempts(None if pending is None else pending.next_s), now.boottime_s):
            case FollowUp.OUT_OF_TIME:
                return self.give_up(Result.FAILED, "given up: it could not be tried again in time", now)
            case FollowUp.HALF_DONE if pending is not None:
                return self._fail_half_done(pending.refused, now)
            case _:
                return None

    def _fail_half_done(self, reason: str, now: Now) -> Outcome:
        known = "it is not known whether the pod was evicted" if self._is_unsure else "the pod was not evicted"
        return self._end(Result.FAILED, f"{known} after {self._done_first}: {reason}", now)

    def give_up(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Stop trying; the outcome comes at once, or with the awaited answer. An accepted eviction continues.

        Once something was sent, it continues although the pod uses less.
        """
        if self.pending is None or (result is Result.GONE and self.has_sent):
            return None
        if self.is_awaited:
            has_sent = self._clearance is not None and self._clearance.cancel(now)
            if result is not Result.GONE or not has_sent:
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
        self._recorded.release(release_s, reason, now)
        self.is_over = True
        return replace(self._recorded.outcome(self.entry, Result.DONE, reason, now), release_s=release_s)

    def interrupt(self, now: Now) -> Outcome | None:
        """End it because the daemon ends; the next one reads the journal and waits for its memory."""
        if self.is_over:
            return None
        if self.accepted is not None:
            self.is_over = True
            return self._recorded.outcome(
                self.entry, Result.DONE, "the watchdog was stopped before its memory was seen free", now
            )
        reason = "the watchdog was stopped before the eviction was accepted"
        self._given_up = self._given_up or (Result.INTERRUPTED, reason)
        return self._end(Result.INTERRUPTED, reason, now, is_final=not (self.is_awaited or self._is_unsure))

    @property
    def _ends_within_s(self) -> float:
        return max(ceil(self.entry.definition.grace_s), 1) + self._release_timeout_s

    def _accept(self, reason: str, now: Now) -> Outcome:
        if self._given_up is not None:
            reason = f"the API server had accepted it before it was given up: {self._given_up[1]}"
        self.accepted, self.pending = now, None
        self._recorded.end(Result.DONE, reason, now)
        first = self._recorded.first_sent or now
        return replace(
            self._recorded.outcome(self.entry, Result.DONE, reason, now), reaction_s=reaction_s(self.entry, first)
        )

    def _wait(self, result: EvictionResult, next_s: float, now: Now) -> Outcome | None:
        """Wait for the next attempt, or for what the pod list shows of the last one."""
        is_blocked = result.answer is EvictionAnswer.BLOCKED
        awaited = _awaiting(self.pending, self.entry, self._tries, self.until_s)
        self.pending = replace(awaited, next_s=next_s, refused=result.reason, is_blocked=is_blocked)
        if not is_blocked or self._was_blocked:
            return None
        self._was_blocked = True
        return self._recorded.outcome(self.entry, Result.BLOCKED, result.reason, now)

    def _end(self, result: Result, reason: str, now: Now, *, is_final: bool = True) -> Outcome:
        """End it without success: its memory is not waited for, unless by the next daemon (not `is_final`)."""
        if self._clearance is not None:
            self._clearance.cancel(now)
        self._recorded.end(result, reason, now)
        if is_final and result is Result.INTERRUPTED:
            known = "whether it was evicted is not known" if self._is_unsure else "it was not evicted"
            self._recorded.release(None, known, now)
        self.is_over, self.pending, self._clearance = True, None, None
        return self._recorded.outcome(self.entry, result, reason, now)


def _awaiting(was: PendingEviction | None, entry: PlanEntry, tries: int, until_s: float) -> PendingEviction:
    """The state while the answer to an attempt is awaited."""
    return PendingEviction(
        step=entry.definition.signature,
        tries=tries,
        until_s=until_s,
        refused=was.refused if was is not None else "",
        is_blocked=was is not None and was.is_blocked,
        cards=entry.cards,
    )


def _tried(tries: int, took_s: float) -> str:
    times = "once" if tries == 1 else f"{tries} times"
    return f"given up, tried {times} in {format_duration(round(took_s))}"
