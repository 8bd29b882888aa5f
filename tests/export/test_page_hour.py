"""The sparkline on a page: its strokes, and what it says to those who do not see it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.build import Clock, climbing, quiet
from watchdog.export.endpoints import Endpoints
from watchdog.export.page_hour import HEIGHT, STEP, Sparkline, sparkline
from watchdog.export.web import HttpRequest, route
from watchdog.report.hour import LEVELS
from watchdog.report.status import ABSENT, HourStatus

STROKE = re.compile(r"M([0-9.]+) ([0-9.]+)v-([0-9.]+)")
MARK = re.compile(r"M([0-9.]+) 4l-2\.5-4h5z")


def drawn(levels: str, marks: str = "", limit: str = "its limit") -> Sparkline:
    """The sparkline of an hour that has one."""
    made = sparkline(HourStatus(levels=levels, marks=marks), limit)
    assert made is not None
    return made


def paths(made: Sparkline, *kinds: str) -> str:
    """The strokes of these kinds."""
    return "".join(strokes for kind, strokes in made.paths if kind in kinds)


@pytest.mark.parametrize("hour", [ABSENT, None, HourStatus(), HourStatus(levels=" " * LEVELS)])
def test_without_an_hour_there_is_none(hour: object) -> None:
    """An older daemon, or one that knows nothing yet, leaves no empty box."""
    assert sparkline(hour, "its limit") is None


def test_strokes_stand_where_their_time_is() -> None:
    """Each level has its stroke, those above the limit apart; a gap has none, and nothing is not a gap."""
    made = drawn("0 78")
    assert STROKE.findall(paths(made, "within")) == [("1.5", str(HEIGHT), "1"), ("7.5", str(HEIGHT), "14")]
    assert STROKE.findall(paths(made, "above")) == [("10.5", str(HEIGHT), "16")]
    assert made.width == 12


def test_actions_are_marked_above() -> None:
    """Warnings and other actions are told apart."""
    made = drawn("0000", "w k")
    assert MARK.findall(paths(made, "warned")) == ["1.5"]
    assert MARK.findall(paths(made, "acted")) == ["7.5"]


@pytest.mark.parametrize(
    ("levels", "marks", "limit", "label"),
    [
        ("7" * 30, "", "its limit", "within its limit in the last hour"),
        ("8" * 3 + "7" * 27, "", "its limit", "above its limit in 6 of the last 60 minutes"),
        ("7" * 30, "", "", "use in the last hour"),
        (
            " " * 20 + "7" * 5 + " " + "7" * 4,
            "",
            "its limit",
            "within its limit in the last hour; unknown in 2 minutes",
        ),
        ("7" * 30, "w wk e", "its limit", "within its limit in the last hour; warned, killed, evicted"),
        ("7" * 30, "x", "its limit", "within its limit in the last hour; acted on"),
    ],
)
def test_it_is_also_said(levels: str, marks: str, limit: str, label: str) -> None:
    """A reader who can't see it learns how long it was above its limit, what is unknown, and what was done."""
    assert drawn(levels, marks, limit).label == label


@given(st.text("012345678 ", min_size=1, max_size=60), st.text("wke x", max_size=60))
def test_everything_is_inside_its_box(levels: str, marks: str) -> None:
    """Whatever a daemon sends, nothing is drawn outside."""
    made = sparkline(HourStatus(levels=levels, marks=marks[: len(levels)]), "its limit")
    if made is None:
        assert not levels.strip()
        return
    for x, _, height in STROKE.findall(paths(made, "within", "above")):
        assert 0 < float(x) < made.width
        assert 0 < float(height) <= HEIGHT - 5
    for x in MARK.findall(paths(made, "warned", "acted")):
        assert 0 < float(x) < made.width
    assert len(STROKE.findall(paths(made, "within", "above"))) == len(levels.replace(" ", ""))
    assert made.width == STEP * len(levels)


def test_the_page_has_the_hour_of_cards_and_pods(endpoints: Endpoints, clock: Clock) -> None:
    """A drawing beside each card, each account over its limit and each pod, explained once."""
    for second in range(60):
        endpoints.publish(climbing(9) if second == 59 else quiet(second - 60))
    clock.second = 9
    html = route(endpoints, HttpRequest(target="/")).body.decode()
    labels = re.findall(r'<svg class="hour"[^>]* aria-label="([^"]*)"', html)
    within, above = "within its size in the last hour", "above its limit in 2 of the last 60 minutes"
    assert labels == [within, within, above, above]
    assert html.count("Small plots: the last hour") == 1
