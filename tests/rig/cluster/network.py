"""Connections into a network namespace."""

import ctypes
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_CLONE_NEWNET: Final = 0x40000000
_NAMESPACES: Final = Path("/run/netns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where a control plane listens: loopback, or in a named network namespace on an address of its own.

    In a namespace the API server binds 0.0.0.0:`port` and advertises `address`; `service_address` is what pods
    know it by. Both addresses must be on an interface there, `lo` will do.
    """

    namespace: str = ""
    address: str = "127.0.0.1"
    port: int = 0
    service_address: str = "10.96.0.1"

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put before a command that is to run there."""
        # `ip netns exec` would remount /sys too, and the kubelet then finds no cgroups.
        return ("nsenter", f"--net={_NAMESPACES / self.namespace}") if self.namespace else ()

    def connect(self, port: int, timeout_s: float = 10.0) -> socket.socket:
        """A connection to a port of `address`, made inside the namespace; it may be used from anywhere.

        Raises OSError.
        """
        return self._inside(lambda: socket.create_connection((self.address, port), timeout_s))

    def open_http(self, port: int, timeout_s: float = 60.0) -> http.client.HTTPConnection:
        """A connection to an HTTP server there. Raises OSError."""
        connection = http.client.HTTPConnection(self.address, port)
        connection.sock = self.connect(port, timeout_s)
        return connection

    def get(self, port: int, path: str) -> tuple[int, str]:
        """What an HTTP server there answers: status and body. Raises OSError."""
        answer = exchange(self.open_http(port), "GET", path)
        return answer.status, answer.body.decode()

    def _inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        if not self.namespace:
            return make()
        made: list[socket.socket | OSError] = []

        def run() -> None:
            try:
                _enter_namespace(_NAMESPACES / self.namespace)
                made.append(make())
            except OSError as error:
                made.append(error)

        # A socket belongs to the namespace that its thread was in; the thread ends and nothing else has moved.
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]


LOOPBACK: Final = Network()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def object(self) -> Any:
        """The body as the object that it is."""
        return json.loads(self.body)


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send the only request of a connection and read its answer, whatever it is. Raises OSError."""
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return Answer(status=response.status, headers=dict(response.getheaders()), body=response.read())
    except http.client.HTTPException as error:
        raise OSError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def _enter_namespace(path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)
