"""What the metrics say once no cycle finishes any more: a number that is no longer known is no number."""

from dataclasses import replace

from tests.export.build import Clock, Story, climbing, policy, quiet, trainer_node, withheld
from tests.export.samples import ACCOUNT, POD, Found, read, series, value, values
from watchdog.core.brakes import Brake
from watchdog.export.metrics import Metrics


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
