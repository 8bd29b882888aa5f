"""The health of the watchdog itself: as of the moment of the answer, and in a few KiB for ever."""

import json
import sys
from dataclasses import replace

import pytest

from tests.export.page_reader import action
from tests.report.build import Clock, quiet, trainer_node
from tests.worlds import BOOT, at
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now, PodList
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.report.health import Durations, api_state
from watchdog.report.status import encode
from watchdog.report.text import rfc3339


@pytest.mark.parametrize(
    ("spans", "last", "p99"),
    [
        ([], None, None),
        ([0.5], 0.5, 0.5),
        ([0.1] * 99 + [9.0], 9.0, 0.1),
        ([0.1] * 98 + [9.0, 8.0], 8.0, 8.0),
        ([9.0] * 600 + [0.1] * 600, 0.1, 0.1),
        ([float(number) for number in range(1, 601)], 600.0, 594.0),
    ],
)
def test_the_durations_of_the_last_cycles(spans: list[float], last: float | None, p99: float | None) -> None:
    """99 of 100 of the last 600, by nearest rank; what lies further back is neither counted nor kept."""
    durations = Durations()
    for span in spans:
        durations.add(span)
    assert (durations.count, durations.last, durations.p99) == (len(spans), last, p99)
    assert sys.getsizeof(durations._last) < 6000


def test_before_the_first_cycle_nothing_of_it_is_known(endpoints: Endpoints, clock: Clock) -> None:
    """A daemon that has just begun says so, and invents no numbers."""
    clock.second = 2
    row = encode(endpoints.health.status)
    assert (row["ready"], row["unready"], row["uptime_s"]) == (False, ("no cycle has completed yet",), 2)
    unknown = ("last_cycle_s", "last_cycle_ago_s", "cycle_p99_s", "api", "blind_since", "policy_error", "hangs_since")
    assert [row[key] for key in unknown] == [None] * len(unknown)
    assert (row["cycles"], row["journal"], row["policy_ok"]) == (0, "ok", True)


def test_while_a_cycle_hangs_the_answer_says_how_long(endpoints: Endpoints, clock: Clock) -> None:
    """The health is of the moment of the answer: a hanging loop is seen to grow old."""
    endpoints.publish(quiet())
    clock.second = 45
    row = encode(endpoints.health.status)
    assert (row["last_cycle_s"], row["last_cycle_ago_s"], row["cycles"], row["ready"]) == (0.006, 45, 1, False)
    assert row["unready"] == ("the last cycle completed 45s ago: the loop or a call to the driver is hung",)


@pytest.mark.parametrize(("ended", "now", "since"), [(None, 9, None), (None, 60, 0), (20, 29, None), (20, 60, 20)])
def test_since_when_no_cycle_has_ended(
    endpoints: Endpoints, clock: Clock, ended: float | None, now: float, since: float | None
) -> None:
    """While the loop turns there is no such moment; then it is the end of the last cycle, or the daemon's start."""
    if ended is not None:
        clock.second = ended
        endpoints.publish(quiet())
    clock.second = now
    row = encode(endpoints.health.status)
    assert row["hangs_since"] == (rfc3339(at(since).wall_s) if since is not None else None)


def test_where_it_looks_for_the_stop_file(endpoints: Endpoints) -> None:
    """The path of a daemon; a command that is none has none."""
    assert encode(endpoints.health.status)["stop_file"] is None
    assert encode(Endpoints(Metrics(), 1.0, stop_file="/j/stop").health.status)["stop_file"] == "/j/stop"


def test_since_when_it_is_blind(endpoints: Endpoints) -> None:
    """The first blind cycle counts, not the latest; the next time starts over; and maintenance is not blindness."""
    one, two, three, last = (quiet(second, snapshot=trainer_node(4.0, second, blind=True)) for second in (5, 6, 9, 10))
    seen = []
    for report in (quiet(4), one, two, quiet(8), three, replace(last, maintenance="the node is being upgraded")):
        endpoints.publish(report)
        seen.append(endpoints.health.status.blind_since)
    assert seen == [None, at(5).wall_s, at(5).wall_s, None, at(9).wall_s, None]


def test_the_state_of_the_api_server() -> None:
    """`ok`, or the first thing that is missing; null where it is not asked."""
    missing = Gap(reason=GapReason.NODE, what="node n1", problem=Problem("no right to read it", "grant get on nodes"))
    other = Gap(reason=GapReason.CGROUP, what="process 5", problem=Problem("unreadable"))
    assert api_state(PodList()) == "ok"
    assert api_state(PodList(gaps=(other,))) == "ok"
    assert api_state(PodList(gaps=(missing,))) == "node n1: no right to read it; grant get on nodes"
    assert api_state(PodList(gaps=(missing,), by_file=True)) is None


def test_the_health_has_journal_and_policy(endpoints: Endpoints) -> None:
    """What is wrong with either is there until it is fixed, and what was done before a journal broke stays."""
    endpoints.set_journal("", (action(),))
    endpoints.set_journal("can't write the journal: no space left", None)
    endpoints.health.policy_error = "policy.toml:3: rule[0].step[0].for: not a duration"
    row = encode(endpoints.health.status)
    assert (row["journal"], len(endpoints.recent)) == ("can't write the journal: no space left", 1)
    assert (row["policy_ok"], row["policy_error"]) == (False, "policy.toml:3: rule[0].step[0].for: not a duration")
    endpoints.set_journal("", ())
    endpoints.health.policy_error = ""
    row = encode(endpoints.health.status)
    assert (row["journal"], row["policy_ok"], row["policy_error"]) == ("ok", True, None)


def test_hostile_texts_are_inert() -> None:
    """A policy file can be called anything, and so can a journal."""
    evil = "\x1b[2J\u202e\udc80" + "x" * 5000
    endpoints = Endpoints(Metrics(), 1.0)
    endpoints.health.unready = (evil,)
    endpoints.set_journal(evil, None)
    endpoints.health.policy_error = evil
    endpoints.publish(quiet(5, pods=PodList(gaps=(Gap(reason=GapReason.NODE, what=evil, problem=Problem(evil)),))))
    text = json.dumps(encode(endpoints.health.status), ensure_ascii=False)
    assert text.isprintable()
    assert len(text) < 5000


def test_uptime_is_of_the_clock_that_does_not_jump() -> None:
    """A wall clock that is set back shortens no uptime."""
    moments = iter([Now(boottime_s=10, wall_s=5000, boot_id=BOOT), *[Now(boottime_s=70, wall_s=0, boot_id=BOOT)] * 9])
    standing = Endpoints(Metrics(), 1.0, lambda: next(moments)).health.status
    assert (float(standing.started_at), standing.uptime_s) == (5000, 60)
