"""What the journal keeps of memory that changed hands."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.worlds import at
from watchdog.core.model import ProcessKey
from watchdog.core.policy import JournalLimits
from watchdog.core.transfers import Transfer, TransferWindow, Windows
from watchdog.journal.journal import Journal

KEY = ProcessKey(pid=7, start_ticks=70)
MOVED = Transfer(gpu="GPU-0", key=KEY, unknown=36, used=41, target="a/importer", source="b/exporter")
WINDOWS: Windows = {
    ("a", "Job", "train"): TransferWindow(began=at(1), transfers=(MOVED,)),
    ("a", "Pod", "other"): TransferWindow(began=at(2)),
}


def opened(path: Path) -> Windows:
    """The windows that a journal has."""
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        return journal.kept.transfers


def test_the_next_daemon_has_the_windows(tmp_path: Path) -> None:
    """Point 10: a restart opens no new window, and spares an importer no less."""
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        journal.transfers(WINDOWS)
    assert opened(path) == WINDOWS
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        journal.transfers({})
    assert opened(path) == {}


def test_of_a_damaged_row_the_time_counts(tmp_path: Path) -> None:
    """Point 10: a row that can't be read hides nothing, and its owner gets no new window."""
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        journal.transfers(WINDOWS)
    for text in ("", "{}", "[[1]]", '[["GPU-0", "x", 1, 1, 1, "a", "b"]]', "[null]"):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE transfer SET transfers = ?", (text,))
        found = opened(path)
        assert {owner: window.began for owner, window in found.items()} == {
            owner: window.began for owner, window in WINDOWS.items()
        }
        assert not any(window.transfers for window in found.values())
