"""The next request of a reflector after each possible response, which failures are reported, and the pauses."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.watch_lines import status
from watchdog.core.errors import Problem
from watchdog.kube.client import FIRST_S, LONGEST_S, ApiResponse, RequestBackoff
from watchdog.kube.reflector import PATIENCE_S, NextRequest, Outage, Reflector, RequestOutcome

SELECTOR = {"fieldSelector": "spec.nodeName=n1"}
WHAT = "watching the pods"


def reflector(*, heartbeat: bool = True, version: str = "") -> Reflector:
    return Reflector(SELECTOR, heartbeat=heartbeat, version=version)


def watching(*, heartbeat: bool = True) -> Reflector:
    """A reflector that has listed at version 5."""
    found = reflector(heartbeat=heartbeat)
    found.listed("5")
    return found


def answer(code: int, reason: str = "", headers: dict[str, str] | None = None, **details: Any) -> ApiResponse:
    return ApiResponse(code, status(code, reason, **details), headers or {})


def end(
    found: Reflector,
    lasted_s: float | None = None,
    *,
    why: Problem | None = None,
    bookmarked: bool = True,
    silent: bool = False,
    unreadable: bool = False,
) -> tuple[NextRequest, RequestOutcome]:
    """Request a watch and let it end, after its full length by default."""
    ask = found.next_request()
    lasted_s = ask.length_s if lasted_s is None else lasted_s
    return ask, found.ended(ask, lasted_s, why, bookmarked=bookmarked, silent=silent, unreadable=unreadable)


EXPIRED = answer(410, "Expired")
TOO_NEW = answer(
    504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
)


def test_the_first_requests() -> None:
    """First a list from the server's cache, then a watch from its version with bookmarks and a random end.

    A restarted watch lists nothing older than what it had seen; a list that is refused is repeated, after a pause, and
    never a consistent read.
    """
    for version, listed in (("8", "8"), ("", "0")):
        found = reflector(version=version)
        first = NextRequest(watch=False, query={**SELECTOR, "resourceVersion": listed})
        assert found.next_request() == first
    assert found.refused(EXPIRED, WHAT).problem is not None
    assert found.next_request() == first
    assert found.listed("5").problem is None
    asks = [found.next_request() for _ in range(200)]
    assert {ask.query["resourceVersion"] for ask in asks} == {"5"}
    assert all(ask.watch and ask.query["allowWatchBookmarks"] == "true" for ask in asks)
    ends = {int(ask.query["timeoutSeconds"]) for ask in asks}
    assert (min(ends) >= 240, max(ends) <= 300, len(ends) > 30) == (True, True, True)


@pytest.mark.parametrize("why", [None, Problem("it broke")])
def test_a_watch_is_resumed_from_the_last_version(why: Problem | None) -> None:
    """However a watch ends, the next one continues from the last version, without a list."""
    found = watching()
    found.advance("8")
    found.advance("")  # one that could not be read
    end(found, why=why)
    assert (found.next_request().watch, found.next_request().query["resourceVersion"]) == (True, "8")


def end_at_once(found: Reflector, how: str) -> None:
    """Let a watch fail before anything has come; the next request has a pause."""
    if how == "error":
        outcome = found.refused(answer(500), WHAT, 0.0)
    else:
        why = None if how == "closed" else Problem("it broke")
        outcome = end(found, 0, why=why, bookmarked=False, unreadable=how == "unreadable")[1]
    assert outcome.problem is not None


@pytest.mark.parametrize("how", ["closed", "error", "unreadable"])
def test_watches_that_fail_at_the_same_event_are_followed_by_a_list(how: str) -> None:
    """A server that can't send an event ends each watch there, in one of three ways; a list goes on, once per pause."""
    found = watching()
    asks = []
    for _ in range(5):
        asks.append(found.next_request().watch)
        end_at_once(found, how)
        if not found.next_request().watch:
            assert found.next_request() == NextRequest(watch=False, query={**SELECTOR, "resourceVersion": "5"})
            asks.append(False)
            found.listed("5")
    assert asks == [True, True, False, True, False, True, False, True, False]
    for version in "789":  # each of these watches brings an event
        assert found.next_request().watch
        found.advance(version)
        end_at_once(found, how)
    end(found)
    end_at_once(found, how)
    assert found.next_request().watch


def test_watches_that_are_cut_never_lead_to_a_list() -> None:
    """A broken network may cut every watch on every node: lists in return would overload the API server."""
    found = watching()
    for _ in range(9):
        end_at_once(found, "cut")
        assert found.next_request().watch


def test_410_lists_once_from_the_last_version() -> None:
    """The history is gone: one immediate list, not older than what was seen, then a watch from there."""
    found = watching()
    found.advance("8")
    assert found.refused(EXPIRED, WHAT).problem is None
    assert found.next_request() == NextRequest(watch=False, query={**SELECTOR, "resourceVersion": "8"})
    found.listed("20")
    assert found.next_request().query["resourceVersion"] == "20"


@pytest.mark.parametrize("again", [answer(410, "Gone"), answer(410), answer(500, "Expired")])
def test_repeated_410_has_pauses(again: ApiResponse) -> None:
    """A server that refuses the version it returned is not retried at once until a watch was stable."""
    found = watching()
    found.refused(EXPIRED, WHAT)
    found.listed("20")
    assert found.refused(again, WHAT).problem is not None
    assert not found.next_request().watch
    found.listed("21")
    end(found)
    assert found.refused(again, WHAT).problem is None


@pytest.mark.parametrize("refusal", [EXPIRED, TOO_NEW])
def test_a_version_that_this_server_lacks(refusal: ApiResponse) -> None:
    """If the last version can't be listed, the newest is, by a consistent read; its failures have pauses."""
    found = watching()
    found.refused(EXPIRED, WHAT)
    assert found.refused(refusal, WHAT).problem is None
    assert found.next_request() == NextRequest(watch=False, query=SELECTOR)
    assert found.refused(refusal, WHAT).problem is not None
    assert found.next_request() == NextRequest(watch=False, query=SELECTOR)
    found.listed("3")
    assert found.next_request().query["resourceVersion"] == "3"


def test_401_is_tried_once_with_new_credentials() -> None:
    """A rotated token costs no pause; refused again it does, and the problem is reported."""
    found = watching()
    assert found.refused(answer(401, "Unauthorized"), WHAT).problem is None
    assert "401" in str(found.refused(answer(401, "Unauthorized"), WHAT).problem)
    for lasted_s, why in ((None, None), (100, Problem("it broke"))):
        end(found, lasted_s, why=why)
        assert found.refused(answer(401), WHAT).problem is None


@pytest.mark.parametrize(
    ("refusal", "retry_after_s"),
    [
        (answer(429, "TooManyRequests", {"Retry-After": "7"}), 7),
        (answer(429, "TooManyRequests", retryAfterSeconds=3), 3),
        (answer(429), None),
        (answer(403, "Forbidden"), None),
        (answer(500, "InternalError"), None),
        (answer(503, headers={"Retry-After": "soon"}), None),
        (answer(302), None),
    ],
)
@pytest.mark.parametrize("listing", [False, True])
def test_every_other_refusal_waits_and_repeats_the_request(
    refusal: ApiResponse, retry_after_s: float | None, listing: bool
) -> None:
    """No list and no other version; the server's Retry-After is passed on."""
    found = reflector() if listing else watching()
    before = found.next_request().query["resourceVersion"]
    outcome = found.refused(refusal, WHAT)
    assert str(refusal.status) in str(outcome.problem)
    assert outcome.retry_after_s == retry_after_s
    assert (found.next_request().watch, found.next_request().query["resourceVersion"]) == (not listing, before)


def test_an_error_within_a_watch() -> None:
    """The error of a stable watch starts a new count of failures; any other continues the count."""
    outcomes = [watching().refused(answer(500), WHAT, lasted_s) for lasted_s in (3, 300)]
    assert [(each.accepted, each.is_stable) for each in outcomes] == [(True, False), (True, True)]
    assert watching().refused(answer(500), WHAT).accepted is False


@pytest.mark.parametrize(
    ("lasted_s", "why", "problem", "is_stable"),
    [
        (None, None, False, True),  # in its time
        (3, None, True, False),
        (100, None, True, True),
        (3, Problem("it broke"), True, False),
        (100, Problem("it broke"), True, True),
        (None, Problem("it broke"), True, True),
    ],
)
def test_ends_of_a_watch(lasted_s: float | None, why: Problem | None, problem: bool, is_stable: bool) -> None:
    """Only an end on time needs no pause; an early one does not start a new count of failures."""
    _, outcome = end(watching(), lasted_s, why=why)
    assert (outcome.problem is not None, outcome.is_stable, outcome.in_time) == (problem, is_stable, not problem)


def test_a_watch_without_bookmarks() -> None:
    """Without a bookmark for more than a minute, short watches show by their ends that the server is there."""
    found = watching()
    ask = found.next_request()
    assert 65 < ask.silence_s < 85
    _, outcome = end(found, ask.silence_s, bookmarked=False, why=Problem("silence"), silent=True)
    assert (outcome.problem, outcome.is_stable, outcome.in_time) == (None, True, False)
    short, outcome = end(found, bookmarked=False)
    assert (short.length_s <= 75, short.silence_s > short.length_s, outcome.in_time) == (True, True, True)
    again, _ = end(found, bookmarked=True)
    assert again.length_s <= 75
    assert found.next_request().length_s >= 240


def test_silence_after_bookmarks() -> None:
    """If bookmarks stop coming, or a short watch does not end, nothing gets through the connection."""
    found = watching()
    assert end(found, 200, bookmarked=True, why=Problem("silence"), silent=True)[1].problem == Problem("silence")
    end(found, 75, bookmarked=False, why=Problem("silence"), silent=True)
    assert end(found, 90, bookmarked=False, why=Problem("silence"), silent=True)[1].problem == Problem("silence")


def test_without_heartbeat() -> None:
    """A watch without heartbeat is never renewed early because of silence; silence beyond its end is a failure."""
    found = watching(heartbeat=False)
    ask, _ = end(found, bookmarked=False)
    assert (ask.silence_s > ask.length_s, found.next_request().length_s >= 240) == (True, True)
    assert end(found, 310, bookmarked=False, why=Problem("silence"), silent=True)[1].problem == Problem("silence")


def test_an_interruption() -> None:
    """It is due to be reported some seconds after the first failure, with the latest problem; not once it is over."""
    outage = Outage()
    outage.failed(100.0, Problem("refused"), was_accepted=False)
    assert outage.due_in_s(101.0) == PATIENCE_S - 1
    outage.failed(104.0, Problem("silent"), was_accepted=False)
    assert (outage.due_in_s(105.0), outage.problem) == (0.0, Problem("silent"))
    outage.accepted()
    assert (outage.is_over, outage.due_in_s(999.0)) == (True, math.inf)


def test_watches_that_end_at_once() -> None:
    """A server that accepts and hangs up, repeatedly, does not end the outage; a stable watch does."""
    outage = Outage()
    outage.failed(90.0, Problem("ended"), was_accepted=True)
    outage.accepted()
    assert outage.is_over
    outage.failed(100.0, Problem("ended"), was_accepted=True)
    outage.accepted()
    outage.failed(103.0, Problem("refused"), was_accepted=False)
    outage.accepted()
    assert (outage.is_over, outage.due_in_s(105.0)) == (False, 0.0)
    outage.stable()
    outage.failed(200.0, Problem("refused"), was_accepted=False)
    outage.accepted()
    assert outage.is_over


@given(st.integers(1, 40), st.none() | st.floats(0, 1e9))
def test_pauses(failures: int, retry_after_s: float | None) -> None:
    """Each pause is between 0 and a ceiling that doubles up to 30 s, on top of what the server asked for."""
    backoff = RequestBackoff()
    pauses = [backoff.next_s(retry_after_s) for _ in range(failures)]
    asked_s = min(retry_after_s or 0.0, 300.0)
    for number, pause_s in enumerate(pauses):
        assert asked_s <= pause_s <= asked_s + min(LONGEST_S, FIRST_S * 2**number)
    backoff.reset()
    assert backoff.next_s() <= FIRST_S


def test_pauses_are_spread() -> None:
    """A thousand clients with equally many failures are spread over the whole range."""
    pauses = []
    for _ in range(1000):
        backoff = RequestBackoff()
        for _ in range(9):
            backoff.next_s()
        pauses.append(backoff.next_s())
    counts = [sum(1 for pause_s in pauses if start <= pause_s < start + 3) for start in range(0, 30, 3)]
    assert all(60 <= count <= 140 for count in counts)
