"""The page of /metrics is made once a cycle and shared by all who scrape it, and never hides what has changed."""

import gzip
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from tests.export.build import climbing, policy, quiet
from tests.export.samples import Found, samples, value
from tests.export.test_http import Clock
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics


class Counting(Collector):
    """Counts how often everything is collected."""

    def __init__(self) -> None:
        self.times = 0

    def collect(self) -> Iterator[Metric]:
        self.times += 1
        return iter(())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def events() -> dict[str, int]:
    return {"written": 1}


@pytest.fixture
def endpoints(clock: Clock, events: dict[str, int]) -> Endpoints:
    """Endpoints after one cycle, at which 1 Event had been written."""
    made = Endpoints(Metrics(lambda: events, clock), 1.0, clock)
    made.publish(climbing(9))
    return made


@pytest.fixture
def counting(endpoints: Endpoints) -> Counting:
    found = Counting()
    endpoints.metrics.registry.register(found)
    found.times = 0
    return found


def seen(endpoints: Endpoints) -> Found:
    """Every sample that a scrape of this moment gets."""
    return samples(parse_text(gzip.decompress(endpoints.exposition(openmetrics=False)).decode()))


def test_a_hundred_scrapes_cost_what_one_does(endpoints: Endpoints, counting: Counting, clock: Clock) -> None:
    """Of one cycle everybody gets the same bytes, of each format; the next cycle has a page of its own."""
    first, rich = endpoints.exposition(openmetrics=False), endpoints.exposition(openmetrics=True)
    clock.second = 0.99
    assert all(endpoints.exposition(openmetrics=False) is first for _ in range(100))
    assert endpoints.exposition(openmetrics=True) is rich
    assert counting.times == 2
    endpoints.publish(climbing(10))
    assert endpoints.exposition(openmetrics=False) != first
    assert counting.times == 3


def test_what_changes_is_seen_at_once(endpoints: Endpoints) -> None:
    """Neither a later cycle nor a policy that is refused waits for the second."""
    assert value(seen(endpoints), "accounts", verdict="over") == 1
    endpoints.publish(quiet())
    assert value(seen(endpoints), "accounts", verdict="over") == 0
    endpoints.metrics.policy_reload(ok=False, wall_s=5.0)
    assert value(seen(endpoints), "policy_last_reload_successful") == 0
    endpoints.metrics.policy_reload(ok=True, wall_s=6.0, policy=policy())
    assert value(seen(endpoints), "policy_last_reload_successful") == 1


def test_between_cycles_nothing_is_older_than_a_second(
    endpoints: Endpoints, clock: Clock, events: dict[str, int]
) -> None:
    """With a long interval, or while a cycle hangs: neither the counts of Events nor that the cycle is too old."""
    assert value(seen(endpoints), "gpu_up", gpu="GPU-0") == 1
    events["written"], clock.second = 2, 1.0
    assert value(seen(endpoints), "events_total", result="written") == 2
    clock.second = 10.1
    assert value(seen(endpoints), "gpu_up", gpu="GPU-0") == 0
