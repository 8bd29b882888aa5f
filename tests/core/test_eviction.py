"""Whether an eviction is tried again: the whole of it, as a table."""

from dataclasses import replace

import pytest

from watchdog.core.eviction import MOST_TRIES, Attempts, EvictionAnswer, FollowUp, follow_up

# Tried once, given up at 600, and the next attempt would be at 5.
_ONCE = Attempts(made=1, until_s=600.0, next_s=5.0, is_called_off=False, has_sent=False)
_STATES = {
    "once": _ONCE,
    "often": replace(_ONCE, made=MOST_TRIES),
    "late": replace(_ONCE, next_s=600.1),
    "just in time": replace(_ONCE, next_s=600.0),
    "called off": replace(_ONCE, is_called_off=True),
    "drained": replace(_ONCE, has_sent=True),
    "called off once drained": replace(_ONCE, has_sent=True, is_called_off=True),
}
_ANY = tuple(_STATES)
_RETRIED = (EvictionAnswer.BLOCKED, EvictionAnswer.LATER, EvictionAnswer.UNKNOWN, EvictionAnswer.WITHDRAWN)
_TABLE = {
    **{(EvictionAnswer.ACCEPTED, state): FollowUp.ACCEPTED for state in _ANY},
    **{
        (answer, state): FollowUp.OVER
        for answer in (EvictionAnswer.GONE, EvictionAnswer.SPARED, EvictionAnswer.REFUSED)
        for state in _ANY
    },
    **{
        (EvictionAnswer.DRY_RUN_PASSED, state): FollowUp.CALLED_OFF if "called off" in state else FollowUp.CLEAR
        for state in _ANY
    },
    **{(answer, "once"): FollowUp.AGAIN for answer in _RETRIED},
    **{(answer, "just in time"): FollowUp.AGAIN for answer in _RETRIED},
    **{(answer, "often"): FollowUp.OUT_OF_TRIES for answer in _RETRIED},
    **{(answer, "late"): FollowUp.OUT_OF_TRIES for answer in _RETRIED},
    **{(answer, "called off"): FollowUp.CALLED_OFF for answer in _RETRIED},
    **{(answer, "called off once drained"): FollowUp.CALLED_OFF for answer in _RETRIED},
    **{(answer, "drained"): FollowUp.HALF_DONE for answer in _RETRIED},
    # Whether the pod is being deleted is seen in the pod list.
    (EvictionAnswer.UNKNOWN, "drained"): FollowUp.AGAIN,
}


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize("answer", EvictionAnswer)
def test_what_follows_an_answer(answer: EvictionAnswer, state: str) -> None:
    """Point 27: an eviction is tried again while that can help, and never after its clients were drained for it."""
    assert follow_up(answer, _STATES[state], 0.0) is _TABLE[answer, state]


@pytest.mark.parametrize(
    ("now_s", "next_s", "has_sent", "expected"),
    [
        (599.9, None, False, FollowUp.AWAIT),
        (599.9, 5.0, False, FollowUp.AWAIT),  # a cycle makes the next attempt, after a last look
        (4.9, 5.0, True, FollowUp.AWAIT),
        (5.0, 5.0, True, FollowUp.HALF_DONE),
        (5.0, None, True, FollowUp.AWAIT),
        (600.0, None, False, FollowUp.OUT_OF_TIME),
        (600.0, 5.0, True, FollowUp.OUT_OF_TIME),
    ],
)
def test_what_follows_as_time_passes(now_s: float, next_s: float | None, has_sent: bool, expected: FollowUp) -> None:
    """Point 27: no eviction is awaited for longer than ten minutes, and a drained one not beyond its next attempt."""
    assert follow_up(None, replace(_ONCE, next_s=next_s, has_sent=has_sent), now_s) is expected
