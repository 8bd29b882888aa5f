"""What the metrics say once no cycle finishes any more: a number that nobody knows any more is no number."""

from dataclasses import replace

from tests.export.build import Story, climbing, policy, quiet, trainer, trainer_node, withheld
from tests.export.samples import Found, read, series, value
from tests.worlds import at
from watchdog.core.brakes import Brake
from watchdog.core.model import Now
from watchdog.export.metrics import Metrics, without_late_values

_POD = {"namespace": "a", "pod": "trainer"}
_ACCOUNT = {**_POD, "container": "", "gpu": "", "rule": "notebooks"}


class Clock:
    """The time that the metrics read; a test moves it."""

    def __init__(self, second: float) -> None:
        self.second = second

    def __call__(self) -> Now:
        return at(self.second)


def test_a_pass_that_is_too_old_claims_nothing_of_use() -> None:
    """After three intervals, at least 10 s, no GPU answers, every account is unknown, and sizes and limits remain."""
    clock = Clock(9)
    metrics = Metrics(now=clock)
    report = climbing(9)
    metrics.update(replace(report, plan=replace(report.plan, entries=(withheld(Brake.STALE),))))
    before = read(metrics)
    clock.second = 19
    assert _without_process(read(metrics)) == _without_process(before)
    clock.second = 19.1
    found = read(metrics)
    assert value(found, "gpu_up", gpu="GPU-0") == value(found, "gpu_up", gpu="GPU-1") == 0
    used = ("container_memory_used_bytes", "pod_memory_used_bytes", "account_memory_used_bytes")
    for name in (*used, "account_withheld"):
        assert series(before, name), name
        assert series(found, name) == [], name
    for name in ("account_over_limit", "gpu_memory_used_bytes", "gpu_memory_residual_bytes"):
        assert series(found, name) == [], name
    assert series(found, "gpu_memory_unattributed_bytes") == []
    assert value(found, "gpu_memory_total_bytes", gpu="GPU-0") == value(before, "gpu_memory_total_bytes", gpu="GPU-0")
    assert value(found, "account_memory_allowed_bytes", **_ACCOUNT) == 10909216931
    assert value(found, "pod_memory_peak_bytes", **_POD) == value(before, "pod_memory_peak_bytes", **_POD)
    assert (value(found, "accounts", verdict="unknown"), value(found, "accounts", verdict="over")) == (1, 0)
    assert series(before, "account_verdict") == []
    assert value(found, "account_verdict", **_ACCOUNT, verdict="unknown") == 1
    assert value(found, "last_cycle_timestamp_seconds") == at(9).wall_s


def _without_process(found: Found) -> Found:
    """What is the daemon's own doing, and not that of the process which it is."""
    return {key: number for key, number in found.items() if key[0].startswith("gpu_watchdog_")}


def test_a_long_interval_gives_a_pass_more_time() -> None:
    """A node that is looked at each minute is not in the dark between two looks."""
    clock = Clock(0)
    metrics = Metrics(now=clock)
    metrics.update(quiet(policy=policy(interval_s=60.0)))
    clock.second = 180
    assert value(read(metrics), "gpu_up", gpu="GPU-0") == 1
    clock.second = 181
    assert value(read(metrics), "gpu_up", gpu="GPU-0") == 0


def test_the_next_pass_brings_it_back() -> None:
    """What is unknown while nothing is seen is known again with the next look, and counters have lost nothing."""
    clock = Clock(0)
    metrics = Metrics(now=clock)
    story = Story()
    metrics.update(story.see(trainer_node(4)))
    clock.second = 300
    assert series(read(metrics), "pod_memory_used_bytes") == []
    metrics.update(story.see(trainer_node(5, 300)))
    found = read(metrics)
    assert series(found, "pod_memory_used_bytes") == [_POD]
    assert value(found, "gpu_up", gpu="GPU-0") == 1
    assert value(found, "cycle_duration_seconds_count") == 2


def test_the_dark_is_what_a_blind_pass_is() -> None:
    """No assessment of it is conclusive, none of it has bytes; who the pods are and what they declare stays."""
    report = Story(pods=(trainer(), trainer(uid="u2", name="other"))).see(trainer_node())
    dark = without_late_values(report)
    assert not any(each.is_conclusive or each.used is not None for each in dark.assessments)
    assert [each.account for each in dark.assessments] == [each.account for each in report.assessments]
    assert [each.declared for each in dark.assessments] == [each.declared for each in report.assessments]
