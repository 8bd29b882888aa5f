"""What the journal keeps for the brakes, over restarts, kills and prunings."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import entry
from tests.worlds import at
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.export.journal import Journal, JournalError
from watchdog.export.journal_read import history

LIMITS = JournalLimits(max_age_s=60.0, max_size=2**20)
KEYS = (ProcessKey(pid=101, start_ticks=1010),)
OWNER = ("a", "Job", "train")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """A journal, closed at the end."""
    opened = Journal.open(path, LIMITS, "n1")
    yield opened
    opened.close()


def reread(path: Path, now: Now) -> BrakeMemory:
    """What a daemon that starts at this moment finds."""
    opened = Journal.open(path, LIMITS, "n1")
    try:
        return opened.brakes(now)
    finally:
        opened.close()


def test_an_intention_counts_for_the_brakes_from_its_commit_on(journal: Journal, path: Path) -> None:
    """Point 29 and 31: a kill -9 right after the intention leaves a deed that counts, whatever came of it."""
    journal.intend(entry(), KEYS, at(31))
    began = (Begun(at(31).boottime_s),)
    assert reread(path, at(40)).begun == {(): began, ("a",): began, OWNER: began}


def test_failed_deeds_count_too(journal: Journal, path: Path) -> None:
    """Point 29: a deed is a kill or an evict begun, whatever came of it."""
    for number in range(3):
        journal.end(journal.intend(entry(), KEYS, at(number)), Result.FAILED, "it forked", at(number))
    assert len(reread(path, at(10)).begun[OWNER]) == 3


def test_pruning_takes_nothing_from_the_brakes(journal: Journal, path: Path) -> None:
    """A journal that may keep a minute of the past must not make a window of ten minutes forget."""
    journal.released(journal.intend(entry(), KEYS, at(0)), at(1), 1.0, "")
    journal.end(1, Result.DONE, "", at(1))
    journal.prune(replace(at(2), boottime_s=at(0).boottime_s + 1e8, wall_s=at(0).wall_s + 1e8))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM deed").fetchone() == (0,)
    connection.close()
    assert len(reread(path, at(10)).begun[OWNER]) == 1


def test_a_jump_of_the_wall_clock_prunes_nothing_of_this_boot(journal: Journal, path: Path) -> None:
    """A wall clock that is 40 days ahead for a moment takes neither a deed that is waited for nor the history."""
    deed = journal.intend(entry(), KEYS, at(0))
    journal.end(journal.intend(entry(), KEYS, at(0)), Result.FAILED, "it forked", at(1))
    before = len(history(path, None, 0.0))
    journal.prune(replace(at(2), wall_s=at(2).wall_s + 40 * 86400))
    assert [each.deed for each in journal.unfinished()] == [deed]
    assert len(history(path, None, 0.0)) == before
    journal.prune(replace(at(2), boot_id="another", wall_s=at(2).wall_s + 40 * 86400))
    assert history(path, None, 0.0) == []


def _begin_anew(journal: Journal, path: Path) -> None:
    for each in path.parent.iterdir():
        each.unlink()
    with pytest.raises(JournalError):
        journal.intend(entry(), KEYS, at(50))
    assert journal.probe()


def test_a_journal_that_is_begun_anew_forgets_no_brake(journal: Journal, path: Path) -> None:
    """Who removes the file under a running daemon, or damages it, takes nothing from the brakes of the next one."""
    journal.end(journal.intend(entry(), KEYS, at(0)), Result.FAILED, "it forked", at(1))
    journal.breaker(at(5))
    kept = reread(path, at(60))
    assert kept.begun
    _begin_anew(journal, path)
    assert reread(path, at(60)) == kept


def test_a_journal_that_is_begun_anew_knows_the_deeds_under_way(journal: Journal, path: Path) -> None:
    """After it the next daemon still waits for what is under way, and no number stands for two deeds."""
    over = journal.intend(entry(), KEYS, at(0))
    journal.end(over, Result.FAILED, "it forked", at(1))
    under_way = journal.intend(entry(), KEYS, at(2))
    _begin_anew(journal, path)
    later = journal.intend(entry(), KEYS, at(60))
    assert later > under_way > over
    assert [each.deed for each in journal.unfinished()] == [under_way, later]
    journal.end(under_way, Result.DONE, "", at(61))
    journal.released(under_way, at(62), 60.0, "")
    assert [each.deed for each in journal.unfinished()] == [later]


def test_a_breaker_that_turns_while_the_disk_is_full_is_written_later(journal: Journal, path: Path) -> None:
    """What could not be written of the breaker is there once the journal takes writes again."""
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        journal.breaker(at(5))
        assert not journal.writable
        other.execute("ROLLBACK")
    other.close()
    assert reread(path, at(20)).opened is None
    assert journal.probe()
    assert reread(path, at(20)).opened == Begun(at(5).boottime_s)


def test_after_a_reboot_moments_are_taken_from_the_wall_clock(journal: Journal, path: Path) -> None:
    """Point 19: in another boot the age of a deed comes from the wall clock, and is never negative."""
    journal.intend(entry(), KEYS, at(0))
    journal.intend(entry(), KEYS, at(100))
    rebooted = Now(boottime_s=30.0, wall_s=at(60).wall_s, boot_id="another")
    assert [each.at_s for each in reread(path, rebooted).begun[OWNER]] == [-30.0, 30.0]


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
    """Names that the API would never give neither crash the journal nor fall together with others."""
    made = entry()
    odd = replace(made.assessment.pod, owner=replace(made.assessment.pod.workload, name="\udcff\x00x"))
    journal.intend(replace(made, assessment=replace(made.assessment, pod=odd)), KEYS, at(0))
    journal.intend(made, KEYS, at(0))
    assert len(reread(path, at(1)).begun[OWNER]) == 1


def test_a_journal_of_the_first_version_is_taken_on(path: Path) -> None:
    """An upgrade keeps the journal: its tables for the brakes are added, empty."""
    first = Journal.open(path, LIMITS, "n1")
    first.intend(entry(), KEYS, at(0))
    first.close()
    with sqlite3.connect(path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in set(tables) - {"occurrence", "deed", "sqlite_sequence"}:
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert reread(path, at(1)) == BrakeMemory()
