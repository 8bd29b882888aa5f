"""The journal on a disk that takes nothing (its file taken away, locked, full, read-only), and of a killed daemon."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, begin, events, sound, sql
from tests.node.support import cannot_run, need_root
from tests.report.build import entry
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal


@pytest.mark.parametrize("how", ["journal removed", "WAL removed", "journal replaced"])
def test_a_file_that_was_removed_or_replaced_gets_no_intention(journal: Journal, path: Path, how: str) -> None:
    """Point 31: an intention that no later daemon would find is none; the file is restored, and what was committed."""
    action = begin(journal)
    if how == "journal replaced":
        Journal.open(path.with_name("other.db"), LIMITS, "n1").close()
        path.with_name("other.db").rename(path)
    else:
        path.with_name("journal.db" if how == "journal removed" else "journal.db-wal").unlink()
    with pytest.raises(JournalError, match="was removed or replaced while it was open"):
        journal.intend(entry(), KEYS, at(40))
    assert not journal.writable
    journal.record_event("stopped", "kept in memory", at(41))
    assert journal.probe()
    later = journal.intend(entry(), KEYS, at(42))
    assert [found.number for found in journal.unfinished()] == [action, later]
    assert "stopped" in events(path)
    assert sound(path)


def test_a_locked_file_delays_nothing_for_long(journal: Journal, path: Path) -> None:
    """Point 31: while another process locks the file, intentions fail within about a second, and come back after it."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    begun = time.monotonic()
    with pytest.raises(JournalError, match="another process holds a lock on it"):
        journal.intend(entry(), KEYS, at(31))
    assert 0.5 < time.monotonic() - begun < 3
    assert not journal.writable
    begun = time.monotonic()
    assert not journal.probe()
    journal.record_event("stopped", "kept", at(32))
    assert time.monotonic() - begun < 0.5, "a probe and what is only kept must not wait"
    assert "locked" in journal.problem
    other.execute("ROLLBACK")
    other.close()
    assert journal.probe()
    assert journal.problem == ""
    assert events(path) == ["stopped"]
    assert journal.intend(entry(), KEYS, at(33)) > 0


def test_results_of_actions_are_dropped_last(journal: Journal, path: Path) -> None:
    """Points 22 and 31: after the longest outage the brakes count no withdrawn action, and none is unfinished."""
    withdrawn, killed = begin(journal), begin(journal)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        journal.withdraw(withdrawn, "its use fell", at(32))
        journal.end(killed, Result.DONE, "", at(33))
        journal.released(killed, at(34), 1.0, "")
        for second in range(1100):
            journal.record_event("stopped", "kept as long as there is room", at(35 + second))
        assert not journal.writable
    assert journal.probe()
    assert sql(path, "SELECT action_id FROM begun") == [(killed,)]
    rows = sql(path, "SELECT id, result, released_s IS NULL FROM action")
    assert rows == [(withdrawn, "withdrawn", 1), (killed, "done", 0)]
    assert events(path).count("records_lost") == 1


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_journal_that_closes_tries_for_a_while_and_says_what_is_lost(path: Path, *, is_freed: bool) -> None:
    """Point 31: what is queued is written if the disk takes it in time; otherwise it is named, with the cause."""
    journal = Journal.open(path, LIMITS, "n1")
    killed = begin(journal)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    journal.end(killed, Result.DONE, "", at(33))
    journal.record_event("stopped", "the last record", at(34))
    freeing = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    if is_freed:
        freeing.start()
    begun = time.monotonic()
    lost = journal.close(60.0 if is_freed else 0.1)
    assert time.monotonic() - begun < 10
    if is_freed:
        freeing.join()
        assert (lost, events(path)[-2:]) == ("", ["kill_ended", "stopped"])
    else:
        assert "another process holds a lock on it" in lost
        assert lost.endswith("records that are lost: 1 kill_ended, 1 stopped")
    other.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    need_root()
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        cannot_run(f"mount: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(folder: Path) -> Path:
    """A file that takes all the space there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return ballast


@pytest.mark.node
def test_a_full_disk(tiny_disk: Path) -> None:
    """Point 31: on a full disk no intention is reported as committed; with room again, all goes on."""
    path = tiny_disk / "journal.db"
    journal = Journal.open(path, LIMITS, "n1")
    begin(journal)
    ballast = fill_up(tiny_disk)
    with pytest.raises(JournalError, match=r"no space left|disk reports errors"):  # noqa: PT012
        while True:  # until the pages that are there already are used up
            journal.intend(entry(), KEYS, at(40))
    assert not journal.writable
    journal.record_event("stopped", "kept", at(41))
    assert not journal.probe()
    ballast.unlink()
    assert journal.probe()
    assert journal.intend(entry(), KEYS, at(42)) > 0
    assert "stopped" in events(path)
    journal.close()
    assert sound(path)


@pytest.mark.node
def test_no_room_for_a_new_journal(tiny_disk: Path) -> None:
    """A journal that can't be created is an error with the remedy, and leaves no half-made file."""
    ballast = fill_up(tiny_disk)
    with pytest.raises(JournalError, match="space"):
        Journal.open(tiny_disk / "journal.db", LIMITS, "n1")
    ballast.unlink()
    journal = Journal.open(tiny_disk / "journal.db", LIMITS, "n1")
    assert begin(journal) == 1
    journal.close()


@pytest.mark.node
def test_a_read_only_file_system(tiny_disk: Path) -> None:
    """A journal on a read-only mount is refused for writing, and read with all that its WAL holds."""
    path = tiny_disk / "journal.db"
    crashed = Journal.open(path, LIMITS, "n1")
    begin(crashed)
    copies = {file: file.read_bytes() for file in tiny_disk.iterdir() if not file.name.endswith("-shm")}
    crashed.close()
    for file, content in copies.items():
        file.write_bytes(content)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(JournalError, match="mount its folder writable"):
        Journal.open(path, LIMITS, "n1")
    assert events(path) == ["intended", "signalled"]
    subprocess.run(["mount", "-o", "remount,rw", str(tiny_disk)], check=True)
    (tiny_disk / "journal.db-wal").unlink()
    Journal.open(path, LIMITS, "n1").close()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    assert "signalled" not in events(path)
    subprocess.run(["mount", "-o", "remount,rw", str(tiny_disk)], check=True)


KILLED_CHILD = """
import sys
from pathlib import Path
from tests.report.build import entry
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.core.model import ProcessKey
from watchdog.journal.journal import Journal
limits = JournalLimits(max_size=300_000)
made = entry()
journal = Journal.open(Path(sys.argv[1]), limits, "n1")
for number in range(1_000_000):
    action = journal.intend(made, [ProcessKey(pid=5, start_ticks=number)], at(number))
    print(action, number, flush=True)
    if number % 3:
        journal.signalled(action, at(number), "SIGTERM", [ProcessKey(pid=5, start_ticks=number)])
    if number % 10 == 0:
        journal.end(action, Result.FAILED, "x" * 300, at(number))
    if number % 50 == 49:
        journal.prune(at(number))
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_it_whole(path: Path) -> None:
    """Point 31: killed at random moments, the file is sound and has every intention that was reported as committed."""
    dice = random.Random(7)
    reported: dict[int, int] = {}
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED_CHILD, str(path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(dice.randint(1, 20))]
            time.sleep(dice.uniform(0, 0.005))  # somewhere within the next commit
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.readlines()
        whole = [line.split() for line in lines if line.endswith("\n")]
        reported |= {int(action): int(number) for action, number in whole}
        assert len(events(path)) >= len(whole), "other processes read it before a daemon has opened it again"
        assert sound(path)
    journal = Journal.open(path, LIMITS, "n1")
    assert journal.notices == ()
    left = {action.number: action.targets[0].start_ticks for action in journal.unfinished()}
    journal.close()
    expected = {action: number for action, number in reported.items() if number % 10}
    assert len(expected) > 20
    missing = {action for action in expected if left.get(action) != expected[action]}
    assert missing == set()
