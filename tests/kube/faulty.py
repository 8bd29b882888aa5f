"""Servers on loopback that do one thing wrong, and kubeconfig files that lead to them."""

import atexit
import contextlib
import datetime as dt
import functools
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.rig.cluster.certificates import Authority, Pair

DAY: Final = dt.timedelta(days=1)
Handler = Callable[[socket.socket], None]


@functools.cache
def folder() -> Path:
    """Where the certificates of this run of the tests are."""
    made = Path(tempfile.mkdtemp(prefix="faulty-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@functools.cache
def authority(name: str = "ours") -> Authority:
    """An authority; the clients trust the one that is `ours`."""
    return Authority(folder() / name)


@functools.cache
def certificate(kind: str = "good") -> Pair:
    """A server's certificate: good, or with one thing wrong."""
    now = dt.datetime.now(dt.UTC)
    if kind == "expired":
        return authority().server("127.0.0.1", not_before=now - 3 * DAY, not_after=now - 2 * DAY)
    if kind == "early":
        return authority().server("127.0.0.1", not_before=now + 2 * DAY, not_after=now + 3 * DAY)
    if kind == "foreign":
        return authority("theirs").server("127.0.0.1")
    names = ("kubernetes", "10.96.0.1") if kind == "of another name" else ("127.0.0.1",)
    return authority().server(*names)


def answers(text: str) -> Handler:
    """Accept a request, and answer with this text, whatever the request is."""

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(text.encode())
        connection.close()

    return handle


def hangs_up(connection: socket.socket) -> None:
    """Close at once."""
    connection.close()


@contextlib.contextmanager
def server(handle: Handler | None, pair: Pair | None = None, *, wants_client: bool = False) -> Iterator[int]:
    """Listen on a port of loopback, over TLS with a certificate; without a handler it stays silent."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        if wants_client:
            context.load_verify_locations(authority().certificate)
            context.verify_mode = ssl.CERT_REQUIRED
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context, handle, kept))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            thread.join(5)
            for each in kept:
                each.close()


def _serve(
    listener: socket.socket, context: ssl.SSLContext | None, handle: Handler | None, kept: list[socket.socket]
) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        kept.append(connection)
        with contextlib.suppress(OSError):
            connection.settimeout(5)
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
                kept.append(connection)
            if handle is not None:
                handle(connection)
