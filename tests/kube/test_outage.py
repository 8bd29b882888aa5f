"""Which failures of a feed are worth a word, and how long it waits after them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from watchdog.core.errors import Problem
from watchdog.kube.client import FIRST_S, LONGEST_S, RequestBackoff
from watchdog.kube.reflector import PATIENCE_S, Outage


def test_a_short_interruption() -> None:
    """What is back within a few seconds is never due."""
    trouble = Outage()
    trouble.failed(100.0, Problem("refused"), was_accepted=False)
    assert trouble.due_in_s(101.0) == PATIENCE_S - 1
    trouble.accepted()
    assert (trouble.is_over, trouble.due_in_s(999.0)) == (True, math.inf)


def test_a_long_one() -> None:
    """It counts from the first failure on, with the latest sentence."""
    trouble = Outage()
    trouble.failed(100.0, Problem("refused"), was_accepted=False)
    trouble.failed(104.0, Problem("silent"), was_accepted=False)
    assert (trouble.due_in_s(105.0), trouble.problem) == (0.0, Problem("silent"))


def test_watches_that_end_at_once() -> None:
    """A server that accepts and hangs up, repeatedly, does not end the outage; a stable watch does."""
    trouble = Outage()
    trouble.failed(90.0, Problem("ended"), was_accepted=True)
    trouble.accepted()
    assert trouble.is_over
    trouble.failed(100.0, Problem("ended"), was_accepted=True)
    trouble.accepted()
    trouble.failed(103.0, Problem("refused"), was_accepted=False)
    trouble.accepted()
    assert (trouble.is_over, trouble.due_in_s(105.0)) == (False, 0.0)
    trouble.stable()
    trouble.failed(200.0, Problem("refused"), was_accepted=False)
    trouble.accepted()
    assert trouble.is_over


@given(st.integers(1, 40), st.none() | st.floats(0, 1e9))
def test_pauses(failures: int, retry_after_s: float | None) -> None:
    """Each pause is between nothing and a ceiling that doubles up to 30 s, on top of what the server asked for."""
    backoff = RequestBackoff()
    pauses = [backoff.next_s(retry_after_s) for _ in range(failures)]
    asked_s = min(retry_after_s or 0.0, 300.0)
    for number, pause_s in enumerate(pauses):
        assert asked_s <= pause_s <= asked_s + min(LONGEST_S, FIRST_S * 2**number)
    backoff.reset()
    assert backoff.next_s() <= FIRST_S


def test_pauses_are_spread() -> None:
    """A thousand that failed as often as each other come back over all of the ceiling."""
    pauses = []
    for _ in range(1000):
        backoff = RequestBackoff()
        for _ in range(9):
            backoff.next_s()
        pauses.append(backoff.next_s())
    counts = [sum(1 for pause_s in pauses if start <= pause_s < start + 3) for start in range(0, 30, 3)]
    assert all(60 <= count <= 140 for count in counts)
