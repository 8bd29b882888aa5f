"""What the journal keeps of pods that have left (point 28)."""

from dataclasses import replace
from pathlib import Path

from tests.journal.rig import LIMITS, sql
from tests.worlds import at, container, owner, pod
from watchdog.journal.journal import Journal

OFFENDER = pod(
    "a",
    container(declared="1Gi"),
    owner=owner(),
    labels={"tier": "a"},
    left_since=at(1),
    terminating_since=at(0),
    deletion_deadline_s=at(30).wall_s,
    is_finished=True,
)


def test_the_next_daemon_has_all_that_was_known(journal: Journal, path: Path) -> None:
    """Identity, containers, amounts and times are as they were; who is forgotten is gone from the disk too."""
    other = replace(OFFENDER, uid="b")
    journal.left((OFFENDER, other))
    assert _reopened(path) == (OFFENDER, other)
    journal.left((other,))
    assert _reopened(path) == (other,)
    journal.left(())
    assert _reopened(path) == ()


def test_a_row_that_cannot_be_read_costs_no_other(journal: Journal, path: Path) -> None:
    """A damaged row is skipped, and so is a pod that can't be written."""
    journal.left((replace(OFFENDER, uid="c", name="\ud800"), OFFENDER))
    sql(path, "INSERT INTO left_pod VALUES ('x', x'00ff')")
    assert _reopened(path) == (OFFENDER,)


def test_a_new_file_gets_what_is_remembered(journal: Journal, path: Path) -> None:
    """Point 31: a running daemon never knows less than it did before."""
    journal.left((OFFENDER,))
    sql(path, "DELETE FROM left_pod")
    with_memory = Journal.open(path, LIMITS, "n1", kept=journal.kept)
    with_memory.close()
    assert _reopened(path) == (OFFENDER,)


def _reopened(path: Path) -> tuple[object, ...]:
    following = Journal.open(path, LIMITS, "n1")
    following.close()
    return following.kept.left
