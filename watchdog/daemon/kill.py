"""One kill, from its first signal until its memory is seen free."""

import math
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from enum import Enum, auto
from typing import Final, Protocol

from watchdog.core.model import Now, ProcessKey
from watchdog.core.mps import DRAIN
from watchdog.core.plan import Outcome, PlanEntry, Result, Sent
from watchdog.core.transfers import Windows
from watchdog.daemon.drain import BUSY, Drain, Drains, SeenClients
from watchdog.node.process import Handle

MAX_ROUNDS = 10  # of forks found after SIGKILL; more than that is a fork bomb
_SEARCH_EVERY_S = 1.0  # a search for new processes reads the cgroup of every process on the node
_MOST_JOINED = 10_000  # tracked in one grace period; processes of a fork bomb beyond that get only SIGKILL
_POLL_FIRST_S = 0.02
_POLL_MAX_S = 0.5
_SETTLES_S = 2.0  # the most between a process releasing its GPU memory and its end
HAD_ENDED: Final = "its processes had ended"
ENOUGH: Final = "usage was back within the threshold after SIGTERM, so nothing more was sent"


class ActionRecord(Protocol):
    """The record of actions. No method waits for the disk, and none raises."""

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> Future[int]:
        """Commit the intention to disk: its number once it is there. After a RecordError nothing may be signalled."""

    def took_too_long(self, action: int) -> bool:
        """Whether an intention was on disk too late, as the journal's thread measured it; to be asked once for each."""

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn before the first signal."""

    def withdraw_once_written(self, intended: Future[int], reason: str, now: Now) -> None:
        """Record the withdrawal of an intention that is still being written, as soon as it is on disk."""

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Record the result of an action."""

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long after the first signal the memory was seen free; None if it was not, in time."""

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed."""

    def transfers(self, windows: Windows) -> None:
        """Record whose bytes count as unknown, or did in the last hour, since they may have changed hands."""


def withdraw(record: ActionRecord, entry: PlanEntry, number: int, reason: str, now: Now, *, by_change: bool) -> Outcome:
    """Withdraw an intention, of a kill or an eviction, before anything was done."""
    record.withdraw(number, reason, now)
    withdrawn = Result.WITHDRAWN
    return Outcome(entry=entry, result=withdrawn, at=now, reason=reason, number=number, by_change=by_change)


class _Phase(Enum):
    DRAINING = auto()  # until the first SIGTERM or SIGKILL, which MPS clients are drained before
    GRACE = auto()  # until the first SIGKILL is sent, however long after the end of the grace period that is
    KILLING = auto()
    RELEASING = auto()
    ENDED = auto()


class Kill:
    """A kill in progress. Every method returns at once; `next_wake_s` is the CLOCK_BOOTTIME of its next step.

    `find_members` returns the living processes of the victim, each held, and whether these are certainly all. The grace
    period begins with SIGTERM, after all MPS clients among them have been drained (ADR 16).
    """

    def __init__(
        self,
        entry: PlanEntry,
        number: int,
        first_signal: Now,
        release_timeout_s: float,
        find_members: Callable[[], tuple[list[Handle], bool]],
        record: ActionRecord,
    ) -> None:
        self.entry = entry
        self._number = number  # in the journal
        self.victims: tuple[str, ...] = ()  # in words
        self._first_signal = first_signal
        self._release_timeout_s = release_timeout_s
        self._find_members = find_members
        self._record = record
        self._handles: dict[ProcessKey, Handle] = {}
        self._found_s: dict[ProcessKey, float] = {}  # processes that joined and got no signal yet
        self._killed: set[ProcessKey] = set()
        self._denied: set[ProcessKey] = set()
        self._sent: dict[str, tuple[float, set[ProcessKey]]] = {}
        self._searched_s: float | None = None
        self._rounds = 0
        self._is_spared = False
        self._is_to_begin = False
        self._result = Result.DONE
        self._reason = ""
        start_s = first_signal.boottime_s
        self._phase = _Phase.GRACE
        self._grace_ends_s = start_s + self.entry.definition.grace_s
        self._poll_s = _POLL_FIRST_S
        self._not_before_s = start_s
        self.next_wake_s = start_s

    def send_first(
        self,
        handles: list[Handle],
        drains: Drains,
        seen: SeenClients,
        objection: Callable[[PlanEntry], str | None],
        is_fresh: Callable[[], bool],
    ) -> str | None:
        """Send SIGTERM, or SIGKILL if the step has no grace period; the reason if nothing was sent or asked.

        The signal comes before any search for forks, during which the last look would age. If there are MPS clients,
        the first of them is drained instead: the kill has begun once that request was sent. `seen` are those of the
        last full reading. `objection` gives a reason against the first signal, `is_fresh` whether the last look counts.
        """
        self._handles = {handle.key: handle for handle in handles}
        self._objection = objection
        self.drain = Drain(
            drains,
            self.entry,
            seen,
            note=self._note_drained,
            may_live=self._may_live,
            is_fresh=is_fresh,
        )
        why = self.drain.advance(self._first_signal)
        if self.drain.is_clear:
            self._send(self._first_kind, handles, self._first_signal)
        elif self.drain.has_asked:
            self._phase, self._grace_ends_s, self._is_to_begin = _Phase.DRAINING, math.inf, True
        if self._sent or self._result is Result.FAILED or self._phase is _Phase.DRAINING:
            return None
        return HAD_ENDED if self.drain.is_clear else why or BUSY

    @property
    def has_begun(self) -> bool:
        """Whether anything was sent: a signal, or a request to drain a client."""
        return not self._is_to_begin or bool(self._sent)

    @property
    def _first_kind(self) -> signal.Signals:
        return signal.SIGTERM if self.entry.definition.grace_s > 0 else signal.SIGKILL

    def _note_drained(self, key: ProcessKey, now: Now) -> None:
        self._note_sent(DRAIN, [key], now)

    def _may_live(self, key: ProcessKey) -> bool:
        handle = self._handles.get(key)
        return handle is None or handle.alive()

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The signals that were sent, in order."""
        return tuple(
            Sent(signal=name, keys=frozenset(keys), after_s=after_s) for name, (after_s, keys) in self._sent.items()
        )

    def outcome(self, result: Result, reason: str, now: Now) -> Outcome:
        """The outcome at this moment, with every process that got a signal."""
        return Outcome(
            entry=self.entry,
            result=result,
            at=now,
            reason=reason,
            signalled=tuple(sorted({key for name, (_, keys) in self._sent.items() if name != DRAIN for key in keys})),
            sent=self.sent,
            number=self._number,
        )

    def begun(self, now: Now) -> Outcome:
        """The outcome right after the first signal."""
        begun = self.outcome(Result.DONE, "", now)
        return replace(begun, victims=self.victims, reaction_s=reaction_s(self.entry, now))

    @property
    def has_ended(self) -> bool:
        """Whether its processes have ended, so that only their memory is waited for."""
        return self._phase in (_Phase.RELEASING, _Phase.ENDED)

    @property
    def is_in_grace(self) -> bool:
        """Whether SIGKILL is still to come."""
        return self._phase in (_Phase.DRAINING, _Phase.GRACE)

    def postpone(self, now: Now) -> None:
        """Postpone SIGKILL for a moment, if it is still to come, and whatever comes before the grace period."""
        if self.is_in_grace:
            self._grace_ends_s = max(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)
            self._not_before_s = now.boottime_s + _POLL_MAX_S / 2
            self.drain.postpone(now)

    def spare(self, now: Now) -> None:
        """Send no SIGKILL. Whether SIGTERM ends it shows a little later: an ending process frees its memory first.

        A client that has been drained can't continue working, so it is not spared.
        """
        if not self._is_spared and not self.drain.has_sent:
            self._is_spared = True
            self._grace_ends_s = min(self._grace_ends_s, now.boottime_s + _SETTLES_S)

    def escalate(self, now: Now) -> None:
        """End the grace period: a stronger step has come due on the same victim. It never adds a victim."""
        self._grace_ends_s = min(self._grace_ends_s, now.boottime_s)
        if not self.has_ended:
            self.next_wake_s = min(self.next_wake_s, now.boottime_s)

    def advance(self, now: Now) -> Outcome | None:
        """Do what is due by now; the outcome if it has failed."""
        if self._result is Result.FAILED and not self._sent:
            return self.stop(Result.FAILED, self._reason, now)
        may_ask, has_begun = now.boottime_s >= self._not_before_s, bool(self._sent)
        why = None if self.has_ended else self.drain.advance(now, may_ask=may_ask, has_begun=has_begun)
        if why is not None:
            no_more = "no process was signalled" if self._phase is _Phase.DRAINING else "no further signal was sent"
            return self.stop(Result.FAILED, f"{why}; {no_more}", now)
        if self._phase is _Phase.DRAINING:
            return self._begin_grace(now)
        if self._phase is _Phase.GRACE and now.boottime_s < self._grace_ends_s:
            if self._have_all_ended(now):
                self._wait_for_memory(now)
            else:
                self.next_wake_s = min(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)
            return None
        if self._is_spared and self.is_in_grace:
            return self.call_off(Result.GONE, ENOUGH, now)
        return None if self.has_ended else self._kill(now)

    def _begin_grace(self, now: Now) -> Outcome | None:
        """Send the first signal, if all clients have been drained; their end may have been enough."""
        if not self._close_ended() and not self.drain.is_asking:
            forks, are_all = self._find_forks()
            close_all(forks.values())
            if not forks and are_all:
                if not self.has_begun:
                    return self.stop(Result.GONE, HAD_ENDED, now)
                self._wait_for_memory(now)
                return None
        self.next_wake_s = now.boottime_s + _POLL_MAX_S / 2
        why = None if self.has_begun or not self.drain.is_clear else self._objection(self.entry)
        if why is not None:
            return self.stop(Result.INTERRUPTED, why, now)
        if self.drain.is_clear and now.boottime_s >= self._not_before_s:
            self._phase = _Phase.GRACE
            self._grace_ends_s = min(self._grace_ends_s, now.boottime_s + self.entry.definition.grace_s)
            self._send(self._first_kind, [handle for handle in self._handles.values() if handle.alive()], now)
            self.next_wake_s = now.boottime_s
        return None

    def on_reading(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> Outcome | None:
        """Process a reading; the outcome once the memory is free, or was not freed in time."""
        if self._phase is not _Phase.RELEASING:
            return None
        first_s = self._first_signal.boottime_s
        waited_s = now.boottime_s - first_s
        grace_s = max(self.entry.definition.grace_s, self._grace_ends_s - first_s)
        if not any(still_listed(key) for key in {*self._handles, *self.entry.outlived}):
            reason, release_s = self._reason, waited_s
        elif waited_s >= grace_s + self._release_timeout_s:
            reason, release_s = "the driver still lists its memory after release_timeout", None
        else:
            return None
        self._record.released(self._number, now, release_s, reason)
        return replace(self._finish(self._result, reason, now), release_s=release_s)

    def call_off(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Send no further signal; None if none is needed, since SIGTERM has ended all its processes."""
        if self._can_withdraw(now):
            return self._withdraw(reason, now)
        if not self._close_ended():
            forks, are_all = self._find_forks()
            close_all(forks.values())
            if not forks and are_all:
                self._wait_for_memory(now)
                return None
        return self.stop(result, reason, now)

    def stop(self, result: Result, reason: str, now: Now, *, is_final: bool = True) -> Outcome:
        """End it without a further signal; it is withdrawn if nothing was sent.

        Unless an interruption is final, the next daemon reads the journal and waits for the memory.
        """
        if self._can_withdraw(now):
            return self._withdraw(reason, now)
        self._cancel_drain(now)
        was_over = self._phase is _Phase.RELEASING
        if not was_over:
            self._record.end(self._number, result, reason, now)
        if is_final and result is Result.INTERRUPTED:
            self._record.released(self._number, now, None, reason)
        return self._finish(self._result if was_over else result, reason, now)

    def _can_withdraw(self, now: Now) -> bool:
        """Whether nothing was sent; then nothing is sent any more."""
        if not self.has_begun:
            self._cancel_drain(now)
        return not self.has_begun

    def _cancel_drain(self, now: Now) -> None:
        """Send no further request; one that was sent since the last step is recorded."""
        self.drain.cancel()
        self.drain.note_sent(now)

    def _withdraw(self, reason: str, now: Now) -> Outcome:
        self._record.withdraw(self._number, reason, now)
        return self._finish(Result.WITHDRAWN, reason, now)

    def _have_all_ended(self, now: Now) -> bool:
        """Whether no process is left in the grace period; processes started since its beginning get SIGTERM.

        They have the rest of the grace period even if the first ones have ended. A program may start one on SIGTERM,
        for instance to save its work. They are searched for at most once a second.
        """
        was_alive = self._close_ended()
        if self.entry.effective_step.scope == "process":
            return not was_alive
        if now.boottime_s < self._next_search_s(was_alive=was_alive) or len(self._handles) > _MOST_JOINED:
            return False
        self._searched_s = now.boottime_s
        joined, are_all = self._find_joined(now)
        self._send(signal.SIGTERM, [self._handles[key] for key in self._found_s if self._may_signal(key)], now)
        return not was_alive and not joined and are_all

    def _find_joined(self, now: Now) -> tuple[dict[ProcessKey, Handle], bool]:
        joined, are_all = self._find_forks()
        self._handles |= joined
        self._found_s |= dict.fromkeys(joined, now.boottime_s)
        return joined, are_all

    def _may_signal(self, key: ProcessKey) -> bool:
        """Whether no MPS client would be ended undrained: a process that joined may be one until a reading is taken."""
        return self.drain.is_clear and self.drain.has_read(self._found_s.get(key, -math.inf))

    def _next_search_s(self, *, was_alive: bool) -> float:
        """When to search next: at once if all have ended, but never twice within a second."""
        if self._searched_s is not None:
            return self._searched_s + _SEARCH_EVERY_S
        first_s = self._first_signal.boottime_s
        # So that there is a search in a short grace period as well.
        return first_s + min(_SEARCH_EVERY_S, self.entry.definition.grace_s / 2) if was_alive else first_s

    def _wait_for_memory(self, now: Now) -> None:
        self._phase = _Phase.RELEASING
        self._cancel_drain(now)
        self._grace_ends_s = min(self._grace_ends_s, now.boottime_s)
        self._record.end(self._number, self._result, self._reason, now)
        self.next_wake_s = float("inf")

    def _kill(self, now: Now) -> Outcome | None:
        """Send SIGKILL to the remaining processes, including new forks, and check whether all have ended."""
        # In this order: only a living member can start a new one, so a search that begins when none is alive, and
        # finds none, is conclusive.
        was_alive = self._close_ended()
        forks, are_all = self._find_joined(now)
        if not was_alive and not forks and are_all:
            self._wait_for_memory(now)
            return None
        self._rounds += bool(forks)
        if self._rounds > MAX_ROUNDS:
            return self.stop(Result.FAILED, f"it was still forking after {MAX_ROUNDS} rounds of SIGKILL", now)
        left = {key: handle for key, handle in self._handles.items() if handle.alive()}
        fresh = (key for key in left if key not in self._killed and self._may_signal(key))
        self._send(signal.SIGKILL, [left[key] for key in fresh], now)
        if left and left.keys() <= self._denied:
            return self.stop(Result.FAILED, self._reason, now)
        if now.boottime_s >= self._grace_ends_s + self._release_timeout_s:
            reason = f"{len(left)} processes did not end after SIGKILL; the driver may hold them"
            reason = reason if self.drain.is_clear else "an MPS client among its processes was not drained in time"
            reason = reason if left or are_all else "not all its processes are known to have ended: see the data gaps"
            return self.stop(Result.FAILED, reason, now)
        self.next_wake_s = now.boottime_s + self._poll_s
        self._poll_s = min(self._poll_s * 2, _POLL_MAX_S)
        return None

    def _close_ended(self) -> bool:
        """Close the handles of ended processes; return whether any is alive."""
        is_any_alive = False
        for handle in self._handles.values():
            if handle.alive():
                is_any_alive = True
            else:
                handle.close()
        return is_any_alive

    def _find_forks(self) -> tuple[dict[ProcessKey, Handle], bool]:
        forks: dict[ProcessKey, Handle] = {}
        if self.entry.effective_step.scope == "process":
            return forks, True
        members, are_all = self._find_members()
        for handle in members:
            if handle.key in self._handles:
                handle.close()
            else:
                forks[handle.key] = handle
        return forks, are_all

    def _send(self, number: signal.Signals, handles: list[Handle], now: Now) -> None:
        for handle in handles:
            self._found_s.pop(handle.key, None)
        self._killed |= {handle.key for handle in handles} if number is signal.SIGKILL else set()
        reached = []
        for handle in handles:
            try:
                handle.signal(number)
            except ProcessLookupError:
                continue
            except BlockingIOError:  # no descriptor is left for it now, so it is tried again with the next SIGKILL
                self._killed.discard(handle.key)
                continue
            except PermissionError as error:
                # It has changed its user since signal 0, or AppArmor permits only signal 0; the others still have to
                # be ended.
                self._result = Result.FAILED
                self._reason = f"{number.name} to process {handle.key.pid} was denied: {error.strerror}"
                self._denied |= {handle.key} if number is signal.SIGKILL else set()
                continue
            reached.append(handle.key)
        if reached:
            self._note_sent(number.name, reached, now)
            self._phase = _Phase.KILLING if number is signal.SIGKILL else self._phase

    def _note_sent(self, name: str, keys: list[ProcessKey], now: Now) -> None:
        after_s = now.boottime_s - self._first_signal.boottime_s
        self._sent.setdefault(name, (after_s, set()))[1].update(keys)
        self._record.signalled(self._number, now, name, keys)

    def _finish(self, result: Result, reason: str, now: Now) -> Outcome:
        self._phase = _Phase.ENDED
        self.drain.cancel()
        close_all(self._handles.values())
        return self.outcome(result, reason, now)


def close_all(handles: Iterable[Handle]) -> None:
    """Let go of processes that are held."""
    for handle in handles:
        handle.close()


def reaction_s(entry: PlanEntry, now: Now) -> float | None:
    """Seconds from the last conclusive reading not above the threshold, plus `for`, until now; None without one.

    None too if a tally was due, which has seen such readings all the time.
    """
    if entry.not_above is None or entry.tally is not None:
        return None
    return max(now.boottime_s - entry.not_above.boottime_s - entry.definition.for_s, 0.0)
