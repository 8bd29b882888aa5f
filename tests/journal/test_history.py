"""The journal as other processes read it."""

from pathlib import Path

import pytest

from tests.journal.rig import LIMITS, begin, events
from tests.worlds import at
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.read import history


def test_history_of_one_pod_since_a_moment(journal: Journal, path: Path) -> None:
    """A query for a pod and a time gives exactly that, oldest first."""
    begin(journal)
    journal.note("started", "x", at(100))
    assert events(path) == ["intended", "signalled", "started"]
    assert events(path, "a/trainer") == ["intended", "signalled"]
    assert events(path, "a/train") == []
    assert [row.event for row in history(path, None, at(99).wall_s)] == ["started"]


def test_history_without_a_journal(tmp_path: Path) -> None:
    """If no daemon has run, that is the error, and no file is created."""
    with pytest.raises(JournalError, match="there is no journal"):
        history(tmp_path / "journal.db", None, 0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalError, match=r"is not a journal|is empty"):
        history(tmp_path / "empty.db", None, 0)


def test_a_name_with_characters_of_a_uri(tmp_path: Path) -> None:
    """Characters with a meaning in a URI are part of the file's name."""
    path = tmp_path / "odd?name=#1%20.db"
    Journal.open(path, LIMITS, "n1").close()
    with pytest.raises(JournalError, match="there is no journal"):
        history(tmp_path / "odd", None, 0)
    assert history(path, None, 0) == []
