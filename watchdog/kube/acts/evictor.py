"""Evictions on threads of their own: no pass waits for the API server, and no eviction for another one that hangs."""

import threading
from collections import deque
from typing import Final

from watchdog.bell import Bell
from watchdog.core.eviction import Answer, Attempt, Reply
from watchdog.kube.acts.evict import LONGEST_WAIT_S, evict
from watchdog.kube.api.client import Api

# One that hangs takes half a minute at most. More at once than a node has GPUs would be a burst, not a need.
MOST_AT_ONCE: Final = 8


class ApiEvictor:
    """Makes tries through the API, a few at a time and the others in their order; rings the bell with each reply."""

    def __init__(self, api: Api, bell: Bell) -> None:
        self._api = api
        self._bell = bell
        self._lock = threading.Lock()
        self._waiting: deque[Attempt] = deque()
        self._replies: deque[Reply] = deque()
        self._threads = 0

    def begin(self, attempt: Attempt) -> None:
        """Hand in a try; returns at once."""
        with self._lock:
            self._waiting.append(attempt)
            if self._threads >= MOST_AT_ONCE:
                return
            self._threads += 1
        # As daemons: whoever ends the process does not wait for an API server that hangs.
        threading.Thread(target=self._work, name="api-evict", daemon=True).start()

    def take(self) -> tuple[Reply, ...]:
        """The replies that have come since it was last asked."""
        with self._lock:
            replies = tuple(self._replies)
            self._replies.clear()
        return replies

    def _work(self) -> None:
        """Make tries as long as there are any."""
        while (attempt := self._next()) is not None:
            self._try(attempt)

    def _next(self) -> Attempt | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _try(self, attempt: Attempt) -> None:
        # Whatever happens there is a reply, or the eviction would be awaited for ever.
        reply = Reply(
            ticket=attempt.ticket,
            answer=Answer.UNKNOWN,
            reason="the try ended in a way that was not foreseen; please report what the log has of it",
            wait_s=LONGEST_WAIT_S,
        )
        is_over = False
        try:
            reply = evict(self._api, attempt)
            is_over = True
        finally:
            with self._lock:
                self._replies.append(reply)
                self._threads -= not is_over  # the exception ends this thread
            self._bell.ring()
