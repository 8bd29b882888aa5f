"""The lock beside the journal."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from watchdog.journal.lock import NodeLock

HOLD = """
import sys
from pathlib import Path
from watchdog.journal.lock import NodeLock
lock = NodeLock(Path(sys.argv[1]))
print("held" if lock.acquire() else lock.problem, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_daemon(journal: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that tries to take the lock and then waits."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(journal)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def output(child: subprocess.Popen[str]) -> str:
    """Its line after trying."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_second_daemon_does_not_get_the_lock(tmp_path: Path) -> None:
    """Point 32: one daemon per node; the second one reports who holds the lock."""
    journal = tmp_path / "journal.db"
    lock = NodeLock(journal)
    with another_daemon(journal) as child:
        assert output(child) == "held"
        assert not lock.acquire()
        assert not lock.held
        assert f"process {child.pid} holds the lock {journal}.lock" in lock.problem
        assert lock.holder == child.pid
        child.kill()
        child.wait()
    assert lock.acquire(), "the lock must be free once its holder is dead"
    assert (lock.held, lock.problem) == (True, "")
    lock.release()


def test_a_removed_lock_file_is_no_lock(tmp_path: Path) -> None:
    """Point 32: a lock on a removed file does not count as held; once acquired again, it keeps a second daemon out."""
    lock = NodeLock(tmp_path / "journal.db")
    assert lock.acquire()
    lock.path.unlink()
    assert not lock.held
    assert lock.acquire()
    assert lock.acquire(), "acquiring it again is no error"
    with another_daemon(tmp_path / "journal.db") as child:
        assert "another watchdog runs on this node" in output(child)
    lock.release()
    with another_daemon(tmp_path / "journal.db") as child:
        assert output(child) == "held"


def test_the_lock_makes_its_folder_and_closes_it_to_others(tmp_path: Path) -> None:
    """The first start on a fresh node needs no preparation, and no other user may write the file."""
    lock = NodeLock(tmp_path / "deep" / "er" / "journal.db")
    assert lock.acquire()
    assert lock.path.stat().st_mode & 0o777 == 0o600
    lock.release()


def test_an_unusable_folder_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    """If the lock file can't be created, the problem has the remedy."""
    (tmp_path / "file").write_text("")
    lock = NodeLock(tmp_path / "file" / "journal.db")
    assert not lock.acquire()
    assert "make its folder writable" in lock.problem


@pytest.mark.parametrize("content", [b"", b"nobody\n", b"\xff\xfe", b"9" * 100, "٣".encode()])
def test_a_lock_file_with_anything_in_it(tmp_path: Path, content: bytes) -> None:
    """The file's content is for people only: nonsense in it never stops the daemon."""
    lock = NodeLock(tmp_path / "journal.db")
    lock.path.write_bytes(content)
    assert lock.holder is None or lock.holder > 0
    assert lock.acquire()
    assert lock.path.read_text().strip().isdecimal()
    lock.release()
