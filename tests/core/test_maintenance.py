"""Nothing is concluded while the GPUs are under maintenance."""

from tests.worlds import at, inputs, planned, policy, snapshot
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.ledger import Ledger
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


def test_the_substitute_for_a_reading_has_no_number() -> None:
    """Point 34: nothing is guessed, not even sizes; before the first reading there is not even a row."""
    assert released_reading("why") == DriverReading(driver=None, gaps=released_reading("why").gaps, blind=True)
    (gap,) = released_reading("the node's label x is y").gaps
    assert str(gap.problem).startswith("the node's label x is y: its GPUs are under maintenance")
