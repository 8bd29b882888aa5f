"""The page and the status are made once a second at most, however many ask for them."""

import gzip
import json
import threading
import time
from typing import Any

import pytest

from tests.export.build import climbing, quiet
from tests.export.test_http import Clock
from watchdog.export.endpoints import Endpoints, SecondCache, TooManyError
from watchdog.export.metrics import Metrics
from watchdog.export.page_headline import PageQuery
from watchdog.export.web import respond


class Making:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return bytes([self.made])


@pytest.fixture
def clock() -> Clock:
    made = Clock()
    made.second = 9.0
    return made


@pytest.fixture
def endpoints(clock: Clock) -> Endpoints:
    """Endpoints after one cycle."""
    made = Endpoints(Metrics(), 1.0, clock)
    made.publish(climbing(9))
    return made


def html(endpoints: Endpoints, **query: Any) -> bytes:
    """The page that a reader gets."""
    return gzip.decompress(endpoints.page(PageQuery(**query)).packed)


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


def test_other_filters_make_no_more_pages_than_a_bound(endpoints: Endpoints, clock: Clock) -> None:
    """A client that asks for ever other filters has four made a second, and none kept longer; nobody else waits."""
    for second in (9.0, 10.5):
        clock.second = second
        for number in range(4):
            assert f'"<bdi>{number}</bdi>"'.encode() in html(endpoints, pod=str(number))
        with pytest.raises(TooManyError, match="more than 4 different filters"):
            html(endpoints, pod="other")
        kept = endpoints.page(PageQuery(pod="0"))
        assert endpoints.page(PageQuery(pod="0")) is kept
        assert all(html(endpoints, is_still=still, shows_all=all_) for still in (True, False) for all_ in (True, False))
    head, body = respond(endpoints, b"GET /?pod=other HTTP/1.1\r\nHost: n\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in head
    assert b"Refresh: 2\r\n" in head, "a reader's page comes back by itself"
    assert body.startswith(b"more than 4 different filters")


def test_the_page_and_the_document_are_of_one_status(endpoints: Endpoints, clock: Clock) -> None:
    """Both are kept for a second; a reader who has paused the refresh has a page of their own."""
    page, document = endpoints.page(PageQuery()), endpoints.status()
    clock.second = 9.5
    assert endpoints.page(PageQuery()) is page
    assert endpoints.status() is document
    assert html(endpoints, is_still=True) != html(endpoints)
    clock.second = 10.5
    assert b"kill now" in html(endpoints), "the time left goes on between two cycles"


def test_a_new_cycle_makes_a_new_one() -> None:
    """What is kept never hides what a later cycle has seen."""
    endpoints = Endpoints(Metrics(), 1.0, Clock())
    assert b"Starting" in html(endpoints)
    endpoints.publish(quiet())
    assert b"All pods are within limits" in html(endpoints)
    endpoints.publish(climbing(9))
    assert b"1 pod over its limit" in html(endpoints)


def test_many_at_once_wait_for_one() -> None:
    """Readers on several threads get the same value, made once."""
    making, found = Making(), list[bytes]()
    kept: SecondCache[bool, bytes] = SecondCache(lambda: 0.0)

    def make() -> bytes:
        time.sleep(0.02)  # so long that all of them have come
        return making()

    threads = [threading.Thread(target=lambda: found.append(kept.get(False, 1, make))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (making.made, len(found), len(set(found))) == (1, 16, 1)


def test_what_is_kept_is_small(endpoints: Endpoints) -> None:
    """It is kept packed: a page takes a fraction of its length in memory."""
    assert len(endpoints.page(PageQuery()).packed) < len(html(endpoints)) / 2


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/status"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_all_clients_are_sent_the_same_bytes(endpoints: Endpoints, path: str, encoding: str) -> None:
    """A hundred clients of one cycle hold one body, not a hundred, and nothing is compressed or unpacked for each."""
    request = f"GET {path} HTTP/1.1\r\nHost: n\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()
    head, body = respond(endpoints, request)
    assert (b"gzip" in head.partition(b"Content-Encoding")[2], len(body) > 1000) == (encoding == "gzip", True)
    assert all(respond(endpoints, request)[1] is body for _ in range(3))


def told(endpoints: Endpoints) -> dict[str, Any]:
    """The status that a reader gets."""
    packed = endpoints.status()
    assert packed is not None
    document: dict[str, Any] = json.loads(gzip.decompress(packed))
    return document


def test_within_a_second_the_status_is_made_once(endpoints: Endpoints, clock: Clock) -> None:
    """A hundred readers cost what one does, and each second the health is told again, also while a cycle hangs."""
    first = endpoints.status()
    clock.second = 9.99
    assert all(endpoints.status() is first for _ in range(100))
    clock.second = 69.0
    assert (told(endpoints)["health"]["uptime_s"], told(endpoints)["health"]["ready"]) == (60, False)


def test_what_changes_in_the_status_is_told_at_once(endpoints: Endpoints) -> None:
    """Neither a later cycle, nor that the daemon is not ready, nor a broken journal or policy waits for the second."""
    assert told(endpoints)["accounts"][0]["verdict"] == "over"
    endpoints.publish(quiet())
    assert told(endpoints)["accounts"][0]["verdict"] == "within"
    endpoints.unready = ("no lock",)
    assert told(endpoints)["health"]["unready"] == ["no lock"]
    endpoints.set_journal("the disk is full", None)
    assert told(endpoints)["health"]["journal"] == "the disk is full"
    endpoints.policy_error = "no such key"
    assert told(endpoints)["health"]["policy_error"] == "no such key"


def test_the_status_that_is_kept_is_small(endpoints: Endpoints) -> None:
    """It is kept packed, so that it takes a fraction of its length in the daemon's memory."""
    packed = endpoints.status()
    assert packed is not None
    assert len(packed) < len(gzip.decompress(packed)) / 2


def test_before_the_first_cycle_there_is_no_status() -> None:
    """Nothing is known yet."""
    assert Endpoints(Metrics(), 1.0, Clock()).status() is None
