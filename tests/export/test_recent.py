"""What was done lately: kept in memory within bounds, and the same after a restart as before it."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import Story, climbing, entry, killed, outcome, policy, quiet, record, trainer_node
from tests.worlds import at
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import Do, JournalLimits
from watchdog.journal.journal import Journal
from watchdog.report.recent import MOST_ACTIONS, Recent
from watchdog.report.status import RecentStatus, encode

KEYS = (ProcessKey(pid=101, start_ticks=1010), ProcessKey(pid=102, start_ticks=1020))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal.open(path, JournalLimits(), "n1")
    yield journal
    journal.close()


def reopened(path: Path) -> tuple[RecentStatus, ...]:
    """What a daemon that starts again finds."""
    journal = Journal.open(path, JournalLimits(), "n1")
    found = journal.recent.actions
    journal.close()
    return found


def kill(journal: Journal, second: float = 31) -> int:
    """A kill from its intention to the memory that is free again."""
    action = journal.intend(entry(), KEYS, at(second))
    journal.signalled(action, at(second), "SIGTERM", KEYS)
    journal.signalled(action, at(second + 10), "SIGKILL", KEYS[:1])
    journal.end(action, Result.DONE, "", at(second + 10.5))
    journal.released(action, at(second + 11), 11.0, "")
    return action


def test_a_kill_is_told_as_it_goes(journal: Journal) -> None:
    """Under way it has no result; then each signal, what came of it and that the memory is free are added."""
    action = journal.intend(entry(), KEYS, at(31))
    (told,) = map(encode, journal.recent.actions)
    assert (told["result"], told["outcome"], told["signals"]) == (None, None, ())
    assert "SIGTERM" in told["why"]
    journal.signalled(action, at(31), "SIGTERM", KEYS)
    journal.end(action, Result.FAILED, "no right to signal process 101", at(32))
    (told,) = map(encode, journal.recent.actions)
    assert told["signals"] == ({"signal": "SIGTERM", "at": "2027-01-15T08:00:31.000Z", "processes": 2},)
    assert (told["result"], told["reason"]) == ("failed", "no right to signal process 101")
    assert told["outcome"].endswith("failed: no right to signal process 101.")


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


def test_a_deed_that_the_last_daemon_left_under_way_is_interrupted(path: Path) -> None:
    """After a crash the action stands there as it was left, and ends with what the new daemon writes of it."""
    journal = Journal.open(path, JournalLimits(), "n1")
    journal.signalled(journal.intend(entry(), KEYS, at(31)), at(31), "SIGTERM", KEYS)
    journal.close()
    again = Journal.open(path, JournalLimits(), "n1")
    assert [each.result for each in again.recent.actions] == [None]
    (left,) = again.unfinished()
    again.end(left.number, Result.INTERRUPTED, "the watchdog ended before it was over", at(60))
    assert [each.result for each in again.recent.actions] == ["interrupted"]
    again.close()


def test_memory_and_reading_are_bounded(journal: Journal, path: Path) -> None:
    """However much happens, twenty stay; warnings by the hundred do not drive out the kills, nor kills the warnings."""
    kill(journal)
    for second in range(40, 140):
        record(journal, replace(quiet(second), outcomes=(outcome(entry(climbing(5), "warn"), at=at(second)),)))
    assert (len(journal.recent.actions), journal.recent.actions[-1].do) == (MOST_ACTIONS, "kill")
    assert sum(each.do == "warn" for each in journal.recent.actions) == MOST_ACTIONS - 1
    for second in range(200, 230):
        kill(journal, second)
    kinds = [each.do for each in journal.recent.actions]
    assert (kinds.count(Do.KILL), kinds.count(Do.WARN)) == (10, 10)
    assert reopened(path) == journal.recent.actions


def test_the_first_of_each_signal_is_kept(journal: Journal) -> None:
    """A container that forks all through its grace period hides neither when the kill began nor when SIGKILL came."""
    action = journal.intend(entry(), KEYS, at(31))
    for second in range(31, 43):
        journal.signalled(action, at(second), "SIGTERM", KEYS)
    for second in range(43, 51):
        journal.signalled(action, at(second), "SIGKILL", KEYS)
    (kept,) = journal.recent.actions
    assert kept.effect_at == at(31).wall_s
    killed = [each.at for each in kept.signals if each.signal == "SIGKILL"]
    assert (len(kept.signals), killed[0], killed[-1]) == (10, at(43).wall_s, at(50).wall_s)


def test_what_is_older_than_a_day_goes(journal: Journal) -> None:
    """Yesterday's kill is the journal's to tell, not the page's."""
    kill(journal)
    kill(journal, 31 + 86401)
    assert len(journal.recent.actions) == 1


def test_at_rest_nothing_is_done(journal: Journal) -> None:
    """A cycle in which nothing happens leaves the very same tuple behind."""
    kill(journal)
    before = journal.recent.actions
    for second in range(50, 60):
        record(journal, quiet(second))
    assert journal.recent.actions is before


def test_rows_of_other_things_tell_nothing() -> None:
    """Gaps, policies, starts, and the explanation for an owner are no actions."""
    recent = Recent()
    for event in ("gap_began", "started", "policy_loaded", "withheld", "explained", "released", "signalled"):
        recent.take({"event": event, "wall_s": 1.0, "sentence": "x", "do": "kill", "action_id": None})
    assert recent.actions == ()


def test_a_list_of_processes_too_long_to_be_kept_whole_is_not_counted(journal: Journal) -> None:
    """How many got the signal is then not known, rather than wrong."""
    keys = tuple(ProcessKey(pid=4_000_000 + number, start_ticks=10**9) for number in range(400))
    journal.signalled(journal.intend(entry(), keys, at(31)), at(31), "SIGTERM", keys)
    (action,) = journal.recent.actions
    assert [(each.signal, each.processes) for each in action.signals] == [("SIGTERM", None)]


def test_a_kill_through_the_reports_is_told_once(journal: Journal) -> None:
    """The report that tells of an action later adds no second one."""
    action = kill(journal)
    story = Story()
    report = story.see(trainer_node(4.0, 60))
    record(journal, replace(report, began=(killed(action),), outcomes=(killed(action, release_s=11.0),)))
    assert len(journal.recent.actions) == 1


def test_the_wall_clock_of_a_deed_is_kept(journal: Journal) -> None:
    """`at` is the moment of the intention, not that of the latest row about it."""
    kill(journal)
    now: Now = at(31)
    assert journal.recent.actions[0].at == now.wall_s


def test_an_action_of_a_later_version_is_left_out(path: Path) -> None:
    """A journal that a later version has written opens all the same: what it cannot know is not among the actions."""
    journal = Journal.open(path, JournalLimits(), "n1")
    kill(journal)
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE occurrence SET do = 'taint'")
    assert reopened(path) == ()
