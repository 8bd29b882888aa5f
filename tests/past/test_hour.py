"""The hour before a start, from a real journal, against the hour that the daemon itself kept."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.past.life import Life, State, holding, tenant
from tests.report.build import WARN, policy, record
from tests.worlds import Gi, at, gpu, rule
from watchdog.core.assessment import AccountKey
from watchdog.core.plan import Outcome, Result
from watchdog.core.policy import Do
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import NothingRecordedError
from watchdog.past.hour import recorded_hour
from watchdog.report.hour import HOUR_S, MOST_POINTS, Hour, Point, card

UNDER = policy(rule(WARN, name="all"))
POD = AccountKey(uid="a")


def points(hour: Hour, key: AccountKey, now_s: float) -> list[Point]:
    """The points of a series."""
    series = hour.get(key)
    return [] if series is None else [*hour.points(series, now_s - HOUR_S, now_s, now_s)]


def test_it_is_what_the_daemon_itself_kept(tmp_path: Path) -> None:
    """Accounts, cards, gaps, restarts and marks: the journal gives the same points as the memory."""
    path, hour = tmp_path / "journal.db", Hour()
    pods = (tenant(),)
    states = [
        (0, 600, State(used=holding(4), pods=pods)),
        (600, 900, State(used=holding(12), pods=pods)),
        (900, 1000, State(used=holding(12), pods=pods, dark={"blind": True})),
        (1000, 1100, State(used=holding(None), pods=pods)),
        (1100, 1300, State(used=holding(3), pods=pods, gpus=(gpu(0, used=9 * Gi), gpu(1)))),
        (1500, 2000, State(used=holding(5), pods=pods)),
    ]
    for begins, parts in ((0, states[:5]), (1500, states[5:])):
        life = Life(path, UNDER)
        for since, until, state in parts:
            for second in range(since, until):
                report = life.see(state, at(second))
                warned = [Outcome(entry=entry, result=Result.DONE, at=report.at) for entry in report.plan.taken]
                if warned:
                    record(life.journal, replace(report, outcomes=tuple(warned)))
                gap_s = 0.0 if second == begins else HOUR_S
                snapshot = report.snapshot
                hour.add(at(second).boottime_s, report.assessments, snapshot.gpus, gap_s=gap_s, blind=snapshot.blind)
        life.end()
    now = at(2000)
    found, problem = recorded_hour(path, UNDER, now)
    assert problem == ""
    for key in (POD, card("GPU-0"), card("GPU-1")):
        assert points(found, key, now.boottime_s) == points(hour, key, now.boottime_s)
    known = [point.last for point in points(found, POD, now.boottime_s)]
    assert None in known
    assert {4 * Gi, 12 * Gi, 3 * Gi, 5 * Gi} <= {*known}
    series = found.get(POD)
    assert series is not None
    assert [mark.do for mark in series.marks] == [Do.WARN]
    assert found.get(card("GPU-0")).marks == series.marks  # type: ignore[union-attr]
    assert found.get(card("GPU-1")).marks == ()  # type: ignore[union-attr]


def test_a_restart_within_a_point_leaves_no_gap(tmp_path: Path) -> None:
    """A daemon that is replaced within seconds draws on where the last one ended."""
    path, state = tmp_path / "journal.db", State(used=holding(4), pods=(tenant(),))
    for since in (0, 105):
        Life(path, UNDER).run((second, state) for second in range(since, since + 100))
    now = at(204)
    found = points(recorded_hour(path, UNDER, now)[0], POD, now.boottime_s)
    assert {point.last for point in found} == {4 * Gi}


def test_what_was_before_the_hour_is_left_out(tmp_path: Path) -> None:
    """Of three hours only the last one is read; a limit of the present policy is the one that is shown."""
    path, state = tmp_path / "journal.db", State(used=holding(4), pods=(tenant(),))
    Life(path, UNDER, rests=True).run((second, state) for second in range(3 * 3600))
    now = at(3 * 3600 - 1)
    found = points(recorded_hour(path, UNDER, now)[0], POD, now.boottime_s)
    assert len(found) in (MOST_POINTS, MOST_POINTS + 1)
    assert {(point.last, point.allowed) for point in found} == {(4 * Gi, UNDER.allowance.allowed(8 * Gi, 1))}


def test_a_journal_without_a_recording(tmp_path: Path) -> None:
    """There is nothing to show, and the error says what it is."""
    with pytest.raises(JournalError, match="there is no journal"):
        recorded_hour(tmp_path / "none.db", UNDER, at(0))
    Life(tmp_path / "journal.db", UNDER).end()
    with pytest.raises(NothingRecordedError):
        recorded_hour(tmp_path / "journal.db", UNDER, at(0))


def test_a_damaged_record_takes_only_what_follows(tmp_path: Path) -> None:
    """What came before it is shown, and the reason is said without advice for another command."""
    path, state = tmp_path / "journal.db", State(used=holding(4), pods=(tenant(),))
    for since in (0, 600):
        Life(path, UNDER).run((second, state) for second in range(since, since + 300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE past SET body = x'00' WHERE id = (SELECT max(id) FROM past)")
    now = at(900)
    found, problem = recorded_hour(path, UNDER, now)
    assert {point.last for point in points(found, POD, at(290).boottime_s)} == {4 * Gi}
    assert "can't be read" in problem
    assert "--since" not in problem


def test_a_step_of_the_wall_clock_takes_nothing(tmp_path: Path) -> None:
    """Within a boot the clock that never steps says what the last hour was."""
    path, state = tmp_path / "journal.db", State(used=holding(4), pods=(tenant(),))
    Life(path, UNDER).run((second, state) for second in range(300))
    now = replace(at(300), wall_s=at(300).wall_s + 3500)
    assert {point.last for point in points(recorded_hour(path, UNDER, now)[0], POD, now.boottime_s)} == {4 * Gi}
