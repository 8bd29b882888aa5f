"""The API server's responses, what they mean, and how long to wait before a request is repeated."""

import threading
from collections.abc import Mapping
from typing import Final

import msgspec
from tenacity import RetryCallState, Retrying, wait_random_exponential

from watchdog.core.errors import Problem, WatchdogError


class ApiError(WatchdogError):
    """A request to the API did not come to its end."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class ApiConfigError(ApiError):
    """There is no way to the API: no configuration, or one that can't be read."""


class ApiUnreachableError(ApiError):
    """No answer came: network, TLS, a time-out. Whether the request has been carried out is not known."""


class ApiSilentError(ApiUnreachableError):
    """Nothing came for as long as it was waited for."""


class Cause(msgspec.Struct, gc=False):
    """One of `details.causes` of a Status."""

    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel", gc=False):
    causes: list[Cause] | None = None
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)
_LONGEST_MESSAGE: Final = 300
_NOT_THE_SERVER: Final = "that is not the API server: look at the address, and for a proxy that answers in its place"
_NOT_WELL: Final = "the API server, or what stands in front of it, is not well: if it stays so, look at its log"
REMEDIES: Final[Mapping[int, str]] = {
    **dict.fromkeys((301, 302, 303, 307, 308, 407), _NOT_THE_SERVER),
    401: "this account's token or certificate has expired or is of another cluster, the account is gone, or a clock is "
    "wrong: `gpu-watchdog doctor` tells which",
    403: "this account lacks the right: apply what `gpu-watchdog rights` prints for this policy",
    429: "it throttles this account: if it stays so, look at the flow schemas and at who else asks so much",
    **dict.fromkeys((500, 502, 503, 504), _NOT_WELL),
}
_NO_CREDENTIALS: Final = "no credentials were sent: give the kubeconfig's user a token or a client certificate"
_BY_POLICY: Final = "an admission policy refuses it, whatever rights this account has: the policy's message says why"
_POLICY: Final = "ValidatingAdmissionPolicy"
_ANONYMOUS: Final = "system:anonymous"


class ApiResponse:
    """A whole answer: its status and body. Everything of a Status object is at hand, empty where there is none."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self._failure = _Status() if self.is_good else _decode(body)

    @property
    def is_good(self) -> bool:
        """Whether the request was carried out (2xx)."""
        return 200 <= self.status < 300

    @property
    def is_anonymous(self) -> bool:
        """Whether the server refused it as coming from nobody in particular."""
        return self.status == 403 and _ANONYMOUS in self.message

    @property
    def reason(self) -> str:
        """The machine's word, like `NotFound`, `AlreadyExists`, `Expired`."""
        return self._failure.reason

    @property
    def message(self) -> str:
        """The server's own sentence, cut to a bearable length; where it has none, the start of the body."""
        text = self._failure.message or self.body[:_LONGEST_MESSAGE].decode("utf-8", "replace")
        return " ".join(text.split())[:_LONGEST_MESSAGE]

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes that a Status lists."""
        details = self._failure.details
        return tuple(details.causes or ()) if details is not None else ()

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to wait; None where it does not say."""
        header = self.headers.get("Retry-After", "")
        if header.isascii() and header.isdigit():
            return float(header)
        details = self._failure.details
        return None if details is None or not details.retry_after_seconds else float(details.retry_after_seconds)

    def problem(self, what: str, *, against_policy: str = _BY_POLICY) -> Problem:
        """Why the request that `what` names was refused.

        `against_policy` is the remedy where an admission policy refused it.
        """
        said = f": {self.message}" if self.message else ""
        remedy = _NO_CREDENTIALS if self.is_anonymous else REMEDIES.get(self.status)
        if self.status == 403 and _POLICY in self.message:
            remedy = against_policy
        return Problem(f"{what}: the API server answered {self.status}{said}", remedy or "")


def _decode(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Status()


FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
# A server that names a longer pause is asked again after this one all the same.
_LONGEST_RETRY_AFTER_S: Final = 300.0


class RequestBackoff:
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
        """Begin again with the shortest ceiling, after a success."""
        self._state.attempt_number = 1
