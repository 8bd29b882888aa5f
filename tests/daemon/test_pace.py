"""When the next reading is taken."""

import pytest

from tests.worlds import Gi, at, container, planned, pod, policy, rule, snapshot, step, use
from watchdog.core.plan import Plan
from watchdog.daemon.sampler import Pace


def _plan(*for_s: float, namespace: str = "ns") -> Plan:
    steps, tenant = [step(for_s=each) for each in for_s], pod("a", container(declared="1Gi"), namespace=namespace)
    return planned(snapshot([use(5, 2 * Gi)]), [tenant], policy(rule(*steps)))


def begun(interval_s: float) -> Pace:
    """A pace whose first reading has just been taken."""
    pace = Pace(interval_s)
    pace.begin(at(0))
    return pace


def test_readings_stay_on_a_grid() -> None:
    """A cycle that takes long does not shift all that follow; ticks that were slept through are left out."""
    pace = begun(1.0)
    assert pace.next_reading_s == at(1).boottime_s
    pace.begin(at(1.3))
    assert pace.next_reading_s == at(2).boottime_s
    pace.begin(at(9.5))
    assert pace.next_reading_s == at(10.5).boottime_s


def test_a_step_that_comes_due_brings_a_reading_forward() -> None:
    """With an interval of a minute a step with `for = "10s"` is still taken after 10 s."""
    pace = begun(60.0)
    pace.plan(_plan(10.0, 30.0), at(0.1))
    assert pace.next_reading_s == at(10.1).boottime_s
    pace.begin(at(10.1))
    assert pace.next_reading_s == at(60).boottime_s


def test_withheld_steps_bring_nothing_forward() -> None:
    """What a brake holds back is no reason to list processes more often."""
    pace = begun(60.0)
    pace.plan(_plan(10.0, namespace="kube-system"), at(0))
    assert pace.next_reading_s == at(60).boottime_s


def test_deadlines_that_lie_close_together_share_a_reading() -> None:
    """A listing holds the driver's lock: never two within 100 ms for deadlines."""
    pace = begun(60.0)
    pace.plan(_plan(0.001), at(0))
    assert pace.next_reading_s == at(0.1).boottime_s


def test_a_change_during_a_cycle_is_not_forgotten_at_its_end() -> None:
    """A deadline that lies later does not take the place of a reading that is wanted soon."""
    pace = begun(300.0)
    pace.bring_forward(at(0.1))
    pace.plan(_plan(200.0), at(0.3))
    assert pace.next_reading_s == at(1).boottime_s


def test_a_change_brings_a_reading_at_once() -> None:
    """New pods or a new policy do not wait for the next tick, and bring no more than a reading a second."""
    pace = begun(60.0)
    pace.bring_forward(at(0.2))
    assert pace.next_reading_s == at(1).boottime_s
    pace.begin(at(1))
    pace.bring_forward(at(3))
    assert pace.next_reading_s == at(3).boottime_s
    pace.begin(at(3))
    assert pace.next_reading_s == at(60).boottime_s


@pytest.mark.parametrize("interval_s", [1.0, 1.7, 60.0])
def test_a_flood_of_changes_brings_two_readings_a_second_at_most(interval_s: float) -> None:
    """Pods that change a hundred times a second take no more of the lock of the driver than quiet ones."""
    pace, readings = Pace(interval_s), []
    for second in (number / 100 for number in range(3000)):
        pace.bring_forward(at(second))
        if at(second).boottime_s >= pace.next_reading_s:
            pace.begin(at(second))
            readings.append(second)
    assert 29 <= len(readings) <= 60
    assert all(third - first >= 1 for first, third in zip(readings, readings[2:], strict=False))
