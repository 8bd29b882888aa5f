"""The metrics of a daemon that starts, with what was done before, by any clock; and once no cycle finishes any more."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.samples import ACCOUNT, POD, Found, read, series, value, values
from tests.report.build import (
    KILL,
    WARN,
    Clock,
    Story,
    climbing,
    entry,
    killed,
    outcome,
    policy,
    quiet,
    record,
    trainer_node,
    withheld,
)
from tests.worlds import Gi, at, rule, snapshot, use
from watchdog.core.brakes import Brake
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import CycleReport, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.metrics import Metrics
from watchdog.journal.journal import Journal
from watchdog.report.recent import last_action, merge

_LIMITS = JournalLimits(max_age_s=86400.0, max_size=2**28)
_KILLED = {**POD, "container": "main", "action": "kill", "rule": "notebooks"}
_DAY_S = 86400.0


def last_kill(metrics: Metrics, result: str = "done") -> float | None:
    """When the kill was, as the metrics have it, in seconds after the beginning."""
    found = value(read(metrics), "pod_last_action_timestamp_seconds", **_KILLED, result=result)
    return None if found is None else found - at(0).wall_s


def test_counters_are_there_before_the_first_cycle() -> None:
    """A step that is due at the first cycle is an increase only if its 0 was there before."""
    metrics = Metrics()
    metrics.policy_reload(ok=True, wall_s=at(0).wall_s, policy=policy())
    found = read(metrics)
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    assert value(found, "would_act_total", rule="notebooks", action="warn") == 0
    assert value(found, "reaction_seconds_count", action="kill") == 0
    loaded = {"policy_last_reload_successful": 1, "policy_last_reload_success_timestamp_seconds": at(0).wall_s}
    assert values(found).items() >= loaded.items()
    assert not series(found, "last_cycle_timestamp_seconds") + series(found, "accounts") + series(found, "enforcing")
    assert values(found)["process_open_fds"] > 0


def test_a_new_policy_has_its_zeros_before_its_first_cycle() -> None:
    """So is what a rule does that has just been loaded; a file with mistakes changes nothing."""
    metrics = Metrics()
    metrics.update(quiet())
    metrics.policy_reload(ok=False, wall_s=at(1).wall_s)
    assert {labels["rule"] for labels in series(read(metrics), "actions_total")} == {"notebooks"}
    metrics.policy_reload(ok=True, wall_s=at(2).wall_s, policy=policy(rule(WARN, KILL, name="new"), sha256="cd" * 32))
    assert value(read(metrics), "actions_total", rule="new", action="kill", result="done") == 0


def recalled(path: Path, second: float) -> Metrics:
    """Metrics of a daemon that starts at a moment with this journal, and closes what was left unfinished in it."""
    metrics, now = Metrics(), at(second)
    metrics.policy_reload(ok=True, wall_s=now.wall_s, policy=policy())
    with closing(Journal.open(path, _LIMITS, "n1")) as journal:
        for action in journal.unfinished():
            if action.result is None:
                journal.end(action.number, Result.INTERRUPTED, "the watchdog ended before it was over", now)
        metrics.recall(journal.last_actions(now), now.wall_s)
    return metrics


def test_what_was_done_before_a_restart_is_known_after_it(tmp_path: Path) -> None:
    """An alert on a kill does not end because the daemon did: the journal has it, and counters begin at 0 again."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    action = journal.intend(entry(), (ProcessKey(pid=101, start_ticks=1010),), at(30))
    journal.end(action, Result.DONE, "", at(31))
    record(journal, quiet(31, outcomes=(killed(number=action), outcome(entry(climbing(5), "warn"), at=at(20)))))
    record(journal, quiet(32, outcomes=(outcome(result=Result.OBSERVED),)))
    journal.close()
    metrics = recalled(tmp_path / "journal.db", 100)
    found = read(metrics)
    assert last_kill(metrics) == 31
    known = {(each["action"], each["result"]) for each in series(found, "pod_last_action_timestamp_seconds")}
    assert known == {("kill", "done"), ("warn", "done")}
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 0
    story = Story(pods=())
    metrics.update(story.see(snapshot(second=101)))
    metrics.update(story.see(snapshot(second=1000)))
    assert last_kill(metrics) == 31
    metrics.update(story.see(snapshot(second=1002)))
    assert series(read(metrics), "pod_last_action_timestamp_seconds") == []


def test_what_is_long_past_or_still_to_come_is_not_recalled(tmp_path: Path) -> None:
    """A quarter of an hour, and not more; nor what a clock that was wrong has written of the future."""
    with closing(Journal.open(tmp_path / "journal.db", _LIMITS, "n1")) as journal:
        record(journal, quiet(31, outcomes=(outcome(entry(climbing(5), "warn"), at=at(31)),)))
    for second, there in ((30, 0), (31, 1), (931, 1), (932, 0)):
        found = read(recalled(tmp_path / "journal.db", second))
        assert len(series(found, "pod_last_action_timestamp_seconds")) == there, second


def test_an_action_that_the_last_daemon_left_unfinished_counts_as_interrupted(tmp_path: Path) -> None:
    """The daemon that finds it counts it, for nothing else can; one that ended before counts no more."""
    journal = Journal.open(tmp_path / "journal.db", _LIMITS, "n1")
    for second in (20, 30):
        action = journal.intend(entry(), (ProcessKey(pid=101, start_ticks=1010),), at(second))
        if second == 20:
            journal.end(action, Result.INTERRUPTED, "the watchdog was stopped", at(21))
            journal.released(action, at(21), None, "")
    journal.close()
    found = read(recalled(tmp_path / "journal.db", 100))
    assert value(found, "actions_total", rule="notebooks", action="kill", result="interrupted") == 1
    assert value(found, "pod_last_action_timestamp_seconds", **_KILLED, result="interrupted") == at(100).wall_s
    again = read(recalled(tmp_path / "journal.db", 200))
    assert value(again, "actions_total", rule="notebooks", action="kill", result="interrupted") == 0


def ahead(second: float) -> Now:
    """A moment of a clock that is a day ahead."""
    return replace(at(second), wall_s=at(second).wall_s + _DAY_S)


def with_kill(report: CycleReport, when: Now) -> CycleReport:
    """The report of a cycle in which a kill ended."""
    return replace(report, outcomes=(killed(at=when),))


def test_what_is_recalled_does_not_hide_what_is_newer() -> None:
    """A journal that is opened again closes what was left open now; the rest is older than what is known."""
    metrics, first = Metrics(), last_action(killed())
    metrics.update(with_kill(quiet(31), at(31)))
    for second in (5, 35):  # by a clock that was ahead by a little
        metrics.recall([replace(first, wall_s=at(second).wall_s)], at(40).wall_s)
        assert last_kill(metrics) == 31
    metrics.recall([replace(first, wall_s=at(40).wall_s)], at(40).wall_s)
    assert last_kill(metrics) == 40


def test_the_next_kill_after_the_clock_was_set_back_is_reported() -> None:
    """The later one wins, although the one before it claims to be later, by the clock that was ahead."""
    first, then = last_action(killed(at=ahead(31))), last_action(killed(at=at(60)))
    assert merge((first,), (then,)) == merge((), (first, then)) == (then,)
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    metrics.update(quiet(32))
    metrics.update(with_kill(climbing(60), at(60)))
    assert last_kill(metrics) == 60


def test_no_moment_is_ahead_of_the_clock() -> None:
    """An alert on "less than 15 minutes ago" would hold until the clock gets there: the moment it was seen counts."""
    metrics = Metrics()
    metrics.update(with_kill(replace(climbing(31), at=ahead(31)), ahead(31)))
    assert last_kill(metrics) == 31 + _DAY_S
    for second in (40, 41, 900):
        metrics.update(quiet(second, duration_s=0.0))
        assert last_kill(metrics) == 40
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), ahead(31)), duration_s=0.0))
    assert last_kill(metrics) == 31


def test_what_is_done_during_a_cycle_keeps_its_moment() -> None:
    """A cycle is dated by its beginning, and what it did comes after that."""
    metrics = Metrics()
    metrics.update(replace(with_kill(climbing(31), at(31.4)), duration_s=0.5))
    assert last_kill(metrics) == pytest.approx(31.4)


def test_a_cycle_that_is_too_old_claims_nothing_of_use(clock: Clock) -> None:
    """After three intervals, at least 10 s, no GPU answers, every account is unknown, and sizes and limits remain."""
    clock.second = 9
    metrics, report = Metrics(now=clock), climbing(9)
    metrics.update(replace(report, plan=replace(report.plan, entries=(withheld(Brake.STALE),))))
    before = read(metrics)
    clock.second = 19
    assert _without_process(read(metrics)) == _without_process(before)
    clock.second = 19.1
    found = read(metrics)
    for labels, left in (
        ({"gpu": "GPU-0"}, {"gpu_up", "gpu_memory_total_bytes", "gpu_memory_reserved_bytes"}),
        ({**POD, "container": "main", "gpu": "GPU-0"}, set()),
        (POD, {"pod_memory_declared_bytes", "pod_memory_peak_bytes"}),
        (ACCOUNT, {"account_memory_declared_bytes", "account_memory_allowed_bytes"}),
        ({**ACCOUNT, "brake": "stale"}, set()),
    ):
        known = values(before, **labels)
        assert known.keys() > left
        assert values(found, **labels) == {
            **{name: known[name] for name in left},
            **({"gpu_up": 0.0} if "gpu_up" in left else {}),
        }
    assert (value(found, "accounts", verdict="unknown"), value(found, "accounts", verdict="over")) == (1, 0)
    assert series(before, "account_verdict") == []
    assert value(found, "account_verdict", **ACCOUNT, verdict="unknown") == 1
    assert value(found, "last_cycle_timestamp_seconds") == report.at.wall_s


def test_a_cycle_that_is_too_old_still_shows_how_cards_are_shared(clock: Clock) -> None:
    """A card on which MPS was seen does not become another series for as long as the driver hangs."""
    metrics, client = Metrics(now=clock), replace(trainer_node(4), uses=(use(101, Gi, mps=True),))
    metrics.update(Story().see(client))
    clock.second = 300
    found = read(metrics)
    assert value(found, "gpu_up", gpu="GPU-0") == 0
    assert [(labels["gpu"], labels["sharing"]) for labels in series(found, "gpu_info")] == [
        ("GPU-0", "mps"), ("GPU-1", "whole"),
    ]  # fmt: skip


def _without_process(found: Found) -> Found:
    """What is the daemon's own, and not that of the process which it is."""
    return {key: number for key, number in found.items() if key[0].startswith("gpu_watchdog_")}


def test_a_long_interval_gives_a_cycle_more_time(clock: Clock) -> None:
    """A node that is read each minute is not in the dark between two readings."""
    metrics = Metrics(now=clock)
    metrics.update(quiet(policy=policy(interval_s=60.0)))
    for second, up in ((180, 1), (181, 0)):
        clock.second = second
        assert value(read(metrics), "gpu_up", gpu="GPU-0") == up


def test_the_next_cycle_brings_it_back(clock: Clock) -> None:
    """What is unknown while nothing is seen is known again with the next reading, and counters have lost nothing."""
    metrics, story = Metrics(now=clock), Story()
    metrics.update(story.see(trainer_node(4)))
    clock.second = 300
    assert series(read(metrics), "pod_memory_used_bytes") == []
    metrics.update(story.see(trainer_node(5, 300)))
    found = read(metrics)
    assert series(found, "pod_memory_used_bytes") == [POD]
    assert value(found, "gpu_up", gpu="GPU-0") == 1
    assert value(found, "cycle_duration_seconds_count") == 2
