"""The hour before a start, from a real journal, against the hour that the daemon itself kept."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from tests.past.histories import FEWER, History, histories, policies
from tests.past.life import Life, State, holding, tenant
from tests.report.build import WARN, policy, record
from tests.worlds import Gi, Mi, at, claimant, container, gpu, pod, rule
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Gpu, Pod
from watchdog.core.plan import Outcome, Result
from watchdog.core.policy import Declaration, Do, Policy
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


def kept(hour: Hour, past: History) -> dict[AccountKey, tuple[Any, ...]]:
    """All that an hour has of a history: of each series when it began and was last seen, and its points."""
    last_s = past.cycles[-1][0]
    pods = {(each.namespace, each.name) for _, state in past.cycles for each in state.pods}
    keys = {key for names in pods for key, _ in hour.of_pod(*names)}
    found = {}
    for key in (*keys, *(card(each.uuid) for each in past.cycles[-1][1].gpus)):
        series = hour.get(key)
        assert series is not None
        drawn = points(hour, key, at(last_s).boottime_s)
        found[key] = (round(series.first_s, 2), round(series.seen_s, 2), hour.has(series), drawn)
    return found


def lived(path: Path, past: History, under: Policy) -> Hour:
    """The hour that the daemon itself kept while it recorded a history."""
    hour = Hour()
    for each in past.lives:
        life = Life(path, under)
        for number, (second, state) in zip(count(), each, strict=False):
            report, gap_s = life.see(state, at(second)), HOUR_S if number else 0.0
            snapshot = report.snapshot
            hour.add(at(second).boottime_s, report.assessments, snapshot.gpus, gap_s=gap_s, blind=snapshot.blind)
        life.end()
    return hour


@pytest.mark.slow
@FEWER
@given(histories(granule=128 * Mi, lives=2), policies())
def test_any_history_is_what_the_daemon_itself_kept(past: History, under: Policy) -> None:
    """Whatever a node goes through: every point of every account and card, and when each came and went."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        hour = lived(path, past, under)
        found, problem = recorded_hour(path, under, at(past.cycles[-1][0]))
        assert problem == ""
        assert kept(found, past) == kept(hour, past)


def moving(*pods: Pod, cards: tuple[Gpu, ...]) -> History:
    """Memory of one pod that moves from card to card each second, for a minute; a second pod keeps its own."""
    second_one = {(f"{each.uid}/main", 0): 3 * Gi for each in pods[1:]}
    states = [
        State(used={("a/main", 0): Gi * (n % 7), ("a/main", 1): Gi * (n % 5), **second_one}, pods=pods, gpus=cards)
        for n in range(60)
    ]
    return History(lives=(tuple((float(second), state) for second, state in enumerate(states)),), seed=0)


def unplaced(uid: str, *others: str) -> Pod:
    """A claimant of a share that is on a card nobody knows."""
    made = claimant(uid, *others)
    (claim,) = made.claims.values()
    devices = tuple(replace(each, uuid=None, is_listed=False) for each in claim.devices)
    return replace(made, claims={"gpu": replace(claim, devices=devices)})


@pytest.mark.parametrize(
    ("past", "under"),
    [
        (moving(pod("a", container("main", of="a", resources={"x/gpu": "1"})), cards=(gpu(0, 8 * Gi), gpu(1, 2 * Gi))),
         policy(declarations=(Declaration(resource="x/gpu", unit="cards"),))),
        (moving(claimant("a", "ns/pod-b"), claimant("b", "ns/pod-a"), cards=(gpu(0), gpu(1))),
         replace(policy(), schemes=("dra",))),
        (moving(unplaced("a", "ns/pod-b"), unplaced("b", "ns/pod-a"), cards=(gpu(0), gpu(1))),
         replace(policy(), schemes=("dra",))),
    ],
    ids=["cards of two sizes", "a shared claim", "a shared claim on some card"],
)  # fmt: skip
def test_a_limit_that_depends_on_what_is_used_moves_with_it(tmp_path: Path, past: History, under: Policy) -> None:
    """A pod of one card may use the one that it uses most; one on a shared claim is compared with others on it."""
    hour = lived(tmp_path / "journal.db", past, under)
    found, _ = recorded_hour(tmp_path / "journal.db", under, at(59))
    assert kept(found, past) == kept(hour, past)


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
