"""The page, the status and the metrics are made once a second at most, however many ask, and never hide a change."""

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from tests.export.samples import Found, samples, value
from tests.report.build import Clock, climbing, policy, quiet
from watchdog.export.endpoints import Endpoints, SecondCache, TooManyError
from watchdog.export.metrics import Metrics
from watchdog.export.page_headline import PageQuery
from watchdog.export.web import respond


class Making(Collector):
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return bytes([self.made])

    def collect(self) -> Iterator[Metric]:
        """Count a collection of all metrics."""
        self.made += 1
        return iter(())


@pytest.fixture
def clock() -> Clock:
    return Clock(9.0)


@pytest.fixture
def events() -> dict[str, int]:
    return {"written": 1}


@pytest.fixture
def endpoints(clock: Clock, events: dict[str, int]) -> Endpoints:
    """Endpoints after one cycle, at which 1 Event had been written."""
    made = Endpoints(Metrics(lambda: events, clock), 1.0, clock)
    made.publish(climbing(9))
    return made


def html(endpoints: Endpoints, **query: Any) -> bytes:
    """The page that a reader gets."""
    return gzip.decompress(endpoints.page(PageQuery(**query)).packed)


def status(endpoints: Endpoints) -> dict[str, Any]:
    """The status that a reader gets."""
    document: dict[str, Any] = json.loads(gzip.decompress(endpoints.status() or b""))
    return document


def scraped(endpoints: Endpoints) -> Found:
    """Every sample that a scrape of this moment gets."""
    return samples(parse_text(gzip.decompress(endpoints.exposition(openmetrics=False)).decode()))


def test_within_a_second_it_is_made_once() -> None:
    """A hundred readers cost what one does; another key, another state and another second are made again."""
    making, now = Making(), [0.0]
    kept: SecondCache[bool, bytes] = SecondCache(lambda: now[0])
    found = {kept.get(False, 1, making) for _ in range(100)}
    assert (making.made, len(found)) == (1, 1)
    assert kept.get(True, 1, making) not in found
    now[0] = 0.99
    kept.get(False, 1, making)
    assert making.made == 2
    kept.get(False, 2, making)
    assert making.made == 3
    now[0] = 2.0
    kept.get(False, 2, making)
    assert making.made == 4


def test_many_at_once_wait_for_one() -> None:
    """Readers on several threads get the same value, made once."""
    making = Making()
    kept: SecondCache[bool, bytes] = SecondCache(lambda: 0.0)

    def make() -> bytes:
        time.sleep(0.02)  # so long that all of them have come
        return making()

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: kept.get(False, 1, make), range(16)))
    assert (making.made, len(set(found))) == (1, 1)


def test_other_filters_make_no_more_pages_than_a_bound(endpoints: Endpoints, clock: Clock) -> None:
    """A client that asks for ever other filters has four made a second, and none kept longer; no other client waits."""
    for second in (9.0, 10.5):
        clock.second = second
        for number in range(4):
            assert f'"<bdi>{number}</bdi>"'.encode() in html(endpoints, pod=str(number))
        with pytest.raises(TooManyError, match="more than 4 different pages of this kind at once"):
            html(endpoints, pod="other")
        kept = endpoints.page(PageQuery(pod="0"))
        assert endpoints.page(PageQuery(pod="0")) is kept
        assert all(html(endpoints, is_still=still, shows_all=all_) for still in (True, False) for all_ in (True, False))
    head, _ = respond(endpoints, b"GET /?pod=other HTTP/1.1\r\nHost: n\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in head
    assert b"Refresh: 2\r\n" in head, "a reader's page comes back by itself"


def test_values_that_take_long_are_fewer() -> None:
    """However many keys there is room for: once the time for a second is spent, the next key waits for another."""
    now, spent = [0.0], [0.0]
    kept: SecondCache[int, int] = SecondCache(lambda: now[0], 40, 0.25, lambda: spent[0])

    def make() -> int:
        spent[0] += 0.1
        return 1

    for key in range(4):  # the first compiles the template, and does not count
        assert kept.get(key, 1, make) == 1
    with pytest.raises(TooManyError):
        kept.get(4, 1, make)
    assert kept.get(3, 1, make) == 1, "what is there is given to everybody"
    with pytest.raises(TooManyError):
        kept.get(3, 2, make)
    now[0] = 1.0
    assert [kept.get(key, 2, make) for key in (3, 4, 5)] == [1, 1, 1]
    now[0] = 1.9
    with pytest.raises(TooManyError):
        kept.get(5, 3, make)
    now[0] = 2.0
    assert kept.get(5, 3, make) == 1


def test_within_a_second_everybody_gets_the_same_bytes(endpoints: Endpoints, clock: Clock) -> None:
    """The page, the status, and the metrics in each format are made once; the next second or cycle has its own."""

    def answers() -> tuple[object, ...]:
        metrics = (endpoints.exposition(openmetrics=openmetrics) for openmetrics in (False, True))
        return endpoints.page(PageQuery()), endpoints.status(), *metrics

    making = Making()
    endpoints.metrics.registry.register(making)
    making.made = 0
    first = answers()
    clock.second = 9.99
    for _ in range(100):
        assert all(one is other for one, other in zip(first, answers(), strict=True))
    assert making.made == 2
    assert html(endpoints, is_still=True) != html(endpoints), "a reader who has paused has a page of their own"
    clock.second = 10.5
    assert b"kill now" in html(endpoints), "the time left goes on between two cycles"
    endpoints.publish(climbing(10))
    assert endpoints.exposition(openmetrics=False) != first[2]


def test_what_changes_in_a_cycle_is_there_at_once(endpoints: Endpoints) -> None:
    """Neither a later cycle, nor that the daemon is not ready, nor a broken journal or policy waits for the second."""
    for report, page, verdict, over in (
        (None, b"1 pod over its limit", "over", 1),
        (quiet(), b"All pods are within limits", "within", 0),
    ):
        if report is not None:
            endpoints.publish(report)
        assert page in html(endpoints)
        assert status(endpoints)["accounts"][0]["verdict"] == verdict
        assert value(scraped(endpoints), "accounts", verdict="over") == over
    endpoints.health.unready = ("no lock",)
    assert status(endpoints)["health"]["unready"] == ["no lock"]
    endpoints.set_journal("the disk is full", None)
    assert status(endpoints)["health"]["journal"] == "the disk is full"
    endpoints.health.policy_error = "no such key"
    assert status(endpoints)["health"]["policy_error"] == "no such key"
    endpoints.metrics.policy_reload(ok=False, wall_s=5.0)
    assert value(scraped(endpoints), "policy_last_reload_successful") == 0
    endpoints.metrics.policy_reload(ok=True, wall_s=6.0, policy=policy())
    assert value(scraped(endpoints), "policy_last_reload_successful") == 1


def test_between_cycles_nothing_is_older_than_a_second(
    endpoints: Endpoints, clock: Clock, events: dict[str, int]
) -> None:
    """With a long interval, or while a cycle hangs: the counts of Events, the health, and that a cycle is too old."""
    assert value(scraped(endpoints), "gpu_up", gpu="GPU-0") == 1
    events["written"], clock.second = 2, 10.0
    assert value(scraped(endpoints), "events_total", result="written") == 2
    clock.second = 69.0
    assert value(scraped(endpoints), "gpu_up", gpu="GPU-0") == 0
    assert (status(endpoints)["health"]["uptime_s"], status(endpoints)["health"]["ready"]) == (60, False)


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/status", "/api/summary"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_all_clients_are_sent_the_same_bytes(endpoints: Endpoints, path: str, encoding: str) -> None:
    """A hundred clients of one cycle hold one body, not a hundred; nothing is compressed or unpacked for each."""
    request = f"GET {path} HTTP/1.1\r\nHost: n\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()
    head, body = respond(endpoints, request)
    assert (b"\r\nContent-Encoding: gzip\r\n" in head) == (encoding == "gzip")
    assert b"Accept-Encoding" in head.partition(b"\r\nVary: ")[2].partition(b"\r\n")[0]
    _, other = respond(
        endpoints, request.replace(b": gzip", b": ") if encoding else request.replace(b": \r", b": gzip\r")
    )
    packed, plain = (body, other) if encoding else (other, body)
    assert gzip.decompress(packed) == plain
    # The summary is small as it is.
    assert len(packed) < len(plain) / 2 or path == "/api/summary", "a fraction of its length is kept in memory"
    assert all(respond(endpoints, request)[1] is body for _ in range(3))
