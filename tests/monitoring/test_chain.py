"""From an allocation on a card to the message, through everything that ships: daemon, scrape, rules, Alertmanager."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.monitoring.chain import FAST, NAMESPACE, QUICK, Chain, chain, go_killed, go_over, settled, table
from tests.monitoring.notifying import told_for_s
from tests.stub import GIB

pytestmark = [pytest.mark.slow, pytest.mark.node]
# At least so much of the time for which a kill is told passes at the fast pace between two messages.
_A_WHILE_S: Final = told_for_s("GPUMemoryPodKilled") / FAST.times * 2 / 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with the alerts of deploy/, but for the five minutes that GPUMemoryOverLimit waits."""
    with chain(tmp_path_factory.mktemp("chain"), QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with all times of the alerts thirty times as short, so that a kill is old news after 20 s."""
    with chain(tmp_path_factory.mktemp("fast"), FAST) as running:
        yield running


def test_over_its_limit(run: Chain) -> None:
    """The team of the pod's namespace is told, with the pod's own labels, and told again when it is over."""
    pod, tenant, told, links = go_over(run, "notebook")
    print(table("\nover its limit, quick", links))
    assert told.path == "/team-a"
    assert {"namespace": NAMESPACE, "pod": "notebook", "node": "n1", "rule": "shared", "cluster": "c1"}.items() <= (
        told.labels.items()
    )
    assert not [label for label in told.labels if label.startswith(("exported_", "watchdog_"))]
    assert f"{NAMESPACE}/notebook" in told.annotations["summary"]
    assert told.annotations["runbook_url"].endswith("#gpumemoryoverlimit")
    run.allocate(tenant, GIB // 2)
    resolved = run.wait_told("GPUMemoryOverLimit", pod, status="resolved")
    assert resolved.labels == told.labels


def test_killed(run: Chain) -> None:
    """A kill is told to the same team, and the alert about the limit is told no more, though the pod is over again."""
    pod, told, links = go_killed(run, "trainer")
    print(table("\nkilled, quick", links))
    assert all(each.took_s > 0 for each in links)
    assert told.path == "/team-a"
    assert {"namespace": NAMESPACE, "pod": "trainer", "container": "main", "node": "n1"}.items() <= told.labels.items()
    before = run.told("GPUMemoryOverLimit", pod)
    run.start(pod, GIB * 6 // 5)
    settled(run, "GPUMemoryOverLimit", pod)
    assert run.told("GPUMemoryOverLimit", pod) == before
    assert run.is_silenced("GPUMemoryPodKilled", pod) is False


def test_told_over_its_limit_then_killed(fast: Chain) -> None:
    """Each alert that was told is told as resolved: the kill's once it is old news, and then the one it silenced."""
    pod, tenant, over, _ = go_over(fast, "batch")
    fast.allocate(tenant, 2 * GIB)
    killed = fast.wait_told("GPUMemoryPodKilled", pod)
    assert killed.at > over.at
    ended = fast.wait_told("GPUMemoryPodKilled", pod, status="resolved")
    assert fast.wait_told("GPUMemoryOverLimit", pod, status="resolved").labels == over.labels
    assert ended.at - killed.at > _A_WHILE_S


def test_over_again_is_told_once_the_kill_is_old_news(fast: Chain) -> None:
    """Who goes on offending after the kill is silent for a while, not for good."""
    pod, killed, _ = go_killed(fast, "loop")
    fast.start(pod, GIB * 6 // 5)
    settled(fast, "GPUMemoryOverLimit", pod)
    again = fast.wait_told("GPUMemoryOverLimit", pod)
    assert again.at - killed.at > _A_WHILE_S
