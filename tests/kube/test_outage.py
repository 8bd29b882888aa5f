"""Which failures of a watch are reported, and how long it waits after them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from watchdog.core.errors import Problem
from watchdog.kube.client import FIRST_S, LONGEST_S, RequestBackoff
from watchdog.kube.reflector import PATIENCE_S, Outage


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
