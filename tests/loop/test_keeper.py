"""The keeper of the lock and the journal: what it says aloud, and what it keeps to itself."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worlds import at
from watchdog.core.policy import JournalLimits
from watchdog.export.lock import lock_path
from watchdog.loop.keeper import Ears, Keeper

LIMITS = JournalLimits()


@pytest.fixture
def said() -> list[str]:
    """What was said loudly."""
    return []


@pytest.fixture
def keeper(tmp_path: Path, said: list[str]) -> Iterator[Keeper]:
    """A keeper that has not looked yet."""
    made = Keeper(tmp_path / "journal.db", "n1", LIMITS, {}, Ears(loud=said.append, recall=lambda *_: None))
    yield made
    made.lock.release()
    if made.record.journal is not None:
        made.record.journal.close()


@contextmanager
def looked_at(journal: Path) -> Iterator[None]:
    """Somebody has the lock for a moment as `stop`, `resume` and `doctor` have it; or does not give it back."""
    descriptor = os.open(lock_path(journal), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def test_each_damaged_journal_is_said(keeper: Keeper, said: list[str], tmp_path: Path) -> None:
    """A journal that was moved aside is told of, also the second one in the life of a daemon."""
    journal = tmp_path / "journal.db"
    for number in (1, 2):
        journal.write_bytes(b"\x00" * 4096)
        assert keeper.tend(at(10 * number)) is not None
        assert keeper.tend(at(10 * number + 1)) is None
        assert len([each for each in said if "is damaged" in each]) == number
        # Without its lock the journal is closed; it is opened anew once the lock is had again.
        keeper.lock.path.unlink()
        with looked_at(journal):
            assert keeper.tend(at(10 * number + 2)) is None


def test_who_only_looks_at_the_lock_is_no_other_daemon(keeper: Keeper, said: list[str], tmp_path: Path) -> None:
    """A single refusal is told to nobody, and without the lock there is no journal and so no deed; then it is had."""
    with looked_at(tmp_path / "journal.db"):
        assert keeper.tend(at(1)) is None
        assert not keeper.lock.held
        assert keeper.record.journal is None
        assert "holds the lock" in keeper.problem
    assert keeper.tend(at(2)) is not None
    assert (keeper.problem, said) == ("", [])


def test_who_keeps_the_lock_is_named_once(keeper: Keeper, said: list[str], tmp_path: Path) -> None:
    """From the second refusal in a row on it is another daemon; the count begins anew when the lock was had."""
    with looked_at(tmp_path / "journal.db"):
        for second in (1, 2, 3):
            keeper.tend(at(second))
    (told,) = said
    assert "another watchdog runs on this node" in told
    assert keeper.tend(at(4)) is not None
    keeper.lock.release()
    with looked_at(tmp_path / "journal.db"):
        keeper.tend(at(1000))
    assert keeper.tend(at(1001)) is not None
    assert said == [told]
