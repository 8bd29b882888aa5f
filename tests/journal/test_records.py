"""The journal: on disk before the action, intact after any crash, bounded, and readable by others."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.rig import KEYS, LIMITS, begin, events, sound, sql, write_many
from tests.report.build import Story, climbing, entry, hostile_pod, killed, outcome, quiet, record, trainer, withheld
from tests.worlds import Gi, at, process, snapshot, use
from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.read import history


@pytest.mark.parametrize("result", [Result.DONE, Result.FAILED])
def test_an_action_from_the_intention_to_the_release(journal: Journal, path: Path, result: Result) -> None:
    """Every stage of a kill is there, with all that explains it; one that has failed may wait for its memory too."""
    action = begin(journal)
    journal.signalled(action, at(41), "SIGKILL", KEYS[:1])
    journal.end(action, result, "", at(41.5))
    journal.released(action, at(42), 11.0, "")
    rows = history(path, "a/trainer", at(0).wall_s)
    assert [row.event for row in rows] == ["intended", "signalled", "signalled", "kill_ended", "released"]
    for row in rows:
        assert (row.node, row.namespace, row.pod, row.uid, row.container) == ("n1", "a", "trainer", "u1", "main")
        assert (row.owner_kind, row.owner_name, row.rule, row.step, row.do, row.scope) == (
            "Job", "train", "notebooks", 1, "kill", "container",
        )  # fmt: skip
        assert (row.used, row.declared, row.declared_by) == (13314398617, 8 * Gi, "veriff.com/gpu-memory")
        assert (row.threshold, row.allowed, row.action_id) == ("above 110% for 10s", 10909216931, action)
        assert row.boot_id == at(0).boot_id
    assert all(
        each in row.sentence for row, each in zip(rows, ("SIGTERM", "", "101", "notebooks", "11s"), strict=False)
    )
    assert (rows[0].at, rows[4].boottime_s) == ("2027-01-15T08:00:31.000Z", 1042.0)
    assert journal.unfinished() == ()


def test_the_intention_is_on_disk_before_the_call_returns(journal: Journal, path: Path) -> None:
    """Point 31: the intention is committed before the first signal: another process sees it at once."""
    action = journal.intend(entry(), KEYS, at(31))
    row = (action, "u1", "main", "[[101, 1010], [102, 1020]]")
    assert sql(path, "SELECT id, uid, victim, targets FROM action") == [row]


def test_commits_are_synced(journal: Journal) -> None:
    """Point 31: `synchronous=FULL`, in WAL mode: a commit survives a power cut."""
    connection = journal._file._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("stage", "result"),
    [("intended", None), ("signalled", None), ("done", Result.DONE), ("stopped", Result.INTERRUPTED)],
)
def test_a_new_daemon_finds_what_the_old_one_left(path: Path, stage: str, result: Result | None) -> None:
    """Point 31: after a crash at any stage the action is found: one wait too many, never a second kill."""
    with closing(Journal.open(path, LIMITS, "n1")) as journal:
        action = journal.intend(entry(), KEYS, at(31))
        if stage != "intended":
            journal.signalled(action, at(31), "SIGTERM", KEYS)
        if result is not None:
            journal.end(action, result, "", at(32))
    with closing(Journal.open(path, LIMITS, "n1")) as second:
        (found,) = second.unfinished()
        second.end(action, Result.INTERRUPTED, "the daemon was restarted", at(90))
        second.released(action, at(91), None, "nobody watched")
        assert second.unfinished() == ()
    assert (found.number, found.account) == (action, AccountKey(uid="u1"))
    assert (found.step, found.victim, found.targets) == (1, "main", KEYS)
    assert (found.began, found.result) == (at(31), result)
    assert any("nobody watched" in row.sentence for row in history(path, "a/trainer", 0))


@pytest.mark.parametrize("result", [Result.FAILED, Result.BLOCKED, Result.GONE])
def test_an_action_without_effect_is_finished(journal: Journal, result: Result) -> None:
    """Point 27: an action that failed is not in progress, so its memory is not waited for."""
    journal.end(begin(journal), result, "x", at(32))
    assert journal.unfinished() == ()


def test_numbers_of_actions_are_never_used_again(path: Path) -> None:
    """A number names one action for ever, also after old ones have been deleted."""
    with closing(Journal.open(path, JournalLimits(max_age_s=60), "n1")) as journal:
        first = begin(journal)
        journal.end(first, Result.GONE, "", at(32))
        journal.prune(at(40_000_000))
        assert events(path) == []
        assert journal.intend(entry(), KEYS, at(40_000_000)) > first


def test_at_rest_nothing_is_written(journal: Journal, path: Path) -> None:
    """A node on which nothing happens grows no journal."""
    wal = path.with_name("journal.db-wal")
    record(journal, quiet(0))
    assert events(path) == ["policy_loaded"]
    before = wal.stat().st_size
    for second in range(1, 200):
        record(journal, quiet(second))
    assert wal.stat().st_size == before
    assert events(path) == ["policy_loaded"]


def test_what_is_new_is_written_once(journal: Journal, path: Path) -> None:
    """Each occurrence that a report has besides actions is there once, with its sentence."""
    gap = Gap(reason=GapReason.GPU_LOST, what="GPU-1", problem=Problem("lost"))
    spoiled = trainer(containers=(replace(trainer().containers[0], resources={"veriff.com/gpu-memory": "8 GB"}),))
    record(journal, quiet(0, suspended=("lock",), enforcing=False))
    seen = Story(pods=(spoiled,)).see(snapshot([use(101, 1)], [process(101, "u1/main")], second=1, gaps=(gap,)))
    warned = outcome(entry(climbing(5), "warn"))
    would = outcome(result=Result.OBSERVED)
    held = withheld(Brake.PROTECTED)
    eventful = replace(seen, outcomes=(warned, would), plan=replace(seen.plan, entries=(held,)))
    record(journal, eventful)
    assert events(path) == [
        "policy_loaded", "suspended", "resumed", "gap_began", "misdeclared", "withheld", "warned", "would_act",
    ]  # fmt: skip
    rows = {row.event: row for row in history(path, None, 0)}
    assert rows["withheld"].detail == "protected"
    assert "suspended" in rows["would_act"].sentence
    assert rows["misdeclared"].pod == "trainer"
    assert rows["policy_loaded"].detail == "ab" * 32
    assert all(row.policy == "ab" * 32 for row in rows.values())


def test_an_action_is_not_written_twice(journal: Journal, path: Path) -> None:
    """A kill is in the journal once, although the report has it too; one that never began comes from the report."""
    gone = outcome(result=Result.GONE, reason="its processes had ended")
    record(journal, quiet(1, began=(killed(),), outcomes=(killed(release_s=1.0), gone)))
    assert events(path) == ["policy_loaded", "kill_ended", "explained"]
    assert history(path, None, 0)[1].result == "gone"
    assert "To prevent this" in history(path, None, 0)[2].sentence


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
    """What tenants run is private: 0600, for the WAL too, and again after a careless chmod."""
    journal.record_event("started", "x", at(0))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    assert modes == {"journal.db": "0o600", "journal.db-wal": "0o600", "journal.db-shm": "0o600"}
    journal.close()
    path.chmod(0o644)
    Journal.open(path, LIMITS, "n1").close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_thread_that_opened_it(journal: Journal) -> None:
    """A call from another thread is a bug of the daemon that must not go unnoticed."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(JournalError, match="thread"):
        pool.submit(journal.intend, entry(), KEYS, at(1)).result()


def test_who_was_asked_to_be_drained(journal: Journal, path: Path) -> None:
    """The processes of this boot, however their action ended; a row that can't be read costs no other."""
    action = begin(journal)
    assert journal.drained(at(40)) == frozenset()
    for key in KEYS:
        journal.signalled(action, at(32), "DRAIN", [key])
    journal.end(action, Result.FAILED, "", at(33))
    assert journal.drained(at(40)) == set(KEYS)
    assert journal.drained(replace(at(40), boot_id="the next boot")) == frozenset()
    sql(path, f"UPDATE occurrence SET detail = 'DRAIN [[' WHERE detail LIKE 'DRAIN [[{KEYS[0].pid},%'")
    assert journal.drained(at(40)) == {KEYS[1]}


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
        journal._file.with_connection(
            lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        )
        assert path.stat().st_size <= limits.max_size
    rows = history(path, None, 0)
    assert rows[-1].wall_s == at(100 + 5 * 500 + 399).wall_s
    assert len(rows) > 50
    assert [action.number for action in journal.unfinished()] == [unfinished]
    journal.close()
    assert sound(path)


def test_a_bound_that_nothing_can_meet_ends(path: Path) -> None:
    """If unfinished actions alone exceed `max_size`, pruning gives up instead of looping for ever."""
    with closing(Journal.open(path, JournalLimits(max_size=1), "n1")) as journal:
        begin(journal)
        journal.prune(at(40))
        assert (journal.writable, len(journal.unfinished())) == (True, 1)


def test_what_waits_is_bounded_and_the_loss_is_reported(journal: Journal, path: Path) -> None:
    """A long failure takes no endless memory; how many records were lost is written afterwards."""
    moved = path.rename(path.with_name("elsewhere"))
    for second in range(1100):
        journal.record_event("started", str(second), at(second))
    moved.rename(path)
    assert journal.probe()
    rows = history(path, None, 0)
    assert [row.sentence for row in rows if row.event == "records_lost"] == [
        "100 records before this one were lost while the journal could not be written."
    ]
    assert [row.sentence for row in rows if row.event == "started"] == [str(second) for second in range(100, 1100)]


def test_history_of_one_pod_since_a_moment(journal: Journal, path: Path) -> None:
    """A query for a pod and a time gives exactly that, oldest first."""
    begin(journal)
    journal.record_event("started", "x", at(100))
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


def test_what_was_listed_in_pods_lives_outlives_daemons_and_files(path: Path) -> None:
    """Point 6: the file keeps it; one that takes its place gets it from the daemon, until a pod is forgotten."""
    known = {"a": frozenset({"x/gpu", "x/mem"}), "b": frozenset({"x/gpu"})}
    with closing(Journal.open(path, LIMITS, "n1")) as first:
        first.listed(known)
        path.unlink()
        first.probe()
        with closing(Journal.open(path, LIMITS, "n1")) as second:
            assert second.kept.listed == known
            second.listed({"a": frozenset(), "b": frozenset({"x/gpu", "x/new"})})
    with closing(Journal.open(path, LIMITS, "n1")) as third:
        assert third.kept.listed == {"b": frozenset({"x/gpu", "x/new"})}
