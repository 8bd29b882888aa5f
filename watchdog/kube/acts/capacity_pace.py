"""When a node's capacity may be changed again: after a change that was made, one that was undone, one that failed."""

import threading
from typing import Final

from watchdog.core.units import format_quantity
from watchdog.kube.acts.capacity_patch import Change
from watchdog.kube.api.answers import Answer
from watchdog.kube.api.backoff import Backoff

# A change that was made is seen in the watch within this time; until then what is known of the node is old.
_ECHO_S: Final = 5.0
# What stays this long is not contested.
_QUIET_S: Final = 600.0
# So often in a row an undone change is made again at once: a kubelet may start twice.
PATIENCE: Final = 3


class CapacityPace:
    """Says when the next change may be made; seconds are those of CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self.not_before_s = 0.0
        self.failures = 0
        self._uid: str | None = None
        self._made: Change | None = None
        self._made_at_s = 0.0
        self._reverts = 0
        never = threading.Event()  # the keeper waits by itself
        self._contested = Backoff(never, first_s=8.0, longest_s=600.0)
        # A server that does not answer may be up again at any moment; one that refuses waits for a person.
        self._unavailable = Backoff(never)
        self._refused = Backoff(never, first_s=1.0, longest_s=60.0)

    def awaits_echo(self, change: Change, now_s: float) -> bool:
        """Whether this very change has just been made, and the node is known as it was before."""
        return change == self._made and now_s - self._made_at_s < _ECHO_S

    def consider(self, change: Change, now_s: float) -> str | None:
        """Look at a change that has become necessary; a sentence if somebody else undoes it again and again."""
        made, self._made = self._made, None
        if change.uid != self._uid:
            # Another object, to which nobody has done anything yet.
            self._uid, self._reverts, self.not_before_s = change.uid, 0, 0.0
            return None
        if made is None or (made.resource, made.amount) != (change.resource, change.amount):
            return None
        if now_s - self._made_at_s >= _QUIET_S:
            self._reverts = 0
            self._contested.reset()
        self._reverts += 1
        if self._reverts < PATIENCE:
            return None
        self.not_before_s = now_s + self._contested.next_s()
        return (
            f"node {change.node}: {change.resource} does not stay at {format_quantity(change.amount or 0)}, something "
            "else sets it to another amount again and again. A device plugin that offers the same resource does so "
            "(the kubelet writes its number at every status sync): name another resource in [capacity], or take it "
            "out of the plugin. It is tried again, less and less often"
        )

    def made(self, change: Change, now_s: float) -> None:
        """The server has made a change."""
        self.failures = 0
        self._unavailable.reset()
        self._refused.reset()
        self._made, self._made_at_s = change, now_s

    def failed(self, answer: Answer | None, now_s: float) -> None:
        """A change was not made; no answer: none came."""
        self.failures += 1
        is_unavailable = answer is None or answer.status == 429 or answer.status >= 500
        backoff = self._unavailable if is_unavailable else self._refused
        self.not_before_s = now_s + backoff.next_s(answer.retry_after_s if answer is not None else None)
