"""The log at rest: an hour of cycles over a world that does not change, in whatever state, and over one that flaps."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.report.build import ReportLog, Story, many_over, policy, trainer, trainer_node
from tests.worlds import at, container
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList, Snapshot
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy
from watchdog.core.repeats import Repeats
from watchdog.export.log import EVERY_S
from watchdog.report.changes import ChangeKind, GapChanges

LASTS_S = 3600
SETTLED_S = 600  # by then everything that there is to report at the beginning has been reported
OVER, WITHIN, UNKNOWN = (trainer_node(used) for used in (12.4, 4.0, None))
MANY_OVER = many_over(*[2.0] * 60)
OBSERVE = policy(mode="observe")
MISDECLARING = trainer(containers=(container("main", "8 GB", of="u1"),))


def gap(what: str, reason: GapReason = GapReason.GPU_LOST) -> Gap:
    """A GPU that fell off the bus, or another gap."""
    return Gap(reason=reason, what=what, problem=Problem("it fell off the bus", "look at dmesg"), gpu="GPU-9")


class World:
    """Cycles over what is seen, without an end; in observe mode what is due is recorded as observed."""

    def __init__(
        self,
        seen: Snapshot | Callable[[int], Snapshot] = OVER,
        under: Policy = OBSERVE,
        report: Mapping[str, Any] | None = None,
        **story: Any,
    ) -> None:
        self.story = Story(under=under, **story)
        self.seen, self.more = seen, report or {}

    def cycle(self, second: int) -> CycleReport:
        """The cycle of that second."""
        seen = self.seen(second) if callable(self.seen) else self.seen
        report, observed = self.story.see(replace(seen, at=at(second)), **self.more), []
        for entry in report.plan.taken:
            if entry.do.enforces:
                self.story.ledger = self.story.ledger.note_observed(entry.assessment, report.at)
            observed.append(Outcome(entry=entry, result=Result.OBSERVED, at=report.at))
        return replace(report, outcomes=tuple(observed))

    def reported(self, stream: io.StringIO, seconds: int = LASTS_S, every: int = 1) -> list[tuple[int, dict[str, Any]]]:
        """The second and the line, of everything that this many seconds of cycles log."""
        log, found = ReportLog(), list[tuple[int, dict[str, Any]]]()
        for second in range(0, seconds, every):
            before = stream.tell()
            log.log_report(self.cycle(second))
            stream.seek(before)
            found += [(second, json.loads(line)) for line in stream.read().splitlines()]
        return found


BRAKED = policy(mode="observe", brakes=Brakes(breaker=Breaker(hold_s=600.0), owner_backoff=Backoff()))
DARK = replace(OVER, gpus=(), uses=(), processes={}, blind=True, gaps=(gap("NVML"),))
OLD = PodList(pods=(trainer(),), synced=at(-1000))
WORLDS: dict[str, Callable[[], World]] = {
    "within": lambda: World(WITHIN, policy()),
    "over, observed": World,
    "sixty over, observed": lambda: World(MANY_OVER.snapshot, pods=MANY_OVER.pods.pods),
    "sixty over, held by brakes": lambda: World(MANY_OVER.snapshot, BRAKED, pods=MANY_OVER.pods.pods),
    "over and protected": lambda: World(under=policy(protect=replace(policy().protect, namespaces=("a",)))),
    "16 gaps": lambda: World(replace(OVER, gaps=tuple(gap(f"GPU-{n}") for n in range(16)))),
    "of a pod that the list does not have": lambda: World(pods=()),
    "misdeclared": lambda: World(pods=(MISDECLARING,)),
    "an old pod list": lambda: World(under=policy(), report={"pods": OLD}, pods_stale=True),
    "set to enforce and suspended": lambda: World(
        under=policy(), report={"enforcing": False, "suspended": ("stop_file", "lock")}
    ),
    "no journal": lambda: World(under=policy(), journal_writable=False),
    "blind": lambda: World(DARK),
    "unknown": lambda: World(UNKNOWN),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_at_most_a_line_a_minute(stream: io.StringIO, name: str) -> None:
    """A world that does not change has at most one line a minute, in whatever state it is."""
    found = WORLDS[name]().reported(stream, every=60 if "sixty" in name else 5)
    later = [(second, line["event"]) for second, line in found if second > SETTLED_S]
    assert len(later) <= (LASTS_S - SETTLED_S) / 60, later[:20]
    assert found


FLAPPING: dict[str, Callable[[int], tuple[Gap, ...]]] = {
    "the same, each second": lambda second: (gap("GPU-1"),) if second % 2 else (),
    "the same, each half minute": lambda second: (gap("GPU-1"),) if second % 30 == 0 else (),
    "another process each time": lambda second: (gap(f"process {second}", GapReason.PROCFS),),
    "ten others each time": lambda second: tuple(gap(f"process {second}{n}", GapReason.PROCFS) for n in range(10)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAPPING)
def test_gaps_that_flap(stream: io.StringIO, name: str) -> None:
    """What comes and goes without end is logged at first, and then once in a while: a line a minute on average."""
    found = World(lambda second: replace(WITHIN, gaps=FLAPPING[name](second)), policy()).reported(stream)
    later = [second for second, line in found if second > SETTLED_S]
    assert len(later) <= (LASTS_S - SETTLED_S) / 60 + 1
    began = [line for _, line in found if line["event"] == "gap_began"]
    assert began
    assert {line["gpu"] for line in began} == {"GPU-9"}


def with_gaps(second: float, *gaps: Gap) -> CycleReport:
    """A cycle with these gaps."""
    return Story().see(replace(OVER, at=at(second), gaps=gaps))


def test_a_gap_of_another_kind_is_reported_at_once() -> None:
    """Whatever floods the log with one kind of gap, a card that is lost meanwhile is reported in the same cycle."""
    news = GapChanges()
    for second in range(1000):
        flood = tuple(gap(f"process {second}{n}", GapReason.PROCFS) for n in range(20))
        last = list(news.since(with_gaps(second, *flood, *[gap("GPU-1")] * (second == 999))))
    assert [change.sentence.partition(":")[0] for change in last if change.detail == GapReason.GPU_LOST] == ["GPU-1"]


def test_after_a_calm_time_gaps_are_reported_again() -> None:
    """The bound is one of the rate: after a calm time as many are reported at once as at first."""
    news = GapChanges()

    def began(second: float) -> int:
        gaps = (gap(f"process {second} {n}", GapReason.PROCFS) for n in range(30))
        return sum(change.event is ChangeKind.GAP_BEGAN for change in news.since(with_gaps(second, *gaps)))

    assert [began(second) for second in (0, 1, 2, 130, 131, 5000)] == [10, 0, 0, 1, 0, 10]


def _fail(second: int) -> None:
    if second == 300:
        raise KeyError(second)
    raise ValueError(f"each time another text: {second}")


def test_an_error_of_every_cycle_is_logged_once_a_minute(stream: io.StringIO) -> None:
    """A defect that fails each cycle does not fill the disk with tracebacks; another one is logged at once."""
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
    """What was left out is counted, and only a bounded number of things is remembered."""
    repeats = Repeats(EVERY_S)
    found = [repeats.admit("x", second) for second in (0.0, 1.0, EVERY_S - 1, EVERY_S, EVERY_S + 1)]
    assert found == [0, None, None, 2, None]
    for number in range(1000):
        assert repeats.admit(f"other {number}", EVERY_S) == 0
    assert repeats.admit("x", EVERY_S + 2) == 0
    assert len(repeats._logged) <= 50
