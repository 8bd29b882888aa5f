"""The plot of the last hour: its shapes follow the amounts, and never leave its box."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import Gi, Mi, at
from watchdog.core.assessment import AccountKey
from watchdog.core.policy import Do
from watchdog.export.plot import FULL, BusyPart, Level, Moment, Plot, busy_plot, plot
from watchdog.report.hour import HOUR_S, POINT_S, Mark, Point

NOW = Moment(7200.0, at(0).wall_s)
ACCOUNT = AccountKey(uid="u1")
AMOUNTS = st.one_of(st.integers(0, 2**63), st.integers(0, 40 * Gi), st.integers(-(2**63), 0))
POINTS = st.lists(
    st.tuples(
        st.integers(-20, 260), st.one_of(st.none(), st.tuples(AMOUNTS, AMOUNTS, AMOUNTS)), st.one_of(st.none(), AMOUNTS)
    ),
    max_size=40,
)


def point(slot: int, amounts: tuple[int, int, int] | None, allowed: int | None) -> Point:
    """A point of the slot that begins so many points after the hour did."""
    at_s = NOW.boottime_s - HOUR_S + slot * POINT_S
    if amounts is None:
        return Point(at_s)
    low, last, high = sorted(amounts)
    return Point(at_s, low, high, last, allowed)


def series(*amounts: int | None, allowed: int | None = 8 * Gi, first: int = 0) -> list[Point]:
    """Points one after the other."""
    return [
        point(first + number, None if amount is None else (amount,) * 3, allowed)
        for number, amount in enumerate(amounts)
    ]


def numbers(path: str) -> list[int]:
    """Every coordinate of a path; only whole numbers are in one."""
    assert re.fullmatch(r"(?:[MHVZ ]|-?\d+)*", path), path
    return [int(each) for each in re.findall(r"-?\d+", path)]


def check_box(drawn: Plot) -> None:
    """Everything that is drawn lies in the box."""
    for path in (drawn.band, drawn.line, drawn.allowed):
        assert all(0 <= each <= FULL for each in numbers(path)), path
    labels = (*drawn.levels, *drawn.amounts, *drawn.times, *drawn.begins)
    assert all(0 <= label.at <= FULL and 0 <= label.text_at <= FULL for label in labels)
    assert all(0 <= letter.at <= FULL for letter in drawn.letters)
    assert all(gap.at >= 0 and gap.width > 0 and gap.at + gap.width <= FULL for gap in drawn.gaps)


@given(
    st.lists(POINTS, max_size=3),
    st.lists(st.tuples(st.floats(3000, 8000), st.sampled_from(Do)), max_size=70),
    st.lists(AMOUNTS, max_size=12),
)
def test_no_series_leaves_the_box(
    lives: list[list[tuple[int, tuple[int, int, int] | None, int | None]]],
    marks: list[tuple[float, Do]],
    levels: list[int],
) -> None:
    """Law: whatever was used and allowed, all coordinates are whole numbers in the box, and no two labels touch."""
    points = [sorted((point(*each) for each in life), key=lambda each: each.at_s) for life in lives]
    made = [Mark(*mark, ACCOUNT) for mark in marks]
    drawn = plot(points, made, [Level("kill", "kill above", each) for each in levels], NOW)
    check_box(drawn)
    places = sorted(label.text_at for label in drawn.levels)
    assert all(after - before >= 80 for before, after in pairwise(places))
    letters = [letter.at for letter in drawn.letters]
    assert len(letters) <= FULL // 30 + 1


def spans(path: str) -> list[tuple[int, int]]:
    """From where to where each part of a line goes."""
    return [(int(begin), int(re.findall(r"H(\d+)", rest)[-1])) for begin, rest in re.findall(r"M(\d+) ([^M]*)", path)]


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    """Unknown is hatched and never drawn as 0; before the first point and after the end nothing is drawn at all."""
    drawn = plot([series(Gi, Gi, None, None, Gi, first=120)], (), (), NOW)
    assert spans(drawn.line) == [(500, 508), (517, 521)]
    assert [(gap.at, gap.width) for gap in drawn.gaps] == [(508, 9)]
    assert drawn.first == NOW.text(NOW.boottime_s - HOUR_S / 2)


def test_the_lives_of_a_pod_follow_each_other() -> None:
    """What the predecessor used comes first; between the two is nothing, which is no gap; the later one is marked."""
    start_s = NOW.boottime_s - HOUR_S
    drawn = plot([series(9 * Gi, 9 * Gi), series(Gi, Gi, first=4)], (), (), NOW, begins=[start_s + 63])
    assert spans(drawn.line) == [(0, 8), (17, 25)]
    assert drawn.gaps == ()
    (begin,) = drawn.begins
    assert (begin.at, begin.text) == (18, f"a new pod of this name, {NOW.text(start_s + 63)}")
    assert drawn.begin_words == (f"Dotted line: a new pod of this name, {NOW.text(start_s + 63)}",)


def test_of_many_lives_only_a_few_are_named() -> None:
    """A crash loop has a dotted line for each pod, and three sentences; none for what began before the hour."""
    start_s = NOW.boottime_s - HOUR_S
    begins = [start_s + 30 * number - 1 for number in range(101)]
    drawn = plot([series(Gi)], (), (), NOW, begins=begins)
    assert len(drawn.begins) == 100
    assert len(drawn.begin_words) == 4
    assert drawn.begin_words[-1] == "And 97 more"
    cut = plot([series(Gi)], (), (), NOW, begins=begins, is_whole=False)
    assert cut.begin_words[-1] == "And at least 97 more"


def test_where_actions_were_forgotten_their_number_is_a_bound() -> None:
    """A plot that lacks the marks of a loop does not say how many actions there were."""
    marks = [Mark(NOW.boottime_s - 10, Do.KILL, ACCOUNT)] * 60
    drawn = plot([series(*[Gi] * 240)], marks, (), NOW, is_whole=False)
    assert drawn.summary.endswith(" At least 60 kills.")
    assert drawn.rows[-1].actions == "at least 60 kills"
    assert drawn.rows[0].actions == ""


def test_more_is_higher() -> None:
    """The amounts keep their order: of use, limit and thresholds; equal thresholds have one line with both names."""
    levels = [
        Level("warn", "warning above", 8 * Gi),
        Level("kill", "kill above", 9 * Gi),
        Level("allowed", "limit", 8 * Gi),
    ]
    drawn = plot([series(4 * Gi, 12 * Gi)], (), levels, NOW)
    (_, first, _, second, _) = numbers(drawn.line)
    heights = {label.text: label.at for label in drawn.levels}
    assert first > heights["Warning above, limit 8Gi"] > heights["Kill above 9Gi"] > second
    (limit,) = {each for each in numbers(drawn.allowed)[1::2] if each > 10}
    assert limit == heights["Warning above, limit 8Gi"]


def test_what_is_far_above_is_named_and_not_drawn() -> None:
    """A threshold of twenty times the limit would press all else down to the bottom."""
    drawn = plot([series(Gi)], (), [Level("kill", "kill above", 160 * Gi)], NOW)
    assert (drawn.levels, drawn.beyond) == ((), ("kill above 160Gi",))


@pytest.mark.parametrize("most", [1, 700 * Mi, 8 * Gi, 12 * Gi, 80 * Gi, 141 * Gi, 2**62])
def test_the_axis_of_amounts_has_binary_units(most: int) -> None:
    """Two to five amounts, each a power of two apart, none above the shapes."""
    texts = [label.text for label in plot([series(most, allowed=None)], (), (), NOW).amounts]
    assert 1 <= len(texts) <= 5, texts
    assert all(re.fullmatch(r"[0-9]+(?:Ki|Mi|Gi|Ti|Pi|Ei)", text) for text in texts), texts


def test_the_axis_of_time_has_clock_times() -> None:
    """Every ten minutes, in UTC as everywhere."""
    texts = [label.text for label in plot([series(Gi)], (), (), NOW).times]
    assert texts == ["07:00", "07:10", "07:20", "07:30", "07:40", "07:50", "08:00"]


def test_actions_close_to_each_other_share_a_letter() -> None:
    """The gravest gives the letter, and the words name all of them."""
    done = ((70, Do.WARN), (60, Do.KILL), (1800, Do.WARN))
    marks = [Mark(NOW.boottime_s - second, do, ACCOUNT) for second, do in done]
    drawn = plot([series(Gi)], marks, (), NOW)
    assert [(each.letter, each.css) for each in drawn.letters] == [("W", "warn"), ("K", "kill")]
    assert drawn.letters[1].title == "Warning at 07:58:50 UTC, kill at 07:59:00 UTC"
    assert drawn.summary.endswith("2 warnings, 1 kill.")


def test_the_table_has_the_same_in_numbers() -> None:
    """Each five minutes: the lowest, highest and last amount, what was allowed, and the actions."""
    amounts: Sequence[int | None] = (*[4 * Gi] * 19, 6 * Gi, *[None] * 20, 12 * Gi)
    marks = [Mark(NOW.boottime_s - HOUR_S + 620, Do.KILL, ACCOUNT)]
    rows = plot([series(*amounts)], marks, (), NOW).rows
    assert [tuple(row) for row in rows] == [
        ("07:00", "4Gi", "6Gi", "6Gi", "8Gi", "", ""),
        ("07:05", "unknown", "unknown", "unknown", "", "", ""),
        ("07:10", "12Gi", "12Gi", "12Gi", "8Gi", "1 kill", ""),
    ]


def busy(*ratios: float | None, used: int = Gi) -> list[Point]:
    """Points from the hour's beginning on that have a utilisation."""
    return [replace(each, utilization=ratio) for each, ratio in zip(series(*[used] * len(ratios)), ratios, strict=True)]


def part(name: str, *ratios: float | None) -> BusyPart:
    """A container on a card, from the hour's beginning on."""
    start_s = NOW.boottime_s - HOUR_S
    known = {start_s + POINT_S * slot: ratio for slot, ratio in enumerate(ratios) if ratio is not None}
    return BusyPart(name, known)


def test_utilisation_has_a_plot_of_its_own_with_the_same_axis() -> None:
    """Unknown is hatched and never drawn as 0, and 0 is drawn above the edge, where it can be seen."""
    drawn = busy_plot([busy(0.5, 0.5, None, 0.0)], (), NOW)
    assert drawn is not None
    ((name, line),) = drawn.lines
    assert (name, spans(line)) == ("", [(0, 8), (12, 17)])
    half, nothing = (int(each.split("H")[0]) for each in re.findall(r"M\d+ ([^M]*)", line))
    assert half == drawn.levels[0].at
    assert drawn.levels[1].at < half < nothing < FULL
    assert [(gap.at, gap.width) for gap in drawn.gaps] == [(8, 4)]
    assert drawn.summary == "From 07:00:00 UTC to 07:01:00 UTC: 0% to 50% busy, 0% at the end."


def test_a_pod_without_processes_is_no_gap() -> None:
    """Where nothing ran there is nothing to know: it has neither a line nor hatching."""
    drawn = busy_plot([busy(0.5), busy(None, None, used=0)], (), NOW)
    assert drawn is not None
    assert drawn.gaps == ()


def test_where_nothing_is_known_there_is_no_plot_of_utilisation() -> None:
    """A MIG instance leaves no empty box."""
    assert busy_plot([busy(None, None)], (part("main"),), NOW) is None
    assert busy_plot([], (), NOW) is None


def test_a_few_containers_have_a_line_each_and_many_a_band() -> None:
    """Lines of more than four could not be told apart; the least busy of eight cards is still seen."""
    points = [busy(0.4, 0.4)]
    few = busy_plot(points, [part("main", 0.6, 0.6), part("side", 0.2, None), part("never")], NOW)
    assert few is not None
    assert [name for name, _ in few.lines] == ["main", "side"]
    assert [spans(line) for _, line in few.lines] == [[(0, 8)], [(0, 4)]]
    assert (few.parts, few.band) == (0, "")
    assert few.summary.endswith(": main 60% busy; side 20% busy.")
    many = busy_plot(points, [part(f"GPU {number}", number / 10, number / 10) for number in range(8)], NOW)
    assert many is not None
    assert (len(many.lines), many.parts) == (1, 8)
    assert many.summary.endswith(", the mean of 8 containers on GPUs: 40% busy.")
    heights = numbers(many.band)
    assert max(heights) > many.levels[0].at
    alone = busy_plot(points, [part("main", 0.4, 0.4)], NOW)
    assert alone is not None
    assert [name for name, _ in alone.lines] == [""]


@given(st.lists(st.lists(st.none() | st.floats(0, 1), max_size=250), max_size=6))
def test_no_utilisation_leaves_the_box(found: list[list[float | None]]) -> None:
    """Law: whatever is known of whichever containers, all coordinates are whole numbers in the box."""
    parts = [part(f"part {number}", *ratios) for number, ratios in enumerate(found)]
    drawn = busy_plot([busy(*ratios) for ratios in found], parts, NOW)
    if drawn is None:
        assert not any(part.ratios for part in parts)
        return
    for path in (drawn.band, *(line for _, line in drawn.lines)):
        assert all(0 <= each <= FULL for each in numbers(path)), path
    assert all(gap.at >= 0 and gap.width > 0 and gap.at + gap.width <= FULL for gap in drawn.gaps)


def test_the_table_has_the_utilisation_too() -> None:
    """Each five minutes from the lowest to the highest, also of a pod that came back under its name."""
    rows = plot([busy(*[0.1] * 5), busy(0.64, 0.003, *[None] * 20)], (), (), NOW).rows
    assert [row.busy for row in rows] == ["<1-64%", ""]


def test_without_a_point_the_plot_is_empty() -> None:
    """A new pod has no hour yet, and the page still stands."""
    drawn = plot([], (), (), NOW)
    assert (drawn.line, drawn.band, drawn.rows, drawn.summary) == ("", "", (), "Nothing is known of the last hour.")
