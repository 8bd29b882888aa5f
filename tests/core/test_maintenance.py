"""Nothing is concluded while the GPUs are under maintenance."""

from dataclasses import replace

from tests.worlds import Gi, at, container, inputs, planned, pod, policy, rule, snapshot, step, use
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.ledger import Ledger
from watchdog.core.model import Snapshot
from watchdog.core.policy import Brakes, Breaker
from watchdog.node.driver import DriverReading, released_reading

MAINTENANCE = inputs(maintenance=True)


def test_an_empty_reading_closes_no_breaker() -> None:
    """Point 30: no account above a threshold is a sign of recovery only if accounts could be read."""
    under = policy(brakes=Brakes(breaker=Breaker(hold_s=600)))
    ledger = Ledger(brakes=BrakeMemory(opened=Begun(at(0).boottime_s)))
    dark = planned(snapshot(second=700, gpus=(), blind=True), [], under, ledger, MAINTENANCE).ledger
    assert dark.brakes.opened is not None
    assert planned(snapshot(second=700), [], under, ledger).ledger.brakes.opened is None


def test_an_empty_reading_finds_no_account_within() -> None:
    """The upper bound of a reaction runs from the last reading in which the account could be seen above a threshold."""
    dark = planned(snapshot(second=5, gpus=(), blind=True), [], policy(), Ledger(), MAINTENANCE)
    assert dark.ledger.last_cycle is None
    (entry,) = planned(
        snapshot([use(5, 2 * Gi)], second=9), [pod("a", container(declared="1Gi"))], policy(), dark.ledger
    ).entries
    assert entry.not_above is None


def test_timers_stand_still_and_begin_anew_after_a_long_one() -> None:
    """Points 16 and 34: a short maintenance counts as one interval, a long one as nothing."""
    under, declares = policy(rule(step(for_s=30.0))), [pod("a", container(declared="1Gi"))]
    above = snapshot([use(5, 2 * Gi)])
    before = planned(planned_at(above, 1.0), declares, under, planned(above, declares, under).ledger).ledger
    unknown = snapshot([use(5, None)], second=3.0, blind=True)
    dark = planned(unknown, declares, under, before, MAINTENANCE)
    assert dark.entries == ()
    for second, left_s in ((9.0, 28.0), (60.0, 30.0)):
        (entry,) = planned(planned_at(above, second), declares, under, dark.ledger).entries
        assert entry.due_in_s == left_s


def planned_at(seen: Snapshot, second: float) -> Snapshot:
    return replace(seen, at=at(second))


def test_the_stand_in_of_a_reading_has_no_number() -> None:
    """Point 34: nothing is guessed, not even sizes; before the first reading there is not even a row."""
    assert released_reading("why") == DriverReading(driver=None, gaps=released_reading("why").gaps, blind=True)
    (gap,) = released_reading("the node's label x is y").gaps
    assert str(gap.problem).startswith("the node's label x is y: its GPUs are under maintenance")
