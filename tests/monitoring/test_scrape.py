"""What labels the watchdog's series get from deploy/prometheus/, with a real Prometheus and a real pod's process."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.monitoring.prometheus import Prometheus, configuration
from tests.monitoring.scraping import NAMESPACE, Config, operator_job, plain_job, pod_monitor, without_api
from tests.node.support import REPOSITORY
from tests.rig import node
from tests.rig.command import Daemon
from tests.stub import GIB
from tests.world.policies import WARN_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.slow, pytest.mark.node]

_OWN: Final = {"namespace", "pod", "container", "endpoint"}
_WAYS: Final = ("plain", "operator", "overridden")
Scraped = dict[str, Prometheus]


def _expected(node: str) -> dict[str, str]:
    own = {"watchdog_namespace": NAMESPACE, "watchdog_pod": f"gpu-watchdog-{node}"}
    return {"job": "gpu-memory-watchdog", "node": node, **own}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    """A daemon with a tenant that is over its limit, and one that has nothing to do."""
    busy, idle = (tmp_path_factory.mktemp(each) for each in ("busy", "idle"))
    with node(busy) as first, node(idle) as second, ExitStack() as stack:
        pod = first.pod("trainer", ("main", "1Gi"), namespace="team-a")
        first.start(pod, used=2 * GIB)
        started = []
        for each in (first, second):
            each.write()
            started.append(stack.enter_context(run(each, write_policy(each.root, WARN_AT_ONCE))))
        started[0].wait(lambda d: d.metric("account_over_limit") == 1)
        yield started[0], started[1]


@pytest.fixture(scope="module")
def scraped(daemons: tuple[Daemon, Daemon], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A Prometheus for each way to scrape, all of them over the same two daemons."""
    folder = tmp_path_factory.mktemp("scraped")
    bare = pod_monitor()
    (endpoint,) = bare["spec"]["podMetricsEndpoints"]
    del endpoint["relabelings"]
    ways: dict[str, Config] = {
        "plain": plain_job(),
        "operator": operator_job(pod_monitor()),
        "only_honors": operator_job(bare),
        "honors_nothing": {**operator_job(bare), "honor_labels": False},
        "overridden": {**operator_job(pod_monitor()), "honor_labels": False},
    }
    pods = [(f"127.0.0.1:{each.port}", name) for each, name in zip(daemons, ("n1", "n2"), strict=True)]
    with ExitStack() as stack:
        running = {}
        for way, job in ways.items():
            config = configuration(without_api(job, *pods))
            running[way] = stack.enter_context(Prometheus(folder / way, config))
        for each in running.values():
            each.wait_for("count(gpu_watchdog_last_cycle_timestamp_seconds) == 2")
            each.wait_for("gpu_watchdog_account_over_limit == 1")
        yield running


@pytest.mark.parametrize("way", _WAYS)
def test_targets_have_these_labels(scraped: Scraped, way: str) -> None:
    """Both files give the watchdog's targets the same labels and no others.

    It is the same where the Prometheus object says overrideHonorLabels, which turns honorLabels off.
    """
    assert plain_job()["honor_labels"] is operator_job(pod_monitor())["honor_labels"] is True
    running = scraped[way]
    labels = {each["labels"]["node"]: dict(each["labels"]) for each in running.targets()}
    assert len(running.targets()) == 2
    assert all(each.pop("instance").startswith("127.0.0.1:") for each in labels.values())
    assert labels == {node: _expected(node) for node in ("n1", "n2")}


@pytest.mark.parametrize("way", _WAYS)
def test_namespace_pod_and_container_are_the_workloads(scraped: Scraped, way: str) -> None:
    """A pod's series have the pod's labels, every other series has none of them, and all say which watchdog and node.

    No series is called anything with `exported_`.
    """
    running = scraped[way]
    (used,) = running.query("gpu_watchdog_container_memory_used_bytes")
    assert _expected("n1").items() <= used.labels.items()
    named = {"namespace": "team-a", "pod": "trainer", "container": "main"}
    assert named.items() <= used.labels.items()
    (over,) = running.query("gpu_watchdog_account_over_limit")
    assert (over.labels["namespace"], over.labels["pod"], over.labels.get("container")) == ("team-a", "trainer", None)
    ours = running.query('{__name__=~"gpu_watchdog_.*"}')
    assert {each.labels.get("namespace", "team-a") for each in ours} == {"team-a"}
    assert not [each.labels for each in ours if any(label.startswith("exported_") for label in each.labels)]
    for name in ("gpu_watchdog_enforcing", "gpu_watchdog_gpu_up", "gpu_watchdog_breaker_open", "up"):
        found = running.query(name)
        assert {each.labels["node"] for each in found} == {"n1", "n2"}
        assert not [each.labels for each in found if each.labels.keys() & _OWN]


def test_the_queries_of_the_page_tell_right_from_wrong(scraped: Scraped) -> None:
    """docs/prometheus.md: each target is up; what must be empty is so with our files, and not with a label mistake."""
    page = (REPOSITORY / "docs" / "prometheus.md").read_text(encoding="utf-8")
    section = page.partition("\n## See that it works\n")[2].partition("\n## ")[0]
    up, wrong, pods = (each.strip() for each in re.findall(r"```promql\n(.*?)```", section, re.DOTALL))
    for right in (scraped[way] for way in _WAYS):
        assert [each.value for each in right.query(up)] == [1.0, 1.0]
        assert right.query(wrong) == []
        assert {each.labels["pod"] for each in right.query(pods)} == {"trainer"}
    assert scraped["only_honors"].query(wrong)
    assert scraped["honors_nothing"].query(wrong)
