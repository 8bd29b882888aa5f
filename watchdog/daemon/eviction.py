"""One eviction, from its first try to the memory seen free; a step at a time, so that none waits for another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil

from watchdog.core.eviction import GIVE_UP_AFTER_S, MOST_TRIES, EvictionAnswer, EvictionRequest, EvictionResult
from watchdog.core.ledger import Trying, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.units import format_duration
from watchdog.daemon.kill import ActionRecord, reaction_s

_ENDS = {
    EvictionAnswer.GONE: Result.GONE,
    EvictionAnswer.SPARED: Result.INTERRUPTED,
    EvictionAnswer.REFUSED: Result.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOrder:
    """What an eviction may rely on: its number in the journal, that of its tries, and when it began."""

    number: int
    ticket: int
    began: Now
    release_timeout_s: float


class Eviction:
    """An eviction that has begun. `trying` is how it stands as long as the API server has not accepted it."""

    def __init__(self, order: EvictionOrder, entry: PlanEntry, record: ActionRecord) -> None:
        self.order = order
        self.entry = entry  # of the last try
        self.is_over = False
        self.accepted: Now | None = None
        self.trying: Trying | None = None
        self._record = record
        self._keys: set[ProcessKey] = set()
        self._tries = 0
        self._is_unsure = False
        self._was_blocked = False
        self._given_up: tuple[Result, str] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether an answer to a try is still to come."""
        return self.trying is not None and self.trying.next_s is None

    @property
    def until_s(self) -> float:
        """Boot time at which it is given up where nothing comes of it."""
        return self.order.began.boottime_s + GIVE_UP_AFTER_S

    @property
    def next_wake_s(self) -> float:
        """Boot time at which it wants to go on by itself; infinity where only an answer, or a cycle, makes it do so."""
        waits = self.trying is not None and self._given_up is None
        return self.until_s if waits else float("inf")

    @property
    def under_way(self) -> UnderWay:
        """The action as the brakes know it from the moment on at which the API server has accepted it."""
        accepted = self.accepted or self.order.began
        return UnderWay(
            step=self.entry.definition.signature,
            victim=self.entry.victim,
            whole_pod=True,
            cards=self.entry.cards,
            until_s=accepted.boottime_s + self._ends_within_s,
        )

    def ask(
        self, entry: PlanEntry, keys: Iterable[ProcessKey], objection: Callable[[Pod], str | None]
    ) -> EvictionRequest:
        """The next try, by what the last look at the account and at the pod's processes gave."""
        self.entry = entry
        self._keys.update(keys)
        self._tries += 1
        self.trying = self._asking
        pod = entry.assessment.pod
        return EvictionRequest(
            ticket=self.order.ticket,
            number=self._tries,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            grace_s=max(ceil(entry.definition.grace_s), 1),
            is_unsure=self._is_unsure,
            objection=objection,
            is_wanted=lambda: self._given_up is None and not self.is_over,
            deadline_s=pod.deletion_deadline_s,
        )

    def answer(self, reply: EvictionResult, now: Now) -> Outcome | None:
        """Take a reply; what is to be told of it. With `accepted` set by it, the outcome is that it has begun."""
        if reply.answer is EvictionAnswer.ACCEPTED:
            return self._accept(reply.reason, now)
        self._is_unsure = self._is_unsure or reply.answer is EvictionAnswer.UNKNOWN
        if reply.answer in _ENDS:
            ended = self._end(_ENDS[reply.answer], reply.reason, now)
            return replace(ended, for_owner=reply.for_owner)
        return self._wait(reply, now) if self._given_up is None else self._end(*self._given_up, now)

    def give_up(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Try no more; the outcome at once, or with the answer that is still to come. An accepted one goes on."""
        if self.trying is None:
            return None
        if self.is_awaited:
            self._given_up = self._given_up or (result, reason)
            return None
        return self._end(result, reason, now)

    def find_deleted(self, why: str, now: Now) -> Outcome | None:
        """The pod is being deleted, or gone: by a try whose answer was lost, or by somebody else."""
        if self.trying is None or self.is_awaited:
            return None
        return self._accept(why, now) if self._is_unsure else self._end(Result.GONE, why, now)

    def see(self, still_listed: Callable[[ProcessKey], bool], keys: Iterable[ProcessKey], now: Now) -> Outcome | None:
        """Take note of what the driver lists now; the outcome once the memory is free, or has not come back in time."""
        if self.accepted is None or self.is_over:
            return None
        self._keys.update(keys)
        waited_s = now.boottime_s - self.accepted.boottime_s
        if not any(still_listed(key) for key in self._keys):
            return self._release(waited_s, "", now)
        if waited_s >= self._ends_within_s:
            return self._release(None, "the driver still lists its memory after the grace and release_timeout", now)
        return None

    def stop(self, now: Now) -> Outcome | None:
        """End it where it is, with the daemon; whoever reads the journal next waits for its memory."""
        if self.is_over:
            return None
        if self.accepted is not None:
            self.is_over = True
            return self._outcome(Result.DONE, "the watchdog was stopped before its memory was seen free", now)
        reason = "the watchdog was stopped before it came about"
        self._given_up = self._given_up or (Result.INTERRUPTED, reason)
        if not self.is_awaited and not self._is_unsure:
            return self._end(Result.INTERRUPTED, reason, now)
        self._record.end(self.order.number, Result.INTERRUPTED, reason, now)
        return self._finish(Result.INTERRUPTED, reason, now)

    @property
    def _asking(self) -> Trying:
        was, step = self.trying, self.entry.definition.signature
        return Trying(
            step=step,
            tries=self._tries,
            until_s=self.until_s,
            refused=was.refused if was is not None else "",
            is_blocked=was is not None and was.is_blocked,
            cards=self.entry.cards,
        )

    @property
    def _ends_within_s(self) -> float:
        return max(ceil(self.entry.definition.grace_s), 1) + self.order.release_timeout_s

    def _accept(self, reason: str, now: Now) -> Outcome:
        if self._given_up is not None:
            reason = f"the API server had accepted it before it was given up: {self._given_up[1]}"
        self.accepted, self.trying = now, None
        self._record.end(self.order.number, Result.DONE, reason, now)
        return replace(self._outcome(Result.DONE, reason, now), reaction_s=reaction_s(self.entry, now))

    def _wait(self, reply: EvictionResult, now: Now) -> Outcome | None:
        """Nothing has come of a try: another one later, or none."""
        next_s = now.boottime_s + reply.wait_s
        if self._tries >= MOST_TRIES or next_s > self.until_s:
            took = format_duration(round(now.boottime_s - self.order.began.boottime_s))
            times = "once" if self._tries == 1 else f"{self._tries} times"
            unsure = "; whether one of these was carried out is not known" if self._is_unsure else ""
            return self._end(Result.FAILED, f"given up, tried {times} in {took}: {reply.reason}{unsure}", now)
        is_blocked = reply.answer is EvictionAnswer.BLOCKED
        self.trying = replace(self._asking, next_s=next_s, refused=reply.reason, is_blocked=is_blocked)
        if not is_blocked or self._was_blocked:
            return None
        self._was_blocked = True
        return self._outcome(Result.BLOCKED, reply.reason, now)

    def _end(self, result: Result, reason: str, now: Now) -> Outcome:
        """It has not come about. The journal is told that nobody has to wait for its memory."""
        self._record.end(self.order.number, result, reason, now)
        if result is Result.INTERRUPTED:
            known = "whether it was evicted is not known" if self._is_unsure else "it was not evicted"
            self._record.released(self.order.number, now, None, known)
        return self._finish(result, reason, now)

    def _release(self, release_s: float | None, reason: str, now: Now) -> Outcome:
        self._record.released(self.order.number, now, release_s, reason)
        self.is_over = True
        return self._outcome(Result.DONE, reason, now, release_s)

    def _finish(self, result: Result, reason: str, now: Now) -> Outcome:
        self.is_over, self.trying = True, None
        return self._outcome(result, reason, now)

    def _outcome(self, result: Result, reason: str, now: Now, release_s: float | None = None) -> Outcome:
        return Outcome(
            entry=self.entry,
            result=result,
            at=now,
            reason=reason,
            number=self.order.number,
            release_s=release_s,
        )
