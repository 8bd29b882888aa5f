"""A proxy of bytes between a client and the API server, with the faults that a network has.

TLS goes through untouched, so a client trusts the API server's own certificate.
"""

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Final, Self

from tests.ports import free_port
from tests.rig.cluster.network import LOOPBACK, Network

_CHUNK: Final = 65536
# How soon a thread sees that its connection has been closed under it or that faults have changed.
_TICK_S: Final = 0.1


@dataclass(eq=False, slots=True, kw_only=True)
class _Pipe:
    """One connection of a client."""

    client: socket.socket
    server: socket.socket | None = None
    # Nothing passes any more, and neither side is notified: packets are lost.
    dead: bool = False
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def join(self, server: socket.socket) -> bool:
        """Take the other side, unless this one has been closed meanwhile."""
        with self.lock:
            if self.closed:
                server.close()
                return False
            self.server = server
            return True

    def send(self, to: socket.socket, data: bytes) -> None:
        """Send all of it, however slowly the other side takes it. Raises OSError."""
        rest = memoryview(data)
        while rest and not (self.closed or self.dead):
            with contextlib.suppress(TimeoutError):  # that of `_pump`
                rest = rest[to.send(rest) :]

    def close(self, *, reset: bool = False) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
        for each in filter(None, (self.client, self.server)):
            with contextlib.suppress(OSError):
                if reset:  # SO_LINGER of 0 s: an RST instead of a FIN
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    each.shutdown(socket.SHUT_RDWR)
            each.close()


class TcpProxy:
    """A context manager. Every fault lasts until `heal`, which concerns new connections."""

    def __init__(self, network: Network, port: int) -> None:
        """Passes on to a port of `network`, from a port of its own on loopback."""
        self._network = network
        self._port = port
        self.port = free_port()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._pipes: set[_Pipe] = set()
        self._silent = False

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()

    @property
    def url(self) -> str:
        """What a kubeconfig names as its server."""
        return f"https://{LOOPBACK.address}:{self.port}"

    def heal(self) -> None:
        """Pass everything on again. Connections that were stalled or silent stay so: what was lost is lost."""
        with self._lock:
            self._silent = False
        if self._listener is None:
            self._listen()

    def refuse(self) -> None:
        """Refuse new connections, as a port without a listener does; open ones go on."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            listener.close()

    def cut(self, *, reset: bool = True) -> None:
        """Close every open connection, by RST or by FIN."""
        with self._lock:
            pipes, self._pipes = self._pipes, set()
        for pipe in pipes:
            pipe.close(reset=reset)

    def stall(self) -> None:
        """Half-open: from now on open connections and new ones carry nothing, and neither side is notified."""
        with self._lock:
            self._silent = True
            for pipe in self._pipes:
                pipe.dead = True

    def accept_silently(self) -> None:
        """New connections are accepted and never get a byte; open ones go on."""
        with self._lock:
            self._silent = True

    def _listen(self) -> None:
        listener = socket.create_server((LOOPBACK.address, self.port), backlog=1024)
        with self._lock:
            self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="tcp-proxy", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed by `refuse`
                return
            pipe = _Pipe(client=client)
            with self._lock:
                pipe.dead = self._silent
                self._pipes.add(pipe)
            threading.Thread(target=self._serve, args=(pipe,), name="tcp-proxy", daemon=True).start()

    def _serve(self, pipe: _Pipe) -> None:
        try:
            if not pipe.dead:
                if not pipe.join(self._network.connect(self._port)):
                    return
                back = threading.Thread(target=self._pump, args=(pipe,), kwargs={"answers": True}, daemon=True)
                back.start()
            self._pump(pipe, answers=False)
        except OSError:  # the server refuses: so do we, as far as one can after accepting
            self._end(pipe, reset=True)

    def _pump(self, pipe: _Pipe, *, answers: bool) -> None:
        source = pipe.server if answers else pipe.client
        assert source is not None
        while not pipe.closed:
            try:
                source.settimeout(_TICK_S)  # the other pump may have closed it
                data = source.recv(_CHUNK)
                if not data:
                    break
                to = pipe.client if answers else pipe.server
                if not pipe.dead and to is not None:  # else lost
                    pipe.send(to, data)
            except TimeoutError:
                continue
            except OSError:
                break
        # A half-open connection does not learn of the server's end either: `cut` closes it, or its client does.
        if not (pipe.dead and answers):
            self._end(pipe, reset=False)

    def _end(self, pipe: _Pipe, *, reset: bool) -> None:
        with self._lock:
            self._pipes.discard(pipe)
        pipe.close(reset=reset)
