"""From an allocation on a card to the message, through everything that ships: daemon, scrape, rules, Alertmanager."""

from collections.abc import Iterator
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.chain import FAST, NAMESPACE, OVER, QUICK, Chain, chain, go_killed, go_over, table
from tests.monitoring.notifying import fires_for_s
from tests.monitoring.rules.exposed import LABELS
from tests.stub import GIB

pytestmark = [pytest.mark.slow, pytest.mark.node]
# Two thirds of the time for which the alert of a kill fires, at the fast pace.
_A_WHILE_S: Final = fires_for_s("GPUMemoryPodKilled") / FAST.times * 2 / 3


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with the alerts of deploy/, but for the five minutes that GPUMemoryOverLimit waits."""
    with chain(tmp_path_factory.mktemp("chain"), QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with all times of the alerts divided by thirty, so that the alert of a kill ends after 20 s."""
    with chain(tmp_path_factory.mktemp("fast"), FAST) as running:
        yield running


def test_over_its_limit(quick: Chain) -> None:
    """The team of the pod's namespace gets the alert, with the pod's own labels, and its end."""
    pod, tenant, over, links = go_over(quick, "notebook")
    print(table("\nover its limit, quick", links))
    assert over.path == "/team-a"
    own = {"namespace": NAMESPACE, "pod": "notebook", "node": "n1", "rule": "shared", "cluster": "c1"}
    assert own.items() <= over.labels.items()
    assert not [label for label in over.labels if label.startswith(("exported_", "watchdog_"))]
    assert f"{NAMESPACE}/notebook" in over.annotations["summary"]
    assert over.annotations["runbook_url"].endswith("#gpumemoryoverlimit")
    quick.allocate(tenant, GIB // 2)
    assert quick.wait_notified("GPUMemoryOverLimit", pod, status="resolved").labels == over.labels


def test_killed(quick: Chain) -> None:
    """The same team gets the kill's alert, and none about the limit, though the pod is over again."""
    pod, killed, links = go_killed(quick, "trainer")
    print(table("\nkilled, quick", links))
    assert all(each.took_s > 0 for each in links)
    assert killed.path == "/team-a"
    own = {"namespace": NAMESPACE, "pod": "trainer", "container": "main", "node": "n1"}
    assert own.items() <= killed.labels.items()
    before = quick.notified("GPUMemoryOverLimit", pod)
    quick.start(pod, OVER)
    quick.wait_silenced("GPUMemoryOverLimit", pod)
    assert quick.notified("GPUMemoryOverLimit", pod) == before
    assert quick.alertmanager.is_silenced({"alertname": "GPUMemoryPodKilled", "pod": pod.name}) is False


def test_hand_made_nodes_expose_what_a_real_one_does(quick: Chain) -> None:
    """The series that tests/monitoring/rules are made of have the names and labels of a running daemon's."""
    quick.world.pod("odd", ("main", "-1"), namespace=NAMESPACE)
    pod, _, _ = go_killed(quick, "measured")
    quick.start(pod, OVER)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(quick.daemon.get("/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    ours = {name for name in LABELS if name.startswith("gpu_watchdog_")}
    # Nothing was withheld, but for a step that was pending for a moment at most.
    assert ours - found.keys() - {"gpu_watchdog_account_withheld"} == {"gpu_watchdog_enforcement_suspended"}
    assert {name: LABELS[name] for name in ours & found.keys()} == {name: found[name] for name in ours & found.keys()}


def test_over_its_limit_then_killed(fast: Chain) -> None:
    """Each alert that was sent is resolved: the kill's after a while, and then the one that it silenced."""
    pod, tenant, over, _ = go_over(fast, "batch")
    fast.allocate(tenant, 3 * GIB)
    killed = fast.wait_notified("GPUMemoryPodKilled", pod)
    assert killed.at > over.at
    ended = fast.wait_notified("GPUMemoryPodKilled", pod, status="resolved")
    assert fast.wait_notified("GPUMemoryOverLimit", pod, status="resolved").labels == over.labels
    assert ended.at - killed.at > _A_WHILE_S


def test_over_again_some_time_after_the_kill(fast: Chain) -> None:
    """A pod that goes on offending after the kill is silenced for a while, not for good."""
    pod, killed, _ = go_killed(fast, "loop")
    fast.start(pod, OVER)
    fast.wait_silenced("GPUMemoryOverLimit", pod)
    again = fast.wait_notified("GPUMemoryOverLimit", pod)
    assert again.at - killed.at > _A_WHILE_S
