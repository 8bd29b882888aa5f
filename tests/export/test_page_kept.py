"""The page is made once a second at most, however many ask for it."""

import threading
from collections.abc import Callable

from tests.export.build import climbing, quiet
from tests.export.page_reader import sight
from tests.export.test_http import Clock
from watchdog.export.board import Board
from watchdog.export.metrics import Metrics
from watchdog.export.page.kept import Pages
from watchdog.export.page.sight import Sight


class Seeing:
    """Counts how often somebody looks."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self, is_still: bool) -> Sight:
        self.looks += 1
        return sight(climbing(9), is_still=is_still)


def pages(seeing: Seeing, now_s: Callable[[], float]) -> Pages:
    """Pages of what is seen."""
    return Pages(seeing, now_s)


def test_within_a_second_it_is_made_once() -> None:
    """A hundred readers cost what one does; the one who has stopped the refreshing has a page of his own."""
    seeing, clock = Seeing(), Clock()
    made = pages(seeing, lambda: clock.second)
    found = [made.get(1, is_still=False) for _ in range(100)]
    assert (seeing.looks, len({id(each) for each in found})) == (1, 1)
    assert made.get(1, is_still=True).html != found[0].html
    clock.second = 0.99
    made.get(1, is_still=False)
    assert seeing.looks == 2
    clock.second = 1.0
    made.get(1, is_still=False)
    assert seeing.looks == 3, "while a pass hangs the age of the last one is told anew each second"


def test_a_new_pass_makes_a_new_one() -> None:
    """What is kept never hides what a later cycle has seen."""
    board = Board(Metrics(), 1.0, Clock())
    assert b"Starting" in board.page(is_still=False).html
    board.publish(quiet())
    assert b"Nobody is over" in board.page(is_still=False).html
    board.publish(climbing(9))
    assert b"1 pod over its limit" in board.page(is_still=False).html


def test_many_at_once_wait_for_one() -> None:
    """Readers on several threads get the same page, made once."""
    seeing = Seeing()
    made = pages(seeing, lambda: 0.0)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(made.get(1, is_still=False).packed)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seeing.looks, len(found), len(set(found))) == (1, 16, 1)


def test_what_is_kept_is_small() -> None:
    """It is kept packed: a page takes a fraction of its length in memory."""
    packed = pages(Seeing(), lambda: 0.0).get(1, is_still=False)
    assert len(packed.packed) < len(packed.html) / 2
