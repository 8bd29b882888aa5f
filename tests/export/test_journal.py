"""The journal: on disk before it is done, whole after any end, small for ever, readable by others."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.build import Story, climbing, entry, hostile_pod, killed, outcome, quiet, trainer, withheld
from tests.worlds import Gi, at, process, snapshot, use
from watchdog.core.brakes import Brake
from watchdog.core.findings import AccountKey
from watchdog.core.model import Gap, GapReason, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.export.journal import Journal, JournalError
from watchdog.export.journal_read import history
from watchdog.export.journal_rows import INSERT, base_row, bound
from watchdog.export.journal_schema import MIGRATIONS

KEYS = (ProcessKey(pid=101, start_ticks=1010), ProcessKey(pid=102, start_ticks=1020))
LIMITS = JournalLimits()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal.open(path, LIMITS, "n1")
    yield journal
    journal.close()


def events(path: Path, pod: str | None = None) -> list[str]:
    """The events that another process reads."""
    return [row.event for row in history(path, pod, 0)]


def sound(path: Path) -> bool:
    """Whether SQLite finds nothing wrong in the file."""
    with sqlite3.connect(path) as connection:
        said: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return said == "ok"


def begin(journal: Journal) -> int:
    """A deed that has begun."""
    deed = journal.intend(entry(), KEYS, at(31))
    journal.signalled(deed, at(31), "SIGTERM", KEYS)
    return deed


def test_a_deed_from_the_intention_to_the_release(journal: Journal, path: Path) -> None:
    """Every stage of a kill is there, with all that explains it, for whoever asks later."""
    deed = begin(journal)
    journal.signalled(deed, at(41), "SIGKILL", KEYS[:1])
    journal.end(deed, Result.DONE, "", at(41.5))
    journal.released(deed, at(42), 11.0, "")
    rows = history(path, "a/trainer", at(0).wall_s)
    assert [row.event for row in rows] == ["intended", "signalled", "signalled", "kill_ended", "released"]
    for row in rows:
        assert (row.node, row.namespace, row.pod, row.uid, row.container) == ("n1", "a", "trainer", "u1", "main")
        assert (row.owner_kind, row.owner_name, row.rule, row.step, row.do, row.scope) == (
            "Job", "train", "notebooks", 1, "kill", "container",
        )  # fmt: skip
        assert (row.used, row.declared, row.declared_by) == (13314398617, 8 * Gi, "veriff.com/gpu-memory")
        assert (row.mark, row.allowed, row.deed) == ("above 110% for 10s", 10909216931, deed)
        assert row.boot_id == at(0).boot_id
    assert "Killing 2 processes of container main: SIGTERM, then SIGKILL after 10s." in rows[0].sentence
    assert rows[2].sentence == "Pod a/trainer: SIGKILL to 1 process of container main: 101."
    assert rows[3].sentence == "Pod a/trainer: container main was killed by rule notebooks (above 110% for 10s)."
    assert rows[4].sentence == "Pod a/trainer: the memory of container main was free 11s after the first signal."
    assert (rows[0].at, rows[4].boottime_s) == ("2027-01-15T08:00:31.000Z", 1042.0)
    assert journal.unfinished() == ()


def test_the_intention_is_on_disk_before_the_call_returns(journal: Journal, path: Path) -> None:
    """Point 31: the intention is committed before the first signal: another process sees it at once."""
    deed = journal.intend(entry(), KEYS, at(31))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT id, uid, victim, targets FROM deed").fetchall() == [
            (deed, "u1", "main", "[[101, 1010], [102, 1020]]")
        ]
    other.close()


def test_commits_are_synced(journal: Journal) -> None:
    """Point 31: `synchronous=FULL`, in WAL mode: a commit survives a power cut."""
    connection = journal._file._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("stage", "result"),
    [("intended", None), ("signalled", None), ("done", Result.DONE), ("stopped", Result.INTERRUPTED)],
)
def test_a_new_life_finds_what_the_old_one_left(path: Path, stage: str, result: Result | None) -> None:
    """Point 31: after a crash at any stage the deed is found: one wait too many, never a second kill."""
    journal = Journal.open(path, LIMITS, "n1")
    deed = journal.intend(entry(), KEYS, at(31))
    if stage != "intended":
        journal.signalled(deed, at(31), "SIGTERM", KEYS)
    if result is not None:
        journal.end(deed, result, "", at(32))
    journal.close()
    second = Journal.open(path, LIMITS, "n1")
    (found,) = second.unfinished()
    assert (found.deed, found.uid, found.account) == (deed, "u1", AccountKey(uid="u1"))
    assert (found.step, found.victim, found.targets) == (1, "main", KEYS)
    assert (found.began, found.result) == (at(31), result)
    second.end(deed, Result.INTERRUPTED, "the daemon was restarted", at(90))
    second.released(deed, at(91), None, "nobody watched")
    assert second.unfinished() == ()
    assert "Pod a/trainer: the memory of container main has not been seen free: nobody watched." in (
        row.sentence for row in history(path, "a/trainer", 0)
    )
    second.close()


@pytest.mark.parametrize("result", [Result.FAILED, Result.BLOCKED, Result.GONE])
def test_a_deed_that_came_to_nothing_is_finished(journal: Journal, result: Result) -> None:
    """Point 27: a deed that failed is not under way, so nobody waits for its memory."""
    journal.end(begin(journal), result, "x", at(32))
    assert journal.unfinished() == ()


def test_numbers_of_deeds_are_never_used_again(path: Path) -> None:
    """A number names one deed for ever, also after old ones have been deleted."""
    journal = Journal.open(path, JournalLimits(max_age_s=60), "n1")
    first = begin(journal)
    journal.end(first, Result.GONE, "", at(32))
    journal.prune(at(40_000_000))
    assert events(path) == []
    assert journal.intend(entry(), KEYS, at(40_000_000)) > first
    journal.close()


KILLED_CHILD = """
import sys
from pathlib import Path
from tests.export.build import entry
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.core.model import ProcessKey
from watchdog.export.journal import Journal
limits = JournalLimits(max_size=300_000)
made = entry()
journal = Journal.open(Path(sys.argv[1]), limits, "n1")
for number in range(1_000_000):
    deed = journal.intend(made, [ProcessKey(pid=5, start_ticks=number)], at(number))
    print(deed, number, flush=True)
    if number % 3:
        journal.signalled(deed, at(number), "SIGTERM", [ProcessKey(pid=5, start_ticks=number)])
    if number % 10 == 0:
        journal.end(deed, Result.FAILED, "x" * 300, at(number))
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
            first = child.stdout.readline()
            time.sleep(dice.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            lines = [first, *child.stdout.readlines()]
        whole = [line.split() for line in lines if line.endswith("\n")]
        reported |= {int(deed): int(number) for deed, number in whole}
        assert sound(path)
    journal = Journal.open(path, LIMITS, "n1")
    assert journal.notices == ()
    left = {deed.deed: deed.targets[0].start_ticks for deed in journal.unfinished()}
    journal.close()
    expected = {deed: number for deed, number in reported.items() if number % 10}
    assert len(expected) > 20  # how many depends on the disk
    missing = {deed for deed in expected if left.get(deed) != expected[deed]}
    assert missing == set()


def test_at_rest_nothing_is_written(journal: Journal, path: Path) -> None:
    """A node on which nothing happens grows no journal."""
    wal = path.with_name("journal.db-wal")
    journal.record(quiet(0))
    assert events(path) == ["policy_loaded"]
    before = wal.stat().st_size
    for second in range(1, 200):
        journal.record(quiet(second))
    assert wal.stat().st_size == before
    assert events(path) == ["policy_loaded"]


def test_what_is_new_is_written_once(journal: Journal, path: Path) -> None:
    """Each occurrence that a report has besides deeds is there once, with its sentence."""
    gap = Gap(reason=GapReason.GPU_LOST, what="GPU-1", why="lost")
    spoiled = trainer(containers=(replace(trainer().containers[0], resources={"veriff.com/gpu-memory": "8 GB"}),))
    journal.record(quiet(0, suspended=("lock",), enforcing=False))
    seen = Story(pods=(spoiled,)).see(snapshot([use(101, 1)], [process(101, "u1/main")], second=1, gaps=(gap,)))
    warned = outcome(entry(climbing(5), "warn"))
    would = outcome(result=Result.OBSERVED)
    held = withheld(Brake.PROTECTED)
    eventful = replace(seen, outcomes=(warned, would), plan=replace(seen.plan, entries=(held,)))
    journal.record(eventful)
    assert events(path) == [
        "policy_loaded", "suspended", "resumed", "gap_began", "misdeclared", "withheld", "warned", "would_act",
    ]  # fmt: skip
    rows = {row.event: row for row in history(path, None, 0)}
    assert rows["withheld"].detail == "protected"
    assert rows["would_act"].sentence.endswith("Nothing is done: enforcement was suspended.")
    assert rows["misdeclared"].pod == "trainer"
    assert rows["policy_loaded"].detail == "ab" * 32
    assert all(row.policy == "ab" * 32 for row in rows.values())


def test_what_deeds_write_themselves_is_not_written_twice(journal: Journal, path: Path) -> None:
    """A kill stands in the journal once, although the report tells of it too; one that never began comes from there."""
    gone = outcome(result=Result.GONE, reason="its processes had ended")
    journal.record(quiet(1, began=(killed(),), outcomes=(killed(release_s=1.0), gone)))
    assert events(path) == ["policy_loaded", "kill_ended", "explained"]
    assert history(path, None, 0)[1].result == "gone"
    assert "To prevent it" in history(path, None, 0)[2].sentence


def test_hostile_names_and_numbers_are_written(journal: Journal, path: Path) -> None:
    """Nothing that a tenant writes makes a row fail or puts a control character into it."""
    pod = hostile_pod(name="\udc80\x00")
    made = entry()
    assessment = replace(made.assessment, pod=pod, used=2**70, used_at_least=2**70, declared=-(2**80))
    made = replace(made, assessment=assessment, victim="\udcff\n")
    journal.end(journal.intend(made, KEYS, at(31)), Result.FAILED, "\x1b" * 5000, at(32))
    assert journal.writable
    for row in history(path, None, 0):
        assert row.used == 2**63 - 1
        assert all(str(value).isprintable() for value in (row.pod, row.container, row.sentence, row.reason))
        assert json.dumps([row.pod, row.sentence], ensure_ascii=False).encode()


def test_the_file_is_for_its_owner_alone(journal: Journal, path: Path) -> None:
    """What tenants run is nobody else's business: 0600, for the WAL too, and again after a careless chmod."""
    journal.note("started", "x", at(0))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    assert modes == {"journal.db": "0o600", "journal.db-wal": "0o600", "journal.db-shm": "0o600"}
    journal.close()
    path.chmod(0o644)
    Journal.open(path, LIMITS, "n1").close()
    assert path.stat().st_mode & 0o777 == 0o600


def write_many(journal: Journal, rows: int, second: float = 0) -> None:
    """Many rows of a kilobyte, in one transaction: a slow disk would take long for as many commits."""
    made = [base_row("started", "n1", at(second + number), "x" * 1000) for number in range(rows)]
    journal._submit([(INSERT, bound(row)) for row in made])


def test_old_rows_go_and_unfinished_deeds_stay(path: Path) -> None:
    """What is older than `max_age` is deleted; an unfinished deed never is, nor the intention that explains it."""
    journal = Journal.open(path, JournalLimits(max_age_s=60), "n1")
    write_many(journal, 50)
    open_deed = begin(journal)
    done = begin(journal)
    journal.end(done, Result.DONE, "", at(33))
    journal.released(done, at(34), 1.0, "")
    journal.prune(at(80))
    assert len(events(path)) > 30
    journal.prune(at(100))
    rows = history(path, None, 0)
    assert {row.deed for row in rows if row.wall_s < at(40).wall_s} == {open_deed}
    assert [row.event for row in rows if row.deed == open_deed] == ["intended", "signalled"]
    assert [deed.deed for deed in journal.unfinished()] == [open_deed]
    journal.close()


def test_the_size_is_bounded(path: Path) -> None:
    """The file never outgrows `max_size` for long, whatever the age of its rows; the newest rows are what stays."""
    limits = JournalLimits(max_size=512 * 1024)
    journal = Journal.open(path, limits, "n1")
    open_deed = begin(journal)
    for batch in range(6):
        write_many(journal, 400, 100 + batch * 500)
        journal.prune(at(4000))
        assert journal.writable
        journal._file.use(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
        assert path.stat().st_size <= limits.max_size
    rows = history(path, None, 0)
    assert rows[-1].wall_s == at(100 + 5 * 500 + 399).wall_s
    assert len(rows) > 50
    assert [deed.deed for deed in journal.unfinished()] == [open_deed]
    journal.close()
    assert sound(path)


def test_a_bound_that_nothing_can_meet_ends(path: Path) -> None:
    """Where unfinished deeds alone are more than `max_size`, pruning gives up instead of turning for ever."""
    journal = Journal.open(path, JournalLimits(max_size=1), "n1")
    begin(journal)
    journal.prune(at(40))
    assert journal.writable
    assert len(journal.unfinished()) == 1
    journal.close()


def test_a_removed_file_gets_no_intention(journal: Journal, path: Path) -> None:
    """Point 31: an intention that nobody would find is none: a file removed while open is noticed and begun anew."""
    begin(journal)
    path.unlink()
    with pytest.raises(JournalError, match="was removed or replaced while it was open"):
        journal.intend(entry(), KEYS, at(40))
    assert not journal.writable
    journal.note("stopped", "kept in memory", at(41))
    assert journal.probe()
    assert journal.intend(entry(), KEYS, at(42)) > 0
    assert events(path) == ["stopped", "intended"]
    assert sound(path)


def test_a_removed_wal_is_noticed(journal: Journal, path: Path) -> None:
    """Point 31: the same for the WAL, where a commit would be lost as well; what was committed is not."""
    deed = begin(journal)
    path.with_name("journal.db-wal").unlink()
    with pytest.raises(JournalError, match="removed or replaced"):
        journal.intend(entry(), KEYS, at(40))
    assert journal.probe()
    assert [found.deed for found in journal.unfinished()] == [deed]


def test_a_replaced_file_gets_no_intention(journal: Journal, path: Path) -> None:
    """Point 31: another file under the same name is not the journal that was opened."""
    other = path.with_name("other.db")
    Journal.open(other, LIMITS, "n1").close()
    other.rename(path)
    with pytest.raises(JournalError, match="removed or replaced"):
        journal.intend(entry(), KEYS, at(40))
    assert journal.probe()


def test_a_locked_file_makes_nobody_wait_long(journal: Journal, path: Path) -> None:
    """Point 31: while another process locks the file, intentions fail within about a second, and come back after it."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    begun = time.monotonic()
    with pytest.raises(JournalError, match="another process keeps it locked"):
        journal.intend(entry(), KEYS, at(31))
    assert 0.5 < time.monotonic() - begun < 3
    assert not journal.writable
    begun = time.monotonic()
    assert not journal.probe()
    journal.note("stopped", "kept", at(32))
    assert time.monotonic() - begun < 0.5, "a probe and what is only kept must not wait"
    assert "locked" in journal.problem
    other.execute("ROLLBACK")
    other.close()
    assert journal.probe()
    assert journal.problem == ""
    assert events(path) == ["stopped"]
    assert journal.intend(entry(), KEYS, at(33)) > 0


def test_what_waits_is_bounded_and_the_loss_is_told(journal: Journal, path: Path) -> None:
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


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        _cannot("a small file system takes root to mount")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        _cannot(f"mount: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _cannot(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def fill_up(folder: Path) -> Path:
    """A file that takes all the space there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return ballast


def intend_until_it_fails(journal: Journal) -> None:
    """Intentions until the pages that are there already are used up."""
    for _ in range(2000):
        journal.intend(entry(), KEYS, at(40))


@pytest.mark.node
def test_a_full_disk(tiny_disk: Path) -> None:
    """Point 31: on a full disk no intention is reported as committed; with room again, all goes on."""
    path = tiny_disk / "journal.db"
    journal = Journal.open(path, LIMITS, "n1")
    begin(journal)
    ballast = fill_up(tiny_disk)
    with pytest.raises(JournalError, match=r"no space left|disk gives errors"):
        intend_until_it_fails(journal)
    assert not journal.writable
    journal.note("stopped", "kept", at(41))
    assert not journal.probe()
    ballast.unlink()
    assert journal.probe()
    assert journal.intend(entry(), KEYS, at(42)) > 0
    assert "stopped" in events(path)
    journal.close()
    assert sound(path)


@pytest.mark.node
def test_no_room_for_a_new_journal(tiny_disk: Path) -> None:
    """A journal that can't be begun is told with the remedy, and leaves no half-made file that would be refused."""
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


def test_a_damaged_file_is_moved_aside_and_never_deleted(path: Path) -> None:
    """A damaged journal stays on disk under another name; the daemon says so and goes on with a new one."""
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


def test_damage_found_while_running_withholds_force_and_heals(path: Path) -> None:
    """Point 31: a journal that turns out damaged takes no intention; it is moved aside, and a new one takes them."""
    journal = Journal.open(path, LIMITS, "n1")
    write_many(journal, 200)
    journal._file.use(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (len(content) - 4096))
    journal._file.use(lambda connection: connection.execute("PRAGMA shrink_memory").fetchone())
    other = sqlite3.connect(path)  # makes the first one drop the pages that it remembers
    with suppress(sqlite3.DatabaseError), other:
        other.execute("PRAGMA user_version = 1")
    other.close()
    with pytest.raises(JournalError, match="is damaged"):
        journal.intend(entry(), KEYS, at(40))
    assert journal.probe()
    assert "it was moved to" in journal.notices[0]
    assert journal.intend(entry(), KEYS, at(41)) == 1
    journal.close()


@pytest.mark.parametrize("content", [b"root:x:0:0::/root:/bin/sh\n", b"\x7fELF", b"\x00" * 20 + b"x"])
def test_a_file_of_somebody_else_is_left_alone(path: Path, content: bytes) -> None:
    """A mistaken `--journal` neither moves nor changes a file that never was a journal."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is not a journal but something else"):
        Journal.open(path, LIMITS, "n1")
    assert path.read_bytes() == content
    with pytest.raises(JournalError, match="journal"):
        history(path, None, 0)


def test_a_database_of_somebody_else_is_left_alone(path: Path) -> None:
    """The same for a database of another program."""
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    content = path.read_bytes()
    with pytest.raises(JournalError, match="is the database of something else"):
        Journal.open(path, LIMITS, "n1")
    with pytest.raises(JournalError, match="is not a journal but something else"):
        history(path, None, 0)
    assert path.read_bytes() == content


def test_a_newer_journal_is_refused_and_left_alone(path: Path) -> None:
    """After a downgrade the daemon does not write into tables that it does not know."""
    Journal.open(path, LIMITS, "n1").close()
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    other.close()
    with pytest.raises(JournalError, match="written by a newer gpu-watchdog"):
        Journal.open(path, LIMITS, "n1")
    with pytest.raises(JournalError, match="written by a newer gpu-watchdog"):
        history(path, None, 0)
    assert not list(path.parent.glob("*corrupt*"))


@pytest.mark.parametrize("where", ["file/journal.db", "folder"])
def test_a_place_that_cannot_be_used_is_told_with_the_remedy(tmp_path: Path, where: str) -> None:
    """What an operator typed wrong is told in a sentence with what to do."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(JournalError, match=r"can't be opened: .*`--journal`"):
        Journal.open(tmp_path / where, LIMITS, "n1")
    with pytest.raises(JournalError, match=str(tmp_path)):
        history(tmp_path / where, None, 0)


def test_history_of_one_pod_since_a_moment(journal: Journal, path: Path) -> None:
    """Whoever asks for a pod and a time gets exactly that, oldest first."""
    begin(journal)
    journal.note("started", "x", at(100))
    assert events(path) == ["intended", "signalled", "started"]
    assert events(path, "a/trainer") == ["intended", "signalled"]
    assert events(path, "a/train") == []
    assert [row.event for row in history(path, None, at(99).wall_s)] == ["started"]


def test_history_without_a_journal(tmp_path: Path) -> None:
    """Where no daemon has run, that is what one is told, and no file is made."""
    with pytest.raises(JournalError, match="no daemon has run here"):
        history(tmp_path / "journal.db", None, 0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with pytest.raises(JournalError, match=r"is not a journal|is empty"):
        history(tmp_path / "empty.db", None, 0)


def test_history_of_a_daemon_that_was_killed(path: Path) -> None:
    """What a killed daemon had committed is read although nobody has folded its WAL in."""
    code = "import os, sys; from pathlib import Path; from tests.export.test_journal import *; "
    code += "begin(Journal.open(Path(sys.argv[1]), LIMITS, 'n1')); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    assert path.with_name("journal.db-wal").stat().st_size > 0
    assert events(path) == ["intended", "signalled"]


def test_a_name_with_signs_of_a_uri(tmp_path: Path) -> None:
    """Signs that mean something in a URI are signs of a file's name here."""
    path = tmp_path / "odd?name=#1%20.db"
    Journal.open(path, LIMITS, "n1").close()
    with pytest.raises(JournalError, match="no daemon has run here"):
        history(tmp_path / "odd", None, 0)
    assert history(path, None, 0) == []


def test_the_thread_that_opened_it(journal: Journal) -> None:
    """A call from another thread is a mistake in the daemon that must not pass unseen."""
    failures: list[Exception] = []

    def call() -> None:
        try:
            journal.intend(entry(), KEYS, at(1))
        except JournalError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "thread" in str(failures[0])
