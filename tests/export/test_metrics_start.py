"""What the metrics know when a daemon starts: its policy at once, and what was done before, by any clock."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import KILL, WARN, Story, climbing, entry, killed, outcome, policy, quiet, record
from tests.export.samples import POD, read, series, value, values
from tests.worlds import at, rule, snapshot
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.metrics import Metrics
from watchdog.journal.journal import Journal
from watchdog.report.recent import last_action, merge

_LIMITS = JournalLimits(max_age_s=86400.0, max_size=2**28)
_KILLED = {**POD, "container": "main", "action": "kill", "rule": "notebooks"}
_DAY_S = 86400.0


def last_kill(metrics: Metrics, result: str = "done") -> float | None:
    """When the kill was, as the metrics have it, in seconds after the beginning."""
    found = value(read(metrics), "pod_last_action_timestamp_seconds", **_KILLED, result=result)
    return None if found is None else found - at(0).wall_s


def test_counters_are_there_before_the_first_cycle() -> None:
    """A step that is due at the first cycle is an increase only if its 0 was there before."""
    metrics = Metrics()
    metrics.policy_reload(ok=True, wall_s=at(0).wall_s, policy=policy())
    found = read(metrics)
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    assert value(found, "would_act_total", rule="notebooks", action="warn") == 0
    assert value(found, "reaction_seconds_count", action="kill") == 0
    loaded = {"policy_last_reload_successful": 1, "policy_last_reload_success_timestamp_seconds": at(0).wall_s}
    assert values(found).items() >= loaded.items()
    assert not series(found, "last_cycle_timestamp_seconds") + series(found, "accounts") + series(found, "enforcing")
    assert values(found)["process_open_fds"] > 0


def test_a_new_policy_has_its_zeros_before_its_first_cycle() -> None:
    """So is what a rule does that has just been loaded; a file with mistakes changes nothing."""
    metrics = Metrics()
    metrics.update(quiet())
    metrics.policy_reload(ok=False, wall_s=at(1).wall_s)
    assert {labels["rule"] for labels in series(read(metrics), "actions_total")} == {"notebooks"}
    metrics.policy_reload(ok=True, wall_s=at(2).wall_s, policy=policy(rule(WARN, KILL, name="new"), sha256="cd" * 32))
    assert value(read(metrics), "actions_total", rule="new", action="kill", result="done") == 0


def recalled(path: Path, second: float) -> Metrics:
    """Metrics of a daemon that starts at a moment with this journal, and closes what was left unfinished in it."""
    journal = Journal.open(path, _LIMITS, "n1")
    metrics = Metrics()
    now = at(second)
    metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy())
    for action in journal.unfinished():
        if action.result is None:
            journal.end(action.number, Result.INTERRUPTED, "the watchdog ended before it was over", now)
    metrics.recall(journal.last_actions(now), now.wall_s)
    journal.close()
    return metrics


def test_what_was_done_before_a_restart_is_known_after_it(tmp_path: Path) -> None:
    """An alert on a kill does not end because the daemon did: the journal has it, and counters begin at 0 again."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    action = journal.intend(entry(), (ProcessKey(pid=101, start_ticks=1010),), at(30))
    journal.end(action, Result.DONE, "", at(31))
    record(journal, quiet(31, outcomes=(killed(number=action), outcome(entry(climbing(5), "warn"), at=at(20)))))
    record(journal, quiet(32, outcomes=(outcome(result=Result.OBSERVED),)))
    journal.close()
    metrics = recalled(tmp_path / "journal.db", 100)
    found = read(metrics)
    assert last_kill(metrics) == 31
    assert {(each["action"], each["result"]) for each in series(found, "pod_last_action_timestamp_seconds")} == {
        ("kill", "done"),
        ("warn", "done"),
    }
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    story = Story(pods=())
    metrics.update(story.see(snapshot(second=101)))
    metrics.update(story.see(snapshot(second=1000)))
    assert last_kill(metrics) == 31
    metrics.update(story.see(snapshot(second=1002)))
    assert series(read(metrics), "pod_last_action_timestamp_seconds") == []


def test_what_is_long_past_or_still_to_come_is_not_recalled(tmp_path: Path) -> None:
    """A quarter of an hour, and not more; nor what a clock that was wrong has written of the future."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    record(journal, quiet(31, outcomes=(outcome(entry(climbing(5), "warn"), at=at(31)),)))
    journal.close()
    for second, there in ((30, 0), (31, 1), (931, 1), (932, 0)):
        found = read(recalled(tmp_path / "journal.db", second))
        assert len(series(found, "pod_last_action_timestamp_seconds")) == there, second


def test_an_action_that_the_last_daemon_left_unfinished_counts_as_interrupted(tmp_path: Path) -> None:
    """The daemon that finds it counts it, for nothing else can; one that ended before counts no more."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    for second in (20, 30):
        action = journal.intend(entry(), (ProcessKey(pid=101, start_ticks=1010),), at(second))
        if second == 20:
            journal.end(action, Result.INTERRUPTED, "the watchdog was stopped", at(21))
            journal.released(action, at(21), None, "")
    journal.close()
    found = read(recalled(tmp_path / "journal.db", 100))
    assert value(found, "actions_total", rule="notebooks", action="kill", result="interrupted") == 1
    assert value(found, "pod_last_action_timestamp_seconds", **_KILLED, result="interrupted") == at(100).wall_s
    again = read(recalled(tmp_path / "journal.db", 200))
    assert value(again, "actions_total", rule="notebooks", action="kill", result="interrupted") == 0


def ahead(second: float) -> Now:
    """A moment of a clock that is a day ahead."""
    return replace(at(second), wall_s=at(second).wall_s + _DAY_S)


def with_kill(report: CycleReport, when: Now) -> CycleReport:
    """The report of a cycle in which a kill ended."""
    return replace(report, outcomes=(killed(at=when),))


def test_what_is_recalled_does_not_hide_what_is_newer() -> None:
    """A journal that is opened again closes what was left open now; the rest is older than what is known."""
    metrics, first = Metrics(), last_action(killed())
    metrics.update(with_kill(quiet(31), at(31)))
    for second in (5, 35):  # by a clock that was ahead by a little
        metrics.recall([replace(first, wall_s=at(second).wall_s)], at(40).wall_s)
        assert last_kill(metrics) == 31
    metrics.recall([replace(first, wall_s=at(40).wall_s)], at(40).wall_s)
    assert last_kill(metrics) == 40


def test_the_next_kill_after_the_clock_was_set_back_is_reported() -> None:
    """The later one wins, although the one before it claims to be later, by the clock that was ahead."""
    first, then = last_action(killed(at=ahead(31))), last_action(killed(at=at(60)))
    assert merge((first,), (then,)) == merge((), (first, then)) == (then,)
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    metrics.update(quiet(32))
    metrics.update(with_kill(climbing(60), at(60)))
    assert last_kill(metrics) == 60


def test_no_moment_is_ahead_of_the_clock() -> None:
    """An alert on "less than 15 minutes ago" would hold until the clock gets there: the moment it was seen counts."""
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    assert last_kill(metrics) == 31 + _DAY_S
    for second in (40, 41, 900):
        metrics.update(quiet(second, duration_s=0.0))
        assert last_kill(metrics) == 40
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), ahead(31)), duration_s=0.0))
    assert last_kill(metrics) == 31


def test_what_is_done_during_a_cycle_keeps_its_moment() -> None:
    """A cycle is dated by its beginning, and what it did comes after that."""
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), at(31.4)), duration_s=0.5))
    assert last_kill(metrics) == pytest.approx(31.4)
