"""What the API server was asked, from its own audit log: so requests are counted at the server."""

import datetime as dt
import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

POLICY: Final = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; times are UNIX seconds by the server's clock, None while that stage has not come.

    `answered_s` is only there for long-running ones (watches): when the headers went out. `code` is 0 until then.
    """

    id: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uri: str
    user: str
    user_agent: str
    received_s: float
    answered_s: float | None = None
    ended_s: float | None = None
    code: int = 0

    @property
    def open(self) -> bool:
        """Whether the server still works on it, as on a watch."""
        return self.ended_s is None


class AuditLog:
    """Reads what has been added to the log since it was last asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._offset = 0
        self._requests: dict[str, Request] = {}

    def requests(
        self, *, user_agent: str | None = None, user: str | None = None, since: float | None = None
    ) -> tuple[Request, ...]:
        """Requests in the order in which they came; `user_agent` is a part of it, `since` is UNIX seconds."""
        with self._lock:
            self._read()
            found = tuple(self._requests.values())
        return tuple(
            request
            for request in found
            if (user_agent is None or user_agent in request.user_agent)
            and (user is None or user == request.user)
            and (since is None or request.received_s >= since)
        )

    def _read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):  # still being written, or cut by a SIGKILL
                    break
                self._offset += len(line)
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # a line that a SIGKILL cut in half, with the next life's first line behind it
        found = self._requests.get(event["auditID"]) or _request(event)
        moment = _seconds(event["stageTimestamp"])
        code = event.get("responseStatus", {}).get("code", 0)
        if event["stage"] == "ResponseStarted":
            found = replace(found, answered_s=moment)
        # A failed authentication has no other stage (WithFailedAuthenticationAudit in k8s.io/apiserver).
        if event["stage"] in {"ResponseComplete", "Panic"} or code == 401:
            found = replace(found, ended_s=moment)
        self._requests[found.id] = replace(found, code=code or found.code)


def _request(event: dict[str, Any]) -> Request:
    target = event.get("objectRef", {})
    return Request(
        id=event["auditID"],
        verb=event["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        uri=event["requestURI"],
        user=event.get("user", {}).get("username", ""),
        user_agent=event.get("userAgent", ""),
        received_s=_seconds(event["requestReceivedTimestamp"]),
    )


def _seconds(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()
