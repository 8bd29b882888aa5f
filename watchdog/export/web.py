"""The HTTP server and its routes, with its own bounds against slow and numerous clients."""

import errno
import gzip
import io
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from watchdog.export.board import Board, Check
from watchdog.export.exposition import scrape, wants_gzip
from watchdog.export.page import POLICY
from watchdog.export.structured import structlog
from watchdog.options import explain, parse_listen

DEADLINE_S: Final = 5.0  # of a connection, until its request is complete; and of its answer
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
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

    def _send(self, answer: HttpAnswer) -> None:
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

    def metrics(self) -> HttpAnswer:
        """The page for Prometheus."""
        asked = (self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", ""))
        found = scrape(self.board.metrics.registry, *asked)
        packed = (("Content-Encoding", found.encoding),) if found.encoding else ()
        return HttpAnswer(
            status=HTTPStatus.OK,
            body=found.body,
            content_type=found.content_type,
            headers=(("Vary", "Accept, Accept-Encoding"), *packed),
        )

    def health(self) -> HttpAnswer:
        """Whether the loop turns."""
        return _probe(self.board.health())

    def readiness(self) -> HttpAnswer:
        """Whether the daemon does its work."""
        return _probe(self.board.readiness())

    def index(self) -> HttpAnswer:
        """The status page; with `?still` it does not load itself again."""
        is_still = self._target().partition("?")[2] == "still"
        found = self.board.page(is_still=is_still)
        zipped = wants_gzip(self.headers.get("Accept-Encoding", ""))
        headers = [("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer"), ("Vary", "Accept-Encoding")]
        if not is_still:
            headers.append(("Refresh", str(found.refresh_s)))
        if zipped:
            headers.append(("Content-Encoding", "gzip"))
        return HttpAnswer(
            status=HTTPStatus.OK,
            body=found.packed if zipped else found.html,
            content_type="text/html; charset=utf-8",
            headers=tuple(headers),
        )

    def api(self) -> HttpAnswer:
        """The status as JSON."""
        packed = self.board.status()
        if packed is None:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, self.board.no_pass)
        zipped = wants_gzip(self.headers.get("Accept-Encoding", ""))
        return HttpAnswer(
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
_ROUTES: Final[dict[str, Callable[[Handler], HttpAnswer]]] = {
    "/": Handler.index,
    "/metrics": Handler.metrics,
    "/healthz": Handler.health,
    "/readyz": Handler.readiness,
    "/api/status": Handler.api,
}


def _plain(status: HTTPStatus, text: str, headers: tuple[tuple[str, str], ...] = ()) -> HttpAnswer:
    return HttpAnswer(status=status, body=f"{text}\n".encode("utf-8", errors="replace"), headers=headers)


def _probe(check: Check) -> HttpAnswer:
    status = HTTPStatus.OK if check.ok else HTTPStatus.SERVICE_UNAVAILABLE
    return HttpAnswer(status=status, body=check.text.encode())


_LINGER_S: Final = 0.2
# Connections that have not sent their request yet. All that come in one round fit in beside those of the round before,
# so none goes before it has been read from.
_MOST_WAITING: Final = 160
_AT_ONCE: Final = 64
# Beside a thread that makes answers without a pause, each system call of the one that takes the connections costs this
# much; Python's default is five times as long.
_SWITCH_S: Final = 0.001
_MOST_ANSWERING: Final = 32
_BACKLOG: Final = 512
_LARGEST: Final = 2**17  # more than the parser takes of a line
_CLOSE_S: Final = 0.5
_NO_DESCRIPTORS_S: Final = 0.1


class HttpServer:
    """Serves a board; `start` begins, `close` ends."""

    def __init__(self, listen: str, board: Board) -> None:
        """Take the address; ListenError if it can't be had."""
        host, port = parse_listen(listen)
        self._listen = listen
        try:
            self._server = _Server((host, port), board)
        except OSError as error:
            raise explain(error, listen) from error
        self._thread = threading.Thread(target=self._server.serve, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return self._server.port

    @property
    def address(self) -> str:
        """Where it listens, as `--listen` would name it: ADDR:PORT with the real port."""
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests in progress are not waited for."""
        self._server.wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        else:
            self._server.close()


@dataclass(slots=True, kw_only=True, eq=False)
class _Client:
    """A connection that is read from: a request until it is complete, or what comes after the answer (`answered`)."""

    connection: socket.socket
    address: object
    until_s: float
    data: bytearray = field(default_factory=bytearray)
    answered: bool = False


class _Server:
    def __init__(self, address: tuple[str, int], board: Board) -> None:
        self._board = board
        self._waiting: dict[int, _Client] = {}  # by descriptor, the oldest first
        self._answering: dict[int, _Client] = {}  # with those in `_complete`, the oldest first
        self._complete: deque[_Client] = deque()  # those that no thread has begun to answer
        self._threads = 0
        self._turn = threading.Lock()  # to make an answer
        self._lock = threading.Lock()
        self._closing = False
        self._listener = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
            self._listener.listen(_BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._listener.settimeout(0)
        self.port = int(self._listener.getsockname()[1])
        self._alarm, self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until `wake` is called, and close; between requests nothing runs, as a poll would."""
        try:
            self._serve()
        finally:
            self.close()

    def _serve(self) -> None:
        sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
        while not self._closing:
            ready = [key.data for key, _ in self._selector.select(self._patience_s())]
            for client in ready:
                if client is not None:
                    self._read(client)
            self._drop_late()
            if None in ready and not self._closing:
                self._accept()

    def wake(self) -> None:
        """Let `serve` end."""
        self._closing = True
        with suppress(OSError):
            self._bell.send(b".")

    def close(self) -> None:
        """Give everything back that is not being answered."""
        for client in list(self._waiting.values()):
            self._drop(client)
        for each in (self._selector, self._listener, self._alarm, self._bell):
            each.close()

    def _patience_s(self) -> float | None:
        first_s = min((client.until_s for client in self._waiting.values()), default=None)
        return None if first_s is None else max(first_s - time.monotonic(), 0.0)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(_NO_DESCRIPTORS_S)  # who has come is still there: without a pause this would spin
                return
            if len(self._waiting) >= _MOST_WAITING:
                self._drop(next(iter(self._waiting.values())))
            connection.settimeout(0)
            self._wait_for(_Client(connection=connection, address=address, until_s=time.monotonic() + DEADLINE_S))

    def _wait_for(self, client: _Client) -> None:
        try:
            self._selector.register(client.connection, selectors.EVENT_READ, client)
        except OSError:  # the kernel has no memory for it
            client.connection.close()
            return
        self._waiting[client.connection.fileno()] = client
        self._read(client)  # a request comes right behind its connection

    def _read(self, client: _Client) -> None:
        """Take what has come; once the request is complete it is answered."""
        if self._waiting.get(client.connection.fileno()) is not client:
            return  # it had to make room in this round
        try:
            data = client.connection.recv(_LARGEST)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        if client.answered:
            if not data:
                self._drop(client)
            return
        client.data += data
        if data and len(client.data) < _LARGEST and not is_complete(client.data):
            return
        self._forget(client)
        if is_probe(client.data):
            self._answer(client, nullcontext())
            client.answered, client.until_s = True, time.monotonic() + _LINGER_S
            with suppress(OSError):
                client.connection.settimeout(0)
                client.connection.shutdown(socket.SHUT_WR)
            self._wait_for(client)
        else:
            self._answer_apart(client)

    def _answer_apart(self, client: _Client) -> None:
        with self._lock:
            if len(self._answering) >= _MOST_ANSWERING:
                self._let_go(self._answering.pop(next(iter(self._answering))))
            self._answering[id(client)] = client
            self._complete.append(client)
            if self._threads >= _MOST_ANSWERING:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._serve_apart, name="http-answer", daemon=True).start()
        except RuntimeError:  # no thread can be had: those that there are get to it, or that of a later request
            with self._lock:
                self._threads -= 1

    def _let_go(self, client: _Client) -> None:
        if client in self._complete:
            self._complete.remove(client)
            client.connection.close()
        else:
            with suppress(OSError):
                client.connection.shutdown(socket.SHUT_RDWR)

    def _serve_apart(self) -> None:
        while (client := self._next()) is not None:
            self._answer(client, self._turn)
            self._linger(client)
            with self._lock:
                self._answering.pop(id(client), None)
            client.connection.close()

    def _next(self) -> _Client | None:
        with self._lock:
            if self._complete:
                return self._complete.popleft()
            self._threads -= 1
            return None

    def _linger(self, client: _Client) -> None:
        # What the client still sends has to be read: closing over it would reset the connection and lose the answer.
        with suppress(OSError):
            client.connection.shutdown(socket.SHUT_WR)
            client.connection.settimeout(_LINGER_S)
            for _ in range(16):
                if not client.connection.recv(65536):
                    break

    def _answer(self, client: _Client, turn: AbstractContextManager[object]) -> None:
        try:
            Handler(self._board, bytes(client.data), client.connection, client.address, turn)
        except OSError:
            return  # a client that has gone is no news
        except Exception as error:  # one request must not end the thread that takes them all
            message = f"an HTTP request failed for a reason that was not foreseen; please report this: {error!r}"
            structlog.get_logger().error("error", message=message)

    def _drop_late(self) -> None:
        now_s = time.monotonic()
        for client in [each for each in self._waiting.values() if each.until_s <= now_s]:
            self._drop(client)

    def _forget(self, client: _Client) -> None:
        del self._waiting[client.connection.fileno()]
        self._selector.unregister(client.connection)

    def _drop(self, client: _Client) -> None:
        self._forget(client)
        client.connection.close()
