"""What comes next, in words, while its time runs down."""

from typing import Final

import pytest

from tests.cli.build import account, replace, row, status, step
from watchdog.cli.rows import TopRow
from watchdog.core.policy import Do
from watchdog.report.status import Moment, PendingStatus, PlanStatus, UnderWayStatus

KILL: Final = step(due_in_s=12.0, scope="container", above="110%")
HELD: Final = replace(
    KILL, due_in_s=0.0, withheld_by="owner", held_because="it was the third of its Job", releases_in_s=250.0
)
EVICT: Final = step(Do.EVICT, pending=PendingStatus(tries=3, blocked=True, next_in_s=10.0))


def next_of(*steps: PlanStatus, begun: UnderWayStatus | None = None, **more: object) -> TopRow:
    """The row of an account with these steps; `more` is of the status."""
    return row(account(under_way=begun), *steps, **more)


def begun(do: Do = Do.KILL, sigkill_in_s: float | None = None) -> UnderWayStatus:
    """An action in progress."""
    at = None if sigkill_in_s is None else Moment(status().at + sigkill_in_s)
    return UnderWayStatus(do=do, sigkill_at=at)


@pytest.mark.parametrize(
    ("shown", "elapsed_s", "expected"),
    [
        (next_of(), 0.0, "-"),
        (next_of(KILL), 0.0, "kill in 12s"),
        (next_of(KILL), 7.4, "kill in 5s"),
        (next_of(KILL), 12.0, "kill now"),
        (next_of(KILL), 99.0, "kill now"),
        (next_of(KILL, enforcing=False), 0.0, "would kill in 12s"),
        (next_of(replace(KILL, due_in_s=0.0), enforcing=False), 0.0, "would kill now"),
        (next_of(replace(KILL, due_in_s=4000.0)), 0.0, "kill in 1h6m"),
        (next_of(replace(KILL, due_in_s=95.0)), 0.0, "kill in 1m35s"),
        (next_of(HELD), 0.0, "kill held: owner, 4m10s"),
        (next_of(HELD), 249.5, "kill held: owner, 1s"),
        (next_of(HELD), 300.0, "kill held: owner"),
        (next_of(replace(HELD, releases_in_s=None)), 0.0, "kill held: owner"),
        (next_of(replace(HELD, due_in_s=5.0)), 0.0, "kill in 5s, then held"),
        (next_of(begun=begun(sigkill_in_s=8.2)), 0.0, "being killed, SIGKILL in 9s"),
        (next_of(begun=begun(sigkill_in_s=8.0)), 9.0, "killed, memory not freed yet"),
        (next_of(begun=begun(Do.EVICT)), 0.0, "being evicted"),
        (next_of(EVICT), 4.0, "eviction blocked, attempt 3, next in 6s"),
        (next_of(replace(EVICT, pending=PendingStatus(tries=1))), 0.0, "eviction requested"),
    ],
)
def test_in_short(shown: TopRow, elapsed_s: float, expected: str) -> None:
    """A step in few words: it counts down to `now` and no further."""
    assert shown.next_short(elapsed_s) == expected


def test_in_full() -> None:
    """With the threshold, with what holds it and why, and with the action that follows a warning."""
    held = next_of(replace(HELD, due_in_s=3.0))
    assert held.next_full() == (
        "kill container above 110% in 3s, will be held (owner, 4m 10s): it was the third of its Job"
    )
    assert "now, held (owner, 4m 7s)" in held.next_full(3.0)
    warned = next_of(step(Do.WARN, due_in_s=2.0, above="100%"), KILL)
    assert warned.next_full() == "warn above 100% in 2s; then kill container above 110% in 12s"
    protected = row(account(protected="it is a system pod"))
    assert protected.next_full() == "protected, no action is taken: it is a system pod"
    assert next_of().next_full() == "-"


def test_a_rule_that_observes_only_would() -> None:
    """A step of such a rule is only worked out, whatever the mode of the node."""
    shown = row(account(observes=True), KILL)
    assert (shown.next_short(), shown.is_waiting) == ("would kill in 12s", True)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (next_of(), None),
        (next_of(KILL), 12.0),
        (next_of(replace(KILL, due_in_s=-8.0)), 0.0),
        (next_of(HELD), 250.0),
        (next_of(replace(HELD, releases_in_s=None)), float("inf")),
        (next_of(begun=begun(sigkill_in_s=8.0)), 0.0),
    ],
)
def test_time_left(shown: TopRow, expected: float | None) -> None:
    """What sorts by time: when something happens, which with a brake is when that releases it."""
    assert shown.left_s == expected
