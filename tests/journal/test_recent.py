"""Recent actions: kept in memory within bounds, and the same after a restart as before it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, begin, sql
from tests.report.build import Story, climbing, entry, killed, outcome, policy, quiet, record, trainer_node
from tests.worlds import at
from watchdog.core.model import ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import Do
from watchdog.journal.journal import Journal
from watchdog.report.recent import MOST_ACTIONS, Recent
from watchdog.report.status import RecentStatus, encode


def reopened(path: Path) -> tuple[RecentStatus, ...]:
    """What a daemon that starts again finds."""
    with closing(Journal.open(path, LIMITS, "n1")) as journal:
        return journal.recent.actions


def kill(journal: Journal, second: float = 31) -> int:
    """A kill from its intention to the memory that is free again."""
    action = journal.intend(entry(), KEYS, at(second))
    journal.signalled(action, at(second), "SIGTERM", KEYS)
    journal.signalled(action, at(second + 10), "SIGKILL", KEYS[:1])
    journal.end(action, Result.DONE, "", at(second + 10.5))
    journal.released(action, at(second + 11), 11.0, "")
    return action


def test_a_kill_is_reported_as_it_goes(journal: Journal) -> None:
    """In progress it has no result; then each signal, its end and that the memory is free are added."""
    action = journal.intend(entry(), KEYS, at(31))
    (found,) = map(encode, journal.recent.actions)
    assert (found["result"], found["outcome"], found["signals"]) == (None, None, ())
    assert "SIGTERM" in found["why"]
    journal.signalled(action, at(31), "SIGTERM", KEYS)
    journal.end(action, Result.FAILED, "no right to signal process 101", at(32))
    (found,) = map(encode, journal.recent.actions)
    assert found["signals"] == ({"signal": "SIGTERM", "at": "2027-01-15T08:00:31.000Z", "processes": 2},)
    assert (found["result"], found["reason"]) == ("failed", "no right to signal process 101")
    assert "killing container main failed: no right to signal process 101 (rule " in found["outcome"]


def test_signals_are_bounded(journal: Journal) -> None:
    """However often a container forks, the first of each signal is kept; too many processes are not counted."""
    action = journal.intend(entry(), KEYS, at(31))
    for second in range(31, 51):
        journal.signalled(action, at(second), "SIGTERM" if second < 43 else "SIGKILL", KEYS)
    (kept,) = journal.recent.actions
    assert kept.effect_at == at(31).wall_s
    killed = [each.at for each in kept.signals if each.signal == "SIGKILL"]
    assert (len(kept.signals), killed[0], killed[-1]) == (10, at(43).wall_s, at(50).wall_s)
    keys = tuple(ProcessKey(pid=4_000_000 + number, start_ticks=10**9) for number in range(400))
    journal.signalled(journal.intend(entry(), keys, at(52)), at(52), "SIGTERM", keys)
    assert [(each.signal, each.processes) for each in journal.recent.actions[0].signals] == [("SIGTERM", None)]


def test_a_restart_forgets_nothing(journal: Journal, path: Path) -> None:
    """What the journal gives to the next daemon is what this one had in memory, action by action and word by word."""
    kill(journal)
    record(journal, replace(climbing(31), outcomes=(outcome(entry(climbing(5), "warn")),)))
    record(journal, replace(quiet(40), outcomes=(outcome(result=Result.OBSERVED),)))
    record(journal, replace(quiet(41), outcomes=(outcome(result=Result.FAILED, reason="no API"),)))
    kill(journal, 100)
    evicted = replace(entry(), rule=policy().rules[0])
    record(journal, replace(quiet(120), outcomes=(outcome(evicted, Result.GONE),)))
    before = journal.recent.actions
    assert [each.do for each in before] == ["kill", "kill", "kill", "kill", "warn", "kill"]
    assert [each.result for each in before] == ["gone", "done", "failed", "observed", "done", "done"]
    assert reopened(path) == before
    assert before[0].used_at_least == 13314398617


def test_an_action_that_the_last_daemon_left_unfinished_is_interrupted(journal: Journal, path: Path) -> None:
    """After a crash the action is there as it was left, and ends with what the new daemon writes of it."""
    begin(journal)
    with closing(Journal.open(path, LIMITS, "n1")) as again:
        assert [each.result for each in again.recent.actions] == [None]
        (left,) = again.unfinished()
        again.end(left.number, Result.INTERRUPTED, "the watchdog ended before it was over", at(60))
        assert [each.result for each in again.recent.actions] == ["interrupted"]


def test_an_action_of_a_later_version_is_left_out(journal: Journal, path: Path) -> None:
    """A journal that a later version has written opens all the same: what it cannot know is not among the actions."""
    kill(journal)
    sql(path, "UPDATE occurrence SET do = 'taint'")
    assert reopened(path) == ()


def test_a_kill_is_there_once_for_a_day(journal: Journal) -> None:
    """Dated by its intention; neither a cycle at rest nor a later report of it adds one, and yesterday's has gone."""
    action = kill(journal)
    before = journal.recent.actions
    assert [each.at for each in before] == [at(31).wall_s]
    for second in range(50, 60):
        record(journal, quiet(second))
    assert journal.recent.actions is before
    report = Story().see(trainer_node(4.0, 60))
    record(journal, replace(report, began=(killed(action),), outcomes=(killed(action, release_s=11.0),)))
    assert len(journal.recent.actions) == 1
    kill(journal, 31 + 86401)
    assert [each.at for each in journal.recent.actions] == [at(31 + 86401).wall_s]


@pytest.mark.slow
def test_memory_and_reading_are_bounded(journal: Journal, path: Path) -> None:
    """However much happens, twenty stay; warnings by the hundred do not drive out the kills, nor kills the warnings."""
    kill(journal)
    for second in range(600, 60600, 600):
        record(journal, replace(quiet(second), outcomes=(outcome(entry(climbing(5), "warn"), at=at(second)),)))
    assert (len(journal.recent.actions), journal.recent.actions[-1].do) == (MOST_ACTIONS, "kill")
    assert sum(each.do == "warn" for each in journal.recent.actions) == MOST_ACTIONS - 1
    for second in range(60600, 60630):
        kill(journal, second)
    kinds = [each.do for each in journal.recent.actions]
    assert (kinds.count(Do.KILL), kinds.count(Do.WARN)) == (10, 10)
    assert reopened(path) == journal.recent.actions


def test_rows_of_other_things_are_no_actions() -> None:
    """Gaps, policies, starts, and the explanation for an owner are no actions."""
    recent = Recent()
    for event in ("gap_began", "started", "policy_loaded", "withheld", "explained", "released", "signalled"):
        recent.add_row({"event": event, "wall_s": 1.0, "sentence": "x", "do": "kill", "action_id": None})
    assert recent.actions == ()
