"""All kills in progress: each advances independently, and none blocks another action.

Evictions are in `daemon/evictions`; which of the two begins is decided in `daemon/cycle`, where observe mode ends.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.daemon.drain import ClientsOf, Drains, no_clients
from watchdog.daemon.kill import HAD_ENDED, ActionRecord, Kill, close_all, withdraw
from watchdog.node.process import Handle

_MOST_DESCRIBED: Final = 20
# A search for processes that takes this long is not repeated between the last look, which must not age, and the signal.
_LONG_SEARCH_S: Final = 0.5
_NOT_ALL: Final = "its processes could not all be read or held: see the data gaps"


class Processes(Protocol):
    """Finds processes to act on."""

    def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
        """Every living process of these containers (IDs) of a pod, each held, and whether these are certainly all.

        Never PID 1, this daemon or the MPS server.
        """

    def leads_container(self, pid: int) -> bool:
        """Whether the end of a process may end the other processes of its container; True if unknown."""

    def describe(self, pid: int) -> str:
        """The name and user of a process, for people."""


class Kills:
    """The kills in progress, at most one per account, each advancing independently."""

    def __init__(
        self, processes: Processes, record: ActionRecord, clock: Callable[[], Now], drains: Drains | None = None
    ) -> None:
        self._record = record
        self._processes = processes
        self._clock = clock
        self._drains = drains or Drains()
        self._clients_of: ClientsOf = no_clients
        self._under_way: dict[AccountKey, Kill] = {}
        self._held: dict[AccountKey, tuple[PlanEntry, list[Handle]]] = {}  # since the intention
        self._begun: list[Outcome] = []

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of the next step of any kill; infinity if there is none."""
        return min((kill.next_wake_s for kill in self._under_way.values()), default=float("inf"))

    def sent(self) -> Iterator[tuple[AccountKey, tuple[str, ...], bool]]:
        """For each kill, the signals sent so far, and whether its processes have ended."""
        for key, kill in self._under_way.items():
            yield key, tuple(sent.signal for sent in kill.sent), kill.has_ended

    def intend(self, entry: PlanEntry) -> "Future[int] | Outcome | None":
        """Write down the intention of a kill: its number once that is on disk, or its outcome if it ended before.

        None: it waits for its turn at an MPS control daemon, so it is for a later cycle.
        """
        if not self._drains.may_begin(entry.account, entry.to_drain, self._clock()):
            return None
        began_s = self._clock().boottime_s
        handles, are_all = self._members(entry)
        try:
            ready = self._reachable(entry, handles)
        except PermissionError as error:
            close_all(handles)
            reason = f"{error}; no process was signalled"
            return Outcome(entry=entry, result=Result.FAILED, at=self._clock(), reason=reason)
        now = self._clock()
        if now.boottime_s - began_s >= _LONG_SEARCH_S:
            self._held[entry.account] = entry, handles
        else:
            close_all(handles)
        if not ready and not are_all:
            return Outcome(entry=entry, result=Result.FAILED, at=now, reason=_NOT_ALL)
        if not ready:
            return Outcome(entry=entry, result=Result.GONE, at=now, reason=HAD_ENDED)
        return self._record.intend(entry, sorted(handle.key for handle in ready), now)

    def begin(
        self,
        entry: PlanEntry,
        number: int,
        release_timeout_s: float,
        objection: Callable[[PlanEntry], str | None],
        fresh_until_s: float = math.inf,
    ) -> Outcome | None:
        """Begin a kill whose intention is on disk and that a last look has justified since then.

        `objection`, called right before the first signal, gives a reason against it; a drain is not sent after
        `fresh_until_s` (CLOCK_BOOTTIME), when the last look is too old. The outcome is that right after
        the signal (`done` means: begun), or the result if it could not begin. None: an MPS control daemon is about to
        be asked, and the kill begins when that is done, which `take_begun` gives, or is withdrawn.
        """
        handles, are_all = self._take_held(entry), True
        try:
            ready = self._reachable(entry, handles)
            if not ready:  # none was held, or others have taken their place
                close_all(handles)
                handles, are_all = self._members(entry)
                ready = self._reachable(entry, handles)
        except PermissionError as error:
            close_all(handles)
            now, reason = self._clock(), f"{error}; no process was signalled"
            self._record.end(number, Result.FAILED, reason, now)
            return Outcome(entry=entry, result=Result.FAILED, at=now, reason=reason, number=number)
        kept = {handle.key for handle in ready}
        close_all(handle for handle in handles if handle.key not in kept)
        victims = tuple(self._processes.describe(handle.key.pid) for handle in ready[:_MOST_DESCRIBED])
        seen = self._clients_of(entry)
        why = self._drains.why_not(entry.to_drain, accepts_clients=seen.accepts_clients)
        if seen.has_others_beside and any(self._processes.leads_container(handle.key.pid) for handle in ready):
            why = "its end would end its container, in which another process is or may be an MPS client or server"
        if not ready:
            why = HAD_ENDED if are_all else _NOT_ALL
        by_change = why in (None, HAD_ENDED)
        why = why or objection(entry)
        if why is not None:
            close_all(ready)
            self._drains.leave_queues(entry.account)
            return withdraw(self._record, entry, number, why, self._clock(), by_change=by_change)
        now = self._clock()
        kill = Kill(entry, number, now, release_timeout_s, lambda: self._members(entry), self._record)
        kill.victims = victims
        is_fresh = partial(self._is_at_most, fresh_until_s)
        why = kill.send_first(ready, self._drains, seen, objection, is_fresh)
        if why is not None:
            close_all(ready)
            self._drains.leave_queues(entry.account)
            return withdraw(self._record, entry, number, why, self._clock(), by_change=why == HAD_ENDED)
        self._under_way[entry.account] = kill
        ended = kill.advance(now)
        if ended is not None:
            del self._under_way[entry.account]
            return ended
        return kill.begun(now) if kill.has_begun else None

    def takes_long(self, account: AccountKey) -> bool:
        """Whether the kill of an account is about to begin and has so many processes that others must go first."""
        return account in self._held

    def release(self) -> None:
        """Release the processes that are held for kills that have not begun."""
        for _, handles in self._held.values():
            close_all(handles)
        self._held.clear()

    def _is_at_most(self, limit_s: float) -> bool:
        return self._clock().boottime_s <= limit_s

    def take_begun(self) -> tuple[Outcome, ...]:
        """The kills that have begun since the last call, after waiting for the first request to drain to be sent."""
        begun, self._begun = tuple(self._begun), []
        return begun

    def _members(self, entry: PlanEntry) -> tuple[list[Handle], bool]:
        """The living processes to act on: of the victim or, with scope `pod`, of all containers, never the sandbox."""
        whole_pod = entry.effective_step.scope == "pod"
        pod = entry.assessment.pod
        chosen = (c for c in pod.containers if whole_pod or c.name == entry.victim)
        return self._processes.members(pod, frozenset[str]().union(*(container.ids for container in chosen)))

    def _take_held(self, entry: PlanEntry) -> list[Handle]:
        """The processes that have been held since the intention, as far as they still are the victim's."""
        intended, held = self._held.pop(entry.account, (entry, []))
        is_same = intended.victim == entry.victim and intended.effective_step.scope == entry.effective_step.scope
        kept = []
        for handle in held:
            if is_same and handle.is_still_accepted():
                kept.append(handle)
            else:
                handle.close()
        return kept

    @staticmethod
    def _reachable(entry: PlanEntry, handles: Iterable[Handle]) -> list[Handle]:
        """The processes to act on that have not ended; signal 0 is sent to all of them before anything else.

        PermissionError if any of them can't be signalled now.
        """
        is_single = entry.effective_step.scope == "process"
        ready = []
        for handle in handles:
            if is_single and handle.key not in entry.targets:
                continue
            try:
                handle.signal(0)
            except ProcessLookupError:
                continue
            except PermissionError as error:
                denied = f"no permission to signal process {handle.key.pid}; CAP_KILL is required"
                raise PermissionError(denied) from error
            except BlockingIOError as error:
                raise PermissionError(f"no file descriptor is left for process {handle.key.pid}") from error
            ready.append(handle)
        return ready

    def escalate(self, entry: PlanEntry, now: Now) -> None:
        """End the grace period of this account's kill: a stronger step has come due on the same victim."""
        kill = self._under_way.get(entry.account)
        if kill is not None:
            kill.escalate(now)

    def advance(
        self,
        now: Now,
        objection: Callable[[PlanEntry], str | None],
        *,
        to_begun: Callable[[PlanEntry], str | None] | None = None,
        policy_unsettled: bool = False,
    ) -> tuple[Outcome, ...]:
        """Advance each kill; one in its grace period to which there is an objection gets no further signal.

        `to_begun` gives the objections to a kill that has begun; None: they are the same. While `policy_unsettled`, the
        first SIGKILL is postponed.
        """
        outcomes: list[Outcome] = []
        for key, kill in list(self._under_way.items()):
            had_begun = kill.has_begun
            object_to = to_begun if to_begun is not None and had_begun else objection
            if kill.is_in_grace and (reason := object_to(kill.entry)) is not None:
                outcome = kill.call_off(Result.INTERRUPTED, reason, now)
            else:
                if policy_unsettled:
                    kill.postpone(now)
                is_due = kill.next_wake_s <= now.boottime_s or kill.drain.is_asking
                outcome = kill.advance(now) if is_due else None
            if kill.has_begun and not had_begun:
                self._begun.append(kill.begun(now))
            if outcome is not None:
                outcomes.append(outcome)
                del self._under_way[key]
        return tuple(outcomes)

    def note_clients(self, clients_of: ClientsOf) -> None:
        """Use the MPS clients of a reading: those of a kill in progress are drained too."""
        self._clients_of = clients_of
        for kill in self._under_way.values():
            kill.drain.on_clients(clients_of(kill.entry))

    def on_reading(
        self, still_listed: Callable[[ProcessKey], bool], assessments: Iterable[Assessment], now: Now
    ) -> tuple[Outcome, ...]:
        """Process a reading: end the kills whose memory is free, and spare single processes if SIGTERM was enough."""
        used = {assessment.account: assessment.used for assessment in assessments}
        outcomes: list[Outcome] = []
        for key, kill in list(self._under_way.items()):
            outcome = kill.on_reading(still_listed, now)
            if outcome is not None:
                outcomes.append(outcome)
                del self._under_way[key]
            elif kill.is_in_grace and kill.entry.effective_step.scope == "process":
                used_now = used.get(key)
                # Only fully known use shows that it is enough; other scopes are completed regardless of use.
                if used_now is not None and used_now <= kill.entry.threshold_bytes:
                    kill.spare(now)
        return tuple(outcomes)

    def interrupt(self, reason: str, now: Now) -> tuple[Outcome, ...]:
        """Stop all kills without a further signal."""
        under_way = self._under_way.values()
        outcomes = tuple(kill.stop(Result.INTERRUPTED, reason, now, is_final=False) for kill in under_way)
        self._under_way.clear()
        self.release()
        return outcomes
