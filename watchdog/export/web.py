"""The routes: from the bytes of a request to the bytes of its response, without a socket.

prometheus_client encodes the metrics, but its format negotiation is not used. It raises TypeError on a version that is
not a number (prometheus_client 0.26), so any client could make a scrape fail; and it answers in any requested version.
Here there are two formats, so two renderings per cycle serve all clients.
"""

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from watchdog.export.endpoints import Endpoints, PackedPage, TooManyError
from watchdog.export.health import ProbeResult
from watchdog.export.history import HistoryQuery, NothingSeenError, QueryError
from watchdog.export.page import POLICY
from watchdog.export.page_headline import PageQuery
from watchdog.export.report import ReportError, ReportQuery
from watchdog.export.subject_page import SUBJECT_POLICY, SubjectQuery

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A GET or HEAD request, with the two headers that matter."""

    # As in the request line.
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
class HttpResponse:
    """The status, headers and body of a response."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()


def route(endpoints: Endpoints, request: HttpRequest, *, only_probes: bool = False) -> HttpResponse:
    """The response to a GET; any path that is not exactly a route is not found. PendingError: it is being made."""
    routes = _PROBES if only_probes else _ROUTES
    has_subject = not only_probes and request.path.startswith(_SUBJECTS)
    handler = routes.get(request.path) or (_subject if has_subject else None)
    return handler(endpoints, request) if handler is not None else _not_found(routes)


def respond(endpoints: Endpoints, request: bytes, *, only_probes: bool = False) -> tuple[bytes, bytes]:
    """The head and the body of the response to the bytes of a request, whatever they are; empty if they hold none.

    The body is the cached object itself, not a copy, however many clients read it slowly. PendingError: it is being
    made.
    """
    handler = _Handler(endpoints, request, only_probes=only_probes)
    return handler.wfile.getvalue(), handler.body


def _metrics(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    openmetrics = wants_openmetrics(request.accept)
    content_type = CONTENT_TYPE_LATEST if openmetrics else CONTENT_TYPE_PLAIN_0_0_4
    return _packed(request, endpoints.exposition(openmetrics=openmetrics), content_type, vary="Accept, Accept-Encoding")


def _page(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    """The status page, as its query asks for it."""
    query = PageQuery.of(request.query)
    try:
        page = endpoints.page(query)
    except TooManyError as error:
        return _busy(error, ("Refresh", "2"))
    return _html(request, page, POLICY, is_still=query.is_still)


def _subject(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    """The page of a pod or a GPU; any path that names neither is not found."""
    query = SubjectQuery.of(request.path, is_still=PageQuery.of(request.query).is_still)
    if query is None:
        return _not_found(_ROUTES)
    try:
        page = endpoints.subject_page(query)
    except NothingSeenError as error:
        return _text(HTTPStatus.NOT_FOUND, str(error))
    except TooManyError as error:
        return _busy(error, ("Refresh", "2"))
    if page is None:
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, endpoints.health.no_cycle, ("Refresh", "2"))
    return _html(request, page, SUBJECT_POLICY, is_still=query.is_still)


def _html(request: HttpRequest, page: PackedPage, policy: str, *, is_still: bool) -> HttpResponse:
    headers = [("Content-Security-Policy", policy), ("Referrer-Policy", "no-referrer")]
    if not is_still:
        headers.append(("Refresh", str(page.refresh_s)))
    return _packed(request, page.packed, "text/html; charset=utf-8", *headers)


def _status(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    return _json(endpoints, request, endpoints.status())


def _summary(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    return _json(endpoints, request, endpoints.summary())


def _history(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    try:
        return _json(endpoints, request, endpoints.history(HistoryQuery.of(request.query)))
    except QueryError as error:
        return _text(HTTPStatus.BAD_REQUEST, str(error))
    except NothingSeenError as error:
        return _text(HTTPStatus.NOT_FOUND, str(error))
    except TooManyError as error:
        return _busy(error)


def _report(endpoints: Endpoints, request: HttpRequest) -> HttpResponse:
    try:
        return _json(endpoints, request, endpoints.reports.get(ReportQuery.of(request.query)))
    except QueryError as error:
        return _text(HTTPStatus.BAD_REQUEST, str(error))
    except ReportError as error:
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, str(error), ("Retry-After", "1"))


def _busy(error: TooManyError, *headers: tuple[str, str]) -> HttpResponse:
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, str(error), ("Retry-After", "1"), *headers)


def _json(endpoints: Endpoints, request: HttpRequest, packed: bytes | None) -> HttpResponse:
    if packed is None:
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, endpoints.health.no_cycle)
    return _packed(request, packed, "application/json")


_SUBJECTS: Final = ("/pods/", "/gpus/")
_Routes = Mapping[str, Callable[[Endpoints, HttpRequest], HttpResponse]]
_PROBES: Final[_Routes] = {
    "/healthz": lambda endpoints, _: _probe(endpoints.health.liveness()),
    "/readyz": lambda endpoints, _: _probe(endpoints.health.readiness()),
}
_ROUTES: Final[_Routes] = {
    "/": _page,
    "/metrics": _metrics,
    **_PROBES,
    "/api/status": _status,
    "/api/summary": _summary,
    "/api/history": _history,
    "/api/report": _report,
}


def _not_found(routes: _Routes) -> HttpResponse:
    paths = [*routes, "/pods/NAMESPACE/NAME", "/gpus/INDEX"] if routes is _ROUTES else [*routes]
    *others, last = paths
    return _text(HTTPStatus.NOT_FOUND, f"not found; there are {', '.join(others)} and {last}")


def _text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> HttpResponse:
    return HttpResponse(status=status, body=f"{text}\n".encode("utf-8", errors="replace"), headers=headers)


def _probe(check: ProbeResult) -> HttpResponse:
    return HttpResponse(status=HTTPStatus.OK if check.ok else HTTPStatus.SERVICE_UNAVAILABLE, body=check.text.encode())


def _packed(
    request: HttpRequest, packed: bytes, content_type: str, *headers: tuple[str, str], vary: str = "Accept-Encoding"
) -> HttpResponse:
    """A body that is kept compressed with gzip, decompressed for a client that does not accept that."""
    headers = (*headers, ("Vary", vary))
    if wants_gzip(request.accept_encoding):
        return HttpResponse(body=packed, content_type=content_type, headers=(*headers, ("Content-Encoding", "gzip")))
    return HttpResponse(body=_unpacked(packed), content_type=content_type, headers=headers)


# One for the metrics, one for the page, the status or the summary: what is requested together without gzip.
_unpacked: Final = lru_cache(maxsize=2)(gzip.decompress)


# RFC 3986 3.2.2: a name, which may be empty, or an IPv6 address in brackets; then a port.
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?")
_HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close"))


class _Handler(BaseHTTPRequestHandler):
    """Python's own request parser, on bytes: it reads from `rfile`, writes the head to `wfile` and keeps the body."""

    protocol_version = "HTTP/1.1"
    wfile: BytesIO

    def __init__(self, endpoints: Endpoints, request: bytes, *, only_probes: bool) -> None:
        # Not super().__init__(): that one takes a socket.
        self._endpoints = endpoints
        self._only_probes = only_probes
        self.rfile, self.wfile, self.body = BytesIO(request), BytesIO(), b""
        self.handle_one_request()

    def parse_request(self) -> bool:
        """Accept only GET and HEAD."""
        if not super().parse_request():
            return False
        # RFC 9112 3.2; Python's parser does not check it.
        hosts = self.headers.get_all("Host", [] if self.request_version == "HTTP/1.1" else [""])
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].strip(" \t")):
            self.send_error(HTTPStatus.BAD_REQUEST, "exactly one valid Host header is needed")
            return False
        if self.command in ("GET", "HEAD"):
            return True
        self._send(_text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are supported", ("Allow", "GET, HEAD")))
        return False

    def do_GET(self) -> None:
        """Respond to the target as it was sent: in `self.path` leading slashes are merged."""
        _, target, *_ = self.requestline.split()
        accept, encoding = self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", "")
        request = HttpRequest(target=target, accept=accept, accept_encoding=encoding)
        self._send(route(self._endpoints, request, only_probes=self._only_probes))

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Respond to a request that could not be parsed, in plain text."""
        self.request_version = self.protocol_version  # a request that could not be parsed has no version
        self._send(_text(HTTPStatus(code), message or explain or HTTPStatus(code).phrase))

    def _send(self, response: HttpResponse) -> None:
        self.send_response(response.status)
        length = str(len(response.body))
        headers = (("Content-Type", response.content_type), ("Content-Length", length), *response.headers)
        for name, value in (*headers, *_HEADERS):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.body = response.body

    def version_string(self) -> str:
        """The Server header, without the version of Python."""
        return "gpu-watchdog"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: probes and scrapes arrive all day."""


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics 1.x to the text format, as Prometheus does by default."""
    openmetrics = plain = 0.0
    for kind, version, quality in _offers(accept):
        if kind == "application/openmetrics-text" and version in ("", "1"):
            openmetrics = max(openmetrics, quality)
        elif kind == "text/plain":
            plain = max(plain, quality)
    # A named format wins over `*/*`; a tie goes to the richer format.
    return openmetrics > 0 and openmetrics >= plain


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip."""
    accepted = {kind: q for kind, _, q in _offers(accept_encoding)}
    return accepted.get("gzip", accepted.get("*", 0.0)) > 0


def _offers(header: str) -> Iterator[tuple[str, str, float]]:
    """Each entry of an Accept header: its name, the major number of its version, and its quality value."""
    for offer in header.lower().split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        values = dict(part.partition("=")[::2] for part in parameters)
        try:
            quality = min(max(float(values.get("q", "1")), 0.0), 1.0)
        except ValueError:  # anything else counts as 1, as if it had been left out
            quality = 1.0
        yield kind, values.get("version", "").strip('"').split(".")[0], quality
