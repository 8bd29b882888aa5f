"""`explain` by a daemon that answers while its loop hangs: it says as of when, and promises nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import Story, climbing
from tests.export.test_page import busy
from tests.worlds import at
from watchdog.cli.explain import explain_pod
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, CycleReport
from watchdog.export.board import Board
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics

PROMISES = ("will be", "are being", "is being", "A warning", "rule does", "gets SIGKILL")


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
def board(clock: Clock) -> Board:
    return Board(Metrics(), 1.0, clock)


@pytest.fixture
def url(board: Board) -> Iterator[str]:
    server = HttpServer("127.0.0.1:0", board)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def said(url: str) -> list[str]:
    """The sentences of `explain` about a/trainer."""
    found = explain_pod("a/trainer", url, Path("/nonexistent/journal.db"), at(600).wall_s)
    sentences: list[str] = json.loads(json.dumps(found.document))["sentences"]
    return sentences


HELD = Story(conditions=Conditions(journal_writable=False)).run(12.4, 12)


@pytest.mark.parametrize("report", [climbing(9), climbing(28), climbing(40), HELD])
def test_while_the_loop_hangs_nothing_is_promised(board: Board, clock: Clock, url: str, report: CycleReport) -> None:
    """It begins with as of when all is; the numbers stand, and every step is put off or only would be."""
    clock.second = report.at.boottime_s - at(0).boottime_s
    board.publish(report)
    assert any(any(promise in sentence for promise in PROMISES) for sentence in said(url)) or report is HELD
    clock.second = 600
    first, second, *rest = said(url)
    assert first.startswith("The watchdog of this node hangs: no pass has ended since 08:00:")
    assert second.startswith("All that follows is as of 08:00:")
    assert "until a pass ends again nobody new is killed or evicted" in second
    assert not [sentence for sentence in rest if any(promise in sentence for promise in PROMISES)]
    assert any("is put off until a pass ends again" in sentence for sentence in rest)
    assert any(sentence.startswith("Pod a/trainer uses 12.4Gi") for sentence in rest)


def test_a_sigkill_that_nobody_sends_is_not_announced(board: Board, clock: Clock, url: str) -> None:
    """A kill that had begun got its SIGTERM; what was to follow is told as what was to be."""
    clock.second = 31
    board.publish(busy(31, 65))
    assert "gets SIGKILL at 08:00:35 UTC" in " ".join(said(url))
    clock.second = 600
    going_on = "nobody new is killed or evicted. What has begun may go on all the same, as far as SIGKILL"
    assert going_on in " ".join(said(url))
    assert "it had begun for a/trainer." in " ".join(said(url))
    assert "what is left of them was to get SIGKILL at 08:00:35 UTC" in " ".join(said(url))


def test_once_a_pass_ends_again_the_answer_is_of_now(board: Board, clock: Clock, url: str) -> None:
    """The warning goes with what it warned of."""
    board.publish(climbing(9))
    clock.second = 600
    assert "hangs" in said(url)[0]
    board.publish(replace(climbing(9), at=at(600)))
    assert "hangs" not in " ".join(said(url))
