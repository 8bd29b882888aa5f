"""The client: configuration, requests with whole or streamed responses, what responses mean, and back-off.

It uses the `kubernetes` package for configuration, credentials and transport.
"""

import contextlib
import io
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3 import Retry
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from watchdog import __version__, clock
from watchdog.core.errors import Problem, WatchdogError
from watchdog.kube.credentials import Credentials, credentials_of, offset_s
from watchdog.kube.failure import UNUSABLE_PROXY, explain, no_way
from watchdog.kube.official import (
    ApiClient,
    ApiException,
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)


class ApiError(WatchdogError):
    """A request to the API that could not be completed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class ApiConfigError(ApiError):
    """The API can't be used: there is no configuration, or it can't be read."""


class ApiUnreachableError(ApiError):
    """No response came: network, TLS, a timeout. Whether the request was carried out is not known."""


class ApiSilentError(ApiUnreachableError):
    """Nothing came within the read timeout."""


class StatusCause(msgspec.Struct, gc=False):
    """One of `details.causes` of a Status."""

    reason: str = ""
    message: str = ""


class _StatusDetails(msgspec.Struct, rename="camel", gc=False):
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class _FailureStatus(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_STATUS: Final = msgspec.json.Decoder(_FailureStatus)
_LONGEST_MESSAGE: Final = 300
_NOT_THE_SERVER: Final = "that is not the API server: check the address, and whether a proxy answers in its place"
_NOT_WELL: Final = "the API server, or a proxy in front of it, is failing: if it stays so, see its log"
REMEDIES: Final[Mapping[int, str]] = {
    **dict.fromkeys((301, 302, 303, 307, 308, 407), _NOT_THE_SERVER),
    401: "this account's token or certificate has expired or is of another cluster, the account is gone, or a clock is "
    "wrong: `gpu-watchdog doctor` says which",
    403: "this account lacks the right: apply what `gpu-watchdog rights` prints for this policy",
    429: "it throttles this account: if it stays so, check the flow schemas and which other clients send many requests",
    **dict.fromkeys((500, 502, 503, 504), _NOT_WELL),
}
_NO_CREDENTIALS: Final = "no credentials were sent: give the kubeconfig's user a token or a client certificate"
_BY_POLICY: Final = "an admission policy denies it regardless of this account's rights: the policy's message says why"
_POLICY: Final = "ValidatingAdmissionPolicy"
_ANONYMOUS: Final = "system:anonymous"


class ApiResponse:
    """A complete response: status, body, and the fields of a Status object, empty where there is none."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self._failure = _FailureStatus() if self.is_good else _decode(body)

    @property
    def is_good(self) -> bool:
        """Whether the request was carried out (2xx)."""
        return 200 <= self.status < 300

    @property
    def is_anonymous(self) -> bool:
        """Whether the server refused it because it came without credentials."""
        return self.status == 403 and _ANONYMOUS in self.message

    @property
    def reason(self) -> str:
        """The machine-readable reason, like `NotFound`, `AlreadyExists`, `Expired`."""
        return self._failure.reason

    @property
    def message(self) -> str:
        """The server's own message, truncated; if it has none, the start of the body."""
        text = self._failure.message or self.body[:_LONGEST_MESSAGE].decode("utf-8", "replace")
        return " ".join(text.split())[:_LONGEST_MESSAGE]

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The causes in its Status."""
        details = self._failure.details
        return tuple(details.causes or ()) if details is not None else ()

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to wait; None if it does not say."""
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


def _decode(body: bytes) -> _FailureStatus:
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _FailureStatus()


def open_client(kubeconfig: Path | None) -> ApiClient:
    """A client configured by this file, or in-cluster; ApiConfigError where that is not possible."""
    configuration = Configuration()
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            # The library treats a missing file as an empty one.
            kubeconfig.open("rb").close()
            load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        _check_address(configuration.host)
    except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    configuration.keep_alive = True
    # urllib3 would otherwise retry requests by itself, including 429 and 503 after their Retry-After.
    configuration.retries = Retry(total=False, redirect=False)
    try:
        return ApiClient(configuration)
    except (HTTPError, ImportError) as error:  # only the proxy is evaluated here; its URL may contain a password
        raise ApiConfigError(UNUSABLE_PROXY) from error


def authorize(client: ApiClient, kubeconfig: Path | None, headers: dict[str, str]) -> None:
    """Add the account's token, if it has one; ApiConfigError where it can't be read or sent."""
    try:
        client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    except (ConfigException, OSError, ValueError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    token = headers.get("authorization", "").strip()  # a newline after a token is not part of it
    if not (token.isascii() and token.isprintable()):
        # The transport's own exception would contain the token.
        odd = ValueError("its token contains characters that no token has, like a line break in the middle")
        raise ApiConfigError(no_way(odd, kubeconfig))
    if token:
        headers["authorization"] = token


def _check_address(host: str) -> None:
    if not host.startswith(("https://", "http://")):
        raise ValueError(f"its server {host!r} does not begin with https://")


_CHUNK: Final = 65536
# The API server itself gives up on any request but a watch after 60 s (--request-timeout of kube-apiserver).
_LONGEST_READ_S: Final = 75.0
# No list of one node's pods comes close: 250 pods of the largest size that etcd accepts are smaller.
_LARGEST_RESPONSE: Final = 512 * 2**20


class ResponseStream:
    """A response in progress; `status` is known at once. For one thread, except `cut`."""

    def __init__(self, response: urllib3.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self._cut = False
        self.status = response.status
        self.headers = response.headers

    def chunks(self) -> Iterator[bytes]:
        """What comes in, as soon as it arrives, until the server ends the response properly.

        ApiSilentError if nothing comes within the read timeout, otherwise ApiUnreachableError if the connection breaks,
        even within the last chunk: then the server has not ended the response.
        """
        while True:
            try:
                # `read1` returns what is there; `stream` waits until an HTTP chunk is complete, however slowly it
                # comes.
                chunk = self._response.read1(_CHUNK)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                kind = ApiSilentError if _is_read_timeout(error) else ApiUnreachableError
                raise kind(explain(error, self._url)) from error
            if self._cut:
                # A shutdown removes TLS from the socket, so the last bytes may be ciphertext.
                raise ApiUnreachableError(Problem(f"{self._url}: the connection was cut here"))
            if not chunk:
                return
            yield chunk

    def read(self) -> ApiResponse:
        """The complete response. ApiUnreachableError as for `chunks`, and where it takes too long or is too large."""
        deadline_s = time.monotonic() + _LONGEST_READ_S
        body = io.BytesIO()
        for chunk in self.chunks():
            body.write(chunk)
            if time.monotonic() > deadline_s:
                raise ApiUnreachableError(
                    Problem(
                        f"{self._url}: its answer took more than {_LONGEST_READ_S:.0f} s",
                        "check the network between this node and the API server, and whether the API server is "
                        "overloaded",
                    )
                )
            if body.tell() > _LARGEST_RESPONSE:
                raise ApiUnreachableError(
                    Problem(
                        f"{self._url}: its answer exceeds {_LARGEST_RESPONSE // 2**20} MiB",
                        "check that it is an API server",
                    )
                )
        # Without a copy: the list of a node full of pods of the largest size takes 160 MB.
        return ApiResponse(self.status, body.getvalue(), dict(self.headers))

    def set_read_timeout(self, seconds: float) -> None:
        """From now on wait up to this long for the next bytes, instead of the read timeout of the request.

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


def _is_read_timeout(error: BaseException) -> bool:
    return isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError)


CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0  # the response to an eviction can take 10 s
USER_AGENT: Final = f"gpu-memory-watchdog/{__version__}"
_JSON: Final = "application/json"
Query = Mapping[str, str | int | bool]


class Api:
    """The API server, for requests from any thread. Credentials are read again after a 401.

    `clock_offset_s` is how far its clock was ahead of ours at its last response, in seconds; None before the first.
    """

    def __init__(self, kubeconfig: Path | None = None) -> None:
        """Configured by this file, or by the pod it runs in; read at the first request and after a 401.

        Where there is no configuration, or it can't be read, requests raise ApiConfigError.
        """
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._client: ApiClient | None = None
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
        """Make a GET whose response is read while it comes in; the caller closes it."""
        return self._request("GET", path, query, None, {"Accept": accept}, read_timeout_s)

    def renew(self) -> None:
        """Read the credentials and certificates again at the next request: they may have been rotated."""
        with self._lock:
            self._client = None

    def credentials(self) -> Credentials:
        """The credentials of this account, without the secret; ApiConfigError as for a request."""
        return credentials_of(self._open_client().configuration)

    def close(self) -> None:
        """Close the connections; returns at once."""
        # Not under the lock: its holder may be waiting for an `exec` plugin of the kubeconfig, without a time limit.
        client = self._client
        if client is not None:
            client.rest_client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(
        self, method: str, path: str, query: Query | None, body: Any, headers: dict[str, str], read_timeout_s: float
    ) -> ResponseStream:
        client = self._open_client()
        url = f"{self.host}{path}" + (f"?{urlencode(_plain(query))}" if query else "")
        headers["User-Agent"] = USER_AGENT
        authorize(client, self._kubeconfig, headers)
        sent_s = clock.now().wall_s
        try:
            response = client.call_api(
                method,
                url,
                header_params=headers,
                body=body,
                _request_timeout=(CONNECT_TIMEOUT_S, read_timeout_s),
            ).response
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            self.renew()
            raise ApiUnreachableError(explain(error, self.host)) from error
        offset = offset_s(response.headers, sent_s, clock.now().wall_s)
        self.clock_offset_s = self.clock_offset_s if offset is None else offset
        if response.status == 401:
            self.renew()
        return ResponseStream(response, self.host)

    def _open_client(self) -> ApiClient:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._kubeconfig)
                self.host = self._client.configuration.host
            return self._client


def _plain(query: Query) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}


FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
# If a server asks for a longer pause, the request is retried after this one nevertheless.
LONGEST_RETRY_AFTER_S: Final = 300.0
_MOST_DOUBLINGS: Final = 60


def full_jitter_s(attempt: int, *, first_s: float, longest_s: float, least_s: float = 0.0) -> float:
    """A random pause after the attempt of this number (from 1): up to `first_s`, doubled with every further one.

    Full jitter spreads clients that failed at the same moment over the whole range
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    ceiling_s = min(longest_s, first_s * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))
    return random.uniform(least_s, ceiling_s)


class RequestBackoff:
    """The pauses of one kind of request that fails repeatedly; for one thread, which `stopped` wakes.

    Each is random, between zero and a ceiling that doubles with each failure, from 0.5 to 30 s: a thousand daemons that
    lost the same server at the same moment come back spread over the whole range.
    """

    def __init__(self, stopped: threading.Event, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._stopped = stopped
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next pause in seconds; a Retry-After is added to it, since many other clients got the same one."""
        self._failures += 1
        pause_s = full_jitter_s(self._failures, first_s=self._first_s, longest_s=self._longest_s)
        return pause_s + min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)

    def wait(self, retry_after_s: float | None = None) -> bool:
        """Wait for the next pause; False as soon as `stopped` is set."""
        return not self._stopped.wait(self.next_s(retry_after_s))

    def reset(self) -> None:
        """Begin again with the shortest ceiling, after a success."""
        self._failures = 0
