"""Files that are damaged, of another program, or of a newer version, and places where no journal can be."""

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, begin, sql, write_many
from tests.report.build import entry
from tests.worlds import at
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.read import history
from watchdog.journal.schema import MIGRATIONS


def test_a_damaged_file_is_moved_aside_and_never_deleted(path: Path) -> None:
    """A damaged journal stays on disk under another name; the daemon reports that and continues with a new one."""
    journal = Journal.open(path, LIMITS, "n1")
    write_many(journal, 100)
    journal.close()
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    path.write_bytes(content)
    second = Journal.open(path, LIMITS, "n1")
    (notice,) = second.notices
    (aside,) = path.parent.glob("journal.db.corrupt-*")
    assert str(aside) in notice
    assert aside.read_bytes() == content
    assert begin(second) == 1
    second.close()


@pytest.mark.parametrize("damage", [b"\x00" * 4096, b"SQLite format 3\x00" + b"\x07" * 5000, b"SQLite format 3\x00"])
def test_what_a_power_cut_leaves_is_moved_aside(path: Path, damage: bytes) -> None:
    """Zeros or a torn beginning, as file systems leave them, do not keep the daemon from starting."""
    path.parent.mkdir()
    path.write_bytes(damage)
    journal = Journal.open(path, LIMITS, "n1")
    assert "is damaged" in journal.notices[0]
    assert [file.read_bytes() for file in path.parent.glob("journal.db.corrupt-*")] == [damage]
    journal.close()


def test_the_wal_stays_with_the_file_that_it_is_of(path: Path) -> None:
    """It has the damaged journal's last records, and nothing of it may get into the new one."""
    path.parent.mkdir()
    path.write_bytes(b"\x00" * 4096)
    path.with_name("journal.db-wal").write_bytes(b"of before")
    Journal.open(path, LIMITS, "n1").close()
    assert [file.read_bytes() for file in path.parent.glob("journal.db.corrupt-*-wal")] == [b"of before"]


def test_damage_found_while_running_withholds_enforcement_and_is_repaired(path: Path) -> None:
    """Point 31: a journal that turns out damaged takes no intention; it is moved aside, and a new one takes them."""
    journal = Journal.open(path, LIMITS, "n1")
    write_many(journal, 200)
    journal._file.with_connection(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (len(content) - 4096))
    journal._file.with_connection(lambda connection: connection.execute("PRAGMA shrink_memory").fetchone())
    with suppress(sqlite3.DatabaseError):
        sql(path, "PRAGMA user_version = 1")  # makes the first one drop the pages that it remembers
    with pytest.raises(JournalError, match="is damaged"):
        journal.intend(entry(), KEYS, at(40))
    assert journal.probe()
    assert "it was moved to" in journal.notices[0]
    assert journal.intend(entry(), KEYS, at(41)) == 1
    journal.close()


@pytest.mark.parametrize("damage", ["'[[1'", "'[1]'", "CAST(x'5bff' AS TEXT)"])
def test_an_unfinished_action_that_cannot_be_read_is_damage(path: Path, damage: str) -> None:
    """Point 31: SQLite finds nothing wrong in the row of a flipped bit; what it loses is known only while running."""
    journal = Journal.open(path, LIMITS, "n1")
    number = begin(journal)
    sql(path, f"UPDATE action SET targets = {damage}")
    journal.probe()  # finds it
    assert journal.probe()
    assert "is damaged" in journal.notices[0]
    assert journal.kept.in_progress == {number}
    journal.close()
    sql(path, f"UPDATE action SET targets = {damage}")
    second = Journal.open(path, LIMITS, "n1")
    assert ("is damaged" in second.notices[0], second.is_blank, second.unfinished()) == (True, True, ())
    second.close()


@pytest.mark.parametrize("content", [b"root:x:0:0::/root:/bin/sh\n", b"\x7fELF", b"\x00" * 20 + b"x", None])
def test_a_file_of_another_program_is_left_alone(path: Path, content: bytes | None) -> None:
    """A mistaken `--journal` neither moves nor changes a file that never was a journal, a database included."""
    path.parent.mkdir()
    if content is None:
        sql(path, "CREATE TABLE mine (x)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"is not a journal but something else|is the database of something else"):
        Journal.open(path, LIMITS, "n1")
    with pytest.raises(JournalError, match="journal"):
        history(path, None, 0)
    assert path.read_bytes() == before


def test_a_newer_journal_is_refused_and_left_alone(path: Path) -> None:
    """After a downgrade the daemon does not write into tables that it does not know."""
    Journal.open(path, LIMITS, "n1").close()
    sql(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(JournalError, match="written by a newer gpu-watchdog"):
        Journal.open(path, LIMITS, "n1")
    with pytest.raises(JournalError, match="written by a newer gpu-watchdog"):
        history(path, None, 0)
    assert not list(path.parent.glob("*corrupt*"))


@pytest.mark.parametrize("where", ["file/journal.db", "folder"])
def test_an_unusable_place_is_an_error_with_the_remedy(tmp_path: Path, where: str) -> None:
    """A wrong `--journal` is an error that says what to do."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(JournalError, match=r"can't be opened: .*`--journal`"):
        Journal.open(tmp_path / where, LIMITS, "n1")
    with pytest.raises(JournalError, match=str(tmp_path)):
        history(tmp_path / where, None, 0)
