"""Querying a daemon: at the given address and no other, and answers that are no status."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.kube import faulty
from tests.ports import free_port
from watchdog.cli.client import QueryError, listen_url, query_status, status_url
from watchdog.report.status import Moment, Status

AT_S = 1_800_000_000.0
STATUS = {"node": "n1", "at": "2027-01-15T08:00:00Z", "accounts": [], "plan": []}


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers every request with these bytes; its address, and the requests so far."""
    seen: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    seen.append(connection.recv(65536))
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def http(body: bytes, head: str = "200 OK", more: str = "") -> bytes:
    """An answer of HTTP."""
    return f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n".encode() + body


@pytest.mark.parametrize(
    ("given", "queried"),
    [
        ("http://127.0.0.1:9837", "http://127.0.0.1:9837/api/status"),
        ("http://127.0.0.1:9837/", "http://127.0.0.1:9837/api/status"),
        ("http://n1:9837/api/status", "http://n1:9837/api/status"),
        ("https://gateway/n1/", "https://gateway/n1/api/status"),
        ("http://[::1]:9837", "http://[::1]:9837/api/status"),
    ],
)
def test_the_address_of_the_status(given: str, queried: str) -> None:
    """The daemon's address is enough, and that of the status itself is taken too."""
    assert status_url(given) == queried


@pytest.mark.parametrize(
    "given",
    ["", "127.0.0.1:9837", "file:///etc/passwd", "ftp://n1", "http://", "http://n1:port", "http://n1:99999",
     "http://[::1", "http://n1/a b", "http://user:word@n1", "http://n1/\n", "http://nä"],
)  # fmt: skip
def test_a_wrong_address_is_refused(given: str) -> None:
    """A wrong address is an error before anything is queried."""
    with pytest.raises(ValueError, match="address"):
        status_url(given)


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:9837", "http://127.0.0.1:9837"),
        ("0.0.0.0:9837", "http://127.0.0.1:9837"),
        ("[::]:9837", "http://[::1]:9837"),
        ("[fe80::1]:80", "http://[fe80::1]:80"),
    ],
)
def test_the_daemon_of_this_machine(listen: str, url: str) -> None:
    """The address that a daemon listens on is where it is queried; for all interfaces, on loopback."""
    assert listen_url(listen) == url


def test_a_daemon_answers() -> None:
    """One GET of the status, and what it says."""
    with answering(http(json.dumps(STATUS).encode())) as (url, seen):
        assert query_status(url) == Status(node="n1", at=Moment(AT_S), accounts=(), plan=())
    assert seen[0].startswith(b"GET /api/status HTTP/1.1\r\n")


NO_STATUS = "is not gpu-watchdog: its answer is not a status as gpu-watchdog writes it: "


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (http(b"<html>"), NO_STATUS),
        (http(b"[" * 100_000), NO_STATUS),
        (http(b"\xff\xfe"), NO_STATUS),
        (http(b"[]"), NO_STATUS),
        (http(b'{"node": "n1"}'), NO_STATUS),
        (
            http(b"no cycle has completed yet\n", "503 Service Unavailable"),
            "has no data yet: no cycle has completed yet",
        ),
        (http(b"busy\n", "503 Service Unavailable"), "status 503, busy"),
        (http(b"<html>\x1b[2J", "404 Not Found"), "does not answer at http://127.0.0.1:{port}/api/status: status 404"),
        (http(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (b"nothing of HTTP\r\n\r\n", "does not answer at"),
        (b"", "does not answer at"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "its answer is cut short"),
    ],
)
def test_answers_that_are_no_status(answer: bytes, says: str) -> None:
    """If another program listens there, the error names the address and its answer."""
    with answering(answer) as (url, seen), pytest.raises(QueryError) as error:
        query_status(url)
    assert says.format(port=url.rpartition(":")[2]) in str(error.value)
    assert str(error.value).isprintable()
    assert len(seen) == 1, "a redirection is not followed"


def test_nobody_listens() -> None:
    """If no daemon runs, the error is the system's."""
    port = free_port()
    with pytest.raises(QueryError, match=f"does not answer at http://127.0.0.1:{port}/api/status: Connection refused"):
        query_status(f"http://127.0.0.1:{port}")


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of this node does not go to the proxy that the shell has for the internet."""
    with answering(http(json.dumps(STATUS).encode())) as (url, _), answering(b"") as (proxy, requests):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        assert query_status(url) == Status(node="n1", at=Moment(AT_S), accounts=(), plan=())
    assert requests == []


@pytest.mark.parametrize(
    ("piece", "pause_s", "patience_s"),
    [(b" " * 2**20, 0.0, 60.0), (b" ", 0.05, 0.4)],
    ids=["too long", "too slow"],
)
def test_an_answer_that_goes_on_and_on(piece: bytes, pause_s: float, patience_s: float) -> None:
    """What a command takes from a server is bounded in memory and time, even if something comes all the time."""

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(65):
            connection.sendall(piece)
            time.sleep(pause_s)
        connection.close()

    with faulty.server(handle) as port, pytest.raises(QueryError, match="its answer is too long or takes too long"):
        query_status(f"http://127.0.0.1:{port}", patience_s)


@pytest.mark.slow
def test_an_answer_that_never_comes() -> None:
    """A server that accepts the connection and sends nothing costs some seconds at most."""
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(QueryError, match="nothing came within 5s"):
        query_status(f"http://127.0.0.1:{server.getsockname()[1]}")
