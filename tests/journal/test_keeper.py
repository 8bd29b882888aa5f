"""The keeper of the lock and the journal: what it logs, and what it does not."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, sql
from tests.node.support import wait_until
from tests.report.build import entry
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.core.policy import Brakes, Window
from watchdog.journal.keeper import JournalKeeper, Restored
from watchdog.journal.lock import lock_path
from watchdog.journal.read import history
from watchdog.options import Options


@pytest.fixture
def reported() -> list[str]:
    """The messages of warnings and errors."""
    return []


def made(folder: Path, reported: list[str]) -> JournalKeeper:
    """A keeper that has not opened anything yet."""
    options = Options(node="n1", journal=folder / "journal.db")
    return JournalKeeper(options, LIMITS, {}, log_error=reported.append, recall=lambda *_: None)


def opened(keeper: JournalKeeper, seconds: float) -> Restored:
    """What an earlier daemon left, once the journal is open, however slow the disk is."""
    found: list[Restored] = []

    def is_open() -> bool:
        found.extend(filter(None, [keeper.maintain(at(seconds))]))
        return bool(found)

    wait_until(is_open)
    return found[0]


@pytest.fixture
def keeper(tmp_path: Path, reported: list[str]) -> Iterator[JournalKeeper]:
    """One whose journal is in the test's folder."""
    found = made(tmp_path, reported)
    yield found
    found.lock.release()
    assert found.record.close(5.0)


@contextmanager
def looked_at(journal: Path) -> Iterator[None]:
    """Another process has the lock for a moment as `stop`, `resume` and `doctor` have it; or does not give it back."""
    descriptor = os.open(lock_path(journal), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def test_each_damaged_journal_is_reported(keeper: JournalKeeper, reported: list[str], tmp_path: Path) -> None:
    """A journal that was moved aside is reported, also the second one in the life of a daemon."""
    journal = tmp_path / "journal.db"
    for number in (1, 2):
        journal.write_bytes(b"\x00" * 4096)
        opened(keeper, 10 * number)
        assert keeper.maintain(at(10 * number + 1)) is None
        assert len([each for each in reported if "is damaged" in each]) == number
        # Without its lock the journal is closed; it is reopened once the lock is had again.
        keeper.lock.path.unlink()
        with looked_at(journal):
            assert keeper.maintain(at(10 * number + 2)) is None


def test_a_lock_without_its_journal_is_a_loss_and_neither_of_them_a_new_node(
    keeper: JournalKeeper, reported: list[str], tmp_path: Path
) -> None:
    """Point 31: where an earlier daemon held the lock its journal is missing; where there was none the node is new."""
    found = opened(keeper, 1)
    assert found.brakes.lost_s is None
    assert keeper.record.close(10.0)
    keeper.lock.release()
    (tmp_path / "journal.db").unlink()
    other = made(tmp_path, reported)
    other.brakes = Brakes(node=Window(count=1, per_s=60.0))
    found = opened(other, 9)
    assert found.brakes.lost_s == at(9).boottime_s
    (printed,) = reported
    assert "node until" in printed
    assert other.record.close(10.0)
    other.lock.release()


def test_a_journal_with_an_action_that_cannot_be_read_is_replaced(
    keeper: JournalKeeper, reported: list[str], tmp_path: Path
) -> None:
    """Point 31: it counts as damaged, so every brake counts as full, and the next one opens."""
    opened(keeper, 1)
    keeper.record.intend(entry(), KEYS, at(2)).result(5.0)
    assert keeper.record.close(5.0)
    keeper.lock.release()
    sql(tmp_path / "journal.db", "UPDATE action SET targets = '[['")
    other = made(tmp_path, reported)
    found = opened(other, 3)
    assert (found.unfinished, found.brakes.lost_s) == ((), at(3).boottime_s)
    other.maintain(at(4))
    assert any("is damaged" in each for each in reported)
    assert other.record.close(5.0)
    other.lock.release()


def test_a_process_that_only_reads_the_lock_is_no_other_daemon(
    keeper: JournalKeeper, reported: list[str], tmp_path: Path
) -> None:
    """A single refusal is not reported, and without the lock there is no journal and so no action; then it is had."""
    with looked_at(tmp_path / "journal.db"):
        assert keeper.maintain(at(1)) is None
        assert (keeper.lock.held, keeper.record.is_open) == (False, False)
        assert "holds the lock" in keeper.problem
    opened(keeper, 2)
    assert (keeper.problem, reported) == ("", [])


def test_who_keeps_the_lock_is_named_once(keeper: JournalKeeper, reported: list[str], tmp_path: Path) -> None:
    """From the second refusal in a row on it is another daemon; the count starts over when the lock was had."""
    with looked_at(tmp_path / "journal.db"):
        for second in (1, 2, 3):
            keeper.maintain(at(second))
    (printed,) = reported
    assert "another watchdog runs on this node" in printed
    opened(keeper, 4)
    keeper.lock.release()
    with looked_at(tmp_path / "journal.db"):
        keeper.maintain(at(1000))
    opened(keeper, 1001)
    assert reported == [printed]


def test_what_comes_of_actions_while_the_journal_is_opened_again_is_not_lost(
    keeper: JournalKeeper, tmp_path: Path
) -> None:
    """Points 22 and 31: the brakes count no withdrawn action, and none is waited for whose memory is free."""
    opened(keeper, 1)
    withdrawn, killed = (keeper.record.intend(entry(), KEYS, at(2)).result(5.0) for _ in range(2))
    keeper.record.signalled(killed, at(2), "SIGTERM", KEYS)
    lock_path(tmp_path / "journal.db").unlink()
    slow = threading.Event()
    keeper.record.submit(lambda: slow.wait(10.0))
    assert keeper.maintain(at(3)) is None
    keeper.record.withdraw(withdrawn, "its use fell", at(3))
    keeper.record.signalled(killed, at(3), "SIGKILL", KEYS)
    keeper.record.end(killed, Result.DONE, "", at(3))
    keeper.record.released(killed, at(4), 1.0, "")
    slow.set()
    keeper.record.submit(lambda: None).result(5.0)
    found = opened(keeper, 5)
    assert ([len(each) for each in found.brakes.begun.values()], found.unfinished) == ([1, 1, 1], ())
    assert keeper.record.close(5.0)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as file:
        assert file.execute("SELECT action_id FROM begun").fetchall() == [(killed,)]
        rows = file.execute("SELECT id, result, released_s IS NULL FROM action").fetchall()
    assert rows == [(withdrawn, "withdrawn", 1), (killed, "done", 0)]
    printed = [(row.event, row.pod) for row in history(tmp_path / "journal.db", None, 0) if row.action_id == killed]
    assert printed == [(event, "trainer") for event in ("intended", "signalled", "signalled", "kill_ended", "released")]


def test_a_journal_that_cannot_be_opened_holds_up_the_loop_once(
    keeper: JournalKeeper, reported: list[str], tmp_path: Path
) -> None:
    """Law 10: a process that keeps the file locked costs one wait, and is reported all the time."""
    opened(keeper, 1)
    assert keeper.record.close(5.0)
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        keeper.maintain(at(2))
        while "locked" not in keeper.problem:
            time.sleep(0.05)
            keeper.maintain(at(3))
        began, problems = time.monotonic(), set()
        waited_s = 0.0
        while time.monotonic() - began < 2.5:
            before = time.monotonic()
            assert keeper.maintain(at(4)) is None
            waited_s += time.monotonic() - before
            problems.add(keeper.problem)
            time.sleep(0.05)
    assert (waited_s < 1.5, len(problems)) == (True, 1)  # of 2.5
    opened(keeper, 5)
    assert (keeper.problem, len(reported)) == ("", 2)


def test_the_journal_is_pruned_once_a_minute(keeper: JournalKeeper, tmp_path: Path) -> None:
    """Point 31: what is too old goes with the next pruning, and a pruning reads the whole file."""
    opened(keeper, 0)
    keeper.record.set_limits(replace(LIMITS, max_age_s=10.0))
    keeper.maintain(at(1))
    keeper.record.record_event("stopped", "x", at(2))
    kept = []
    for second in (50, 60, 61):
        keeper.maintain(at(second))
        keeper.record.submit(lambda: None).result(5.0)
        kept.append([row.event for row in history(tmp_path / "journal.db", None, 0)])
    assert kept == [["started", "stopped"], ["started", "stopped"], []]
