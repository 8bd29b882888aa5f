"""The log at rest: an hour of cycles over a world that does not change, in whatever state, and over one that flaps."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from tests.export.build import ReportLog, Story, policy, trainer_node
from tests.export.log_worlds import NODE, WORLDS, Life, World, gap, many_over, over, shifted
from tests.worlds import at, rule, step
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Policy
from watchdog.core.repeats import Repeats
from watchdog.export.log import EVERY_S, configure
from watchdog.report.changes import ChangeKind, GapChanges

LASTS_S = 3600
SETTLED_S = 600  # by then everything that there is to say at the beginning has been said


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()


def said(
    stream: io.StringIO, world: World, under: Policy, seconds: int, every: int = 1
) -> list[tuple[int, dict[str, Any]]]:
    """The second and the line, of everything that so many seconds of cycles bring."""
    log, life = ReportLog(), Life(under=under)
    found: list[tuple[int, dict[str, Any]]] = []
    for second in range(0, seconds, every):
        before = stream.tell()
        log.log_report(world(life, second))
        if stream.tell() > before:
            stream.seek(before)
            found += [(second, json.loads(line)) for line in stream.read().splitlines()]
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_at_most_a_line_a_minute(stream: io.StringIO, name: str) -> None:
    """A world that does not change has at most one line a minute, in whatever state it is."""
    world, under = WORLDS[name]
    found = said(stream, world, under, LASTS_S, 60 if world is many_over else 5)
    later = [(second, line["event"]) for second, line in found if second > SETTLED_S]
    assert len(later) <= (LASTS_S - SETTLED_S) / 60, later[:20]
    assert found


FLAPPING: dict[str, Callable[[int], tuple[Gap, ...]]] = {
    "the same, each second": lambda second: (gap("GPU-1"),) if second % 2 else (),
    "the same, each half minute": lambda second: (gap("GPU-1"),) if second % 30 == 0 else (),
    "another process each time": lambda second: (gap(f"process {second}", GapReason.PROCFS),),
    "ten others each time": lambda second: tuple(gap(f"process {second}{n}", GapReason.PROCFS) for n in range(10)),
}


@pytest.mark.parametrize("name", FLAPPING)
def test_gaps_that_flap(stream: io.StringIO, name: str) -> None:
    """What comes and goes without end is told at first, and then once in a while: a line a minute on average."""
    calm = trainer_node(4.0)

    def world(life: Life, second: int) -> CycleReport:
        return life.live(shifted(calm, second, gaps=FLAPPING[name](second)))

    found = said(stream, world, policy(), LASTS_S)
    later = [second for second, line in found if second > SETTLED_S]
    assert len(later) <= (LASTS_S - SETTLED_S) / 60 + 1
    began = [line for _, line in found if line["event"] == "gap_began"]
    assert began
    assert {line["gpu"] for line in began} == {"GPU-9"}


def test_a_gap_of_another_kind_is_told_at_once() -> None:
    """Whatever floods the log with one kind of gap, a card that is lost meanwhile is told in the same cycle."""
    news, report = GapChanges(), Story().see(NODE)
    for second in range(1000):
        flood = tuple(gap(f"process {second}{n}", GapReason.PROCFS) for n in range(20))
        lost = (gap("GPU-1"),) if second == 999 else ()
        seen = replace(report, at=at(second), snapshot=replace(report.snapshot, at=at(second), gaps=(*flood, *lost)))
        last = list(news.since(seen))
    assert [change.sentence.partition(":")[0] for change in last if change.detail == GapReason.GPU_LOST] == ["GPU-1"]


def test_after_a_calm_time_gaps_are_told_again() -> None:
    """The bound is one of the rate: after a calm time as many are told at once as at first."""
    news, report = GapChanges(), Story().see(NODE)

    def told(second: float) -> int:
        gaps = tuple(gap(f"process {second} {n}", GapReason.PROCFS) for n in range(30))
        seen = replace(report, at=at(second), snapshot=replace(report.snapshot, at=at(second), gaps=gaps))
        return sum(change.event is ChangeKind.GAP_BEGAN for change in news.since(seen))

    assert [told(second) for second in (0, 1, 2, 130, 131, 5000)] == [10, 0, 0, 1, 0, 10]


def _fail(second: int) -> None:
    if second == 300:
        raise KeyError(second)
    raise ValueError(f"each time another text: {second}")


def test_an_error_of_every_pass_is_told_once_a_minute(stream: io.StringIO) -> None:
    """A defect that fails each cycle does not fill the disk with tracebacks; another one is told at once."""
    log = ReportLog()
    for second in range(600):
        try:
            _fail(second)
        except (ValueError, KeyError) as error:
            log.crash(error, float(second))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == 11
    assert sum("KeyError" in line["message"] for line in lines) == 1
    assert lines[1]["message"].endswith("(60 times since this was last logged)")


def test_repeats_are_counted_and_forgotten() -> None:
    """What was left out is counted, and only so many things are remembered."""
    repeats = Repeats(EVERY_S)
    assert [repeats.admit("x", second) for second in (0.0, 1.0, EVERY_S - 1, EVERY_S, EVERY_S + 1)] == [
        0,
        None,
        None,
        2,
        None,
    ]
    for number in range(1000):
        assert repeats.admit(f"other {number}", EVERY_S) == 0
    assert repeats.admit("x", EVERY_S + 2) == 0
    assert len(repeats._logged) <= 50


def test_a_line_has_the_names_of_the_metrics(stream: io.StringIO) -> None:
    """A decision's line has the labels of the series that count it, by the same names and with the same values."""
    ladder = rule(step("100%", 1, "warn"), step("110%", 1, "kill"), name="notebooks")
    found = said(stream, over, policy(ladder, mode="observe"), 5)
    decided = [line for _, line in found if line["event"] == ChangeKind.WOULD_ACT.value]
    assert [(line["rule"], line["action"], line["result"]) for line in decided] == [
        ("notebooks", "kill", "observed"), ("notebooks", "warn", "observed"),
    ]  # fmt: skip
    assert all({"namespace", "pod", "container", "gpu", "rule", "action", "result"} <= line.keys() for line in decided)
    assert decided[0]["container"] == "main"
