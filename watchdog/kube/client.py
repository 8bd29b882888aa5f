"""The client of the API server: requests with whole or streamed responses, what responses mean, and back-off.

The `kubernetes` package provides configuration, credentials and transport.
"""

import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3 import Retry
from urllib3.exceptions import HTTPError

from watchdog import __version__, clock
from watchdog.core.errors import Problem
from watchdog.kube.credentials import Credentials, bearer_token, credentials_of, load_access, offset_s
from watchdog.kube.failure import (
    UNUSABLE_PROXY,
    ApiConfigError,
    ApiExcessError,
    ApiSilentError,
    ApiUnreachableError,
    explain,
)
from watchdog.kube.kubeconfig import ContextChoice
from watchdog.kube.official import ApiException, Configuration, RESTClientObject
from watchdog.kube.wire import DECODE_ERRORS


class StatusCause(msgspec.Struct, gc=False):
    """One of `details.causes` of a Status."""

    reason: str = ""
    message: str = ""


class _StatusDetails(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: float | None = None


class _FailureStatus(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_STATUS: Final = msgspec.json.Decoder(_FailureStatus)
_LONGEST_MESSAGE: Final = 300
_NOT_THE_SERVER: Final = "that is not the API server: check the address, and whether a proxy answers in its place"
_NOT_WELL: Final = "the API server, or a proxy in front of it, is failing: if it stays so, see its log"
_REMEDIES: Final[Mapping[int, str]] = {
    **dict.fromkeys((301, 302, 303, 307, 308, 407), _NOT_THE_SERVER),
    401: "this account's token or certificate has expired or is of another cluster, the account is gone, or a clock is "
    "wrong: `gpu-watchdog doctor` shows which",
    403: "this account lacks the right: apply what `gpu-watchdog rights` prints for this policy",
    429: "it throttles this account: if it stays so, check the flow schemas and which other clients send many requests",
    **dict.fromkeys((500, 502, 503, 504), _NOT_WELL),
}
_NO_CREDENTIALS: Final = "no credentials were sent: give the kubeconfig's user a token or a client certificate"
_UNSERVED: Final = "this API server does not serve that API; `kubectl api-versions` lists what it does serve"
_BY_POLICY: Final = "an admission policy denies it regardless of this account's rights: the policy's message says why"


class ApiResponse:
    """A complete response: its status and body, and the fields of a Status object, empty if there is none.

    `reason` is machine-readable, like `NotFound`. `message` is the server's own text or else the start of the body,
    truncated. `object_name` is that of the object that it is about. `retry_after_s` is how long the server asks to
    wait, None if it does not.
    """

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        failure = _FailureStatus() if self.is_good else _decode(body)
        details = failure.details or _StatusDetails()
        self.reason = failure.reason
        text = failure.message or body[:_LONGEST_MESSAGE].decode("utf-8", "replace")
        self.message = " ".join(text.split())[:_LONGEST_MESSAGE]
        self.causes = tuple(details.causes or ())
        self.object_name = details.name
        header = headers.get("Retry-After", "")
        is_number = header.isascii() and header.isdigit()
        self.retry_after_s = float(header) if is_number else details.retry_after_seconds or None

    @property
    def is_good(self) -> bool:
        """Whether the request was carried out (2xx)."""
        return 200 <= self.status < 300

    @property
    def is_anonymous(self) -> bool:
        """Whether the server refused it because it came without credentials."""
        return self.status == 403 and "system:anonymous" in self.message

    def problem(self, what: str, *, against_policy: str = _BY_POLICY) -> Problem:
        """Why the request named by `what` was refused; `against_policy` is the remedy for an admission policy."""
        remedy = _NO_CREDENTIALS if self.is_anonymous else _REMEDIES.get(self.status, "")
        if self.status == 404 and not self.object_name:
            remedy = _UNSERVED
        if self.status == 403 and "ValidatingAdmissionPolicy" in self.message:
            remedy = against_policy
        message = f": {self.message}" if self.message else ""
        return Problem(f"{what}: the API server answered {self.status}{message}", remedy)


def _decode(body: bytes) -> _FailureStatus:
    try:
        return _STATUS.decode(body)
    except DECODE_ERRORS:
        return _FailureStatus()


_CHUNK: Final = 65536
# The API server itself gives up on any request but a watch after 60 s (--request-timeout of kube-apiserver).
LONGEST_READ_S: Final = 75.0
# For all but lists of pods and namespaces, which are not read whole: one pod has up to 9 MiB of JSON.
LARGEST_RESPONSE: Final = 64 * 2**20


class ResponseStream:
    """A response that is still coming; its status is known. For one thread, except `cut`."""

    def __init__(self, response: urllib3.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self._cut = False
        self.status = response.status
        self.headers = response.headers

    def chunks(self) -> Iterator[bytes]:
        """What arrives, at once, until the server ends the response properly.

        ApiSilentError if nothing comes within the read timeout, otherwise ApiUnreachableError if the connection breaks,
        even within the last chunk: then the server has not ended the response.
        """
        while True:
            try:
                # `read1` returns what is there; `stream` waits for a whole HTTP chunk, however slowly it comes.
                chunk = self._response.read1(_CHUNK)
            except (HTTPError, OSError, ValueError) as error:
                is_silence = isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError)
                kind = ApiSilentError if is_silence else ApiUnreachableError
                raise kind(explain(error, self._url)) from error
            if self._cut:
                # A shutdown removes TLS from the socket, so the last bytes may be ciphertext.
                raise ApiUnreachableError(Problem(f"{self._url}: the connection was cut here"))
            if not chunk:
                return
            yield chunk

    def body(self, longest_s: float = LONGEST_READ_S) -> Iterator[bytes]:
        """What arrives until the end, as `chunks`; ApiExcessError if that takes too long."""
        deadline_s = time.monotonic() + longest_s
        for chunk in self.chunks():
            yield chunk
            if time.monotonic() > deadline_s:
                raise self._excessive(
                    f"took more than {longest_s:.0f} s",
                    "check the network between this node and the API server, and whether the API server is overloaded",
                )

    def read(self, largest: int = LARGEST_RESPONSE, longest_s: float = LONGEST_READ_S) -> ApiResponse:
        """The complete response. ApiUnreachableError as for `body`; ApiExcessError if it has more bytes than that."""
        body = bytearray()
        for chunk in self.body(longest_s):
            body += chunk
            if len(body) > largest:
                raise self._excessive(f"exceeds {largest / 2**20:g} MiB", "check that it is an API server")
        return ApiResponse(self.status, bytes(body), dict(self.headers))

    def _excessive(self, why: str, remedy: str) -> ApiExcessError:
        return ApiExcessError(Problem(f"{self._url}: its answer {why}", remedy))

    def set_read_timeout(self, seconds: float) -> None:
        """Wait up to this long for further bytes, instead of the request's read timeout.

        The timeout stays as it was if the server announced that it closes the connection after this response.
        """
        connection = self._response.connection
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(seconds)

    def cut(self) -> None:
        """Cut the connection, from any thread; the thread that reads from it gets ApiUnreachableError."""
        self._cut = True
        # RuntimeError: the response has ended, and its connection has gone back to the pool.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def close(self) -> None:
        """Release the connection; it is reused only if the response has been read to its end."""
        self._response.close()


_CONNECT_TIMEOUT_S: Final = 5.0
MOST_CONNECTIONS: Final = 16
READ_TIMEOUT_S: Final = 15.0  # the response to an eviction can take 10 s
USER_AGENT: Final = f"gpu-memory-watchdog/{__version__}"
PERSONAL_AGENT: Final = f"gpu-watchdog/{__version__}"  # of a command that a person runs with rights of their own
_JSON: Final = "application/json"
Query = Mapping[str, str | int]


class Api:
    """The API server, for requests from any thread. Credentials are read again after a 401.

    `clock_offset_s` is how far its clock was ahead of ours at its last response, in seconds; None before the first.
    """

    def __init__(self, kubeconfig: Path | ContextChoice | None = None, user_agent: str = USER_AGENT) -> None:
        """Configured by this file, by a person's choice, or by the pod it runs in; read at first and after a 401.

        Requests raise ApiConfigError if there is no configuration, or it can't be read.
        """
        self._kubeconfig = kubeconfig
        self._user_agent = user_agent
        self._lock = threading.Lock()
        self._client: RESTClientObject | None = None
        self._until_s = math.inf  # Unix time
        self.host = "the API server"
        self.clock_offset_s: float | None = None

    def call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        *,
        content_type: str = _JSON,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> ApiResponse:
        """Make one request and return the complete response, whatever its status; ApiUnreachableError if none comes."""
        headers = {"Accept": _JSON, **({} if body is None else {"Content-Type": content_type})}
        with contextlib.closing(self._request(method, path, query, body, headers, read_timeout_s)) as stream:
            return stream.read()

    def open(
        self, path: str, query: Query | None = None, *, read_timeout_s: float, accept: str = _JSON
    ) -> ResponseStream:
        """Make a GET whose response is read as it comes; the caller closes it."""
        return self._request("GET", path, query, None, {"Accept": accept}, read_timeout_s)

    def credentials(self) -> Credentials:
        """The credentials of this account, without the secret; ApiConfigError as for a request."""
        return credentials_of(self._open_client().configuration)

    def access(self) -> tuple[Configuration, str]:
        """The configuration, and the value of the header `authorization`, for connections that are no requests."""
        configuration = self._open_client().configuration
        return configuration, bearer_token(configuration, self._kubeconfig)

    def close(self) -> None:
        """Close the connections; returns at once."""
        # Not under the lock: its holder may be waiting for an `exec` plugin of the kubeconfig.
        client = self._client
        if client is not None:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(
        self, method: str, path: str, query: Query | None, body: Any, headers: dict[str, str], read_timeout_s: float
    ) -> ResponseStream:
        client = self._open_client()
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers["User-Agent"] = self._user_agent
        if token := bearer_token(client.configuration, self._kubeconfig):
            headers["authorization"] = token
        timeouts_s = (_CONNECT_TIMEOUT_S, read_timeout_s)
        sent_s = clock.now().wall_s
        try:
            response = client.request(method, url, headers, body, _request_timeout=timeouts_s).response  # type: ignore[no-untyped-call]
        except (HTTPError, HTTPException, ApiException, OSError, ValueError) as error:
            self._renew()
            raise ApiUnreachableError(explain(error, self.host)) from error
        offset = offset_s(response.headers, sent_s, clock.now().wall_s)
        self.clock_offset_s = self.clock_offset_s if offset is None else offset
        if response.status == 401:
            self._renew()
        return ResponseStream(response, self.host)

    def _renew(self) -> None:
        """Read the credentials and certificates again at the next request: they may have been rotated."""
        with self._lock:
            self._client = None

    def _open_client(self) -> RESTClientObject:
        with self._lock:
            if self._client is None or clock.now().wall_s >= self._until_s:
                self._client = None
                access = load_access(self._kubeconfig)
                configuration, self._until_s = access.configuration, access.until_s
                configuration.keep_alive = True
                # Otherwise five per CPU are kept, and each of more threads opens a new connection for each request.
                # One more than ask at once, for what a person opens meanwhile.
                configuration.connection_pool_maxsize = MOST_CONNECTIONS + 1
                # urllib3 would otherwise retry requests automatically, including 429 and 503 after their Retry-After.
                configuration.retries = Retry(total=False, redirect=False)
                try:
                    self._client = RESTClientObject(configuration)
                except (HTTPError, ImportError) as error:  # only about the proxy, whose URL may contain a password
                    raise ApiConfigError(UNUSABLE_PROXY) from error
                self.host = configuration.host
            return self._client


FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
# If a server asks for a longer pause, the request is retried after this one nevertheless.
LONGEST_RETRY_AFTER_S: Final = 300.0


def full_jitter_s(attempt: int, *, first_s: float, longest_s: float, least_s: float = 0.0) -> float:
    """A random pause after the attempt of this number (from 1): up to `first_s`, doubled with every further one.

    Full jitter spreads clients that failed at the same moment over the whole range
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    ceiling_s = min(longest_s, first_s * 2.0 ** min(attempt - 1, 60))
    return random.uniform(least_s, ceiling_s)


class RequestBackoff:
    """The pauses of one kind of request that fails repeatedly; for one thread.

    Each is random, between zero and a ceiling that doubles with each failure, from 0.5 to 30 s. A thousand daemons that
    lost the same server at once thus return spread over the whole range.
    """

    def __init__(self, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next pause in seconds; a Retry-After is added to it, since many other clients got the same one."""
        self._failures += 1
        pause_s = full_jitter_s(self._failures, first_s=self._first_s, longest_s=self._longest_s)
        return pause_s + min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)

    def reset(self) -> None:
        """Return to the shortest ceiling, after a success."""
        self._failures = 0
