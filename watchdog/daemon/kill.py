"""One kill, from its first signal until its memory is seen free, in steps so that no action blocks another."""

import signal
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from watchdog.core.errors import RecordError
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Outcome, PlanEntry, Result, Sent
from watchdog.node.process import Handle

MAX_ROUNDS = 10  # of forks found after SIGKILL; more than that is a fork bomb
_SEARCH_EVERY_S = 1.0  # a search for new processes reads the cgroup of every process on the node
_MOST_JOINED = 10_000  # tracked in one grace period; processes of a fork bomb beyond that get only SIGKILL
_POLL_FIRST_S = 0.02
_POLL_MAX_S = 0.5
_SETTLES_S = 2.0  # the most between a process releasing its GPU memory and its end
ENOUGH: Final = "usage was back within the threshold after SIGTERM, so nothing more was sent"


class ActionRecord(Protocol):
    """The record of actions. No method waits for the disk, and none raises."""

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit the intention to disk: its number once it is there. After a RecordError nothing may be signalled."""

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Record that an intention was withdrawn before the first signal."""

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Record the withdrawal of an intention that is still being written, as soon as it is on disk."""

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Record which processes got which signal."""

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Record the result of an action."""

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Record how long after the first signal the memory was seen free; None if it was not, in time."""

    def breaker(self, opened: Now | None) -> None:
        """Record when the breaker opened; None: it has closed."""


def at_once(work: Callable[[], int]) -> "Future[int]":
    """An intention that is written while the caller waits, for a record without its own thread."""
    future: Future[int] = Future()
    try:
        future.set_result(work())
    except RecordError as error:
        future.set_exception(error)
    return future


@dataclass(frozen=True, slots=True, kw_only=True)
class KillOrder:
    """The constants of a kill: its plan entry, its number in the journal and the time of the first signal.

    `members` returns the living processes of the victim, each held, and whether these are certainly all; calling it
    again finds forks.
    """

    entry: PlanEntry
    number: int
    first_signal: Now
    release_timeout_s: float
    members: Callable[[], tuple[list[Handle], bool]]


class _Phase(Enum):
    GRACE = auto()  # until the first SIGKILL is sent, however long after the end of the grace period that is
    KILLING = auto()
    RELEASING = auto()
    ENDED = auto()


class Kill:
    """A kill in progress. Every method returns at once; `next_wake_s` is the boot time of its next step."""

    def __init__(self, order: KillOrder, handles: list[Handle], record: ActionRecord) -> None:
        self.order = order
        self.entry = order.entry
        self._record = record
        self._handles = {handle.key: handle for handle in handles}
        self._killed: set[ProcessKey] = set()
        self._denied: set[ProcessKey] = set()
        self._sent: dict[str, tuple[float, set[ProcessKey]]] = {}
        self._searched_s: float | None = None
        self._rounds = 0
        self._is_spared = False
        self._result = Result.DONE
        self._reason = ""
        start_s = order.first_signal.boottime_s
        self._phase = _Phase.GRACE
        self._grace_ends_s = start_s + self.entry.definition.grace_s
        self._poll_s = _POLL_FIRST_S
        self.next_wake_s = start_s

    def send_first(self, handles: list[Handle]) -> None:
        """Send SIGTERM, or SIGKILL if the step has no grace period.

        That comes before any search for forks: the last look would age meanwhile.
        """
        first = signal.SIGTERM if self.entry.definition.grace_s > 0 else signal.SIGKILL
        self._send(first, handles, self.order.first_signal)

    @property
    def victims(self) -> tuple[ProcessKey, ...]:
        """Every process that got a signal."""
        return tuple(sorted({key for _, keys in self._sent.values() for key in keys}))

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The signals that were sent, in order."""
        return tuple(
            Sent(signal=name, keys=frozenset(keys), after_s=after_s) for name, (after_s, keys) in self._sent.items()
        )

    @property
    def came_too_late(self) -> bool:
        """Whether no process was left to signal: nothing was sent, and nothing was denied."""
        return not self._sent and self._result is not Result.FAILED

    @property
    def has_ended(self) -> bool:
        """Whether its processes have ended, so that only their memory is waited for."""
        return self._phase in (_Phase.RELEASING, _Phase.ENDED)

    @property
    def is_in_grace(self) -> bool:
        """Whether SIGKILL is still to come."""
        return self._phase is _Phase.GRACE

    @property
    def ends_within_s(self) -> float:
        """Seconds after the first signal at which waiting for the memory is given up."""
        grace_s = max(self.entry.definition.grace_s, self._grace_ends_s - self.order.first_signal.boottime_s)
        return grace_s + self.order.release_timeout_s

    def hold(self, now: Now) -> None:
        """Postpone SIGKILL for a moment, if it is still to come."""
        if self.is_in_grace:
            self._grace_ends_s = max(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)

    def spare(self, now: Now) -> None:
        """Send no SIGKILL. Whether SIGTERM ends it shows a little later: an ending process frees its memory first."""
        if not self._is_spared:
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
        if self._phase is _Phase.GRACE and now.boottime_s < self._grace_ends_s:
            if self._have_all_ended(now):
                self._wait_for_memory(now)
            else:
                self.next_wake_s = min(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)
            return None
        if self._is_spared and self.is_in_grace:
            return self.call_off(Result.GONE, ENOUGH, now)
        return None if self.has_ended else self._kill(now)

    def see(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> Outcome | None:
        """Process a reading; the outcome once the memory is free, or was not freed in time."""
        if self._phase is not _Phase.RELEASING:
            return None
        waited_s = now.boottime_s - self.order.first_signal.boottime_s
        if not any(still_listed(key) for key in self._handles):
            return self._release(now, release_s=waited_s, reason=self._reason)
        if waited_s >= self.ends_within_s:
            return self._release(now, release_s=None, reason="the driver still lists its memory after release_timeout")
        return None

    def call_off(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Send no further signal; None if none is needed, since SIGTERM has ended all its processes."""
        if not self._close_ended():
            forks, are_all = self._find_forks()
            for handle in forks.values():
                handle.close()
            if not forks and are_all:
                self._wait_for_memory(now)
                return None
        return self.stop(result, reason, now)

    def stop(self, result: Result, reason: str, now: Now, *, is_final: bool = True) -> Outcome:
        """End it without a further signal.

        Unless an interruption is final, the next daemon reads the journal and waits for the memory.
        """
        was_over = self._phase is _Phase.RELEASING
        if not was_over:
            self._record.end(self.order.number, result, reason, now)
        if is_final and result is Result.INTERRUPTED:
            self._record.released(self.order.number, now, None, reason)
        return self._finish(self._result if was_over else result, reason, now)

    def _have_all_ended(self, now: Now) -> bool:
        """Whether no process is left in the grace period; processes started since its beginning get SIGTERM.

        They have the rest of the grace period even if the first ones have ended: a program may start one on SIGTERM,
        for instance to save its work. They are searched for at most once a second.
        """
        was_alive = self._close_ended()
        if self.entry.definition.scope == "process":
            return not was_alive
        if now.boottime_s < self._next_search_s(was_alive=was_alive) or len(self._handles) > _MOST_JOINED:
            return False
        self._searched_s = now.boottime_s
        joined, are_all = self._find_forks()
        self._handles |= joined
        self._send(signal.SIGTERM, list(joined.values()), now)
        return not was_alive and not joined and are_all

    def _next_search_s(self, *, was_alive: bool) -> float:
        """When to search next: at once if all have ended, but never twice within a second."""
        if self._searched_s is not None:
            return self._searched_s + _SEARCH_EVERY_S
        first_s = self.order.first_signal.boottime_s
        # So that there is a search in a short grace period as well.
        return first_s + min(_SEARCH_EVERY_S, self.entry.definition.grace_s / 2) if was_alive else first_s

    def _wait_for_memory(self, now: Now) -> None:
        self._phase = _Phase.RELEASING
        self._record.end(self.order.number, self._result, self._reason, now)
        self.next_wake_s = float("inf")

    def _kill(self, now: Now) -> Outcome | None:
        """Send SIGKILL to what is left, including new forks, and check whether all have ended."""
        # In this order: only a living member can start a new one, so a search that begins when none is alive, and
        # finds none, is conclusive.
        was_alive = self._close_ended()
        forks, are_all = self._find_forks()
        if not was_alive and not forks and are_all:
            self._wait_for_memory(now)
            return None
        self._rounds += bool(forks)
        self._handles |= forks
        if self._rounds > MAX_ROUNDS:
            return self.stop(Result.FAILED, f"it still forked after {MAX_ROUNDS} rounds of SIGKILL", now)
        left = {key: handle for key, handle in self._handles.items() if handle.alive()}
        self._send(signal.SIGKILL, [handle for key, handle in left.items() if key not in self._killed], now)
        if left and left.keys() <= self._denied:
            return self.stop(Result.FAILED, self._reason, now)
        if now.boottime_s >= self._grace_ends_s + self.order.release_timeout_s:
            reason = f"{len(left)} processes did not end after SIGKILL; the driver may hold them"
            reason = reason if left or are_all else "not all its processes are known to have ended: see the data gaps"
            return self.stop(Result.FAILED, reason, now)
        self.next_wake_s = now.boottime_s + self._poll_s
        self._poll_s = min(self._poll_s * 2, _POLL_MAX_S)
        return None

    def _close_ended(self) -> bool:
        """Close the handles of ended processes; return whether any is alive."""
        living = [handle for handle in self._handles.values() if handle.alive()]
        for handle in self._handles.values():
            if handle not in living:
                handle.close()
        return bool(living)

    def _find_forks(self) -> tuple[dict[ProcessKey, Handle], bool]:
        forks: dict[ProcessKey, Handle] = {}
        if self.entry.definition.scope == "process":
            return forks, True
        found, are_all = self.order.members()
        for handle in found:
            if handle.key in self._handles:
                handle.close()
            else:
                forks[handle.key] = handle
        return forks, are_all

    def _send(self, number: signal.Signals, handles: list[Handle], now: Now) -> None:
        self._killed |= {handle.key for handle in handles} if number is signal.SIGKILL else set()
        reached = []
        for handle in handles:
            try:
                handle.signal(number)
            except ProcessLookupError:
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
            after_s = now.boottime_s - self.order.first_signal.boottime_s
            self._sent.setdefault(number.name, (after_s, set()))[1].update(reached)
            self._phase = _Phase.KILLING if number is signal.SIGKILL else self._phase
            self._record.signalled(self.order.number, now, number.name, reached)

    def _release(self, now: Now, *, release_s: float | None, reason: str) -> Outcome:
        self._record.released(self.order.number, now, release_s, reason)
        return self._finish(self._result, reason, now, release_s)

    def _finish(self, result: Result, reason: str, now: Now, release_s: float | None = None) -> Outcome:
        self._phase = _Phase.ENDED
        for handle in self._handles.values():
            handle.close()
        return Outcome(
            entry=self.entry,
            result=result,
            at=now,
            reason=reason,
            signalled=self.victims,
            sent=self.sent,
            number=self.order.number,
            release_s=release_s,
        )


def reaction_s(entry: PlanEntry, now: Now) -> float | None:
    """Seconds from the last conclusive reading not above the threshold, plus `for`, until now; None without one."""
    if entry.not_above is None:
        return None
    return max(now.boottime_s - entry.not_above.boottime_s - entry.definition.for_s, 0.0)
