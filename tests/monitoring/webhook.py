"""A receiver of Alertmanager's webhooks on loopback that keeps what it got."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.monitoring.asking import wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One request: when it came (Unix seconds), by which path, and its body (Alertmanager's webhook, version 4)."""

    at: float
    path: str
    body: Mapping[str, Any]

    @property
    def alerts(self) -> tuple[Told, ...]:
        """The alerts that it tells."""
        return tuple(
            Told(
                at=self.at,
                path=self.path,
                receiver=self.body["receiver"],
                status=each["status"],
                labels=each["labels"],
                annotations=each["annotations"],
                starts_at=each["startsAt"],
            )
            for each in self.body["alerts"]
        )


class Webhook:
    """A context manager: it listens inside; any path will do, so that each receiver can have one of its own."""

    def __init__(self) -> None:
        self._got: list[Notification] = []
        keep = self._got.append

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                keep(Notification(at=time.time(), path=self.path, body=body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: a test's output is its own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="webhook")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def notifications(self) -> list[Notification]:
        """What came so far, oldest first."""
        return list(self._got)

    def told(self, name: str | None = None, *, status: str = "firing") -> list[Told]:
        """The alerts that came so far in one status (`firing` or `resolved`), of one alertname or all, oldest first."""
        alerts = [alert for each in self.notifications for alert in each.alerts]
        return [each for each in alerts if name in (None, each.name) and each.status == status]

    def wait_for(self, name: str, *, status: str = "firing", limit_s: float = 60.0, after: float = 0.0) -> Told:
        """Wait for an alert of this name in this status that came after a time (Unix seconds); the first one."""
        return self.wait_until(lambda: [each for each in self.told(name, status=status) if each.at > after], limit_s)[0]

    def wait_until(self, look: Callable[[], list[Told]], limit_s: float = 60.0) -> list[Told]:
        """Wait until there are alerts of some kind."""
        return wait_for(
            look, lambda: str([(each.name, each.status, dict(each.labels)) for each in self._all()]), limit_s
        )

    def _all(self) -> list[Told]:
        return [alert for each in self.notifications for alert in each.alerts]


__all__ = ["Notification", "Told", "Webhook"]
