"""How long to wait before a request is made again: full jitter, and the server's own Retry-After on top."""

import threading
from typing import Final

from tenacity import RetryCallState, Retrying, wait_random_exponential

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
# A server that names a longer pause is asked again after this one all the same.
_LONGEST_RETRY_AFTER_S: Final = 300.0


class Backoff:
    """The pauses of one kind of request that fails again and again; for one thread, which `stopped` wakes.

    Each is drawn from between zero and a ceiling that doubles with each failure, from 0.5 to 30 s: a thousand daemons
    that lost the same server at the same moment come back spread over the whole ceiling.
    """

    def __init__(self, stopped: threading.Event, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._stopped = stopped
        self._jitter = wait_random_exponential(multiplier=first_s, max=longest_s)
        self._state = RetryCallState(Retrying(), None, (), {})

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next pause in seconds; a Retry-After is added to it, since many others were told the same."""
        pause_s = self._jitter(self._state)
        self._state.attempt_number += 1
        return pause_s + min(retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S)

    def wait(self, retry_after_s: float | None = None) -> bool:
        """Wait for the next pause; False as soon as `stopped` is set."""
        return not self._stopped.wait(self.next_s(retry_after_s))

    def reset(self) -> None:
        """Begin anew with the shortest ceiling, after a success."""
        self._state.attempt_number = 1
