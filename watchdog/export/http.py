"""HTTP on threads of its own: it answers while the loop hangs, and nobody can keep others from being answered.

Standard library alone. Each connection serves one request, within a few seconds altogether; when there are too many,
the oldest one goes, which a fast request never is.
"""

import errno
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from watchdog.export.board import Board
from watchdog.export.http_handler import Handler
from watchdog.export.listen import explain, parse_listen
from watchdog.export.structured import structlog

_LINGER_S: Final = 0.2
_MOST_CONNECTIONS: Final = 32
_CLOSE_S: Final = 0.5
_NO_DESCRIPTORS_S: Final = 0.1


class HttpServer:
    """Serves a board; `start` begins, `close` ends."""

    def __init__(self, listen: str, board: Board) -> None:
        """Take the address; ListenError if it can't be had."""
        host, port = parse_listen(listen)
        try:
            self._server = _Server((host, port), board)
        except OSError as error:
            raise explain(error, listen) from error
        self._thread = threading.Thread(target=self._server.serve, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests under way are not waited for."""
        self._server.wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64
    timeout = 0  # of handle_request: it is called when somebody has come

    def __init__(self, address: tuple[str, int], board: Board) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._alarm, self._bell = socket.socketpair()
        try:
            super().__init__(address, partial(Handler, board))
        except OSError:
            self._alarm.close()
            self._bell.close()
            raise

    def serve(self) -> None:
        """Answer until `wake` is called; between requests nothing runs, as a poll would."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._alarm, selectors.EVENT_READ)
            while not self._closing:
                selector.select()
                if not self._closing:
                    self.handle_request()

    def wake(self) -> None:
        """Let `serve` end."""
        self._closing = True
        with suppress(OSError):
            self._bell.send(b".")

    def server_close(self) -> None:
        super().server_close()
        self._alarm.close()
        self._bell.close()

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_NO_DESCRIPTORS_S)  # whoever has come is still there: without a pause this would spin
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = self._open.pop(next(iter(self._open)))
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        # What the client still sends has to be read: closing over it would reset the connection and lose the answer.
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            request.settimeout(_LINGER_S)
            for _ in range(16):
                if not request.recv(65536):
                    break
        self.close_request(request)

    def close_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # a client that has gone is no news
            message = f"an HTTP request failed for a reason that was not foreseen; please report this: {error!r}"
            structlog.get_logger().error("error", message=message)
