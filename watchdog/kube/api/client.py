"""The way to the API server: the `kubernetes` client's configuration, credentials and transport, and raw answers.

Its models and its watch are not used: one odd field of one pod fails a whole list there, and a watch that ends has no
back-off. Every retry is the caller's, so that each request is counted by whoever makes it.
"""

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from watchdog import __version__, clock
from watchdog.kube.api.answers import Answer, ApiUnreachableError
from watchdog.kube.api.clocks import offset_s
from watchdog.kube.api.credentials import Credentials, credentials_of
from watchdog.kube.api.stream import Stream
from watchdog.kube.api.unreachable import explain
from watchdog.kube.api.way import authorize, open_client

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0  # an eviction can take 10 s until it is answered
USER_AGENT: Final = f"gpu-memory-watchdog/{__version__}"
_JSON: Final = "application/json"
Query = Mapping[str, str | int | bool]


class Api:
    """The API server, for requests from any thread. Credentials are read anew after a 401.

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
    ) -> Answer:
        """Make one request and take its whole answer, whatever its status; ApiUnreachableError where none comes."""
        headers = {"Accept": _JSON, **({} if body is None else {"Content-Type": content_type})}
        with contextlib.closing(self._request(method, path, query, body, headers, read_timeout_s)) as stream:
            return stream.read()

    def open(self, path: str, query: Query | None = None, *, read_timeout_s: float, accept: str = _JSON) -> Stream:
        """Make a GET whose answer is read while it comes in; it must be closed."""
        return self._request("GET", path, query, None, {"Accept": accept}, read_timeout_s)

    def renew(self) -> None:
        """Read the credentials and certificates anew at the next request: they may have been rotated."""
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
    ) -> Stream:
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
        return Stream(response, self.host)

    def _ready(self) -> ApiClient:
        with self._lock:
            if self._client is None:
                self._client = open_client(self._kubeconfig)
                self.host = self._client.configuration.host
            return self._client


def _plain(query: Query) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
