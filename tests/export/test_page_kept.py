"""The page and the status are made once a second at most, however many ask for them."""

import gzip
import threading
import time

import pytest

from tests.export.build import climbing, quiet
from tests.worlds import at
from watchdog.core.model import Now
from watchdog.export.board import Board, LastMade
from watchdog.export.metrics import Metrics


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.second = 9.0

    def __call__(self) -> Now:
        return at(self.second)


class Making:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return bytes([self.made])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    """A board after one cycle."""
    made = Board(Metrics(), 1.0, clock)
    made.publish(climbing(9))
    return made


def test_within_a_second_it_is_made_once() -> None:
    """A hundred readers cost what one does; another key, another state and another second are made again."""
    making, now = Making(), [0.0]
    kept: LastMade[bool, bytes] = LastMade(lambda: now[0])
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


def test_the_page_and_the_document_are_of_one_status(board: Board, clock: Clock) -> None:
    """Both are kept for a second; a reader who has paused the refresh has a page of their own."""
    page, document = board.page(is_still=False), board.status()
    clock.second = 9.5
    assert board.page(is_still=False) is page
    assert board.status() is document
    assert board.page(is_still=True).html != page.html
    clock.second = 10.5
    assert b"kill now" in board.page(is_still=False).html, "the time left goes on between two cycles"


def test_a_new_cycle_makes_a_new_one() -> None:
    """What is kept never hides what a later cycle has seen."""
    board = Board(Metrics(), 1.0, Clock())
    assert b"Starting" in board.page(is_still=False).html
    board.publish(quiet())
    assert b"All pods are within limits" in board.page(is_still=False).html
    board.publish(climbing(9))
    assert b"1 pod over its limit" in board.page(is_still=False).html


def test_many_at_once_wait_for_one() -> None:
    """Readers on several threads get the same value, made once."""
    making, found = Making(), list[bytes]()
    kept: LastMade[bool, bytes] = LastMade(lambda: 0.0)

    def make() -> bytes:
        time.sleep(0.02)  # so long that all of them have come
        return making()

    threads = [threading.Thread(target=lambda: found.append(kept.get(False, 1, make))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (making.made, len(found), len(set(found))) == (1, 16, 1)


def test_what_is_kept_is_small(board: Board) -> None:
    """It is kept packed: a page takes a fraction of its length in memory."""
    packed = board.page(is_still=False)
    assert len(packed.packed) < len(packed.html) / 2
    assert gzip.decompress(packed.packed) == packed.html
