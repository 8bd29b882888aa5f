"""The routes: from the bytes of a request to the bytes of its answer, without a socket."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Final

from watchdog.export.board import Board, Check
from watchdog.export.exposition import CONTENT_TYPE, OPENMETRICS, wants_gzip, wants_openmetrics
from watchdog.export.page import POLICY

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A GET or HEAD; `target` as the request line has it, then the two headers that matter."""

    target: str
    accept: str = ""
    accept_encoding: str = ""

    @property
    def path(self) -> str:
        """The path as it was sent, neither decoded nor normalised."""
        return self._origin_form().partition("?")[0]

    @property
    def query(self) -> str:
        """What follows the path's question mark."""
        return self._origin_form().partition("?")[2]

    def _origin_form(self) -> str:
        # RFC 9112 3.2.2: a server has to accept a whole URL as well.
        if self.target.lower().startswith(("http://", "https://")):
            return "/" + self.target.partition("://")[2].partition("/")[2]
        return self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What a request is answered with."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()


def answer(board: Board, request: HttpRequest) -> HttpAnswer:
    """The answer to a GET; a path that is not exactly one of ours is not found."""
    route = _ROUTES.get(request.path)
    return route(board, request) if route is not None else _text(HTTPStatus.NOT_FOUND, _NOT_FOUND)


def respond(board: Board, request: bytes) -> bytes:
    """The whole answer to the bytes of a request, whatever they are; empty where there is no request in them."""
    return _Handler(board, request).wfile.getvalue()


def _metrics(board: Board, request: HttpRequest) -> HttpAnswer:
    openmetrics = wants_openmetrics(request.accept)
    content_type = OPENMETRICS if openmetrics else CONTENT_TYPE
    return _packed(request, board.exposition(openmetrics=openmetrics), content_type, vary="Accept, Accept-Encoding")


def _health(board: Board, _: HttpRequest) -> HttpAnswer:
    return _probe(board.health())


def _readiness(board: Board, _: HttpRequest) -> HttpAnswer:
    return _probe(board.readiness())


def _page(board: Board, request: HttpRequest) -> HttpAnswer:
    """The status page; with `?still` it does not refresh itself."""
    is_still = request.query == "still"
    found = board.page(is_still=is_still)
    headers = [("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer")]
    if not is_still:
        headers.append(("Refresh", str(found.refresh_s)))
    return _packed(request, found.packed, "text/html; charset=utf-8", *headers)


def _status(board: Board, request: HttpRequest) -> HttpAnswer:
    packed = board.status()
    if packed is None:
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, board.no_pass)
    return _packed(request, packed, "application/json")


_NOT_FOUND: Final = "not found; there are /, /metrics, /healthz, /readyz and /api/status"
_ROUTES: Final[dict[str, Callable[[Board, HttpRequest], HttpAnswer]]] = {
    "/": _page,
    "/metrics": _metrics,
    "/healthz": _health,
    "/readyz": _readiness,
    "/api/status": _status,
}


def _text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(status=status, body=f"{text}\n".encode("utf-8", errors="replace"), headers=headers)


def _probe(check: Check) -> HttpAnswer:
    return HttpAnswer(status=HTTPStatus.OK if check.ok else HTTPStatus.SERVICE_UNAVAILABLE, body=check.text.encode())


def _packed(
    request: HttpRequest, packed: bytes, content_type: str, *headers: tuple[str, str], vary: str = "Accept-Encoding"
) -> HttpAnswer:
    """A body that is kept packed with gzip, unpacked for a client that does not take it so."""
    headers = (*headers, ("Vary", vary))
    if wants_gzip(request.accept_encoding):
        return HttpAnswer(body=packed, content_type=content_type, headers=(*headers, ("Content-Encoding", "gzip")))
    return HttpAnswer(body=gzip.decompress(packed), content_type=content_type, headers=headers)


_HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close"))


class _Handler(BaseHTTPRequestHandler):
    """Python's own parser of requests, on bytes: it reads from `rfile` and writes to `wfile`."""

    protocol_version = "HTTP/1.1"
    wfile: BytesIO

    def __init__(self, board: Board, request: bytes) -> None:
        # Not super().__init__(): that one takes a socket.
        self._board = board
        self.rfile, self.wfile = BytesIO(request), BytesIO()
        self.handle_one_request()

    def parse_request(self) -> bool:
        """Take GET and HEAD, and nothing else."""
        if not super().parse_request():
            return False
        if self.command in ("GET", "HEAD"):
            return True
        refusal = _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", ("Allow", "GET, HEAD"))
        self._send(refusal)
        return False

    def do_GET(self) -> None:
        """Answer by the target as it was sent: in `self.path` the leading slashes are folded together."""
        _, target, *_ = self.requestline.split()
        accept, encoding = self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", "")
        self._send(answer(self._board, HttpRequest(target=target, accept=accept, accept_encoding=encoding)))

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that could not be read, in plain text."""
        self.request_version = self.protocol_version  # what could not be read has no version of its own
        self._send(_text(HTTPStatus(code), message or explain or HTTPStatus(code).phrase))

    def _send(self, found: HttpAnswer) -> None:
        self.send_response(found.status)
        headers = (("Content-Type", found.content_type), ("Content-Length", str(len(found.body))), *found.headers)
        for name, value in (*headers, *_HEADERS):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    def version_string(self) -> str:
        """The Server header, without the version of Python."""
        return "gpu-watchdog"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: probes and scrapes come all day."""
