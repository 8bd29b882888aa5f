"""`/api/status` is made once a second at most, kept packed, and never hides what has changed."""

import gzip
import json
from typing import Any

import pytest

from tests.export.build import climbing, quiet
from tests.export.test_http import Clock
from watchdog.export.board import Board
from watchdog.export.metrics import Metrics


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    """A board after one cycle."""
    made = Board(Metrics(), 1.0, clock)
    made.publish(climbing(9))
    return made


def told(board: Board) -> dict[str, Any]:
    """The status that a reader gets."""
    packed = board.status()
    assert packed is not None
    document: dict[str, Any] = json.loads(gzip.decompress(packed))
    return document


def test_within_a_second_it_is_made_once(board: Board, clock: Clock) -> None:
    """A hundred readers cost what one does, and each second the health is told again, also while a cycle hangs."""
    first = board.status()
    clock.second = 0.99
    assert all(board.status() is first for _ in range(100))
    clock.second = 60.0
    assert (told(board)["health"]["uptime_s"], told(board)["health"]["ready"]) == (60, False)


def test_what_changes_is_told_at_once(board: Board) -> None:
    """Neither a later cycle, nor that the daemon is not ready, nor a broken journal or policy waits for the second."""
    assert told(board)["accounts"][0]["verdict"] == "over"
    board.publish(quiet())
    assert told(board)["accounts"][0]["verdict"] == "within"
    board.set_unready(("no lock",))
    assert told(board)["health"]["unready"] == ["no lock"]
    board.set_journal("the disk is full", None)
    assert told(board)["health"]["journal"] == "the disk is full"
    board.set_policy_error("no such key")
    assert told(board)["health"]["policy_error"] == "no such key"


def test_what_is_kept_is_small(board: Board) -> None:
    """It is kept packed, so that it takes a fraction of its length in the daemon's memory."""
    packed = board.status()
    assert packed is not None
    assert len(packed) < len(gzip.decompress(packed)) / 2


def test_before_the_first_pass_there_is_none() -> None:
    """Nothing is known yet."""
    assert Board(Metrics(), 1.0, Clock()).status() is None
