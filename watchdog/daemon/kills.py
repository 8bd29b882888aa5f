"""The kills in progress: first the intention is written to disk, then comes a last look, then the signal.

Evictions are in `daemon/eviction`; which of the two begins is decided in `daemon/cycle`, where observe mode ends.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Protocol

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.daemon.kill import ActionRecord, Kill, KillOrder, reaction_s
from watchdog.node.process import Handle

_MOST_DESCRIBED = 20


class Processes(Protocol):
    """Finds processes to act on."""

    def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
        """Every living process of these containers (IDs) of a pod, each held, and whether these are certainly all.

        Never PID 1, this daemon or the MPS server.
        """

    def describe(self, pid: int) -> str:
        """The name and user of a process, for people."""


class Kills:
    """The kills in progress, at most one per account, each advancing by itself."""

    def __init__(self, processes: Processes, record: ActionRecord, clock: Callable[[], Now]) -> None:
        self._processes = processes
        self._clock = clock
        self._record = record
        self._under_way: dict[AccountKey, Kill] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def next_wake_s(self) -> float:
        """Boot time of the next step of any kill; infinity if there is none."""
        return min((action.next_wake_s for action in self._under_way.values()), default=float("inf"))

    def sent(self) -> Iterator[tuple[AccountKey, tuple[str, ...], bool]]:
        """For each kill, the signals sent so far, and whether its processes have ended."""
        for key, action in self._under_way.items():
            yield key, tuple(each.signal for each in action.sent), action.has_ended

    def intend(self, entry: PlanEntry) -> "Future[int] | Outcome":
        """Write down the intention of a kill: its number once that is on disk, or its outcome if it ended before."""
        handles = _of_scope(self._members(entry)[0], entry)
        now = self._clock()
        try:
            keys = sorted(handle.key for handle in _test(handles))
        except PermissionError as error:
            return Outcome(entry=entry, result=Result.FAILED, at=now, reason=f"{error}; no process was signalled")
        finally:
            _close(handles)
        if not keys:
            return Outcome(entry=entry, result=Result.GONE, at=now, reason="its processes had ended")
        return self._record.intend(entry, keys, now)

    def withdraw(self, entry: PlanEntry, number: int, reason: str) -> Outcome:
        """Withdraw an intention, of a kill or an eviction, before anything was done."""
        now = self._clock()
        self._record.withdraw(number, reason, now)
        return Outcome(entry=entry, result=Result.WITHDRAWN, at=now, reason=reason, number=number)

    def withdraw_once_written(self, intended: "Future[int]", reason: str) -> None:
        """Withdraw an intention that is still being written, even if the daemon ends before it is on disk."""
        self._record.withdraw_once_written(intended, reason, self._clock())

    def begin(
        self, entry: PlanEntry, number: int, release_timeout_s: float, refusal: Callable[[PlanEntry], str | None]
    ) -> Outcome:
        """Begin a kill whose intention is on disk and that a last look has justified since then.

        `refusal`, called right before the first signal, gives a reason against it. The outcome is that right after the
        signal (`done` means: begun), or the result if it could not begin.
        """
        handles = _of_scope(self._members(entry)[0], entry)
        try:
            ready = _test(handles)
        except PermissionError as error:
            _close(handles)
            now, reason = self._clock(), f"{error}; no process was signalled"
            self._record.end(number, Result.FAILED, reason, now)
            return Outcome(entry=entry, result=Result.FAILED, at=now, reason=reason, number=number)
        victims = tuple(self._processes.describe(handle.key.pid) for handle in ready[:_MOST_DESCRIBED])
        why = refusal(entry) if ready else "its processes had ended"
        if why is not None:
            _close(ready)
            return self.withdraw(entry, number, why)
        order = KillOrder(
            entry=entry,
            number=number,
            first_signal=self._clock(),
            release_timeout_s=release_timeout_s,
            members=lambda: self._members(entry),
        )
        action = Kill(order, ready, self._record)
        action.send_first(ready)
        if action.came_too_late:
            _close(ready)
            return self.withdraw(entry, number, "its processes had ended")
        self._under_way[entry.account] = action
        return self._begun(action, victims)

    def _members(self, entry: PlanEntry) -> tuple[list[Handle], bool]:
        return self._processes.members(entry.assessment.pod, _container_ids(entry))

    def _begun(self, action: Kill, victims: tuple[str, ...]) -> Outcome:
        now = action.order.first_signal
        failed = action.advance(now)
        if failed is not None:
            del self._under_way[action.entry.account]
            return failed
        return Outcome(
            entry=action.entry,
            result=Result.DONE,
            at=now,
            signalled=action.victims,
            sent=action.sent,
            victims=victims,
            number=action.order.number,
            reaction_s=reaction_s(action.entry, now),
        )

    def escalate(self, entry: PlanEntry, now: Now) -> None:
        """End the grace period of this account's kill: a stronger step has come due on the same victim."""
        action = self._under_way.get(entry.account)
        if action is not None:
            action.escalate(now)

    def advance(
        self, now: Now, objection: Callable[[PlanEntry], str | None], *, is_held: bool = False
    ) -> tuple[Outcome, ...]:
        """Advance each kill; one in its grace period to which there is an objection gets no further signal.

        While `is_held`, no first SIGKILL is sent.
        """
        outcomes: list[Outcome] = []
        for key, action in list(self._under_way.items()):
            if action.is_in_grace and (reason := objection(action.entry)) is not None:
                outcome = action.call_off(Result.INTERRUPTED, reason, now)
            else:
                if is_held:
                    action.hold(now)
                outcome = action.advance(now) if action.next_wake_s <= now.boottime_s else None
            if outcome is not None:
                outcomes.append(outcome)
                del self._under_way[key]
        return tuple(outcomes)

    def see(
        self, still_listed: Callable[[ProcessKey], bool], assessments: Iterable[Assessment], now: Now
    ) -> tuple[Outcome, ...]:
        """Process a reading: end the kills whose memory is free, and spare single processes if SIGTERM was enough."""
        by_account = {assessment.account: assessment for assessment in assessments}
        outcomes: list[Outcome] = []
        for key, action in list(self._under_way.items()):
            outcome = action.see(still_listed, now)
            if outcome is None and action.is_in_grace and action.entry.definition.scope == "process":
                assessment = by_account.get(key)
                # Only fully known use shows that it is enough; other scopes are completed regardless of use.
                if (
                    assessment is not None
                    and assessment.used is not None
                    and assessment.used <= action.entry.threshold_bytes
                ):
                    action.spare(now)
            if outcome is not None:
                outcomes.append(outcome)
                del self._under_way[key]
        return tuple(outcomes)

    def note_released(self, action: int, now: Now) -> None:
        """Record that an earlier daemon's action is over: its memory is free, or waiting for it has timed out."""
        self._record.released(action, now, None, "the watchdog had ended before its memory was seen free")

    def note_breaker(self, opened: Now | None) -> None:
        """Record for the next daemon that the breaker has opened, or closed (None)."""
        self._record.breaker(opened)

    def interrupt(self, reason: str, now: Now) -> tuple[Outcome, ...]:
        """Stop all kills without a further signal."""
        under_way = self._under_way.values()
        outcomes = tuple(action.stop(Result.INTERRUPTED, reason, now, is_final=False) for action in under_way)
        self._under_way.clear()
        return outcomes


def _container_ids(entry: PlanEntry) -> frozenset[str]:
    """The container IDs to act on: the victim's, or with scope `pod` those of all containers, never the sandbox's."""
    whole_pod = entry.definition.scope == "pod"
    chosen = (c for c in entry.assessment.pod.containers if whole_pod or c.name == entry.victim)
    return frozenset[str]().union(*(container.ids for container in chosen))


def _of_scope(held: list[Handle], entry: PlanEntry) -> list[Handle]:
    if entry.definition.scope != "process":
        return held
    _close(handle for handle in held if handle.key not in entry.targets)
    return [handle for handle in held if handle.key in entry.targets]


def _test(handles: list[Handle]) -> list[Handle]:
    """Send signal 0 to all before anything else; those that have ended are closed, PermissionError is raised."""
    ready = []
    for handle in handles:
        try:
            handle.signal(0)
        except ProcessLookupError:
            handle.close()
        except PermissionError as error:
            raise PermissionError(f"no permission to signal process {handle.key.pid}; CAP_KILL is required") from error
        else:
            ready.append(handle)
    return ready


def _close(handles: Iterable[Handle]) -> None:
    for handle in handles:
        handle.close()
