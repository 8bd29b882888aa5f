"""The evictions in progress: begun by a cycle, tried on other threads; no cycle or other action waits for an answer.

Where a further attempt is decided, in order: what an answer means (`kube/evict.read_answer`, `read_look`) and how long
to wait after it (`kube/evict._again`); whether that was the last attempt (`Eviction._wait`, by the bounds in
`core/eviction`); what ends it meanwhile (`Evictions.see`, `Evictions.advance`); that it is held as `pending` until then
(`Gate._busy_until_s`); the attempt itself, after a last look (`Cycle._retry`, `Evictions.try_again`). Once it has been
given up, `Ledger.note_failed` says when the step may begin a new one.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from watchdog.core.assessment import AccountKey, Assessment, Attribution
from watchdog.core.eviction import EvictionRequest, EvictionResult, objection_to_evicting
from watchdog.core.ladder import Comparison, step_readings
from watchdog.core.ledger import Trying, UnderWay
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result, View
from watchdog.daemon.eviction import Eviction, EvictionOrder
from watchdog.daemon.kill import ActionRecord


class Evictor(Protocol):
    """Makes tries somewhere else; whoever waits for replies is woken."""

    def begin(self, attempt: EvictionRequest) -> None:
        """Hand in a try; returns at once."""

    def take(self) -> tuple[EvictionResult, ...]:
        """The replies that have come since it was last asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An eviction that the API server has accepted: what is to be told of it, and the action for the brakes."""

    outcome: Outcome
    under_way: UnderWay


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has come of evictions: those that were accepted, and what else is to be told, in their order."""

    accepted: tuple[Accepted, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class Evictions:
    """All evictions from their first try to the memory seen free; without an evictor each fails at once."""

    def __init__(self, evictor: Evictor | None, record: ActionRecord, clock: Callable[[], Now]) -> None:
        self._evictor = evictor
        self._record = record
        self._clock = clock
        self._all: dict[int, Eviction] = {}
        self._tickets = 0
        self._accepted: list[Accepted] = []
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        """How many have been accepted, whose memory is waited for."""
        return sum(each.accepted is not None for each in self._all.values())

    @property
    def are_possible(self) -> bool:
        """Whether there is an API."""
        return self._evictor is not None

    @property
    def trying(self) -> dict[AccountKey, Trying]:
        """Those that have not come about, by the account that they are about."""
        return {each.entry.account: each.trying for each in self._all.values() if each.trying is not None}

    @property
    def next_wake_s(self) -> float:
        """Boot time at which one of them is given up; infinity where none is tried."""
        return min((each.next_wake_s for each in self._all.values()), default=float("inf"))

    def intend(self, entry: PlanEntry, attribution: Attribution) -> "Future[int]":
        """Write down that an eviction is intended: its number once that is on disk."""
        return self._record.intend(entry, sorted(_keys_of(entry.account.uid, attribution)), self._clock())

    def begin(self, entry: PlanEntry, number: int, attribution: Attribution, view: View, fresh_until_s: float) -> None:
        """Begin an eviction whose intention is on disk and that has been looked at again since.

        What that look said is good until `fresh_until_s` (boot time); later the API server is not asked to evict.
        """
        self._tickets += 1
        timeout_s = view.setting.policy.release_timeout_s
        order = EvictionOrder(number=number, ticket=self._tickets, began=self._clock(), release_timeout_s=timeout_s)
        eviction = self._all[self._tickets] = Eviction(order, entry, self._record)
        self._ask(eviction, entry, attribution, view, fresh_until_s)

    def try_again(self, entry: PlanEntry, attribution: Attribution, view: View, fresh_until_s: float) -> None:
        """Try the eviction of this account again; the pod and its use have just been looked at again."""
        for eviction in self._tried(entry.account):
            if not eviction.is_awaited:
                self._ask(eviction, entry, attribution, view, fresh_until_s)

    def give_up(self, account: AccountKey, result: Result, reason: str, now: Now) -> None:
        """Try no more to evict by this account; what was accepted goes on."""
        for eviction in self._tried(account):
            self._tell(eviction, eviction.give_up(result, reason, now))

    def advance(self, now: Now, objection: Callable[[PlanEntry], str | None]) -> None:
        """Take the replies that have come; a try that something speaks against by now is called back, if that can be.

        What speaks against one that waits for its next try is for the next cycle to say, which comes before it.
        """
        for reply in self._evictor.take() if self._evictor is not None else ():
            eviction = self._all.get(reply.ticket)
            if eviction is not None:
                self._take(eviction, reply, now)
        for eviction in list(self._all.values()):
            if eviction.is_awaited and objection(eviction.entry) is not None:
                reason = "force was not permitted on it any more while the API server was asked"
                self._tell(eviction, eviction.give_up(Result.INTERRUPTED, reason, now))
            elif now.boottime_s >= eviction.until_s:
                reason = "given up: it could not be tried again in time"
                self._tell(eviction, eviction.give_up(Result.FAILED, reason, now))

    def see(
        self,
        still_listed: Callable[[ProcessKey], bool],
        attribution: Attribution,
        assessments: Iterable[Assessment],
        view: View,
        now: Now,
    ) -> None:
        """Take note of a cycle: whose memory is free, and which eviction is not to be tried again, and why."""
        if not self._all:
            return
        by_account = {assessment.account: assessment for assessment in assessments}
        for eviction in list(self._all.values()):
            if eviction.accepted is not None:
                keys = _keys_of(eviction.entry.account.uid, attribution)
                self._tell(eviction, eviction.see(still_listed, keys, now))
            elif not view.conditions.pods_stale and (deleted := _deletion(eviction.entry, view)):
                self._tell(eviction, eviction.find_deleted(deleted, now))
            else:
                ended = _end(eviction.entry, by_account.get(eviction.entry.account), view, now)
                self._tell(eviction, None if ended is None else eviction.give_up(*ended, now))

    def interrupt(self, now: Now) -> None:
        """Stop all of them where they are."""
        for eviction in list(self._all.values()):
            self._tell(eviction, eviction.stop(now))

    def take(self) -> Progress:
        """What has come of them since it was last asked."""
        progress = Progress(accepted=tuple(self._accepted), outcomes=tuple(self._outcomes))
        self._accepted, self._outcomes = [], []
        return progress

    def _ask(
        self, eviction: Eviction, entry: PlanEntry, attribution: Attribution, view: View, fresh_until_s: float
    ) -> None:
        if self._evictor is None:
            return
        attempt = eviction.ask(entry, _keys_of(entry.account.uid, attribution), self._objection(entry, view))
        self._evictor.begin(replace(attempt, is_fresh=lambda: self._clock().boottime_s <= fresh_until_s))

    def _tried(self, account: AccountKey) -> list[Eviction]:
        return [each for each in self._all.values() if each.trying is not None and each.entry.account == account]

    def _take(self, eviction: Eviction, reply: EvictionResult, now: Now) -> None:
        self._tell(eviction, eviction.answer(reply, now))

    def _tell(self, eviction: Eviction, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if eviction.is_over or outcome.result is not Result.DONE:
            self._outcomes.append(outcome)
        else:
            self._accepted.append(Accepted(outcome=outcome, under_way=eviction.under_way))
        if eviction.is_over:
            del self._all[eviction.order.ticket]

    def _objection(self, entry: PlanEntry, view: View) -> Callable[[Pod], str | None]:
        def objection(pod: Pod) -> str | None:
            # The API does not say since when it has been seen terminating.
            known = replace(pod, terminating_since=entry.assessment.pod.terminating_since)
            return objection_to_evicting(known, entry.definition.grace_s, view.setting, self._clock())

        return objection


def _keys_of(uid: str, attribution: Attribution) -> frozenset[ProcessKey]:
    """Every GPU process of a pod, whichever of its containers it is in."""
    return frozenset(use.key for use in attribution.attributed if use.uid == uid)


def _deletion(entry: PlanEntry, view: View) -> str:
    """That the pod is gone, or that its deletion has begun since, or is to end sooner by now; empty: neither."""
    pod = next((pod for pod in view.pods.pods if pod.uid == entry.account.uid), None)
    if pod is None:
        return "the pod is gone"
    is_as_before = pod.deletion_deadline_s in (None, entry.assessment.pod.deletion_deadline_s)
    return "" if is_as_before else "the pod is being deleted"


def _end(entry: PlanEntry, assessment: Assessment | None, view: View, now: Now) -> tuple[Result, str] | None:
    """Why an eviction is not to be tried again; None: it is, or that can't be said by this cycle."""
    objection = _objection_now(entry, assessment, view, now)
    if objection is not None:
        return Result.INTERRUPTED, objection
    if assessment is None or view.conditions.pods_stale:
        return None
    signature = entry.definition.signature
    reading = next(
        (each.reading for each in step_readings(assessment, stale=False) if each.step.signature == signature), None
    )
    if reading is not Comparison.BELOW:
        return None
    has_room = entry.card is not None and entry.card not in assessment.short
    return Result.GONE, "its card had room again" if has_room else "its use was at or below the mark again"


def _objection_now(entry: PlanEntry, assessment: Assessment | None, view: View, now: Now) -> str | None:
    if not view.enforcing:
        return "enforcement was withdrawn before it came about"
    if view.conditions.maintenance:
        return "the GPUs came under maintenance before it came about"
    if assessment is None or view.conditions.pods_stale:
        return None
    return objection_to_evicting(assessment.pod, entry.definition.grace_s, view.setting, now)
