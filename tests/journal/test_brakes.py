"""What the journal keeps for the brakes, over restarts, kills and prunings."""

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, begin, sql
from tests.report.build import entry
from tests.worlds import at
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.model import Now
from watchdog.core.plan import Result
from watchdog.journal.journal import Journal
from watchdog.journal.read import history

OWNER = ("a", "Job", "train")


def reread(path: Path, now: Now) -> BrakeMemory:
    """What a daemon that starts at this moment finds."""
    with closing(Journal.open(path, LIMITS, "n1")) as opened:
        return opened.brakes(now)


def test_an_intention_counts_for_the_brakes_from_its_commit_on(journal: Journal, path: Path) -> None:
    """Points 29 and 31: one that a kill -9 cut off counts, as does one that failed, and one that was withdrawn not."""
    journal.intend(entry(), KEYS, at(31))
    began = (Begun(at(31).boottime_s),)
    assert reread(path, at(40)).begun == {(): began, ("a",): began, OWNER: began}
    for number in (32, 33):
        journal.end(journal.intend(entry(), KEYS, at(number)), Result.FAILED, "it forked", at(number))
    journal.withdraw(journal.intend(entry(), KEYS, at(34)), "its use fell", at(34))
    assert [len(memory.begun[OWNER]) for memory in (reread(path, at(40)), journal.brakes(at(40)))] == [3, 3]
    assert reread(path, at(40)).second_next == {(), ("a",), OWNER}  # point 25: the fourth turn is of the second kind


def test_pruning_takes_nothing_from_the_brakes(journal: Journal, path: Path) -> None:
    """A journal that keeps one minute must not make a window of ten minutes forget."""
    journal.released(journal.intend(entry(), KEYS, at(0)), at(1), 1.0, "")
    journal.end(1, Result.DONE, "", at(1))
    journal.prune(replace(at(2), boottime_s=at(0).boottime_s + 1e8, wall_s=at(0).wall_s + 1e8))
    assert sql(path, "SELECT count(*) FROM action") == [(0,)]
    assert len(reread(path, at(10)).begun[OWNER]) == 1


def test_withdrawn_attempts_prune_nothing_that_counts(journal: Journal, path: Path) -> None:
    """Numbers of actions that left no row push no row out, however many they are."""
    first = journal.intend(entry(), KEYS, at(0))
    # As 30,000 attempts that were withdrawn leave it.
    sql(path, "UPDATE sqlite_sequence SET seq = 30000 WHERE name = 'action'")
    with closing(Journal.open(path, LIMITS, "n1")) as later:
        assert (first, later.intend(entry(), KEYS, at(5))) == (1, 30001)
        later.prune(at(6))
    assert len(reread(path, at(10)).begun[OWNER]) == 2


def test_rows_that_no_brake_needs_are_pruned_and_no_others(path: Path) -> None:
    """Rows go by age where there are many, and where their owner has as many later ones as any window counts."""
    now = Now(boottime_s=40 * 86400.0, wall_s=1e9, boot_id="b")
    rows = [_row(number, "many", now, age_s=60.0) for number in range(1, 10_011)]
    rows += [_row(number, f"old-{number}", now, age_s=39 * 86400.0) for number in range(20_001, 20_011)]
    rows += [_row(number, f"young-{number}", now, age_s=86400.0) for number in range(30_001, 40_011)]
    Journal.open(path, LIMITS, "n1").close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO begun VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    with closing(Journal.open(path, LIMITS, "n1")) as opened:
        opened.prune(now)
        after = opened.brakes(now)
    assert reread(path, now) == after
    owners = {whom[2]: len(begun) for whom, begun in after.begun.items() if len(whom) == 3}
    assert owners.pop("many") == 10_000
    assert not [name for name in owners if name.startswith("old")]
    assert len(owners) == 10_010


def _row(number: int, name: str, now: Now, *, age_s: float) -> tuple[object, ...]:
    return (number, "ns", "Job", name, now.boot_id, now.boottime_s - age_s, now.wall_s - age_s)


def test_a_journal_in_which_nothing_was_ever_written_is_blank(path: Path) -> None:
    """A file that is new or emptied differs from one that has a past, also after all rows were pruned."""
    with closing(Journal.open(path, LIMITS, "n1")) as first:
        assert first.is_blank
        first.record_event("started", "it has begun", at(0))
    with closing(Journal.open(path, LIMITS, "n1")) as second:
        second.prune(replace(at(0), boottime_s=1e9, wall_s=at(0).wall_s + 1e9))
    assert history(path, None, 0.0) == []
    with closing(Journal.open(path, LIMITS, "n1")) as third:
        assert not third.is_blank


def test_a_loss_is_remembered_by_the_next_daemon(journal: Journal, path: Path) -> None:
    """Point 31: the brakes go on counting as full after a restart, from the moment of the loss."""
    journal.record_loss(at(3))
    assert journal.brakes(at(5)).lost_s == at(3).boottime_s
    assert reread(path, at(60)) == BrakeMemory(lost_s=at(3).boottime_s)


def test_a_jump_of_the_wall_clock_prunes_nothing_of_this_boot(journal: Journal, path: Path) -> None:
    """A wall clock that is 40 days ahead for a moment takes neither an action that is waited for nor the history."""
    action = journal.intend(entry(), KEYS, at(0))
    journal.end(journal.intend(entry(), KEYS, at(0)), Result.FAILED, "it forked", at(1))
    before = len(history(path, None, 0.0))
    journal.prune(replace(at(2), wall_s=at(2).wall_s + 40 * 86400))
    assert [each.number for each in journal.unfinished()] == [action]
    assert len(history(path, None, 0.0)) == before
    journal.prune(replace(at(2), boot_id="another", wall_s=at(2).wall_s + 40 * 86400))
    assert history(path, None, 0.0) == []


TAMPERING = ("removed", "truncated", "emptied", "replaced", "without tables")


@pytest.mark.parametrize("how", TAMPERING)
def test_a_journal_that_was_tampered_with_gets_back_what_the_brakes_need(
    journal: Journal, path: Path, tmp_path: Path, how: str
) -> None:
    """Point 31: a file lost, emptied or replaced under a running daemon is merged with what the daemon remembers."""
    journal.end(journal.intend(entry(), KEYS, at(0)), Result.FAILED, "it forked", at(1))
    under_way = journal.intend(entry(), KEYS, at(2))
    journal.breaker(at(5))
    before = reread(path, at(60))
    tamper(path, how, tmp_path)
    assert journal.probe() or journal.probe()  # what is damaged is seen first, and then moved aside
    found = reread(path, at(60))
    assert set(before.begun[OWNER]) <= set(found.begun[OWNER])
    assert found.opened == before.opened
    assert len(found.begun[OWNER]) == (4 if how == "replaced" else 2)
    assert under_way in [each.number for each in journal.unfinished()]
    assert "2 records" in journal.notices[-1] or "3 records" in journal.notices[-1]
    assert [row.event for row in history(path, None, 0.0)].count("journal_restored") == 1
    # Numbers continue, and none is used twice.
    later = journal.intend(entry(), KEYS, at(61))
    assert later > under_way
    journal.end(under_way, Result.DONE, "", at(62))
    journal.released(under_way, at(63), 60.0, "")
    assert under_way not in [each.number for each in journal.unfinished()]
    assert later in [each.number for each in journal.unfinished()]
    assert len(journal.notices) <= 2
    assert journal.probe()  # and it is reported once


@pytest.mark.parametrize("how", TAMPERING)
def test_an_action_keeps_its_result_in_a_journal_that_was_tampered_with(
    journal: Journal, path: Path, tmp_path: Path, how: str
) -> None:
    """Point 31: once its memory is no longer waited for it is over, and the next daemon does not find it cut short."""
    action = begin(journal)
    journal.end(action, Result.DONE, "", at(32))
    tamper(path, how, tmp_path)
    assert journal.probe() or journal.probe()
    assert [each.result for each in journal.unfinished() if each.number == action] == [Result.DONE]
    journal.released(action, at(60), None, "it was not seen free in time")
    journal.close()
    with closing(Journal.open(path, LIMITS, "n1")) as after:
        assert action not in [each.number for each in after.unfinished()]


def test_a_result_that_the_file_lost_is_written_again(journal: Journal, path: Path, tmp_path: Path) -> None:
    """Point 31: an earlier copy that takes the place of the file gets the result of an action."""
    action, copy = begin(journal), tmp_path / "copy.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("VACUUM INTO ?", (str(copy),))
    journal.end(action, Result.DONE, "", at(32))
    copy.replace(path)
    assert journal.probe()
    assert [each.result for each in journal.unfinished()] == [Result.DONE]


def tamper(path: Path, how: str, folder: Path) -> None:
    """Tamper with the journal of a running daemon."""
    if how == "removed":
        path.unlink()
    elif how == "truncated":
        for suffix in ("", "-wal"):
            os.truncate(f"{path}{suffix}", 0)
    elif how == "replaced":
        with closing(Journal.open(folder / "other.db", LIMITS, "n2")) as other:
            for second in (7, 8):
                other.intend(entry(), KEYS, at(second))
        (folder / "other.db").replace(path)
    else:
        verb = "DELETE FROM" if how == "emptied" else "DROP TABLE"
        sql(path, *(f"{verb} {table}" for table in ("begun", "breaker", "action")))


def test_a_breaker_that_turns_while_the_disk_is_full_is_written_later(journal: Journal, path: Path) -> None:
    """What could not be written of the breaker is there once the journal takes writes again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        journal.breaker(at(5))
        assert not journal.writable
    assert reread(path, at(20)).opened is None
    assert journal.probe()
    assert reread(path, at(20)).opened == Begun(at(5).boottime_s)


def test_after_a_reboot_moments_are_taken_from_the_wall_clock(journal: Journal, path: Path) -> None:
    """Point 19: in another boot the age of an action comes from the wall clock, and is never negative."""
    journal.intend(entry(), KEYS, at(0))
    journal.intend(entry(), KEYS, at(100))
    rebooted = Now(boottime_s=30.0, wall_s=at(60).wall_s, boot_id="another")
    assert [each.at_s for each in reread(path, rebooted).begun[OWNER]] == [-30.0, 30.0]


def test_the_age_of_an_action_of_an_earlier_boot_is_set_once(journal: Journal, path: Path) -> None:
    """Points 19 and 31: a wall clock that went back makes it new at the start, and not again at a loss of the file."""
    journal.intend(entry(), KEYS, at(1000))
    journal.close()
    after = replace(at(5), boot_id="boot-2", boottime_s=100.0)
    with closing(Journal.open(path, LIMITS, "n1")) as running:
        found = running.brakes(after)
    assert found.begun[OWNER] == (Begun(after.boottime_s),)
    path.unlink()
    with closing(Journal.open(path, LIMITS, "n1", kept=running.kept)) as again:
        assert again.brakes(replace(after, boottime_s=130.0, wall_s=after.wall_s + 30)) == found


def test_the_breaker_is_remembered_until_it_closes(journal: Journal, path: Path) -> None:
    """A daemon that starts again finds an open breaker open, and since when."""
    assert reread(path, at(1)).opened is None
    journal.breaker(at(5))
    assert reread(path, at(20)).opened == Begun(at(5).boottime_s)
    journal.breaker(at(7))
    assert reread(path, at(20)).opened == Begun(at(7).boottime_s)
    journal.breaker(None)
    assert reread(path, at(20)).opened is None


def test_hostile_names_of_owners_are_kept_apart(journal: Journal, path: Path) -> None:
    """Names that the API never gives neither crash the journal nor count as another owner's."""
    made = entry()
    odd = replace(made.assessment.pod, owner=replace(made.assessment.pod.workload, name="\udcff\x00x"))
    journal.intend(replace(made, assessment=replace(made.assessment, pod=odd)), KEYS, at(0))
    journal.intend(made, KEYS, at(0))
    assert len(reread(path, at(1)).begun[OWNER]) == 1


def test_a_journal_of_the_first_version_is_upgraded(path: Path) -> None:
    """An upgrade keeps the journal: its tables for the brakes are added, empty."""
    with closing(Journal.open(path, LIMITS, "n1")) as first:
        first.intend(entry(), KEYS, at(0))
    tables = {name for (name,) in sql(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    added = [f"DROP TABLE {table}" for table in tables - {"occurrence", "action", "sqlite_sequence"}]
    added += ["ALTER TABLE occurrence DROP COLUMN account", "ALTER TABLE occurrence DROP COLUMN used_beside"]
    sql(path, *added, "PRAGMA user_version = 1")
    assert [(row.pod, row.account) for row in history(path, None, 0.0)] == [("trainer", None)]  # read as it is
    assert reread(path, at(1)) == BrakeMemory()
