"""`explain` by a daemon that answers while its loop hangs: it says as of when, and promises nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import Story, busy, climbing
from tests.worlds import at
from watchdog.cli.explain import explain_pod
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics

PROMISES = ("UTC, if its use stays", "are being", "is being", "steps of that rule:", "get SIGKILL")
POSTPONED = "No cycle has completed since then: no action starts until one does."


class Clock:
    """A clock of the daemon that stands until it is moved."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> Now:
        return at(self.second)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def endpoints(clock: Clock) -> Endpoints:
    return Endpoints(Metrics(), 1.0, clock)


@pytest.fixture
def url(endpoints: Endpoints) -> Iterator[str]:
    server = HttpServer("127.0.0.1:0", endpoints)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def said(url: str) -> list[str]:
    """The sentences of `explain` about a/trainer."""
    found = explain_pod("a/trainer", url, Path("/nonexistent/journal.db"), at(600).wall_s)
    sentences: list[str] = json.loads(json.dumps(found.document))["sentences"]
    return sentences


HELD = Story(journal_writable=False).run(12.4, 12)


@pytest.mark.parametrize("report", [climbing(9), climbing(28), climbing(40), HELD])
def test_while_the_loop_hangs_nothing_is_promised(
    endpoints: Endpoints, clock: Clock, url: str, report: CycleReport
) -> None:
    """It begins with as of when all is; the numbers stand, and every step is put off or only would be."""
    clock.second = report.at.boottime_s - at(0).boottime_s
    endpoints.publish(report)
    assert any(any(promise in sentence for promise in PROMISES) for sentence in said(url)) or report is HELD
    clock.second = 600
    first, second, *rest = said(url)
    assert "is hung" in first
    assert "as of 08:00:" in first
    assert "in progress" in second
    assert not [sentence for sentence in rest if any(promise in sentence for promise in PROMISES)]
    coming = [sentence for sentence in rest if sentence.startswith(("In ", "Due now"))]
    assert coming
    assert all(sentence.endswith(POSTPONED) for sentence in coming)
    assert any(sentence.startswith("Pod a/trainer uses 12.4Gi") for sentence in rest)


def test_a_sigkill_that_nobody_sends_is_not_announced(endpoints: Endpoints, clock: Clock, url: str) -> None:
    """A kill that had begun got its SIGTERM; what was to follow is told as what was to be."""
    clock.second = 31
    endpoints.publish(busy(31, 65))
    assert "get SIGKILL at 08:00:35 UTC" in " ".join(said(url))
    clock.second = 600
    assert "in progress: a/trainer" in " ".join(said(url))
    assert "were due SIGKILL at 08:00:35 UTC" in " ".join(said(url))


def test_once_a_pass_ends_again_the_answer_is_of_now(endpoints: Endpoints, clock: Clock, url: str) -> None:
    """The warning goes with what it warned of."""
    endpoints.publish(climbing(9))
    clock.second = 600
    assert "is hung" in said(url)[0]
    endpoints.publish(replace(climbing(9), at=at(600)))
    assert "is hung" not in " ".join(said(url))
