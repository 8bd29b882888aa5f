"""The client: the `kubernetes` package's configuration, credentials and transport; raw and streamed responses."""

import contextlib
import io
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3 import Retry
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from watchdog import __version__, clock
from watchdog.core.errors import Problem
from watchdog.kube.credentials import Credentials, credentials_of, offset_s
from watchdog.kube.failure import UNUSABLE_PROXY, explain, no_way
from watchdog.kube.responses import ApiConfigError, ApiResponse, ApiSilentError, ApiUnreachableError


def open_client(kubeconfig: Path | None) -> ApiClient:
    """A client by this file, or in-cluster; ApiConfigError where there is no such way."""
    configuration = Configuration()
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            # The library takes a file that is not there for an empty one.
            kubeconfig.open("rb").close()
            load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        _check_address(configuration.host)
    except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    configuration.keep_alive = True
    # urllib3 would repeat requests by itself, among them 429 and 503 after their Retry-After.
    configuration.retries = Retry(total=False, redirect=False)
    try:
        return ApiClient(configuration)
    except (HTTPError, ImportError) as error:  # only the proxy is looked at here; its URL may have a password in it
        raise ApiConfigError(UNUSABLE_PROXY) from error


def authorize(client: ApiClient, kubeconfig: Path | None, headers: dict[str, str]) -> None:
    """Add the account's token, where it has one; ApiConfigError where it can't be read, or not be sent."""
    try:
        client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    except (ConfigException, OSError, ValueError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    token = headers.get("authorization", "").strip()  # a line's end after a token is no part of it
    if not (token.isascii() and token.isprintable()):
        # The transport's own exception would have the token in it.
        odd = ValueError("its token holds characters that no token has, like a line break in the middle")
        raise ApiConfigError(no_way(odd, kubeconfig))
    if token:
        headers["authorization"] = token


def _check_address(host: str) -> None:
    if not host.startswith(("https://", "http://")):
        raise ValueError(f"its server {host!r} does not begin with https://")


_CHUNK: Final = 65536
# The API server itself gives up on a request that is no watch after 60 s (--request-timeout of kube-apiserver).
_LONGEST_READ_S: Final = 75.0
# No list of one node's pods comes near it: 250 pods of the largest size that etcd takes are smaller.
_LARGEST_ANSWER: Final = 512 * 2**20


class ResponseStream:
    """An answer in progress; `status` is known at once. For one thread, but for `cut`."""

    def __init__(self, response: urllib3.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self._cut = False
        self.status = response.status
        self.headers = response.headers

    def chunks(self) -> Iterator[bytes]:
        """What comes in, as soon as it is there, until the server ends the answer properly.

        ApiSilentError where nothing comes for longer than the read timeout, otherwise ApiUnreachableError where the
        connection breaks, within the last chunk too: then the end is not the server's word.
        """
        while True:
            try:
                # `read1` gives what is there; `stream` waits until a chunk of HTTP is whole, however slowly it comes.
                chunk = self._response.read1(_CHUNK)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                kind = ApiSilentError if _is_silence(error) else ApiUnreachableError
                raise kind(explain(error, self._url)) from error
            if self._cut:
                # TLS is taken off the socket by a shutdown, so what came last may be ciphertext.
                raise ApiUnreachableError(Problem(f"{self._url}: the connection was cut here"))
            if not chunk:
                return
            yield chunk

    def read(self) -> ApiResponse:
        """All of it, as an answer. ApiUnreachableError as `chunks`, and where it takes for ever or has no end."""
        deadline_s = time.monotonic() + _LONGEST_READ_S
        body = io.BytesIO()
        for chunk in self.chunks():
            body.write(chunk)
            if time.monotonic() > deadline_s:
                raise ApiUnreachableError(
                    Problem(
                        f"{self._url}: its answer took more than {_LONGEST_READ_S:.0f} s",
                        "look at the network between this node and the API server, and whether the API server is "
                        "overloaded",
                    )
                )
            if body.tell() > _LARGEST_ANSWER:
                raise ApiUnreachableError(
                    Problem(
                        f"{self._url}: its answer exceeds {_LARGEST_ANSWER // 2**20} MiB",
                        "see that it is an API server",
                    )
                )
        # Without a copy: the list of a node full of pods of the largest size has 160 MB.
        return ApiResponse(self.status, body.getvalue(), dict(self.headers))

    def be_patient(self, seconds: float) -> None:
        """Wait up to so long for the next bytes from now on, instead of the read timeout of the request.

        It stays as it was where the server said that it closes the connection after this answer.
        """
        connection = self._response.connection
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(seconds)

    def cut(self) -> None:
        """Cut the connection, from any thread: whoever reads from it stops with ApiUnreachableError."""
        self._cut = True
        # RuntimeError: the answer has ended, and its connection has gone back for others to use.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def close(self) -> None:
        """Let the connection go; it is not used again unless the answer has been read to its end."""
        self._response.close()


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError)


CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0  # an eviction can take 10 s until it is answered
USER_AGENT: Final = f"gpu-memory-watchdog/{__version__}"
_JSON: Final = "application/json"
Query = Mapping[str, str | int | bool]


class Api:
    """The API server, for requests from any thread. Credentials are read again after a 401.

    `clock_offset_s` is how far its clock was ahead of ours by its last answer, in seconds; None before there is one.
    """

    def __init__(self, kubeconfig: Path | None = None) -> None:
        """By the configuration of this file, or that of the pod it runs in, read at the first request and after a 401.

        Where there is none, or it can't be read, requests raise ApiConfigError.
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
        """Make one request and take its whole answer, whatever its status; ApiUnreachableError where none comes."""
        headers = {"Accept": _JSON, **({} if body is None else {"Content-Type": content_type})}
        with contextlib.closing(self._request(method, path, query, body, headers, read_timeout_s)) as stream:
            return stream.read()

    def open(
        self, path: str, query: Query | None = None, *, read_timeout_s: float, accept: str = _JSON
    ) -> ResponseStream:
        """Make a GET whose answer is read while it comes in; it must be closed."""
        return self._request("GET", path, query, None, {"Accept": accept}, read_timeout_s)

    def renew(self) -> None:
        """Read the credentials and certificates again at the next request: they may have been rotated."""
        with self._lock:
            self._client = None

    def credentials(self) -> Credentials:
        """What this account shows, without its secret; ApiConfigError as for a request."""
        return credentials_of(self._ready().configuration)

    def close(self) -> None:
        """Let the connections go; returns at once."""
        # Not under the lock: whoever has it may be waiting for an `exec` plugin of the kubeconfig, without a bound.
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
        client = self._ready()
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

    def _ready(self) -> ApiClient:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._kubeconfig)
                self.host = self._client.configuration.host
            return self._client


def _plain(query: Query) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
