"""Single requests of the tests to the API server, without a client library."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rig.cluster.network import Answer, Network, exchange

Object = dict[str, Any]
MERGE = "application/merge-patch+json"


class RefusedError(RuntimeError):
    """The server answered with an error where the test wanted success; `answer` is that response."""

    def __init__(self, what: str, answer: Answer) -> None:
        super().__init__(f"{what}: {answer.status} {answer.body[:2000].decode(errors='replace')}")
        self.answer = answer


class _Connection(http.client.HTTPSConnection):
    """HTTPS into a network namespace."""

    def __init__(self, network: Network, port: int, context: ssl.SSLContext, timeout_s: float) -> None:
        super().__init__(network.address, port, context=context, timeout=timeout_s)
        self._network = network
        self._tls = context

    def connect(self) -> None:
        plain = self._network.connect(self.port, self.timeout or 30.0)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class Api:
    """Requests with a token, each over a connection of its own."""

    def __init__(self, network: Network, port: int, *, ca: Path, token: str) -> None:
        self._network = network
        self._port = port
        self._token = token
        self._context = ssl.create_default_context(cafile=str(ca))

    @property
    def authorization(self) -> dict[str, str]:
        """The header that names the account."""
        return {"Authorization": f"Bearer {self._token}"}

    def connection(self, timeout_s: float = 30.0) -> http.client.HTTPSConnection:
        """A connection that is not open yet."""
        return _Connection(self._network, self._port, self._context, timeout_s)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Send one request and read its answer, whatever it is. `body` is an object or bytes. Raises OSError."""
        sent = {"Authorization": f"Bearer {token or self._token}", "User-Agent": "tests", "Accept": "application/json"}
        if body is not None:
            sent["Content-Type"] = MERGE if method == "PATCH" else "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return exchange(self.connection(timeout_s), method, path, body, {**sent, **(headers or {})})

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Object:
        """The object of a successful answer. Raises RefusedError."""
        answer = self.call(method, path, body, **more)
        if answer.status >= 300:
            raise RefusedError(f"{method} {path}", answer)
        found: Object = answer.object
        return found


def query(**parameters: str) -> str:
    """The query string of a path, with its question mark."""
    return "?" + urllib.parse.urlencode(parameters) if parameters else ""
