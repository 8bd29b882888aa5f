"""All kills in progress: each advances independently, and none blocks another action."""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from watchdog.core.assessment import AccountKey, Attribution
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now, Pod
from watchdog.core.plan import Moment, Objection, OpenCycle, Outcome, PlanEntry, Result, note_sent
from watchdog.daemon.actions.action import (
    ActionReading,
    ActionRecord,
    Beginning,
    Judged,
    Progress,
    RecordedAction,
    withdraw,
)
from watchdog.daemon.actions.clearance import Clearances, clearances_for
from watchdog.daemon.actions.kill import HAD_ENDED, Kill
from watchdog.daemon.actions.last_look import LastLook
from watchdog.daemon.actions.victims import Victims, close_all
from watchdog.node.process import Handle

_MOST_DESCRIBED: Final = 20
# A search for processes that takes this long is not repeated between the last look, which must not age, and the signal.
_LONG_SEARCH_S: Final = 0.5
_NOT_ALL: Final = "its processes could not all be read or held: see the data gaps"


class Processes(Protocol):
    """Finds processes to act on."""

    def members(self, pod: Pod, containers: frozenset[str]) -> tuple[list[Handle], bool]:
        """Every living process of these containers (IDs) of a pod, each held, and whether these are certainly all.

        Never PID 1, this daemon or a server that other pods need.
        """

    def leads_container(self, pid: int) -> bool:
        """Whether the end of a process may end the other processes of its container; True if unknown."""

    def describe(self, pid: int) -> str:
        """The name and user of a process, for people."""


class Kills:
    """The kills in progress, at most one per account, each advancing independently."""

    lacks = None  # a kill is always possible

    def __init__(
        self,
        processes: Processes,
        record: ActionRecord,
        clock: Callable[[], Now],
        clearances: Clearances,
    ) -> None:
        self._record = record
        self._processes = processes
        self._clock = clock
        self._clearances = clearances
        self._under_way: dict[AccountKey, Kill] = {}
        self._held: dict[AccountKey, tuple[PlanEntry, list[Handle]]] = {}  # since the intention
        self._begun: list[Outcome] = []
        self._ended: list[Outcome] = []

    @property
    def needs_readings(self) -> bool:
        """Whether any is in progress: a reading shows whether its memory is free."""
        return bool(self._under_way)

    @property
    def next_wake_s(self) -> float:
        """CLOCK_BOOTTIME of the next step of any kill; infinity if there is none."""
        return min((kill.next_wake_s for kill in self._under_way.values()), default=float("inf"))

    def noted_in(self, ledger: Ledger) -> Ledger:
        """The ledger with the signals that each kill has sent, and whether its processes have ended."""
        kills = self._under_way.items()
        sent = ((key, tuple(sent.signal for sent in kill.sent), kill.has_ended) for key, kill in kills)
        return note_sent(ledger, sent) if kills else ledger

    def intend(self, entry: PlanEntry, attribution: Attribution) -> "Future[int] | Outcome | None":
        """Write down the intention of a kill, if its processes can be signalled now."""
        if not clearances_for(entry, self._clearances).queue(entry, self._clock()):
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
        self, entry: PlanEntry, number: int, opened: OpenCycle, last_look: LastLook, objection: Objection
    ) -> Beginning:
        """Begin a kill: its outcome is that right after the signal, or the result if it could not begin."""
        timeout_s = opened.inputs.policy.release_timeout_s
        outcome = self.start(entry, number, timeout_s, objection, last_look.fresh_until_s)
        if outcome is not None and outcome.result is Result.WITHDRAWN:
            return Beginning(progress=None, at=outcome.at, entry=entry, outcome=outcome)
        entry = replace(entry, taken=False) if outcome is None else entry
        at = last_look.at if outcome is None else outcome.at
        return Beginning(progress=entry.under_way(at, timeout_s), at=at, entry=entry, outcome=outcome)

    def start(
        self,
        entry: PlanEntry,
        number: int,
        release_timeout_s: float,
        objection: Objection,
        fresh_until_s: float = math.inf,
    ) -> Outcome | None:
        """Begin a kill by a last look that counts until `fresh_until_s` (CLOCK_BOOTTIME); its outcome so far.

        None: what comes before the signal has been requested, and it begins once that is done, or is withdrawn.
        """
        try:
            ready, are_all = self._take_ready(entry)
        except PermissionError as error:
            now, reason = self._clock(), f"{error}; no process was signalled"
            self._record.end(number, Result.FAILED, reason, now)
            return Outcome(entry=entry, result=Result.FAILED, at=now, reason=reason, number=number)
        described = tuple(self._processes.describe(handle.key.pid) for handle in ready[:_MOST_DESCRIBED])
        leads = self._processes.leads_container
        clearances = clearances_for(entry, self._clearances)
        why = clearances.why_not(entry, lambda: any(leads(handle.key.pid) for handle in ready))
        if not ready:
            why = HAD_ENDED if are_all else _NOT_ALL
        by_change = why in (None, HAD_ENDED)
        why = why or objection(entry, Moment.FIRST_SIGNAL)
        if why is not None:
            close_all(ready)
            return self._withdraw(entry, number, why, by_change=by_change)
        now = self._clock()
        is_fixed = entry.effective_step.scope == "process"
        victims = Victims(ready, None if is_fixed else lambda: self._members(entry), described)
        kill = Kill(entry, RecordedAction(self._record, number, now), release_timeout_s, victims)
        why = kill.send_first(clearances, objection, partial(self._is_at_most, fresh_until_s))
        if why is not None:
            victims.close()
            return self._withdraw(entry, number, why, by_change=why == HAD_ENDED)
        self._under_way[entry.account] = kill
        ended = kill.advance(now)
        if ended is not None:
            del self._under_way[entry.account]
            return ended
        return kill.begun(now) if kill.has_begun else None

    def _withdraw(self, entry: PlanEntry, number: int, why: str, *, by_change: bool) -> Outcome:
        self._clearances.leave(entry.account)
        return withdraw(self._record, entry, number, why, self._clock(), by_change=by_change)

    def takes_long(self, entry: PlanEntry) -> bool:
        """Whether finding its processes took long: others go first then, since their last look would age meanwhile."""
        return entry.account in self._held

    def _take_ready(self, entry: PlanEntry) -> tuple[list[Handle], bool]:
        """The processes to act on, and whether these are certainly all; PermissionError if any can't be signalled."""
        handles, are_all = self._take_held(entry), True
        try:
            ready = self._reachable(entry, handles)
            if not ready:  # none was held, or others have taken their place
                close_all(handles)
                handles, are_all = self._members(entry)
                ready = self._reachable(entry, handles)
        except PermissionError:
            close_all(handles)
            raise
        kept = {handle.key for handle in ready}
        close_all(handle for handle in handles if handle.key not in kept)
        return ready, are_all

    def release(self) -> None:
        """Release the processes that are held for kills that have not begun."""
        for _, handles in self._held.values():
            close_all(handles)
        self._held.clear()

    def _is_at_most(self, limit_s: float) -> bool:
        return self._clock().boottime_s <= limit_s

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

    def carry_on(
        self, entry: PlanEntry, judged: Judged, opened: OpenCycle, last_look: LastLook | None, now: Now
    ) -> PlanEntry | None:
        """End the grace period of this account's kill, if the entry escalates; nothing else of it is left to do."""
        if entry.escalates:
            self.escalate(entry, now)
        return None

    def escalate(self, entry: PlanEntry, now: Now) -> None:
        """End the grace period of this account's kill: a stronger step has come due on the same victim."""
        kill = self._under_way.get(entry.account)
        if kill is not None:
            kill.escalate(now)

    def give_way(self, begun: Outcome) -> None:
        """A kill gives way to no other action."""

    def advance(self, now: Now, objection: Objection, *, policy_unsettled: bool = False) -> None:
        """Advance each kill; one in its grace period to which there is an objection gets no further signal.

        While `policy_unsettled`, the first SIGKILL is postponed.
        """
        for key, kill in list(self._under_way.items()):
            had_begun = kill.has_begun
            moment = Moment.GRACE if had_begun else Moment.REQUEST
            if kill.may_be_called_off and (reason := objection(kill.entry, moment)) is not None:
                outcome = kill.call_off(Result.INTERRUPTED, reason, now)
            else:
                if policy_unsettled:
                    kill.postpone(now)
                is_due = kill.next_wake_s <= now.boottime_s or kill.clearance.is_asking
                outcome = kill.advance(now) if is_due else None
            if kill.has_begun and not had_begun:
                self._begun.append(kill.begun(now))
            self._end(key, outcome)

    def on_reading(self, reading: ActionReading) -> None:
        """Process a reading: end the kills whose memory is free, and spare single processes if SIGTERM was enough."""
        assessments = reading.assessments if self._under_way else ()
        used = {each.account: each.compared for each in assessments if each.is_compared_known}
        for key, kill in list(self._under_way.items()):
            kill.update_clearance(self._clearances)
            outcome = kill.on_reading(reading.still_listed, reading.now)
            self._end(key, outcome)
            if outcome is None and kill.may_be_called_off and kill.entry.effective_step.scope == "process":
                used_now = used.get(key)  # what others use of its claim included
                # Only fully known use shows that it is enough; other scopes are completed regardless of use.
                if used_now is not None and used_now <= kill.entry.threshold_bytes:
                    kill.spare(reading.now)

    def interrupt(self, now: Now) -> None:
        """Stop all kills without a further signal."""
        for key, kill in list(self._under_way.items()):
            self._end(key, kill.interrupt(now))
        self.release()

    def _end(self, key: AccountKey, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._ended.append(outcome)
            del self._under_way[key]

    def pop_progress(self) -> Progress:
        """The kills that have begun since the last call, after waiting for their clearance, and those that ended."""
        progress = Progress(begun=tuple((begun, None) for begun in self._begun), ended=tuple(self._ended))
        self._begun, self._ended = [], []
        return progress
