"""What comes next, in a few words, while its time runs down."""

from typing import Final

import pytest

from tests.cli.build import account, replace, row, status, step
from watchdog.cli.rows import TopRow
from watchdog.core.policy import Do
from watchdog.report.status import HealthStatus, Moment, PendingStatus, PlanStatus, UnderWayStatus

KILL: Final = step(due_in_s=12.0, scope="container", above="110%")
HELD: Final = replace(
    KILL, due_in_s=0.0, withheld_by="owner", held_because="it was the third of its Job", releases_in_s=250.0
)
EVICT: Final = step(Do.EVICT, pending=PendingStatus(tries=3, blocked=True, next_in_s=10.0))


HUNG: Final = HealthStatus(hangs_since=Moment(status().at))


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
        (next_of(KILL), 99.0, "kill now"),
        (next_of(KILL, enforcing=False), 0.0, "would kill in 12s"),
        (row(account(observes=True), KILL), 0.0, "would kill in 12s"),
        (next_of(HELD), 0.0, "kill held: owner, 4m10s"),
        (next_of(HELD), 249.5, "kill held: owner, 1s"),
        (next_of(HELD), 300.0, "kill held: owner"),
        (next_of(begun=begun(sigkill_in_s=8.2)), 0.0, "being killed, SIGKILL in 9s"),
        (next_of(KILL, health=HUNG), 5.0, "kill postponed"),
        (next_of(EVICT, health=HUNG), 5.0, "eviction postponed"),
        (next_of(begun=begun(sigkill_in_s=8.0), health=HUNG), 5.0, "being killed, SIGKILL postponed"),
        (next_of(EVICT), 4.0, "eviction blocked, attempt 3, next in 6s"),
    ],
)
def test_in_short(shown: TopRow, elapsed_s: float, expected: str) -> None:
    """A step in few words counts down to `now` and no further, and not at all while the daemon's loop hangs."""
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


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (next_of(), None),
        (next_of(KILL), 12.0),
        (next_of(replace(KILL, due_in_s=-8.0)), 0.0),
        (next_of(HELD), 250.0),
        (next_of(replace(HELD, releases_in_s=None)), float("inf")),
        (next_of(begun=begun(sigkill_in_s=8.0)), 0.0),
        (next_of(KILL, health=HUNG), float("inf")),
    ],
)
def test_time_left(shown: TopRow, expected: float | None) -> None:
    """What sorts by time: when something happens, which with a brake is when that releases it."""
    assert shown.left_s == expected
