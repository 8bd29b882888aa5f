"""What the journal keeps of what memory was held for: card-seconds by hour and owner, and idle times."""

import sqlite3
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from tests.journal.rig import LIMITS, spent, sql
from tests.report.build import hostile_pod
from tests.worlds import T0, Mi, at, owner
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Now
from watchdog.core.policy import JournalLimits
from watchdog.core.utilization import CardSeconds, IdleTimes, Spender
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.schema import size
from watchdog.journal.utilization import node_hours
from watchdog.report.card_hours import HOUR_S
from watchdog.report.status import Moment

HOUR = int(T0 // HOUR_S)
WEB, TRAIN = ("a", owner()), ("b", owner("Job", "train"))
NOBODY_IDLE = IdleTimes(at=at(0), seconds={})


def test_card_seconds_add_up_by_hour_and_owner(journal: Journal, path: Path) -> None:
    """Nothing is lost or counted twice, whatever is written in how many parts."""
    for _ in range(12):
        part = CardSeconds(held=75.5, computing=25.25, idle=50.125, unused=0.001)
        journal.add_utilization({HOUR: {WEB: part}, HOUR + 1: {WEB: part, TRAIN: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    assert astuple(spent(path)[WEB]) == pytest.approx((1812.0, 606.0, 1203.0, 0.024), abs=0.002)
    assert astuple(spent(path, HOUR + 1)[WEB]) == pytest.approx((906.0, 303.0, 601.5, 0.012), abs=0.002)
    assert astuple(spent(path)[TRAIN]) == pytest.approx((12.0, 0.0, 0.0, 0.0), abs=0.002)
    assert spent(path, HOUR + 2) == {}
    assert node_hours(path, "n1", 0.0, T0).begins == Moment(HOUR * HOUR_S)


def test_the_next_daemon_has_the_idle_times(journal: Journal, path: Path) -> None:
    """What is idle is known with its moment after a restart, and what has computed since is not."""
    idle = IdleTimes(
        at=at(7), seconds={AccountKey(uid="u1"): 60.5, AccountKey(uid="u2", container="", gpu="GPU-0"): 7200.0}
    )
    journal.add_utilization({}, IdleTimes(at=at(1), seconds={AccountKey(uid="gone"): 5.0}))
    journal.add_utilization({}, idle)
    with closing(Journal.open(path.with_name("other.db"), LIMITS, "n1")) as other:
        assert other.idle_times() is None
    journal.close()
    with closing(Journal.open(path, LIMITS, "n1")) as later:
        assert later.idle_times() == idle
        later.add_utilization({}, NOBODY_IDLE)
        assert later.idle_times() is None


def test_what_can_t_be_written_is_said(journal: Journal, path: Path) -> None:
    """The caller knows that nothing was added, so it can come again; it never comes twice."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(JournalError, match="another process holds a lock on it"):
                journal.add_utilization({HOUR: {WEB: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    assert spent(path) == {}
    assert journal.probe()
    journal.add_utilization({HOUR: {WEB: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    assert spent(path)[WEB].held == pytest.approx(1.0, abs=0.002)


def test_hostile_names_are_stored_as_text(journal: Journal, path: Path) -> None:
    """A name with control characters neither ends the journal nor reaches a terminal from it."""
    pod = hostile_pod(namespace="a\ud800\x1b[2J")
    journal.add_utilization({HOUR: {(pod.namespace, pod.workload): CardSeconds(held=1.0)}}, NOBODY_IDLE)
    ((namespace, found),) = spent(path)
    assert all(text.isprintable() for text in (namespace, found.kind, found.name))


def later(days: float) -> Now:
    """A moment so long after the first hour."""
    return replace(at(0), boottime_s=at(0).boottime_s + days * 86400, wall_s=HOUR * HOUR_S + days * 86400)


def test_old_hours_go_with_their_owners(journal: Journal, path: Path) -> None:
    """`max_age` holds for card-seconds too, and a name is kept no longer than they are."""
    journal.add_utilization({HOUR: {WEB: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    journal.add_utilization({HOUR + 24: {TRAIN: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    journal.prune(later(30))
    assert len(spent(path)) == 2
    journal.prune(later(30.05))
    assert list(spent(path)) == [TRAIN]
    assert sql(path, "SELECT namespace FROM spender") == [("b",)]


YEARS = 10 * 365 * 24


def test_hours_to_come_are_in_no_report(journal: Journal, path: Path) -> None:
    """What was counted while a node's clock was ahead is not reported as that of the last hour."""
    journal.add_utilization({HOUR + YEARS: {TRAIN: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    ahead = node_hours(path, "n1", HOUR * HOUR_S, T0)
    assert (ahead.owners, ahead.begins) == ((), None)
    journal.add_utilization({HOUR: {WEB: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    assert list(spent(path, HOUR, HOUR)) == [WEB]


def test_hours_to_come_go_once_the_clock_is_right(journal: Journal, path: Path) -> None:
    """They would stay for years; but a clock that is behind after a start must not delete what is right."""
    journal.add_utilization({HOUR + YEARS: {TRAIN: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    journal.add_utilization({HOUR + 24: {WEB: CardSeconds(held=1.0)}}, NOBODY_IDLE)
    started = later(0)
    journal.prune(replace(started, boottime_s=60.0, wall_s=started.wall_s - 400 * 86400))
    assert len(spent(path)) == 2
    journal.prune(replace(started, boottime_s=2 * 86400.0))
    assert list(spent(path)) == [WEB]


def owners(hour: int) -> dict[Spender, CardSeconds]:
    """500 owners of an hour, whose names change once a day."""
    names = (f"inference-server-{number}-{hour // 24}-7d9f6c5b8d" for number in range(500))
    part = CardSeconds(held=812.345, computing=211.111, idle=601.234, unused=99.999)
    return {(f"team-{number % 40:02d}", owner(name=name)): part for number, name in enumerate(names)}


def test_a_week_of_500_owners_stays_small(journal: Journal) -> None:
    """168 hours of 500 owners each take less than 4 MiB of the 256 that the journal may have."""
    for hour in range(168):
        journal.add_utilization({HOUR + hour: owners(hour)}, NOBODY_IDLE)
    assert journal._file.with_connection(size) < 4 * Mi


def test_a_full_journal_drops_hours_before_decisions(path: Path) -> None:
    """Within `max_size` the oldest hours go first, down to an eighth of it, and decisions last."""
    with closing(Journal.open(path, JournalLimits(max_size=512 * 1024), "n1")) as journal:
        for number in range(100):
            journal.record_event("started", "x" * 1000, at(number))
        for hour in range(40):
            journal.add_utilization({HOUR + hour: owners(0)}, NOBODY_IDLE)
        for _ in range(40):
            journal.prune(at(200))
        assert journal._file.with_connection(size) <= 512 * 1024
    assert sql(path, "SELECT count(*) FROM occurrence") == [(100,)]
    ((first, last),) = sql(path, "SELECT min(hour), max(hour) FROM card_seconds")
    assert first > HOUR
    assert last == HOUR + 39
