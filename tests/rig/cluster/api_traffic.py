"""The server half of the API proxy: one connection of a client a thread, HTTP/1.1 over TLS."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterable
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from tests.rig.cluster.api import Api
from tests.rig.cluster.faults import Rules, Seen, parse
from tests.rig.cluster.network import Answer
from tests.rig.cluster.streams import Stream, shut

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade"}
)
_HANDSHAKE_LIMIT_S: Final = 10.0
# Longer than any watch of the API server.
_ANSWER_LIMIT_S: Final = 3600.0


class Traffic:
    """What the proxy has seen, what runs through it, and what it is to spoil."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.rules = Rules()
        self.clock_offset_s = 0.0
        self.seen: list[Seen] = []
        self.streams: set[Stream] = set()

    def run_stream(self, stream: Stream, response: http.client.HTTPResponse) -> None:
        """Copy a watch until it ends."""
        self.streams.add(stream)
        try:
            stream.copy(response, lambda line: self.spoil(stream.seen, line))
        finally:
            self.streams.discard(stream)

    def spoil(self, seen: Seen, data: bytes) -> bytes | None:
        """What becomes of a line or a body; None is to cut it."""
        rule = self.rules.take(seen, lambda rule: rule.cut or rule.edit is not None)
        if rule is None:
            return data
        return None if rule.edit is None else rule.edit(data)

    def headers_of(self, response: http.client.HTTPResponse) -> dict[str, str]:
        """What is passed on of an answer's headers, with the date of a clock that may go wrong."""
        headers = _end_to_end(response.getheaders())
        if self.clock_offset_s and "Date" in headers:
            moment_s = parsedate_to_datetime(headers["Date"]).timestamp() + self.clock_offset_s
            headers["Date"] = formatdate(moment_s, usegmt=True)
        return headers


class ProxyServer(ThreadingHTTPServer):
    """One thread a connection; TLS is begun in it, so that a silent client holds up no other."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, port: int, traffic: Traffic, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.traffic = traffic
        self._tls = tls
        self._sockets: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_HANDSHAKE_LIMIT_S)
        try:
            secure = self._tls.wrap_socket(request, server_side=True)
        except OSError:  # among them ssl.SSLError: it does not trust us, sends nothing, or has gone
            return
        secure.settimeout(None)
        self._sockets.add(secure)
        try:
            super().finish_request(secure, client_address)
        except OSError:  # it has gone
            pass
        finally:
            self._sockets.discard(secure)
            secure.close()

    def shut_all(self) -> None:
        for each in tuple(self._sockets):
            shut(each)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    wbufsize: ClassVar[int] = -1
    server: ProxyServer

    def _handle(self) -> None:
        traffic = self.server.traffic
        healed = traffic.rules.healed
        seen = parse(self.command, self.path, dict(self.headers.items()), time.time())
        traffic.seen.append(seen)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        late = traffic.rules.take(seen, lambda rule: bool(rule.delay_s))
        if late is not None:
            healed.wait(late.delay_s)
        instead = traffic.rules.take(seen, lambda rule: rule.reply is not None)
        if instead is not None and instead.reply is not None:
            self._send(instead.reply)
        else:
            self._pass_on(seen, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the base class looks for these names

    def _pass_on(self, seen: Seen, body: bytes) -> None:
        connection = self.server.traffic.api.connection(timeout_s=_ANSWER_LIMIT_S)
        try:
            connection.connect()
        except OSError:
            self.close_connection = True  # the API server is away: the client sees a connection that breaks
            return
        upstream = connection.sock
        try:
            connection.request(self.command, self.path, body=body or None, headers=_end_to_end(self.headers.items()))
            response = connection.getresponse()
            if seen.watch and response.status == 200:
                self._stream(seen, response, upstream)
            else:
                self._copy(seen, response)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
        finally:
            connection.close()

    def _stream(self, seen: Seen, response: http.client.HTTPResponse, upstream: socket.socket) -> None:
        self.send_response_only(response.status)
        for name, value in self.server.traffic.headers_of(response).items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        stream = Stream(seen, self.connection, self.wfile, upstream)
        self.server.traffic.run_stream(stream, response)

    def _copy(self, seen: Seen, response: http.client.HTTPResponse) -> None:
        whole = response.read()
        changed = self.server.traffic.spoil(seen, whole)
        headers = self.server.traffic.headers_of(response)
        self._send(
            Answer(status=response.status, headers=headers, body=whole if changed is None else changed), changed is None
        )

    def _send(self, answer: Answer, cut: bool = False) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or cut

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: the proxy keeps what it has seen."""


def _end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in _HOP_BY_HOP}
