"""The last hour: each series against a second count, made from every amount that was put in."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.report.build import climbing, quiet
from tests.worlds import Gi, at
from watchdog.core.assessment import AccountKey
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Do
from watchdog.core.units import LARGEST
from watchdog.core.utilization import CardUtilization, Holder, Utilization
from watchdog.report.hour import ABOVE, HOUR_S, LEVELS, MOST_POINTS, POINT_S, Hour, Mark, Point, Series, amount_of, card

GAP_S = 2.0
AMOUNTS = st.one_of(st.none(), st.integers(0, 20))
# Seconds since the last cycle, used and allowed.
Cycle = tuple[float, int | None, int | None]
CYCLES = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 2.0, 2.5, 7.0, 15.0, 40.0, 900.0]), AMOUNTS, AMOUNTS), min_size=1, max_size=60
)


def put_in(cycles: Sequence[Cycle]) -> tuple[Series, float]:
    """A series with these cycles, and when the last one was."""
    series, at_s = Series(("a", "p")), 1000.0
    for passed_s, used, allowed in cycles:
        at_s += passed_s
        series.add_cycle(at_s, used, allowed, GAP_S)
    return series, at_s


def counted(cycles: Sequence[Cycle]) -> dict[float, Point]:
    """The same points from the amounts themselves: in which points each held, from its cycle to the next."""
    points: dict[float, Point] = {}
    moments, at_s = [], 1000.0
    for passed_s, used, allowed in cycles:
        at_s += passed_s
        moments.append((at_s, used, allowed))
    for place, (begin_s, used, allowed) in enumerate(moments):
        if used is None:
            continue
        end_s = moments[place + 1][0] if place + 1 < len(moments) else begin_s
        end_s = end_s if end_s - begin_s <= GAP_S else begin_s
        for slot in range(int(begin_s // POINT_S), int(end_s // POINT_S) + 1):
            start_s = float(slot * POINT_S)
            before = points.get(start_s, Point(start_s, used, used))
            assert before.low is not None
            assert before.high is not None
            points[start_s] = Point(start_s, min(before.low, used), max(before.high, used), used, allowed)
    return points


@given(CYCLES)
def test_the_points_are_those_of_every_amount(cycles: list[Cycle]) -> None:
    """Each point has the lowest, highest and last amount of its time; where nothing was known, there is a gap."""
    series, now_s = put_in(cycles)
    found = {point.at_s: point for point in series.points(now_s - HOUR_S, now_s, now_s)}
    expected = {at_s: point for at_s, point in counted(cycles).items() if at_s > now_s - HOUR_S - POINT_S}
    assert {at_s: point for at_s, point in found.items() if point.last is not None} == expected
    assert len(found) <= MOST_POINTS + 1
    assert [*found] == sorted(found)
    if found:
        assert [*found] == [min(found) + number * POINT_S for number in range(len(found))]


@given(CYCLES)
def test_a_series_stays_small(cycles: list[Cycle]) -> None:
    """However often an amount changes, a series has at most a row for each point of the hour."""
    series, _ = put_in(cycles * 20)
    assert len(series._rows) <= 5 * (MOST_POINTS + 2)


@given(st.lists(st.tuples(st.sampled_from([1.0, 10.0, 15.0, 40.0, 900.0]), st.none() | st.floats(0, 1)), max_size=60))
def test_each_point_has_the_last_utilisation_of_its_time(cycles: list[tuple[float, float | None]]) -> None:
    """To the per cent, and little is never nothing; what was not known is neither 0 nor what was said before."""
    series, at_s, last = Series(("a", "p")), 1000.0, dict[float, float]()
    for passed_s, ratio in cycles:
        at_s += passed_s
        series.add_cycle(at_s, 5, 8, GAP_S)
        if ratio is not None:
            series.see_utilization(at_s, ratio)
            last[float(at_s // POINT_S * POINT_S)] = ratio
    for point in series.points(at_s - HOUR_S, at_s, at_s + 60):
        ratio = last.get(point.at_s)
        assert (point.utilization is None) == (ratio is None)
        if ratio is not None and point.utilization is not None:
            assert abs(point.utilization - ratio) <= 0.01
            assert bool(point.utilization) == bool(ratio)
    assert len(series._busy[1]) <= MOST_POINTS + 1


def test_what_lies_after_the_last_cycle_is_unknown() -> None:
    """While the loop hangs, the last amount does not go on."""
    series, at_s = put_in([(0.0, 5, 8)])
    series.see_utilization(at_s, 0.5)
    points = [*series.points(at_s - HOUR_S, at_s, at_s + 60)]
    assert [(point.last, point.utilization) for point in points] == [(5, 0.5), *[(None, None)] * 4]


@pytest.mark.parametrize(
    ("used", "allowed", "level"),
    [(0, 8, "0"), (1, 800, "1"), (4, 8, "4"), (8, 8, "7"), (9, 8, "8"), (5, 0, "8"), (0, 0, "0"), (5, None, "7")],
)
def test_the_level_of_an_amount(used: int, allowed: int | None, level: str) -> None:
    """A level is in sevenths of the limit, rounded up; what is above it is told apart, and nothing is not little."""
    series, at_s = put_in([(0.0, used, allowed)])
    assert series.levels(at_s, at_s) == " " * (LEVELS - 1) + level


def test_a_sparkline_is_drawn_from_the_highest_of_each_time() -> None:
    """A peak of a second is seen an hour later, and a gap is a space."""
    series = Series(("a", "p"))
    start_s = 6000.0
    for second in range(3600):
        if not 1200 <= second < 1800:
            series.add_cycle(start_s + second, 9 if second == 30 else 4, 8, GAP_S)
    drawn = series.levels(start_s + 3599, start_s + 3599)
    assert drawn == f"{ABOVE}{'4' * 9}{' ' * 5}{'4' * 15}"


def test_a_peak_that_the_sparkline_has_drawn_is_not_kept_for_longer() -> None:
    """The sparkline of a quiet series moves on with the time."""
    series, at_s = put_in([(0.0, 9, 8), (1.0, 4, 8)])
    assert series.levels(at_s, at_s)[-1] == "8"
    series.add_cycle(at_s + 1, 4, 8, GAP_S)
    for second in range(1, 121):
        series.add_cycle(at_s + 1 + second, 4, 8, GAP_S)
    assert series.levels(at_s + 121, at_s + 121).endswith("84")


def hour_of(*reports: CycleReport) -> Hour:
    """The hour after these cycles."""
    hour = Hour()
    for report in reports:
        hour.add(
            report.at.boottime_s,
            report.assessments,
            report.snapshot.gpus,
            report.utilization,
            gap_s=GAP_S,
            blind=report.snapshot.blind,
        )
    return hour


ACCOUNT = AccountKey(uid="u1")


def test_cycles_make_series_of_accounts_and_cards() -> None:
    """A report's accounts are compared with what they may use, its cards with their size."""
    hour = hour_of(quiet(0), climbing(1))
    ((key, series),) = hour.of_pod("a", "trainer")
    (point,) = series.points(0, at(1).boottime_s, at(1).boottime_s)
    account = quiet(0).assessments[0]
    assert (key, point.low, point.high, point.last) == (ACCOUNT, 4 * Gi, int(12.4 * Gi), int(12.4 * Gi))
    assert point.allowed == account.allowed
    gpu = quiet(0).snapshot.gpus[0]
    on_card = hour.get(card(gpu.uuid))
    assert on_card is not None
    assert [(each.low, each.allowed) for each in on_card.points(0, 2e9, at(1).boottime_s)] == [(gpu.used, gpu.total)]


def test_utilisation_is_that_of_accounts_and_cards() -> None:
    """Each has its own, and in a blind cycle none."""
    uuid = quiet(0).snapshot.gpus[0].uuid
    busy = Utilization(cards={uuid: CardUtilization(gpu=uuid, ratio=0.5)}, by_account={ACCOUNT: 0.25})
    blind = replace(quiet(15).snapshot, blind=True)
    hour = hour_of(quiet(0, utilization=busy), quiet(15, utilization=busy, snapshot=blind))
    for key, ratio in ((ACCOUNT, 0.25), (card(uuid), 0.5)):
        series = hour.get(key)
        assert series is not None
        assert [each.utilization for each in series.points(0, 2e9, at(15).boottime_s)] == [ratio, None]


MAIN, SIDE, OTHER = (Holder("u1", name, uuid) for name, uuid in (("main", "G0"), ("side", "G0"), ("main", "G1")))
# The ratio of an account, and of its parts.
Reading = tuple[float | None, dict[Holder, float]]


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    """What a driver can say of an account: of one part it is the account's, and of any it may be unknown."""
    parts = draw(st.dictionaries(st.sampled_from([MAIN, SIDE, OTHER]), st.none() | st.floats(0, 1), max_size=3))
    known = {part: ratio for part, ratio in parts.items() if ratio is not None}
    is_known = parts and len(known) == len(parts)
    return (min(sum(known.values()) / len({part.gpu for part in parts}), 1.0) if is_known else None), known


@given(st.lists(st.tuples(st.sampled_from([10.0, 15.0, 40.0, 900.0, 4000.0]), readings()), max_size=30))
@example([(10.0, (0.5, {MAIN: 0.5})), (15.0, (0.5, {SIDE: 0.5})), (15.0, (0.2, {SIDE: 0.2}))])
@example([(10.0, (0.5, {MAIN: 0.5})), (15.0, (0.4, {MAIN: 0.6, OTHER: 0.2})), (15.0, (0.1, {MAIN: 0.1}))])
def test_each_container_on_a_card_has_the_utilisation_that_was_said_of_it(cycles: list[tuple[float, Reading]]) -> None:
    """Whatever parts an account has one after the other: of each it is known when it was, and nothing else is."""
    series, at_s, noted = Series(("a", "p")), 1000.0, dict[tuple[Holder, float], float]()
    for passed_s, (ratio, known) in cycles:
        at_s += passed_s
        series.see_utilization(at_s, ratio, known)
        for part, own in known.items():
            noted[part, float(at_s // POINT_S * POINT_S)] = own
    parts = series.parts
    for number in range(MOST_POINTS):
        of_s = (at_s // POINT_S - number) * POINT_S
        for part in (MAIN, SIDE, OTHER):
            expected, found = noted.get((part, of_s)), parts[part].at(of_s) if part in parts else None
            assert (found is None) == (expected is None), (part, number)
            assert found is None or expected is None or abs(found - expected) <= 0.01


def test_of_one_container_on_one_card_nothing_is_kept_twice() -> None:
    """Nearly all accounts are such: 1,000 of them would take as much again."""
    series = Series(("a", "p"))
    for number in range(300):
        series.see_utilization(1000.0 + 15 * number, number / 300, {MAIN: number / 300})
    assert series.parts == {MAIN: series._busy}
    assert series.parts[MAIN] is series._busy


def test_in_a_blind_cycle_nothing_is_known() -> None:
    """What the last reading before had is not passed on as what is used now."""
    blind = climbing(30)
    hour = hour_of(climbing(1), replace(blind, snapshot=replace(blind.snapshot, blind=True)))
    ((_, series),) = hour.of_pod("a", "trainer")
    assert [each.last for each in series.points(0, 2e9, at(45).boottime_s)] == [int(12.4 * Gi), None, None, None]


def test_a_pod_that_is_gone_is_kept_up_to_its_end() -> None:
    """Whoever asks what a pod did that was killed sees its last hour, and no amounts after its end."""
    hour = hour_of(climbing(1), replace(quiet(40), assessments=()))
    ((_, series),) = hour.of_pod("a", "trainer")
    now_s = at(40).boottime_s
    assert [each.last for each in hour.points(series, 0, now_s, now_s)] == [int(12.4 * Gi)]
    hour.add(at(HOUR_S + 20).boottime_s, (), (), gap_s=GAP_S)
    assert hour.of_pod("a", "trainer") == ()


def test_of_many_that_are_gone_the_newest_are_kept() -> None:
    """A crash loop that makes a pod every second does not fill the memory."""
    hour, (account,) = Hour(), quiet().assessments
    for number in range(1000):
        other = replace(account, account=AccountKey(uid=f"u{number}"))
        hour.add(at(number).boottime_s, (other,), (), gap_s=GAP_S)
    kept = {key.uid for key, _ in hour.of_pod("a", "trainer")}
    assert "u999" in kept
    assert "u0" not in kept
    assert len(kept) <= 100 + POINT_S


def test_actions_are_marked_on_the_account_and_on_its_cards() -> None:
    """A kill is shown rather than a warning of the same two minutes, and other cards have neither."""
    hour, now_s = hour_of(climbing(1)), at(1).boottime_s
    first, second = climbing(1).snapshot.gpus
    hour.mark({first.uuid}, Mark(now_s, Do.KILL, ACCOUNT))
    hour.mark({first.uuid}, Mark(now_s, Do.WARN, ACCOUNT))
    for key, letters in (
        (ACCOUNT, " " * (LEVELS - 1) + "k"),
        (card(first.uuid), " " * (LEVELS - 1) + "k"),
        (card(second.uuid), ""),
    ):
        series = hour.get(key)
        assert series is not None
        assert series.letters(now_s) == letters
    series = hour.get(ACCOUNT)
    assert series is not None
    assert series.letters(now_s + HOUR_S + POINT_S) == ""


def test_an_earlier_daemons_hour_comes_first() -> None:
    """After a restart the hour goes on: what was before is in front, and unknown is only what nobody saw."""
    earlier, later = hour_of(climbing(1)), hour_of(quiet(61))
    gone = replace(climbing(1).assessments[0], account=AccountKey(uid="gone"))
    earlier.add(at(2).boottime_s, (gone,), (), gap_s=GAP_S)
    earlier.mark((), Mark(at(1).boottime_s, Do.WARN, ACCOUNT))
    later.begin_with(earlier)
    report = quiet(62)
    later.add(at(62).boottime_s, report.assessments, report.snapshot.gpus, gap_s=GAP_S)
    series = later.get(ACCOUNT)
    assert series is not None
    found = [each.last for each in series.points(0, 2e9, at(62).boottime_s)]
    assert found == [int(12.4 * Gi), None, None, None, 4 * Gi]
    assert [mark.do for mark in series.marks] == [Do.WARN]
    assert later.get(AccountKey(uid="gone")) is not None


def test_what_others_use_of_a_shared_claim_counts() -> None:
    """An account that is over its limit only with others on its claim is above it in the hour too."""
    (alone,) = quiet().assessments
    assert alone.allowed is not None
    assert amount_of(alone) == 4 * Gi
    beside = replace(alone, beside=alone.allowed, is_beside_known=True)
    assert amount_of(beside) == 4 * Gi + alone.allowed
    series = Series(("a", "p"))
    series.add_cycle(1000.0, amount_of(beside), beside.allowed, GAP_S)
    assert series.levels(1000.0, 1000.0)[-1] == str(ABOVE)


def test_use_that_is_known_in_part_counts_once_it_is_above_the_limit() -> None:
    """A pod that will be killed for what it uses at least is no blank; within the limit the rest may be anything."""
    (whole,) = quiet().assessments
    assert whole.allowed is not None
    over = replace(whole, used=None, used_at_least=whole.allowed + 1)
    assert amount_of(over) == whole.allowed + 1
    assert amount_of(replace(over, used_at_least=whole.allowed)) is None
    assert amount_of(replace(over, allowed=None)) is None


def test_what_was_never_known_is_a_gap_from_the_first_cycle_on() -> None:
    """Between not being there and not being known there is a difference."""
    series, at_s = put_in([(0.0, None, 8), (20.0, None, 8), (20.0, 5, 8)])
    assert [point.last for point in series.points(0, at_s, at_s)] == [None, None, None, 5]


def test_a_uid_that_is_given_again_under_another_name_is_another_pods() -> None:
    """One tenant never gets another's hour."""
    hour, (account,) = Hour(), quiet().assessments
    hour.add(at(0).boottime_s, (account,), (), gap_s=GAP_S)
    other = replace(account, pod=replace(account.pod, namespace="b", name="other"))
    hour.add(at(1).boottime_s, (other,), (), gap_s=GAP_S)
    assert hour.of_pod("a", "trainer") == ()
    ((_, series),) = hour.of_pod("b", "other")
    assert series.first_s == at(1).boottime_s


def test_of_too_many_actions_the_kills_are_kept() -> None:
    """A card whose pods are warned all the time still has its kill."""
    series = Series(("", ""))
    for number in range(200):
        series.mark(Mark(1000.0 + number, Do.KILL if number == 20 else Do.WARN, ACCOUNT))
    assert [mark.do for mark in series.marks].count(Do.KILL) == 1
    assert len(series.marks) == 60
    assert series.marks[-1].at_s == 1199.0
    for number in range(200, 300):
        series.mark(Mark(1000.0 + number, Do.KILL, ACCOUNT))
    assert len(series.marks) == 60


def test_a_restart_within_a_point_keeps_its_peak() -> None:
    """What both daemons saw of one point is one point."""
    earlier, later = put_in([(0.0, 3, 8), (1.0, 12, 8)])[0], put_in([(4.0, 4, 8)])[0]
    later.follow(earlier)
    ((point),) = later.points(0, 1004.0, 1004.0)
    assert (point.low, point.high, point.last) == (3, 12, 4)
    assert later.first_s == 1000.0


def test_a_reader_never_sees_a_row_missing() -> None:
    """While one thread puts amounts in, another always finds as many points as there are."""
    series, is_over, seen = Series(("a", "p")), threading.Event(), set[int]()
    series.add_cycle(1000.0, 1, 8, GAP_S)

    def read() -> None:
        while not is_over.is_set():
            seen.add(len([*series.points(0, 1000.0, 1000.0)]))

    reader = threading.Thread(target=read)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reader.start()
        for number in range(30_000):
            series.add_cycle(1000.0, number % 7, 8, GAP_S)
    finally:
        is_over.set()
        reader.join()
        sys.setswitchinterval(before)
    assert seen <= {1}


@pytest.mark.parametrize("amount", [2**64 - 1, 2**80, -1, -(2**70)])
def test_no_counter_of_a_driver_ends_a_cycle(amount: int) -> None:
    """A broken driver can say anything; the loop goes on, and what it says is drawn within bounds."""
    series, at_s = put_in([(0.0, amount, amount), (1.0, 5, amount), (1.0, amount, None)])
    (point,) = series.points(0, at_s, at_s)
    assert point.low is not None
    assert point.high is not None
    assert 0 <= point.low <= 5 <= point.high <= LARGEST
    assert len(series.levels(at_s, at_s)) == LEVELS
