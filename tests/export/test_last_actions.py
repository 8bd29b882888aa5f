"""What was last done to a pod is told right after the node's clock was set, forwards or back."""

from dataclasses import replace

from tests.export.build import climbing, killed, quiet
from tests.export.samples import read, value
from tests.worlds import at
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.export.metrics import Metrics
from watchdog.report.recent import LastAction, last_action, merge

_DAY_S = 86400.0
_KILLED = {"namespace": "a", "pod": "trainer", "container": "main", "action": "kill", "rule": "notebooks"}


def ahead(second: float) -> Now:
    """A moment of a clock that is a day ahead."""
    return replace(at(second), wall_s=at(second).wall_s + _DAY_S)


def told(metrics: Metrics) -> float:
    """When the kill was, as the metrics tell it, in seconds after the beginning."""
    found = value(read(metrics), "pod_last_action_timestamp_seconds", **_KILLED, result="done")
    assert found is not None
    return found - at(0).wall_s


def with_kill(report: CycleReport, when: Now) -> CycleReport:
    """The report of a cycle in which a kill ended."""
    return replace(report, outcomes=(killed(at=when),))


def test_the_later_one_wins_whatever_its_stamp() -> None:
    """Else a kill after the clock was set back would be lost behind one that claims to be later."""
    first, then = last_action(killed(at=ahead(31))), last_action(killed(at=at(60)))
    assert merge((first,), (then,)) == (then,)
    assert merge((), (first, then)) == (then,)


def test_the_next_kill_after_the_clock_was_set_back_is_told() -> None:
    """The one before it was stamped by the clock that was ahead."""
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    metrics.update(quiet(32))
    metrics.update(with_kill(climbing(60), at(60)))
    assert told(metrics) == 60


def test_no_stamp_is_ahead_of_the_clock() -> None:
    """An alert on "less than 15 minutes ago" would hold until the clock gets there: the moment it was seen counts."""
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    assert told(metrics) == 31 + _DAY_S
    for second in (40, 41, 900):
        metrics.update(quiet(second, duration_s=0.0))
        assert told(metrics) == 40
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), ahead(31)), duration_s=0.0))
    assert told(metrics) == 31


def test_what_is_done_while_a_pass_lasts_keeps_its_stamp() -> None:
    """A cycle is dated by its beginning, and what it did comes after that."""
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), at(31.4)), duration_s=0.5))
    assert round(told(metrics), 3) == 31.4


def test_what_was_closed_at_a_start_wins_over_all_that_was_before() -> None:
    """A journal that is opened again closes what was left open now; the rest of it is older than what is known."""
    labels = last_action(killed()).labels
    metrics = Metrics()
    metrics.update(with_kill(quiet(31), at(31)))
    early = LastAction(labels=labels, uid="u1", wall_s=at(35).wall_s)  # by a clock that was ahead by a little
    metrics.recall([early], at(40).wall_s)
    assert told(metrics) == 31
    metrics.recall([replace(early, wall_s=at(40).wall_s)], at(40).wall_s)
    assert told(metrics) == 40
