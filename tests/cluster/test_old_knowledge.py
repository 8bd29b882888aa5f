"""What was followed and can't be any more: known for `stale_after`, and then no reason to use force."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cluster.accounts import NewAccount
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.pods import Pods
from tests.node.support import wait_until
from tests.worlds import policy, rule, step
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Now
from watchdog.core.policy import Match, Policy
from watchdog.daemon.cluster import Cluster
from watchdog.daemon.sources import Sources
from watchdog.options import Options

STALE_AFTER_S = 180.0
NEEDS_ALL: Policy = replace(
    policy(rule(step(), match=Match(namespace_labels={"team": "ml"}))), mode="enforce", stale_after_s=STALE_AFTER_S
)


@pytest.fixture
def known(new_account: NewAccount, pods: Pods, api_proxy: ApiProxy) -> Iterator[tuple[Cluster, Sources]]:
    """What a daemon would follow, with the rights of the policy, through the proxy."""
    node = pods.node()
    options = Options(node=node, kubeconfig=new_account(NEEDS_ALL, node).through(api_proxy))
    made = Cluster(options, Bell())
    made.follow(NEEDS_ALL)
    yield made, Sources(options, None, made)
    made.close(0.1)


def _after(seconds: float) -> Now:
    now = clock.now()
    return replace(now, boottime_s=now.boottime_s + seconds)


def test_a_node_and_namespaces_that_are_refused_count_for_as_long_as_the_pods_would(
    known: tuple[Cluster, Sources], api_proxy: ApiProxy
) -> None:
    """A right that is taken away must not leave an old annotation, or old labels, in force for ever."""
    followed, around = known
    wait_until(lambda: len(api_proxy.streams) == 3)  # all are listed, and watched
    quiet = around.inputs(NEEDS_ALL, _after(10 * STALE_AFTER_S))
    assert quiet.namespaces  # at rest for long, on a watch that is sound
    assert not around.switches(_after(10 * STALE_AFTER_S), STALE_AFTER_S).unseen
    api_proxy.answer(403, when=lambda seen: seen.path.endswith(("/nodes", "/namespaces")))
    api_proxy.finish_streams()
    wait_until(lambda: None not in (followed.node.view.problem, followed.namespaces.view.problem))
    assert not around.switches(_after(0), STALE_AFTER_S).unseen
    assert around.inputs(NEEDS_ALL, _after(0)).namespaces
    assert around.switches(_after(STALE_AFTER_S), STALE_AFTER_S).unseen
    assert around.inputs(NEEDS_ALL, _after(STALE_AFTER_S)).namespaces == {}
    api_proxy.heal()
    wait_until(lambda: followed.node.view.problem is None and followed.namespaces.view.problem is None)
    assert not around.switches(_after(0), STALE_AFTER_S).unseen


def test_a_thread_that_has_ended_is_a_reason_to_begin_anew(known: tuple[Cluster, Sources]) -> None:
    """Nothing new would come from it any more, and nobody but a new daemon would help."""
    followed, _ = known
    before = followed.defect
    wait_until(lambda: followed.pods.view.synced is not None)
    (thread,) = [each for each in threading.enumerate() if each.name == "api-pods"]
    watcher = followed.pods._watcher  # ended behind the feed's back, as a defect would
    assert watcher is not None
    watcher.stop()
    thread.join(10)
    assert (before, followed.pods.has_died) == (None, True)
    assert "a thread that watches the API has died" in str(followed.defect)
