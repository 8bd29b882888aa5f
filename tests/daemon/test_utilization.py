"""What a daemon writes down of what memory was held for, how often, and what the next one takes over."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.journal.rig import spent, sql
from tests.report.build import Story
from tests.worlds import Gi, at, gpu, owner, pod, process, snapshot, use
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Pod
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Idle, JournalLimits
from watchdog.core.utilization import CardUtilization, UtilizationReading
from watchdog.daemon import utilization
from watchdog.daemon.utilization import UtilizationLog
from watchdog.journal.journal import Journal
from watchdog.journal.writer import JournalWriter
from watchdog.report.card_hours import HOUR_S

HOLDER = AccountKey(uid="a")
POD = pod("a", owner=owner("StatefulSet", "notebook"))
WHOSE = (POD.namespace, POD.workload)
HOUR = int(at(0).wall_s // HOUR_S)


@dataclass(kw_only=True)
class Life:
    """A daemon's cycles, ten seconds apart, of a node on which a pod holds a quarter of the only card."""

    path: Path
    since: int = 0
    has_lock: bool = True
    pods: tuple[Pod, ...] = (POD,)
    idle: Idle = field(default_factory=Idle)
    # Whether the card computes.
    busy: bool = False
    # After which seconds something was written.
    writes: list[int] = field(default_factory=list)
    # The accounts that were reported as idle, each with when.
    found: list[tuple[AccountKey, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = JournalWriter()
        self.log = UtilizationLog(self.writer)
        self.now = self.since
        self._watcher: sqlite3.Connection | None = None
        self._version: object = None

    def open(self) -> None:
        """Open the journal and take over what is in it, as the daemon does."""
        journal = self.writer.submit(lambda: Journal.open(self.path, JournalLimits(), "n1")).result(30)
        self.writer.use_journal(journal)
        self.log.restore(self.writer.submit(journal.idle_times).result(30), at(self.now))
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = sqlite3.connect(self.path)
        self.has_written()

    def has_written(self) -> bool:
        """Whether something was committed since this was last asked, once what is queued is done."""
        self.writer.submit(lambda: None).result(30)
        if self._watcher is None:
            return False
        before, self._version = self._version, self._watcher.execute("PRAGMA data_version").fetchone()
        return before != self._version

    def run(self, seconds: int) -> None:
        """Go on for so long."""
        for second in range(self.now, self.now + seconds, 10):
            found = self.log.add(self.report(second), [self.reading(second)], has_lock=self.has_lock).utilization
            self.found += [(account, second) for account in found.found_idle]
            if self.has_written():
                self.writes.append(second)
        self.now += seconds

    def report(self, second: int) -> CycleReport:
        """A cycle."""
        policy = replace(Story().under, idle=self.idle)
        seen = snapshot([use(1, 20 * Gi)], [process(1)], [gpu()], second)
        return Story(under=policy, pods=self.pods).see(seen)

    def reading(self, second: int) -> UtilizationReading:
        """What the driver says."""
        by_pid = {1: 0.5} if self.busy else {}
        card = CardUtilization(gpu="GPU-0", ratio=float(self.busy), by_pid=by_pid)
        return UtilizationReading(at_s=at(second).boottime_s, cards=(card,))

    def probe(self) -> None:
        """Probe the journal until it can be written: a probe is left out while the thread is busy."""
        for _ in range(100):
            self.writer.probe_and_prune(at(self.now), prune=False)
            self.has_written()
            if self.writer.writable:
                return
        raise AssertionError(self.writer.problem)

    def end(self, *, killed: bool = False) -> None:
        """End it, in order or by a kill -9."""
        if not killed:
            self.log.end(at(self.now), has_lock=self.has_lock)
        if self._watcher is not None:
            self._watcher.close()
        assert self.writer.close(30)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nothing can be written meanwhile."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_at_rest_the_disk_is_written_every_five_minutes(path: Path) -> None:
    """An idle holder costs one write in five minutes, and one when it is reported; nothing else is written."""
    life = Life(path=path, idle=Idle(after_s=7350.0))
    life.open()
    life.run(3 * 3600)
    life.end()
    assert life.found == [(HOLDER, 7350)]
    apart = [later - before for before, later in pairwise(life.writes)]
    assert sorted(apart)[:2] == [150, 300]
    assert len(life.writes) <= 3 * 12 + 1


def test_without_pods_nothing_is_written(path: Path) -> None:
    """A node that nobody uses has a quiet disk."""
    life = Life(path=path, pods=())
    life.open()
    life.run(3600)
    assert life.writes == []
    life.end()


def test_each_hour_has_what_came_in_it(path: Path) -> None:
    """Rows of hours are exact to a cycle, and all of them together are the time that has passed."""
    into = int(at(0).wall_s % HOUR_S)
    life = Life(path=path, busy=True)
    life.open()
    life.run(3 * 3600 + 250)
    life.end()
    whole = spent(path)[WHOSE]
    assert whole.held == pytest.approx(0.25 * (3 * 3600 + 240), abs=0.01)
    assert whole.computing == pytest.approx(whole.held, rel=0.01)
    second = spent(path, HOUR + 1)[WHOSE].held
    assert second == pytest.approx(whole.held - 0.25 * (HOUR_S - into), abs=0.25 * 10)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seconds", [290, 1740, 7340, 7370, 8000])
def test_an_idle_time_goes_on_after_a_restart(path: Path, seconds: int, *, killed: bool) -> None:
    """A restart loses nothing, a kill -9 at most five minutes; and what was reported is not reported again."""
    between_writes = Idle(after_s=7350.0)
    first = Life(path=path, idle=between_writes)
    first.open()
    first.run(seconds)
    first.end(killed=killed)
    second = Life(path=path, since=first.now + 20, idle=between_writes)
    second.open()
    second.run(8000)
    second.end()
    ((account, found),) = first.found or second.found
    assert account == HOLDER
    assert len(first.found) + len(second.found) == 1
    if second.found:
        assert 7350 <= found <= 7350 + (300 if killed else 0) + 50


def test_a_restart_accuses_nobody_who_has_computed(path: Path) -> None:
    """Who computed before a kill -9 starts again at 0: the journal knows within a minute."""
    first = Life(path=path)
    first.open()
    first.run(7100)
    first.busy = True
    first.run(80)
    first.end(killed=True)
    second = Life(path=path, since=first.now + 10)
    second.open()
    second.run(7000)
    second.end()
    assert first.found == second.found == []


def test_a_pod_that_is_listed_late_is_not_reported_again(path: Path) -> None:
    """The API server may list the pods only after the first cycles of a new daemon."""
    first = Life(path=path)
    first.open()
    first.run(7300)
    first.end()
    second = Life(path=path, since=first.now + 10, pods=())
    second.open()
    second.run(60)
    second.pods = (POD,)
    second.run(600)
    second.end()
    assert len(first.found) == 1
    assert second.found == []


def test_a_shorter_time_in_the_policy_of_the_next_daemon_reports(path: Path) -> None:
    """What was not reported yet is, also if the policy changes together with a restart."""
    first = Life(path=path, idle=Idle(after_s=4 * 3600.0))
    first.open()
    first.run(3 * 3600)
    first.end()
    second = Life(path=path, since=first.now + 20, idle=Idle(after_s=2 * 3600.0))
    second.open()
    second.run(100)
    second.end()
    assert (first.found, [account for account, _ in second.found]) == ([], [HOLDER])


@pytest.mark.parametrize(("apart", "holds"), [(880, True), (940, False)])
def test_an_old_idle_time_holds_no_longer(path: Path, apart: int, *, holds: bool) -> None:
    """After a quarter of an hour without a daemon a pod may have computed meanwhile."""
    first = Life(path=path)
    first.open()
    first.run(7100)
    first.end()
    second = Life(path=path, since=first.now + apart)
    second.open()
    second.run(200)
    second.end()
    assert bool(second.found) == holds


def test_a_journal_that_is_opened_again_adds_nothing(path: Path) -> None:
    """A daemon counts on while its journal is away, so what it wrote itself is not added to that."""
    life = Life(path=path)
    life.open()
    life.run(3000)
    life.writer.close(30)
    life.run(100)
    life.open()
    life.run(4000)
    assert life.found == []
    life.end()


def test_an_unwritable_disk_loses_nothing(path: Path) -> None:
    """What can't be written for hours is in the rows of its hours once it can be."""
    life = Life(path=path)
    life.open()
    life.run(600)
    with locked(path):
        life.run(2 * 3600)
    life.probe()
    life.run(10)
    assert spent(path)[WHOSE].held == pytest.approx(0.25 * (life.now - 10), abs=0.01)
    assert len(sql(path, "SELECT hour FROM card_seconds")) >= 2
    life.end()


def test_what_is_kept_for_a_broken_disk_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest hours are dropped first."""
    monkeypatch.setattr(utilization, "_MOST_UNWRITTEN", 3)
    life = Life(path=path)
    life.open()
    with locked(path):
        life.run(6 * 3600)
    life.probe()
    life.run(20)
    life.end()
    hours = [hour for (hour,) in sql(path, "SELECT hour FROM card_seconds ORDER BY hour")]
    last = int(at(life.now).wall_s // HOUR_S)
    assert hours == [last - 2, last - 1, last]


def test_without_the_lock_nothing_counts(path: Path) -> None:
    """While another daemon has the node's lock, that one writes the same time."""
    life = Life(path=path, has_lock=False)
    life.run(3000)
    life.open()
    life.has_lock = True
    life.run(600)
    life.end()
    assert spent(path)[WHOSE].held == pytest.approx(0.25 * 600, abs=0.01)
