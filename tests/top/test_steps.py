"""What comes next, in words, while its time runs down."""

from dataclasses import replace

import pytest

from tests.top.build import account
from watchdog.cli.top.values import NextStep, left_s, long, short

KILL = NextStep(do="kill", scope="container", above="110%", due_s=12.0)
HELD = replace(KILL, due_s=0.0, held="owner", because="it was the third of its Job", lets_go_s=250.0)


@pytest.mark.parametrize(
    ("step", "elapsed_s", "expected"),
    [
        (None, 0.0, "-"),
        (KILL, 0.0, "kill in 12s"),
        (KILL, 7.4, "kill in 5s"),
        (KILL, 12.0, "kill now"),
        (KILL, 99.0, "kill now"),
        (replace(KILL, would=True), 0.0, "would kill in 12s"),
        (replace(KILL, would=True, due_s=0.0), 0.0, "would kill now"),
        (replace(KILL, due_s=4000.0), 0.0, "kill in 1h6m"),
        (replace(KILL, due_s=95.0), 0.0, "kill in 1m35s"),
        (HELD, 0.0, "kill held: owner, 4m10s"),
        (HELD, 249.5, "kill held: owner, 1s"),
        (HELD, 300.0, "kill held: owner"),
        (replace(HELD, lets_go_s=None), 0.0, "kill held: owner"),
        (replace(HELD, due_s=5.0), 0.0, "kill in 5s"),
        (NextStep(do="kill", begun=True, left_s=8.2), 0.0, "kill begun, SIGKILL in 9s"),
        (NextStep(do="kill", begun=True, left_s=8.0), 9.0, "kill under way"),
        (NextStep(do="evict", begun=True), 0.0, "eviction under way"),
        (
            NextStep(do="evict", begun=True, tries=3, blocked=True, left_s=10.0),
            4.0,
            "eviction blocked, try 3, again in 6s",
        ),
        (NextStep(do="evict", begun=True, tries=1, left_s=None), 0.0, "eviction refused, try 1"),
    ],
)
def test_in_short(step: NextStep | None, elapsed_s: float, expected: str) -> None:
    """A step in few words: it counts down to `now` and no further."""
    assert short(step, elapsed_s) == expected


def test_at_length() -> None:
    """With the mark, with what holds it back and why, and with the force behind a warning."""
    held = account(next=replace(HELD, due_s=3.0))
    assert long(held, 0.0) == (
        "kill container above 110% in 3s, held back then (owner, 4m 10s): it was the third of its Job"
    )
    assert "held back (owner, 4m 7s)" in long(held, 3.0)
    warned = account(next=NextStep(do="warn", above="100%", due_s=2.0), then=KILL)
    assert long(warned, 0.0) == "warn above 100% in 2s; then kill container above 110% in 12s"
    assert long(account(protected="it is a system pod"), 0.0) == "never acted on: it is a system pod"
    assert long(account(), 0.0) == "-"


@pytest.mark.parametrize(
    ("step", "elapsed_s", "expected"),
    [
        (None, 0.0, None),
        (KILL, 2.0, 10.0),
        (KILL, 20.0, 0.0),
        (HELD, 0.0, 250.0),
        (replace(HELD, lets_go_s=None), 0.0, float("inf")),
        (NextStep(do="kill", begun=True, left_s=8.0), 0.0, 0.0),
    ],
)
def test_time_left(step: NextStep | None, elapsed_s: float, expected: float | None) -> None:
    """What sorts by time: when something happens, which with a brake is when that lets go."""
    assert left_s(account(next=step), elapsed_s) == expected
