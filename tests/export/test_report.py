"""`/api/report`: what the journal says of card-hours, without the server waiting for it."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.export.test_http import Site
from tests.node.support import wait_until
from tests.report.build import Clock, serving
from tests.worlds import at
from watchdog.core.errors import WatchdogError
from watchdog.export import http_server, report
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.report.card_hours import MOST_BYTES, MOST_OWNERS, NodeHours, OwnerHours, bounded, encode_hours
from watchdog.report.status import Moment


@contextmanager
def served(read: Callable[[float], bytes] | None) -> Iterator[Site]:
    """A server whose reports are made by `read`."""
    clock = Clock()
    endpoints = Endpoints(Metrics(), 1.0, clock, report=read)
    with serving(endpoints) as server:
        yield Site(endpoints=endpoints, clock=clock, port=server.port)


def test_the_time_that_is_asked_for_is_read_once_a_minute() -> None:
    """A duration or a moment is passed on as Unix time; who asks again within a minute does not touch the disk."""
    asked: list[float] = []

    def read(since_s: float) -> bytes:
        asked.append(since_s)
        return json.dumps({"since": since_s}).encode()

    with served(read) as site:
        for since, begin_s in (
            ("since=90m", at(0).wall_s - 5400),
            ("since=2026-01-31T14:00:00Z", 1769868000.0),
            ("", at(0).wall_s - 7 * 86400),
        ):
            for _ in range(2):
                response, body = site.get(f"/api/report?{since}")
                assert (response.status, json.loads(body)) == (200, {"since": begin_s})
                assert response.headers["Content-Type"] == "application/json"
            assert asked.pop() == begin_s
            assert asked == []
        site.clock.second += 61
        site.get("/api/report")
        assert len(asked) == 1


@pytest.mark.parametrize(
    "query", ["since=soon", "since=2026-02-31", "since=-1d", "&".join("abcdefghij"), "since=%1b[2J"]
)
def test_a_query_that_is_none_is_refused(query: str) -> None:
    """400 with what to write, inert, and nothing is read."""
    with served(lambda _: pytest.fail("it was read")) as site:
        response, body = site.get(f"/api/report?{query}")
    assert response.status == 400
    assert b"write ?since=7d" in body
    assert b"\x1b" not in body


def test_why_there_is_none_is_said() -> None:
    """503 with the reason and its remedy: no journal, or it can't be read; a defect ends nothing."""
    problems = ["there is no journal: name its file"]

    def read(since_s: float) -> bytes:
        if not since_s:
            raise ZeroDivisionError
        for problem in problems:
            raise WatchdogError(problem)
        return b"{}"

    with served(read) as site:
        response, body = site.get("/api/report")
        assert (response.status, body) == (503, b"there is no journal: name its file\n")
        assert response.headers["Retry-After"]
        assert site.send(b"GET /api/report?since=1970-01-01 HTTP/1.1\r\nHost: n\r\n\r\n") == b""
        assert site.status("/healthz") == 200
        problems.clear()
        site.clock.second += 11
        assert site.get("/api/report")[1] == b"{}", "soon after it can be read"
    with served(None) as site:
        assert site.get("/api/report")[1] == b"this daemon has no journal\n"


def test_a_slow_disk_holds_up_nobody_else() -> None:
    """While the journal is read, probes and others are answered; who waits gets it once it is there."""
    may_end = threading.Event()

    def read(_: float) -> bytes:
        assert may_end.wait(60)
        return b"{}"

    with served(read) as site, ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(site.get, "/api/report") for _ in range(10)]
        wait_until(lambda: any(each.name == "report" for each in threading.enumerate()))
        assert site.status("/healthz") == 200
        other, text = site.get("/api/report?since=1d")
        assert (other.status, text) == (503, b"another report is being read: ask again in a second\n")
        may_end.set()
        assert {each.result(60)[1] for each in waiting} == {b"{}"}
        assert site.get("/api/report?since=1d")[0].status == 200


def test_a_disk_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has waited for some seconds gets 503 and where to look, and the next one at once."""
    for module in (report, http_server):
        monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    may_end = threading.Event()

    def read(_: float) -> bytes:
        may_end.wait(60)
        return b"{}"

    with served(read) as site, ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.get, "/api/report")
        wait_until(lambda: any(each.name == "report" for each in threading.enumerate()))
        site.clock.second += 1
        response, body = first.result(60)
        assert response.status == 503
        assert b"does not answer: check `dmesg`" in body
        assert site.status("/api/report") == 503
        may_end.set()


def test_an_answer_is_bounded() -> None:
    """However many owners and however long their names: the largest are named, and the others add up by namespace."""
    rows = tuple(
        OwnerHours(
            namespace=f"{'n' * 60}{number % 7}",
            kind="ReplicaSet",
            name=f"{'é' * 200}{number}",
            held=number / 7,
            used=number / 21,
            idle=number / 21,
            unused=1.0,
        )
        for number in range(5000)
    )
    hours = bounded(NodeHours(node="n1", since=Moment(0), until=Moment(7200), owners=rows, owners_in_all=5000))
    assert len(hours.owners) == MOST_OWNERS + 7
    for part in ("held", "used", "idle", "unused"):
        assert sum(getattr(row, part) for row in hours.owners) == pytest.approx(sum(getattr(row, part) for row in rows))
    assert len(encode_hours(hours)) <= MOST_BYTES
