"""One kill, from its first signal until its memory is seen free."""

import math
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Moment, Objection, Outcome, PlanEntry, Result, Sent
from watchdog.daemon.actions.action import RecordedAction, reaction_s
from watchdog.daemon.actions.clearance import CLEAR, Clearance, Clearances
from watchdog.daemon.actions.victims import Victims

MAX_ROUNDS = 10  # of forks found after SIGKILL; more than that is a fork bomb
_FIRST_SEARCH_S = 1.0  # into the grace period
_POLL_FIRST_S = 0.02
_POLL_MAX_S = 0.5
_SETTLES_S = 2.0  # the most between a process releasing its GPU memory and its end
HAD_ENDED: Final = "its processes had ended"
ENOUGH: Final = "usage was back within the threshold after SIGTERM, so nothing more was sent"


class _Phase(Enum):
    CLEARING = auto()  # until the first SIGTERM or SIGKILL, before which its clearance is waited for
    GRACE = auto()  # until the first SIGKILL is sent, however long after the end of the grace period that is
    KILLING = auto()
    RELEASING = auto()
    ENDED = auto()


# When the daemon ended, by what the kill was doing.
_STOPPED: Final = {
    _Phase.CLEARING: "before the first SIGTERM or SIGKILL",
    _Phase.GRACE: "in the grace period",
    _Phase.KILLING: "before all its processes had ended",
    _Phase.RELEASING: "before its memory was seen free",
    _Phase.ENDED: "after that",
}


class Kill:
    """A kill in progress. Every method returns at once; `next_wake_s` is the CLOCK_BOOTTIME of its next step.

    The grace period begins with SIGTERM, for which its clearance may have to be waited for.
    """

    def __init__(self, entry: PlanEntry, recorded: RecordedAction, release_timeout_s: float, victims: Victims) -> None:
        self.entry = entry
        self._recorded = recorded
        self._victims = victims
        self.clearance: Clearance = CLEAR
        self._release_timeout_s = release_timeout_s
        self._rounds = 0
        self._is_spared = False
        self._is_to_begin = False
        self._is_grace_over = False
        start_s = recorded.began.boottime_s
        self._phase = _Phase.GRACE
        self._grace_ends_s = start_s + self.entry.definition.grace_s
        self._poll_s = _POLL_FIRST_S
        self._not_before_s = start_s
        self.next_wake_s = start_s

    def send_first(
        self, clearances: Clearances, objection: Objection, is_fresh: Callable[[], bool] = lambda: True
    ) -> str | None:
        """Send SIGTERM, or SIGKILL if the step has no grace period; the reason if nothing was sent or requested.

        The signal comes before any search for forks, during which the last look would age. If something has to come
        before the signal, that is requested instead: the kill has begun once the request was sent. Then `objection` is
        asked right before the signal, and `is_fresh` whether the last look still counts.
        """
        self._objection = objection
        self._get_clearance(clearances, is_fresh)
        why = self.clearance.advance(self._recorded.began)
        if why is None and self.clearance.is_clear:
            self._send(self._first_kind, self._victims.keys, self._recorded.began)
        elif self.clearance.has_asked:
            self._phase, self._grace_ends_s, self._is_to_begin = _Phase.CLEARING, math.inf, True
        if self.sent or self._victims.refusal or self._phase is _Phase.CLEARING:
            return None
        return why or (HAD_ENDED if self.clearance.is_clear else self.clearance.why_not_begun)

    def _get_clearance(self, clearances: Clearances, is_fresh: Callable[[], bool] = lambda: True) -> None:
        may_live = self._victims.may_live
        self.clearance = clearances.begin(
            self.entry, note=self._recorded.note_sent, may_live=may_live, is_fresh=is_fresh
        )

    def update_clearance(self, clearances: Clearances) -> None:
        """Take what the last reading shows of what stands in the way of a signal."""
        if self.clearance is CLEAR and clearances.gpus:  # nothing did when it began
            self._get_clearance(clearances)
        self.clearance.on_reading()

    @property
    def has_begun(self) -> bool:
        """Whether anything was sent: a signal, or a request that has to come before it."""
        return not self._is_to_begin or bool(self.sent)

    @property
    def _first_kind(self) -> signal.Signals:
        return signal.SIGTERM if self.entry.definition.grace_s > 0 else signal.SIGKILL

    @property
    def sent(self) -> tuple[Sent, ...]:
        """The signals that were sent, in order."""
        return self._recorded.sent

    def begun(self, now: Now) -> Outcome:
        """The outcome right after the first signal."""
        begun = self._recorded.outcome(self.entry, Result.DONE, "", now)
        return replace(begun, victims=self._victims.described, reaction_s=reaction_s(self.entry, now))

    @property
    def has_ended(self) -> bool:
        """Whether its processes have ended, so that only their memory is waited for."""
        return self._phase in (_Phase.RELEASING, _Phase.ENDED)

    @property
    def may_be_called_off(self) -> bool:
        """Whether SIGKILL is still to come, and perhaps what comes before the first signal."""
        return self._phase in (_Phase.CLEARING, _Phase.GRACE)

    def postpone(self, now: Now) -> None:
        """Postpone SIGKILL for a moment, if it is still to come, and whatever comes before the grace period."""
        if self.may_be_called_off:
            self._grace_ends_s = max(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)
            self._not_before_s = now.boottime_s + _POLL_MAX_S / 2
            self.clearance.postpone(now)

    def spare(self, now: Now) -> None:
        """Send no SIGKILL. Whether SIGTERM ends it shows a little later: an ending process frees its memory first.

        A process that can't continue working after a request that was sent is not spared.
        """
        if not self._is_spared and not self.clearance.has_sent:
            self._is_spared = True
            self._grace_ends_s = min(self._grace_ends_s, now.boottime_s + _SETTLES_S)

    def escalate(self, now: Now) -> None:
        """End the grace period: a stronger step has come due on the same victim. It never adds a victim."""
        self._grace_ends_s = min(self._grace_ends_s, now.boottime_s)
        if not self.has_ended:
            self.next_wake_s = min(self.next_wake_s, now.boottime_s)

    def advance(self, now: Now) -> Outcome | None:
        """Do what is due by now; the outcome if it has failed."""
        if self._victims.refusal and not self.sent:
            return self.stop(Result.FAILED, self._victims.refusal, now)
        may_ask, has_begun = now.boottime_s >= self._not_before_s, bool(self.sent)
        why = None if self.has_ended else self.clearance.advance(now, may_ask=may_ask, has_begun=has_begun)
        if why is not None:
            no_more = "no process was signalled" if self._phase is _Phase.CLEARING else "no further signal was sent"
            return self.stop(Result.FAILED, f"{why}; {no_more}", now)
        if self._phase is _Phase.CLEARING:
            return self._begin_grace(now)
        if self._phase is _Phase.GRACE and now.boottime_s < self._grace_ends_s:
            if self._have_all_ended(now):
                self._wait_for_memory(now)
            else:
                self.next_wake_s = min(self._grace_ends_s, now.boottime_s + _POLL_MAX_S / 2)
            return None
        if self._is_spared and self.may_be_called_off:
            return self.call_off(Result.GONE, ENOUGH, now)
        return None if self.has_ended else self._kill(now)

    def _begin_grace(self, now: Now) -> Outcome | None:
        """Send the first signal, if nothing stands in its way; what was requested may have been enough."""
        are_alive = self._victims.release_ended()
        if not are_alive and not self.clearance.is_asking and self._victims.have_ended():
            if not self.has_begun:
                return self.stop(Result.GONE, HAD_ENDED, now)
            self._wait_for_memory(now)
            return None
        self.next_wake_s = now.boottime_s + _POLL_MAX_S / 2
        is_first = self.clearance.is_clear and not self.has_begun
        why = self._objection(self.entry, Moment.FIRST_SIGNAL) if is_first else None
        if why is not None:
            return self.stop(Result.INTERRUPTED, why, now)
        if self.clearance.is_clear and now.boottime_s >= self._not_before_s:
            self._phase = _Phase.GRACE
            self._grace_ends_s = min(self._grace_ends_s, now.boottime_s + self.entry.definition.grace_s)
            self._send(self._first_kind, self._victims.living, now)
            self.next_wake_s = now.boottime_s
        return None

    def on_reading(self, still_listed: Callable[[ProcessKey], bool], now: Now) -> Outcome | None:
        """Process a reading; the outcome once the memory is free, or was not freed in time."""
        if self._phase is not _Phase.RELEASING:
            return None
        first_s = self._recorded.began.boottime_s
        waited_s = now.boottime_s - first_s
        grace_s = max(self.entry.definition.grace_s, self._grace_ends_s - first_s)
        if not any(still_listed(key) for key in {*self._victims.keys, *self.entry.outlived}):
            reason, release_s = self._victims.refusal, waited_s
        elif waited_s >= grace_s + self._release_timeout_s:
            reason, release_s = "the driver still lists its memory after release_timeout", None
        else:
            return None
        self._recorded.release(release_s, reason, now)
        return replace(self._finish(self._result, reason, now), release_s=release_s)

    def call_off(self, result: Result, reason: str, now: Now) -> Outcome | None:
        """Send no further signal; None if none is needed, since SIGTERM has ended all its processes."""
        if self._has_sent_nothing(now):
            return self._withdraw(reason, now)
        if self._victims.have_ended():
            self._wait_for_memory(now)
            return None
        return self.stop(result, reason, now)

    def interrupt(self, now: Now) -> Outcome:
        """Stop it as it is because the daemon ends; the next one reads the journal and waits for the memory."""
        return self.stop(Result.INTERRUPTED, f"the watchdog was stopped {_STOPPED[self._phase]}", now, is_final=False)

    def stop(self, result: Result, reason: str, now: Now, *, is_final: bool = True) -> Outcome:
        """End it without a further signal; it is withdrawn if nothing was sent.

        Unless an interruption is final, the next daemon reads the journal and waits for the memory.
        """
        if self._has_sent_nothing(now):
            return self._withdraw(reason, now)
        self.clearance.cancel(now)
        was_over = self._phase is _Phase.RELEASING
        if not was_over:
            self._recorded.end(result, reason, now)
        if is_final and result is Result.INTERRUPTED:
            self._recorded.release(None, reason, now)
        return self._finish(self._result if was_over else result, reason, now)

    def _has_sent_nothing(self, now: Now) -> bool:
        """Whether nothing was sent; then nothing is sent any more, and it can be withdrawn."""
        if not self.has_begun:
            self.clearance.cancel(now)
        return not self.has_begun

    def _withdraw(self, reason: str, now: Now) -> Outcome:
        self._recorded.withdraw(reason, now)
        return self._finish(Result.WITHDRAWN, reason, now)

    def _have_all_ended(self, now: Now) -> bool:
        """Whether no process is left in the grace period; processes started since its beginning get SIGTERM.

        They have the rest of the grace period even if the first ones have ended. A program may start one on SIGTERM,
        for instance to save its work. They are searched for at most once a second.
        """
        was_alive = self._victims.release_ended()
        if self._victims.are_fixed:
            return not was_alive
        # So that there is a search in a short grace period as well.
        first_s = self._recorded.began.boottime_s + min(_FIRST_SEARCH_S, self.entry.definition.grace_s / 2)
        has_joined, are_all = self._victims.join_in_turn(now.boottime_s, first_s, was_alive=was_alive)
        self._send(signal.SIGTERM, filter(self._may_signal, self._victims.joined), now)
        return not was_alive and not has_joined and are_all

    def _may_signal(self, key: ProcessKey) -> bool:
        """Whether nothing stands in the way, as far as is known of a process that joined."""
        return self.clearance.permits(self._victims.found_s(key))

    def _wait_for_memory(self, now: Now) -> None:
        self._phase = _Phase.RELEASING
        self.clearance.cancel(now)
        self._grace_ends_s = min(self._grace_ends_s, now.boottime_s)
        self._recorded.end(self._result, self._victims.refusal, now)
        self.next_wake_s = float("inf")

    def _kill(self, now: Now) -> Outcome | None:
        """Send SIGKILL to the remaining processes, including new forks, and check whether all have ended."""
        if not self._is_grace_over:
            # This process or the node may have been paused for longer than that: release_timeout counts from now on.
            self._is_grace_over, self._grace_ends_s = True, max(self._grace_ends_s, now.boottime_s)
        # In this order: only a living member can start a new one, so a search that begins when none is alive, and
        # finds none, is conclusive.
        was_alive = self._victims.release_ended()
        has_joined, are_all = self._victims.join(now.boottime_s)
        if not was_alive and not has_joined and are_all:
            self._wait_for_memory(now)
            return None
        self._rounds += has_joined
        if self._rounds > MAX_ROUNDS:
            return self.stop(Result.FAILED, f"it was still forking after {MAX_ROUNDS} rounds of SIGKILL", now)
        left = self._victims.living
        fresh = (key for key in left if not self._victims.was_killed(key) and self._may_signal(key))
        has_sent = self._send(signal.SIGKILL, fresh, now)
        if self._victims.all_denied(left):
            return self.stop(Result.FAILED, self._victims.refusal, now)
        # What SIGKILL has only just been sent to is looked at once more; MAX_ROUNDS limits how often that happens.
        if now.boottime_s >= self._grace_ends_s + self._release_timeout_s and not has_sent:
            reason = f"{len(left)} processes did not end after SIGKILL; the driver may hold them"
            reason = reason if self.clearance.is_clear else self.clearance.why_late
            reason = reason if left or are_all else "not all its processes are known to have ended: see the data gaps"
            return self.stop(Result.FAILED, reason, now)
        self.next_wake_s = now.boottime_s + self._poll_s
        self._poll_s = min(self._poll_s * 2, _POLL_MAX_S)
        return None

    def _send(self, number: signal.Signals, keys: Iterable[ProcessKey], now: Now) -> bool:
        """Send a signal to these processes; whether it reached any."""
        reached = self._victims.send(number, keys)
        if reached:
            self._recorded.note_sent(number.name, reached, now)
            self._phase = _Phase.KILLING if number is signal.SIGKILL else self._phase
        return bool(reached)

    @property
    def _result(self) -> Result:
        """Its result once it has sent all its signals."""
        return Result.FAILED if self._victims.refusal else Result.DONE

    def _finish(self, result: Result, reason: str, now: Now) -> Outcome:
        self._phase = _Phase.ENDED
        self.clearance.cancel(now)
        self._victims.close()
        return self._recorded.outcome(self.entry, result, reason, now)
