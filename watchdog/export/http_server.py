"""The HTTP server: one thread that never waits for a client, with limits on the number of clients and their time.

Why it is not a library's server: docs/adr/0013-own-http-server.md.
"""

import errno
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from watchdog.clock import Bell
from watchdog.export.endpoints import Endpoints
from watchdog.export.log import Log
from watchdog.export.report import PATIENCE_S, PendingError
from watchdog.export.web import respond
from watchdog.options import ListenError, listen_error, parse_listen

# For a connection until its request is complete, and for its response until the client has received it.
DEADLINE_S: Final = 5.0
# How long to keep reading from a client after its response: closing with unread data would reset the connection, and
# the client would lose the response.
_LINGER_S: Final = 0.2
# Connections without a complete request, and as many again waiting for their turn. All that are accepted in one round
# fit along with those of the previous round, so none is dropped before it was read from.
_MOST_WAITING: Final = 160
_AT_ONCE: Final = 64
_MOST_PENDING: Final = 32  # those whose response is being made on another thread
_MOST_SENDING: Final = 32  # responses that the kernel has not accepted yet, each as large as its page
_BACKLOG: Final = 512
# Served first: the kubelet restarts a daemon that fails three probes in a row, and they are cheap.
_PROBES: Final = (b"GET /healthz HTTP/", b"GET /readyz HTTP/")
_LARGEST: Final = 2**17  # more than the parser accepts as a line
# After a system call, or a call into the driver, a thread waits this long to get Python's lock back from one that
# computes; Python's default is 5 ms. While this thread rendered without a pause, the scan of 8 cards took 4.1 to 6.4 ms
# at 1 ms, and 1.9 to 3.3 ms at 0.1 ms; without rendering 0.7 ms.
_SWITCH_S: Final = 0.0001
_CLOSE_S: Final = 0.5
_NO_DESCRIPTORS_S: Final = 0.1


@dataclass(slots=True, eq=False)
class _Client:
    """A connection: its request is read, its response sent, then further data is read and discarded."""

    connection: socket.socket
    # Whether it has come to the address at which only the probes answer.
    only_probes: bool = False
    until_s: float = 0.0
    request: bytearray = field(default_factory=bytearray)
    unsent: list[memoryview] = field(default_factory=list)
    is_responded: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the request has all its headers, or is too long; a body is never read."""
        return b"\n\r\n" in self.request or b"\n\n" in self.request or len(self.request) >= _LARGEST


_Pool = dict[_Client, None]  # the oldest first


class HttpServer:
    """Serves the endpoints between `start` and `close`."""

    def __init__(self, listen: str, endpoints: Endpoints, probes: str = "") -> None:
        """Bind the address, and the one at which only the probes answer, if any; ListenError if that fails."""
        self._listen = listen
        self._endpoints = endpoints
        self._reading: _Pool = {}
        self._waiting: _Pool = {}  # with a complete request
        self._pending: _Pool = {}  # with a response that is being made on another thread
        self._sending: _Pool = {}
        self._closing = False
        listener = _listener(listen, "--listen")
        # With each, whether only the probes answer there.
        self._listeners = {listener: False}
        self.port = self.probes_port = int(listener.getsockname()[1])
        if probes:
            try:
                further = _listener(probes, "--probes")
            except ListenError:
                listener.close()
                raise
            self._listeners[further] = True
            self.probes_port = int(further.getsockname()[1])
        self._bell = Bell()
        self._selector = selectors.DefaultSelector()
        for each in self._listeners:
            self._selector.register(each, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """The address in the form of `--listen`: ADDR:PORT with the actual port."""
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop every client."""
        self._closing = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        else:
            self._release()

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._release()

    def _serve(self) -> None:
        sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
        while not self._closing:
            ready = [key.data for key, _ in self._selector.select(self._patience_s())]
            for client in ready:
                if client in self._sending:
                    self._advance(client, self._send)
                elif client in self._reading:
                    self._advance(client, self._receive)
            self._drop_late()
            if None in ready and self._bell.silence():
                self._ask_again()
            if None in ready and not self._closing:
                for listener, only_probes in self._listeners.items():
                    self._accept(listener, only_probes=only_probes)
            if self._waiting:  # one per round: new connections and probes come first, however many clients scrape
                self._advance(next(iter(self._waiting)), self._respond_to)

    @property
    def _clients(self) -> list[_Client]:
        return [*self._reading, *self._waiting, *self._pending, *self._sending]

    def _release(self) -> None:
        for client in self._clients:
            self._drop(client)
        for listener in self._listeners:
            listener.close()
        for resource in (self._selector, self._bell):
            resource.close()

    def _patience_s(self) -> float | None:
        """How long to wait without any client activity; None is indefinitely, so that idling costs nothing."""
        if self._waiting:
            return 0.0
        first_s = min((client.until_s for client in self._clients), default=None)
        return None if first_s is None else max(first_s - time.monotonic(), 0.0)

    def _drop_late(self) -> None:
        now_s = time.monotonic()
        for client in self._clients:
            if client.until_s <= now_s and client in self._pending:
                self._admit(client, self._waiting, _MOST_WAITING, DEADLINE_S)  # its response is that it takes too long
            elif client.until_s <= now_s:
                self._drop(client)

    def _ask_again(self) -> None:
        """Respond to those whose response may have been made by now."""
        for client in [*self._pending]:
            self._admit(client, self._waiting, _MOST_WAITING, DEADLINE_S)

    def _accept(self, listener: socket.socket, *, only_probes: bool) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(_NO_DESCRIPTORS_S)  # the connection is still pending: without a pause this would spin
                return
            connection.settimeout(0)
            try:
                client = _Client(connection, only_probes)
                self._selector.register(connection, selectors.EVENT_READ, client)
            except OSError:  # out of kernel memory
                connection.close()
                continue
            self._admit(client, self._reading, _MOST_WAITING, DEADLINE_S)
            self._advance(client, self._receive)  # the request usually follows at once

    def _admit(self, client: _Client, pool: _Pool, most: int, deadline_s: float) -> None:
        """Move a client into a pool; if it is full, its oldest client is dropped."""
        for other in (self._reading, self._waiting, self._pending, self._sending):
            other.pop(client, None)
        if len(pool) >= most:
            self._drop(next(iter(pool)))
        client.until_s = time.monotonic() + deadline_s
        pool[client] = None

    def _advance(self, client: _Client, step: Callable[[_Client], None]) -> None:
        """Do what can be done for a client without waiting."""
        try:
            step(client)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)

    def _receive(self, client: _Client) -> None:
        data = client.connection.recv(_LARGEST)
        if not data:
            self._drop(client)
            return
        if client.is_responded:
            return
        client.request += data
        if not client.is_complete:
            return
        self._admit(client, self._waiting, _MOST_WAITING, DEADLINE_S)
        if client.request.startswith(_PROBES):
            self._respond_to(client)

    def _respond_to(self, client: _Client) -> None:
        try:
            parts = self._respond(client)
        except PendingError as pending:
            self._admit(client, self._pending, _MOST_PENDING, PATIENCE_S)
            pending.done.add_done_callback(lambda _: self._bell.ring())
            return
        client.unsent = [memoryview(part) for part in parts if part]
        client.is_responded = True
        client.request.clear()
        if not client.unsent:
            self._drop(client)
            return
        self._selector.modify(client.connection, selectors.EVENT_WRITE, client)
        self._admit(client, self._sending, _MOST_SENDING, DEADLINE_S)
        self._send(client)

    def _send(self, client: _Client) -> None:
        sent = client.connection.sendmsg(client.unsent)
        while client.unsent and sent >= len(client.unsent[0]):
            sent -= len(client.unsent.pop(0))
        if client.unsent:
            client.unsent[0] = client.unsent[0][sent:]
            return
        client.connection.shutdown(socket.SHUT_WR)
        self._selector.modify(client.connection, selectors.EVENT_READ, client)
        self._admit(client, self._reading, _MOST_WAITING, _LINGER_S)

    def _respond(self, client: _Client) -> tuple[bytes, bytes]:
        try:
            return respond(self._endpoints, bytes(client.request), only_probes=client.only_probes)
        except PendingError:
            raise
        except Exception as error:  # one request must not end the thread that serves all of them
            Log().error(f"an HTTP request failed unexpectedly; please report this: {error!r}")
            return b"", b""

    def _drop(self, client: _Client) -> None:
        for pool in (self._reading, self._waiting, self._pending, self._sending):
            pool.pop(client, None)
        with suppress(KeyError):  # `modify` unregisters a connection that it fails to change
            self._selector.unregister(client.connection)
        client.connection.close()


def _listener(address: str, option: str) -> socket.socket:
    """A non-blocking listening socket; ListenError if the address, of this option, can't be bound."""
    host, port = parse_listen(address)
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise listen_error(error, address, option) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise listen_error(error, address, option) from error
    listener.settimeout(0)
    return listener
