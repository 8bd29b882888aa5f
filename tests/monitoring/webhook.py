"""A receiver of Alertmanager's webhooks, or of messages to Slack, on loopback: it keeps what it got."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from tests.monitoring.asking import wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """One alert of one notification: when it came here (Unix seconds), by which path, and what it says."""

    at: float
    path: str
    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str

    @property
    def name(self) -> str:
        """Its alertname."""
        return self.labels["alertname"]


class Listener:
    """A context manager around a server on loopback: it listens inside."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def address(self) -> str:
        """Where it listens, `HOST:PORT`."""
        return f"127.0.0.1:{self._server.server_address[1]}"


class Webhook(Listener):
    """Any path will do, so that each receiver can have one of its own."""

    def __init__(self) -> None:
        self._got: list[Notified] = []
        self._messages: list[tuple[str, Mapping[str, Any]]] = []
        keep, keep_message = self._got.extend, self._messages.append

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                keep(_alerts(self.path, body)) if "alerts" in body else keep_message((self.path, body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")  # as Slack answers

            def log_message(self, *_: object) -> None:
                """Print nothing: a test's output is its own."""

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://{self.address}"

    def got(self, name: str | None = None, *, status: str = "firing") -> list[Notified]:
        """The alerts that came so far in one status (`firing` or `resolved`), of one alertname or all, oldest first."""
        return [each for each in self._got if name in (None, each.name) and each.status == status]

    def messages(self, path: str) -> list[Mapping[str, Any]]:
        """The bodies that came to a path and are no alerts, such as Slack's, oldest first."""
        return [body for at, body in self._messages if at == path]

    def wait_until(self, found: Callable[[], list[Notified]], limit_s: float = 60.0) -> list[Notified]:
        """Wait until there are alerts of some kind."""
        return wait_for(found, lambda: str([(each.name, each.status, each.labels) for each in self._got]), limit_s)


def _alerts(path: str, body: Mapping[str, Any]) -> list[Notified]:
    """The alerts in the body of a request (Alertmanager's webhook, version 4)."""
    return [
        Notified(
            at=time.time(),
            path=path,
            receiver=body["receiver"],
            status=each["status"],
            labels=each["labels"],
            annotations=each["annotations"],
            starts_at=each["startsAt"],
        )
        for each in body["alerts"]
    ]
