"""What the metrics know when a daemon starts: its policy at once, and what was done before it."""

from dataclasses import replace
from pathlib import Path

from tests.export.build import KILL, WARN, Story, climbing, entry, killed, outcome, policy, quiet, record
from tests.export.samples import read, series, value
from tests.worlds import at, rule, snapshot
from watchdog.core.model import ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.export.metrics import Metrics
from watchdog.journal.journal import Journal
from watchdog.report.recent import LastAction

_LIMITS = JournalLimits(max_age_s=86400.0, max_size=2**28)
_KILLED = {"namespace": "a", "pod": "trainer", "container": "main", "action": "kill", "rule": "notebooks"}


def test_counters_are_there_before_the_first_pass() -> None:
    """A step that is due at the first cycle is an increase only if its 0 was there before."""
    metrics = Metrics()
    metrics.policy_reload(ok=True, wall_s=at(0).wall_s, policy=policy())
    found = read(metrics)
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    assert value(found, "would_act_total", rule="notebooks", action="warn") == 0
    assert value(found, "reaction_seconds_count", action="kill") == 0
    assert value(found, "policy_last_reload_successful") == 1
    assert value(found, "policy_last_reload_success_timestamp_seconds") == at(0).wall_s
    assert series(found, "last_cycle_timestamp_seconds") == []


def test_a_new_policy_has_its_zeros_before_its_first_pass() -> None:
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


def test_what_was_done_before_a_restart_is_told_after_it(tmp_path: Path) -> None:
    """An alert on a kill does not end because the daemon did: the journal has it, and counters begin at 0 again."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    action = journal.intend(entry(), (ProcessKey(pid=101, start_ticks=1010),), at(30))
    journal.end(action, Result.DONE, "", at(31))
    record(journal, quiet(31, outcomes=(killed(number=action), outcome(entry(climbing(5), "warn"), at=at(20)))))
    record(journal, quiet(32, outcomes=(outcome(result=Result.OBSERVED),)))
    journal.close()
    metrics = recalled(tmp_path / "journal.db", 100)
    found = read(metrics)
    assert value(found, "pod_last_action_timestamp_seconds", **_KILLED, result="done") == at(31).wall_s
    assert {(each["action"], each["result"]) for each in series(found, "pod_last_action_timestamp_seconds")} == {
        ("kill", "done"),
        ("warn", "done"),
    }
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    story = Story(pods=())
    metrics.update(story.see(snapshot(second=101)))
    metrics.update(story.see(snapshot(second=1000)))
    assert value(read(metrics), "pod_last_action_timestamp_seconds", **_KILLED, result="done") == at(31).wall_s
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


def test_a_deed_that_the_last_daemon_left_unfinished_counts_as_interrupted(tmp_path: Path) -> None:
    """The daemon that finds it says so in its counters, for nobody else can; one that ended before counts no more."""
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


def test_what_is_recalled_does_not_hide_what_is_newer() -> None:
    """A journal that is opened again while the daemon runs brings back nothing that is older than what it knows."""
    metrics = Metrics()
    metrics.update(replace(quiet(31), outcomes=(killed(at=at(31)),)))
    labels = ("a", "trainer", "main", "kill", "done", "notebooks")
    metrics.recall([LastAction(labels=labels, uid="u1", wall_s=at(5).wall_s)], at(40).wall_s)
    assert value(read(metrics), "pod_last_action_timestamp_seconds", **_KILLED, result="done") == at(31).wall_s
