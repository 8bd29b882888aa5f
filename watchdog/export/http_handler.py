"""The endpoints: what a request is answered with."""

import gzip
import io
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from watchdog.export.board import Board, Check
from watchdog.export.exposition import scrape, wants_gzip
from watchdog.export.page import POLICY

DEADLINE_S: Final = 5.0  # of a connection, until its request is complete; and of its answer
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request is answered with."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Handler(BaseHTTPRequestHandler):
    """Answers one request from what is on the board."""

    protocol_version = "HTTP/1.1"

    def __init__(
        self,
        board: Board,
        request: bytes,
        connection: socket.socket,
        address: Any,
        turn: AbstractContextManager[object],
    ) -> None:
        """Answer a request that has been read, in its `turn`; OSError where the client does not take it."""
        self.board = board
        self._turn = turn
        self._request = request
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def setup(self) -> None:
        """Read from what has come already, and nothing else."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self._request)

    def parse_request(self) -> bool:
        """Take GET and HEAD, and nothing else."""
        if not super().parse_request():
            return False
        if self.command in ("GET", "HEAD"):
            return True
        self._send(_plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", (("Allow", "GET, HEAD"),)))
        return False

    def do_GET(self) -> None:
        """Answer by the path as it was sent: what is not exactly one of ours is not there."""
        route = _ROUTES.get(self._path())
        with self._turn:
            answer = route(self) if route is not None else _plain(HTTPStatus.NOT_FOUND, _NOT_FOUND)
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815

    def _path(self) -> str:
        return self._target().partition("?")[0]

    def _target(self) -> str:
        # `self.path` has leading slashes folded together; the request line has not. RFC 9112 3.2.2: a server has to
        # take a whole URL too.
        words = self.requestline.split()
        target = words[1] if len(words) > 1 else ""
        if target.lower().startswith(("http://", "https://")):
            target = "/" + target.partition("://")[2].partition("/")[2]
        return target

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that could not be read, in plain text."""
        self.request_version = self.protocol_version  # what could not be read has no version of its own
        self._send(_plain(HTTPStatus(code), message or explain or HTTPStatus(code).phrase))

    def _send(self, answer: Answer) -> None:
        self.connection.settimeout(DEADLINE_S)
        self.send_response(answer.status)
        headers = (("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers)
        for name, value in (*headers, *_HEADERS):
            self.send_header(name, value)
        self.end_headers()
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """The Server header; which Python this is, is nobody's business."""
        return "gpu-watchdog"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: probes and scrapes come all day."""

    def metrics(self) -> Answer:
        """The page for Prometheus."""
        asked = (self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", ""))
        found = scrape(self.board.metrics.registry, *asked)
        packed = (("Content-Encoding", found.encoding),) if found.encoding else ()
        return Answer(
            status=HTTPStatus.OK,
            body=found.body,
            content_type=found.content_type,
            headers=(("Vary", "Accept, Accept-Encoding"), *packed),
        )

    def health(self) -> Answer:
        """Whether the loop turns."""
        return _probe(self.board.health())

    def readiness(self) -> Answer:
        """Whether the daemon does its work."""
        return _probe(self.board.readiness())

    def index(self) -> Answer:
        """The status page; with `?still` it does not load itself anew."""
        is_still = self._target().partition("?")[2] == "still"
        found = self.board.page(is_still=is_still)
        zipped = wants_gzip(self.headers.get("Accept-Encoding", ""))
        headers = [("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer"), ("Vary", "Accept-Encoding")]
        if not is_still:
            headers.append(("Refresh", str(found.refresh_s)))
        if zipped:
            headers.append(("Content-Encoding", "gzip"))
        return Answer(
            status=HTTPStatus.OK,
            body=found.packed if zipped else found.html,
            content_type="text/html; charset=utf-8",
            headers=tuple(headers),
        )

    def api(self) -> Answer:
        """The status as JSON."""
        packed = self.board.status()
        if packed is None:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, self.board.no_pass)
        zipped = wants_gzip(self.headers.get("Accept-Encoding", ""))
        return Answer(
            status=HTTPStatus.OK,
            body=packed if zipped else gzip.decompress(packed),
            content_type="application/json",
            headers=(("Vary", "Accept-Encoding"), *((("Content-Encoding", "gzip"),) if zipped else ())),
        )


def is_complete(data: bytearray) -> bool:
    """Whether a request has all of its headers; it has no body that anybody would read."""
    return b"\n\r\n" in data or b"\n\n" in data


def is_probe(data: bytearray) -> bool:
    """Whether a request is one of the kubelet's, whose answer is short and made of what is known already."""
    return data.startswith(_PROBES)


_PROBES: Final = (b"GET /healthz HTTP/", b"GET /readyz HTTP/")
_NOT_FOUND: Final = "not found; there are /, /metrics, /healthz, /readyz and /api/status"
_HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close"))
_ROUTES: Final[dict[str, Callable[[Handler], Answer]]] = {
    "/": Handler.index,
    "/metrics": Handler.metrics,
    "/healthz": Handler.health,
    "/readyz": Handler.readiness,
    "/api/status": Handler.api,
}


def _plain(status: HTTPStatus, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    return Answer(status=status, body=f"{text}\n".encode("utf-8", errors="replace"), headers=headers)


def _probe(check: Check) -> Answer:
    status = HTTPStatus.OK if check.ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status=status, body=check.text.encode())
