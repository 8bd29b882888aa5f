"""The journal kept within its bounds."""

from pathlib import Path

from tests.journal.rig import begin, events, sound, write_many
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.read import history


def test_old_rows_go_and_unfinished_actions_stay(path: Path) -> None:
    """What is older than `max_age` is deleted; an unfinished action never is, nor the intention that explains it."""
    journal = Journal.open(path, JournalLimits(max_age_s=60), "n1")
    write_many(journal, 50)
    unfinished = begin(journal)
    done = begin(journal)
    journal.end(done, Result.DONE, "", at(33))
    journal.released(done, at(34), 1.0, "")
    journal.prune(at(80))
    assert len(events(path)) > 30
    journal.prune(at(100))
    rows = history(path, None, 0)
    assert {row.action_id for row in rows if row.wall_s < at(40).wall_s} == {unfinished}
    assert [row.event for row in rows if row.action_id == unfinished] == ["intended", "signalled"]
    assert [action.number for action in journal.unfinished()] == [unfinished]
    journal.close()


def test_the_size_is_bounded(path: Path) -> None:
    """The file never outgrows `max_size` for long, whatever the age of its rows; the newest rows are what stays."""
    limits = JournalLimits(max_size=512 * 1024)
    journal = Journal.open(path, limits, "n1")
    unfinished = begin(journal)
    for batch in range(6):
        write_many(journal, 400, 100 + batch * 500)
        journal.prune(at(4000))
        assert journal.writable
        journal._file.use(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
        assert path.stat().st_size <= limits.max_size
    rows = history(path, None, 0)
    assert rows[-1].wall_s == at(100 + 5 * 500 + 399).wall_s
    assert len(rows) > 50
    assert [action.number for action in journal.unfinished()] == [unfinished]
    journal.close()
    assert sound(path)


def test_a_bound_that_nothing_can_meet_ends(path: Path) -> None:
    """If unfinished actions alone exceed `max_size`, pruning gives up instead of looping for ever."""
    journal = Journal.open(path, JournalLimits(max_size=1), "n1")
    begin(journal)
    journal.prune(at(40))
    assert journal.writable
    assert len(journal.unfinished()) == 1
    journal.close()


def test_what_waits_is_bounded_and_the_loss_is_reported(journal: Journal, path: Path) -> None:
    """A long failure takes no endless memory; how many records were lost is written afterwards."""
    moved = path.rename(path.with_name("elsewhere"))
    for second in range(1100):
        journal.note("started", str(second), at(second))
    moved.rename(path)
    assert journal.probe()
    rows = history(path, None, 0)
    assert [row.sentence for row in rows if row.event == "records_lost"] == [
        "100 records before this one were lost while the journal could not be written."
    ]
    assert [row.sentence for row in rows if row.event == "started"] == [str(second) for second in range(100, 1100)]
