"""HTTP over real sockets: the endpoints, the probes, and malicious requests."""

import base64
import hashlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.node.support import ENDS_WITH_US, cannot_run, wait_until
from tests.report.build import Clock, Story, climbing, policy, quiet, serving, trainer_node, utilized
from tests.report.test_status import EXPECTED
from tests.worlds import gpu, snapshot
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics
from watchdog.options import ListenError, parse_listen
from watchdog.report.hour import LEVELS

# After how long a slow client is cut off, and what no machine is too busy for: a client that is not cut off stays.
_CUT_OFF_S, _NEVER_S = 5, 60


@dataclass
class Site:
    """A running server with what is behind it."""

    endpoints: Endpoints
    clock: Clock
    port: int
    host: str = "127.0.0.1"

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        """One request."""
        connection = HTTPConnection(self.host, self.port, timeout=10)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    def send(self, data: bytes, *, wait: float = 10) -> bytes:
        """Bytes as they are, and whatever comes back until the end."""
        with socket.create_connection((self.host, self.port), timeout=wait) as connection:
            with suppress(OSError):
                connection.sendall(data)
            return read_all(connection)

    def status(self, path: str) -> int:
        """The status of a GET."""
        return self.get(path)[0].status


def read_all(connection: socket.socket) -> bytes:
    """Everything that still comes."""
    found = b""
    with suppress(OSError):
        while chunk := connection.recv(65536):
            found += chunk
    return found


@pytest.fixture
def site(endpoints: Endpoints, clock: Clock) -> Iterator[Site]:
    with serving(endpoints) as server:
        yield Site(endpoints=endpoints, clock=clock, port=server.port)


def test_health_follows_the_cycles(site: Site) -> None:
    """`/healthz` is 200 while cycles end, and 503 once the last one is older than three intervals, at least 10 s."""
    assert site.status("/healthz") == 200, "a daemon that has just started is given time"
    for interval_s, longest_s in ((None, 10), (1.0, 10), (60.0, 180)):
        if interval_s is not None:
            site.endpoints.publish(quiet(policy=policy(interval_s=interval_s)))
        site.clock.second += longest_s
        assert site.status("/healthz") == 200
        site.clock.second += 0.1
        response, body = site.get("/healthz")
        assert response.status == 503
        assert body.decode().startswith(site.endpoints.health.status.unready[0])


def test_readiness_gives_its_reasons(site: Site) -> None:
    """`/readyz` is 503 with one reason a line until a cycle has finished and the daemon has nothing against it.

    Point 38: a daemon that should enforce and does not reports it.
    """
    site.endpoints.health.unready = ("the pod list is 4m old", "another watchdog\nholds the lock")
    response, body = site.get("/readyz")
    assert response.status == 503
    assert body.decode().splitlines() == [
        "no cycle has completed yet", "the pod list is 4m old", r"another watchdog\x0aholds the lock",
    ]  # fmt: skip
    site.endpoints.publish(quiet())
    assert site.get("/readyz")[1].count(b"\n") == 2
    site.endpoints.health.unready = ()
    response, body = site.get("/readyz")
    assert (response.status, body) == (200, b"ok\n")
    site.endpoints.publish(quiet(suspended=("pid_namespace",), enforcing=False))
    assert site.get("/readyz")[1] == b"ok\nnot enforcing: pid_namespace\n"


def test_the_status_is_the_promised_json(site: Site) -> None:
    """`/api/status` is the JSON of `scan --json` and the last hour; before the first cycle it is 503 and says why."""
    assert site.status("/api/status") == 503
    site.endpoints.publish(utilized())
    response, body = site.get("/api/status")
    assert response.headers["Content-Type"] == "application/json"
    document = json.loads(body)
    assert (document["health"]["cycles"], document["health"]["ready"]) == (1, True)
    for part in (*document["gpus"], *document["accounts"]):
        assert len(part.pop("hour")["levels"]) == LEVELS
    assert {**document, "health": None} == json.loads(EXPECTED)


def test_the_summary_is_of_the_same_cycle(site: Site) -> None:
    """`/api/summary` is small, and 503 as long as `/api/status` is."""
    assert site.status("/api/summary") == 503
    site.endpoints.publish(climbing(9))
    response, body = site.get("/api/summary")
    assert (response.headers["Content-Type"], len(body) <= 4096 + 1) == ("application/json", True)
    summary, status = json.loads(body), json.loads(site.get("/api/status")[1])
    assert (summary["at"], summary["version"]) == (status["at"], status["health"]["version"])
    assert [each["pod"] for each in summary["accounts"]] == [each["pod"] for each in status["accounts"]]


PATHS = ["/", "/metrics", "/healthz", "/readyz", "/api/status", "/api/summary", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_headers_of_get_and_no_body(site: Site, path: str) -> None:
    """HEAD is GET without the body; no proxy keeps an answer, no browser guesses its type, and Python is not named."""
    site.endpoints.publish(quiet())
    got, body = site.get(path)
    head, nothing = site.get(path, "HEAD")
    assert (head.status, head.headers["Content-Type"], nothing) == (got.status, got.headers["Content-Type"], b"")
    assert abs(int(head.headers["Content-Length"]) - len(body)) < 200
    assert site.send(f"HEAD {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode()).endswith(b"\r\n\r\n")
    assert (got.headers["Cache-Control"], got.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert "Python" not in (got.headers["Server"] or "")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz?x=1", 200), ("/metrics?name[]=up", 200),
        ("/healthz/", 404), ("//healthz", 404), ("/%68ealthz", 404), ("/healthz%00", 404),
        ("/HEALTHZ", 404), ("/favicon.ico", 404), ("/metrics/../healthz", 404), ("/api", 404), ("/api/status/x", 404),
        ("/..%2f..%2fetc/passwd", 404), ("/?", 200), ("/" + "a" * 60000, 404), ("*", 404), ("/;healthz", 404),
        ("http://elsewhere/healthz", 200), ("HTTP://elsewhere", 200), ("http://elsewhere/x", 404), ("healthz", 404),
    ],
)  # fmt: skip
def test_what_is_not_exactly_an_endpoint_is_not_found(site: Site, path: str, status: int) -> None:
    """A probe of a wrong path must fail: anything but the endpoints, as they are written, is 404."""
    site.endpoints.publish(quiet())
    assert site.status(path) == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "FOO", "get"])
def test_other_methods_are_refused(site: Site, method: str) -> None:
    """Nothing can be changed over HTTP: everything but GET and HEAD is 405 and names what is allowed."""
    answer = site.send(f"{method} /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".encode())
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer
    large = site.send(f"{method} / HTTP/1.1\r\nHost: n\r\nContent-Length: 500000\r\n\r\n".encode() + b"x" * 500_000)
    assert large.startswith(b"HTTP/1.1 405 "), "a client that is still sending reads the refusal, and is not reset"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET / HTTP/2.0\r\n\r\n", b"505"),
        (b"GET / FTP/1.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1 extra\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # without a Host, and with two: RFC 9112 3.2
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: a, b\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\nHost: u@a\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: [fd00::1]:9837 \r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 70000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nHost: n\r\nAccept: \xff\xfe\x00\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: n\r\nAccept: text/plain;version=1\r\n \r\n\tX: y\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\nHost: x\n\n", b"200"),
        (b"GET /healthz HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", b"100"),
    ],
)  # fmt: skip
def test_malformed_requests_get_a_short_answer(site: Site, request_: bytes, status: bytes) -> None:
    """Whatever bytes come, the answer is a status and a line of text, and the next client is served."""
    site.endpoints.publish(quiet())
    answer = site.send(request_)
    assert answer.split(b" ", 2)[1] == status
    assert b"Traceback" not in answer
    assert site.status("/healthz") == 200


@pytest.mark.parametrize(
    "data", [b"", b"\r\n", b"\x00", b"\xff" * 1000, b"GET / HTTP/1.1\r\n", b"G", b"GET /healthz\r\n"]
)
def test_clients_that_stop_half_way(site: Site, data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """A client that goes away in the middle leaves no trace: no traceback, no stuck thread."""
    with socket.create_connection((site.host, site.port)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    with socket.create_connection((site.host, site.port)) as connection:
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert site.status("/healthz") == 200
    assert capfd.readouterr().err == ""


def test_slow_clients_do_not_keep_others_out(site: Site) -> None:
    """However many connections dawdle, a probe is answered at once: the oldest one makes room."""
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((site.host, site.port), timeout=10)) for _ in range(100)]
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        begun = time.monotonic()
        for _ in range(20):
            assert site.status("/healthz") == 200
        assert time.monotonic() - begun < _CUT_OFF_S
        assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) < 100


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("request_", ["GET /metrics HTTP/1.1\r\nX: ", "GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n"])
def test_a_flood_of_requests_does_not_starve_the_probes(site: Site, path: str, request_: str) -> None:
    """Beside 1500 clients a second, done or not, a probe takes less than a second of the three that the kubelet gives.

    On a machine that is short of CPU one may miss that, though not three in a row, by which the kubelet goes.
    """
    many = tuple(gpu(number) for number in range(1000))
    site.endpoints.publish(quiet(snapshot=snapshot(gpus=many)))
    flood = [*ENDS_WITH_US, sys.executable, str(Path(__file__).with_name("flood.py")), str(site.port), "1500", request_]
    with subprocess.Popen(flood) as process:
        time.sleep(0.5)
        answers = [_is_answered(site, path) for _ in range(10)]
        process.kill()
    assert not any(answers[at : at + 3] == [False] * 3 for at in range(8)), answers
    wait_until(lambda: _is_answered(site, "/metrics"))  # once those are gone that the kernel still holds for it


def _is_answered(site: Site, path: str) -> bool:
    time.sleep(0.1)
    begun = time.monotonic()
    with suppress(OSError), socket.create_connection((site.host, site.port), timeout=1) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return read_all(connection).startswith(b"HTTP/1.1 200 ") and time.monotonic() - begun < 1
    return False


@pytest.mark.slow
def test_a_client_that_sends_byte_by_byte_is_cut_off(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    """A request has five seconds altogether, however busily it dribbles."""
    begun = time.monotonic()
    with socket.create_connection((site.host, site.port), timeout=10) as connection, suppress(OSError):
        while time.monotonic() - begun < _NEVER_S:
            connection.sendall(b"G")
            time.sleep(0.25)
    assert 4 < time.monotonic() - begun < _NEVER_S
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("reads", [False, True], ids=["not at all", "too slowly"])
def test_a_client_that_does_not_read_is_cut_off(site: Site, reads: bool) -> None:
    """An answer that is too large for the kernel to take it has five seconds altogether, and holds up no other."""
    gaps = tuple(
        Gap(reason=GapReason.PODS, what=f"pod {number}", problem=Problem("x" * 990)) for number in range(16_000)
    )
    site.endpoints.publish(quiet(snapshot=snapshot(gaps=gaps)))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18 if reads else 2**12)
        connection.connect((site.host, site.port))
        connection.sendall(b"GET /api/status HTTP/1.1\r\nHost: n\r\n\r\n")
        begun = time.monotonic()
        time.sleep(1)
        held = _descriptors()
        assert site.status("/healthz") == 200
        while _descriptors() >= held and time.monotonic() - begun < _NEVER_S:
            time.sleep(0.1)
            if reads:
                connection.recv(2**16)
        assert 3 < time.monotonic() - begun < _NEVER_S


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_status_page_is_self_contained(site: Site) -> None:
    """The page needs nothing from elsewhere and runs nothing, by its own rules to the browser too."""
    for report in (None, climbing(9)):
        if report is not None:
            site.endpoints.publish(report)
        response, body = site.get("/")
        assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        style = body.partition(b"<style>")[2].partition(b"</style>")[0]
        digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
        assert response.headers["Content-Security-Policy"] == (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )
        assert b"<script" not in body
    assert "a/trainer" in body.decode()


def test_the_page_refreshes_itself_until_it_is_paused(site: Site) -> None:
    """Soon while something is about to happen, seldom while nothing is, and never for a reader who has paused it."""
    site.endpoints.publish(quiet())
    assert site.get("/")[0].headers["Refresh"] == "15"
    site.endpoints.publish(climbing(9))
    assert site.get("/")[0].headers["Refresh"] == "5"
    for path in ("/?still", "/?still=", "http://elsewhere/?still"):
        response, body = site.get(path)
        assert (response.status, response.headers["Refresh"]) == (200, None)
        assert b'<a href="./">Resume refresh</a>' in body
    for path in ("/?", "/?x", "/?stil"):
        assert site.get(path)[0].headers["Refresh"] == "5"


@pytest.mark.parametrize(
    ("listen", "parsed"),
    [("127.0.0.1:9837", ("127.0.0.1", 9837)), ("[::1]:0", ("::1", 0)), ("localhost:1", ("localhost", 1)),
     ("[::]:65535", ("::", 65535))],
)  # fmt: skip
def test_addresses(listen: str, parsed: tuple[str, int]) -> None:
    """Addresses are read as an operator writes them."""
    assert parse_listen(listen) == parsed


@pytest.mark.parametrize(
    "listen",
    ["", ":", "9837", ":9837", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536", "::1:9837",
     "1.2.3.4:٣", "[::1]", "127.0.0.1:" + "9" * 5000, "a:b:1"],
)  # fmt: skip
def test_bad_addresses_are_refused_with_the_remedy(listen: str) -> None:
    """What can't be listened on is refused in a sentence that shows how to write it."""
    with pytest.raises(ListenError, match="is not an address to listen on: write"):
        parse_listen(listen)


def test_ipv6(endpoints: Endpoints, clock: Clock) -> None:
    """The address can be IPv6."""
    if not socket.has_dualstack_ipv6():
        cannot_run("no IPv6 here")
    with serving(endpoints, "[::1]:0") as server:
        assert Site(endpoints, clock, server.port, host="::1").status("/healthz") == 200
        assert server.address == f"[::1]:{server.port}"


def test_no_answer_says_when_a_step_is_due_within_an_interval(site: Site) -> None:
    """Whoever reaches the port could otherwise time a dip by it: a wait is rounded up, in every answer."""
    interval_s, since_s, left_s = 2.0, 50.0, 3.2
    story = Story(under=policy(interval_s=interval_s))
    for second in (0.0, 1.7, 3.4, 5.1, 10 - left_s):
        site.clock.second = since_s + second
        site.endpoints.publish(report := story.see(trainer_node(12.4, since_s + second)))
    (entry,) = report.plan.entries
    assert entry.due_in_s == pytest.approx(left_s)
    answers = {path: site.get(path)[1].decode() for path in ("/", "/metrics", "/api/status", "/api/summary", "/readyz")}
    (planned,), (summed,) = json.loads(answers["/api/status"])["plan"], json.loads(answers["/api/summary"])["accounts"]
    assert planned["due_in_s"] == summed["due_in_s"] == 2 * interval_s
    assert "kill in 4s" in answers["/"]
    assert ", in 4s: kill" in planned["sentence"]
    assert not [text for text in answers.values() if re.search(rf"(?<![\d.]){re.escape(str(left_s))}(?!\d)", text)]


def test_a_further_address_answers_only_probes(endpoints: Endpoints, clock: Clock) -> None:
    """What `--probes` opens to everybody shows whether the daemon works, and nothing else; the first has it all."""
    endpoints.publish(quiet())
    server = HttpServer("127.0.0.1:0", endpoints, "127.0.0.1:0")
    server.start()
    try:
        first, probes = (Site(endpoints, clock, port) for port in (server.port, server.probes_port))
        pages, odd = (
            ["/", "/metrics", "/api/status", "/api/summary"],
            ["//healthz", "/healthz/../metrics", "/api/history?gpu=0"],
        )
        for path in ("/healthz", "/readyz"):
            assert probes.get(path)[1] == first.get(path)[1]
            assert probes.status(path) == 200
        assert {probes.status(path) for path in (*pages, *odd)} == {404}
        assert probes.get("/metrics")[1] == b"not found; there are /healthz and /readyz\n"
        assert {first.status(path) for path in pages} == {200}
        with pytest.raises(ListenError, match=r"another process listens there.*`--probes`"):
            HttpServer("127.0.0.1:0", endpoints, f"127.0.0.1:{server.probes_port}")
    finally:
        server.close()


def test_an_address_in_use_is_refused_with_the_remedy(site: Site) -> None:
    """A second daemon on the same address says what to do, and the first one goes on."""
    with pytest.raises(ListenError, match=r"another process listens there.*`--listen`"):
        HttpServer(f"127.0.0.1:{site.port}", site.endpoints)
    with pytest.raises(ListenError, match=r"no such address|can't listen on"):
        HttpServer("203.0.113.1:9837", site.endpoints)
    with pytest.raises(ListenError, match=r"can't listen on nowhere\.invalid:1"):
        HttpServer("nowhere.invalid:1", site.endpoints)
    assert site.status("/healthz") == 200


def test_closing_is_fast_and_frees_the_address() -> None:
    """Ending takes well under a second, also with a client that is connected and silent, and frees the port."""
    server = HttpServer("127.0.0.1:0", Endpoints(Metrics(), 1.0))
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)):
        begun = time.monotonic()
        server.close()
        assert time.monotonic() - begun < _CUT_OFF_S
    HttpServer(f"127.0.0.1:{server.port}", Endpoints(Metrics(), 1.0)).close()


def test_a_hundred_scrapes_at_the_same_moment_are_all_answered(site: Site) -> None:
    """However many have asked before the first is answered, and while cycles end: all get a whole page."""
    site.endpoints.publish(climbing(9))
    with ExitStack() as stack:
        open_ = [stack.enter_context(socket.create_connection((site.host, site.port), timeout=10)) for _ in range(100)]
        for second, connection in enumerate(open_):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n")
            site.endpoints.publish(quiet(second))
        answers = [read_all(connection) for connection in open_]
    assert {(answer[:13], answer[-6:]) for answer in answers} == {(b"HTTP/1.1 200 ", b"# EOF\n")}


def test_between_requests_nothing_runs(site: Site) -> None:
    """The server's thread sleeps until a request comes: a daemon that runs on every node for ever must not tick."""
    site.status("/healthz")
    serving = next(thread for thread in threading.enumerate() if thread.name == "http")
    woken = []
    for _ in range(5):  # threads that other tests have left behind may contend with it for a moment
        before = switches(serving.native_id or 0)
        time.sleep(0.6)
        woken.append(switches(serving.native_id or 0) - before)
        if woken[-1] <= 1:
            break
    assert min(woken) <= 1, woken


def switches(task: int) -> int:
    """How often a thread has gone to sleep of its own will."""
    lines = Path(f"/proc/self/task/{task}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])
