"""What the daemon follows by the API under a policy, after a reload, and for how long what it knew counts."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.rig.cluster.accounts import Account, NewAccount
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.informer_rig import MATCHES_BY_NAMESPACE, OBSERVES, has_threads
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.real_pods import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Now
from watchdog.core.policy import Policy
from watchdog.daemon.cluster import Cluster
from watchdog.daemon.sources import Sources
from watchdog.kube.kinds import NAMESPACES, NODE
from watchdog.options import Options

STALE_AFTER_S: Final = 180.0
ENFORCES: Final = replace(MATCHES_BY_NAMESPACE, mode="enforce", stale_after_s=STALE_AFTER_S)


class Follower:
    """What a daemon follows on a node, as an account with the rights of its policy, through a proxy."""

    def __init__(self, account: Account, node: str, api_proxy: ApiProxy) -> None:
        self._account = account
        options = Options(node=node, kubeconfig=account.through(api_proxy))
        self.cluster = Cluster(options, Bell())
        self.sources = Sources(options, None, self.cluster)

    def follow(self, policy: Policy, *kinds: str) -> None:
        """Follow what the policy needs, until that has been one list and one watch of each of these, and no more."""
        self.cluster.follow(policy)
        expected = sorted((kind, verb) for kind in kinds for verb in ("list", "watch"))
        wait_until(lambda: self.asked() == expected, lambda: f"{kinds} are followed: {self.asked()}")

    def asked(self) -> list[tuple[str, str]]:
        """Kind and verb of each request so far, sorted."""
        seen = self._account.plane.requests(user=self._account.identity.user)
        return sorted((each.resource, each.verb) for each in seen if each.user_agent.startswith("gpu-memory-watchdog/"))

    def unseen(self, after_s: float) -> bool:
        """Whether the node's switches count as unseen by then."""
        return bool(self.sources.switches(_after(after_s), STALE_AFTER_S).unseen)

    def has_namespaces(self, after_s: float) -> bool:
        """Whether the labels of namespaces count by then."""
        return bool(self.sources.inputs(ENFORCES, _after(after_s)).namespaces)


def _after(seconds: float) -> Now:
    now = clock.now()
    return replace(now, boottime_s=now.boottime_s + seconds)


@pytest.fixture
def node(pods: Pods) -> str:
    """A node."""
    return pods.node()


@pytest.fixture
def follower(new_account: NewAccount, node: str, api_proxy: ApiProxy) -> Iterator[Follower]:
    """Follows nothing yet; it may follow all there is."""
    made = Follower(new_account(ENFORCES, node), node, api_proxy)
    yield made
    made.cluster.close(0.1)
    wait_until(lambda: not has_threads(), "its threads have ended")


def test_a_start_is_one_list_and_one_watch_of_the_pods_and_of_the_node(follower: Follower) -> None:
    """Also for a policy that only observes, and needs nothing of the node: it holds the driver open all the same."""
    follower.follow(OBSERVES, "pods", "nodes")
    follower.cluster.follow(OBSERVES)  # a reload that changes nothing costs nothing
    follower.follow(ENFORCES, "pods", "nodes", "namespaces")
    follower.cluster.follow(OBSERVES)
    assert follower.cluster.informer(NAMESPACES).read(clock.now()) == (
        {},
        (),
    )  # what is no longer followed is forgotten


def test_what_is_refused_counts_for_as_long_as_pods_would(follower: Follower, api_proxy: ApiProxy) -> None:
    """A right that is taken away must not leave an old annotation, or old labels, in force for ever."""
    follower.follow(ENFORCES, "pods", "nodes", "namespaces")
    informers = (follower.cluster.informer(NODE), follower.cluster.informer(NAMESPACES))
    wait_until(lambda: len(api_proxy.streams) == 3, "all are watched")
    # Unchanged for long, on a watch that is sound.
    assert (follower.unseen(10 * STALE_AFTER_S), follower.has_namespaces(10 * STALE_AFTER_S)) == (False, True)
    api_proxy.answer(403, when=lambda seen: seen.path.endswith(("/nodes", "/namespaces")))
    api_proxy.finish_streams()
    wait_until(lambda: all(each.view.problem is not None for each in informers), "both are refused")
    assert (follower.unseen(0), follower.has_namespaces(0)) == (False, True)
    assert (follower.unseen(STALE_AFTER_S), follower.has_namespaces(STALE_AFTER_S)) == (True, False)
    api_proxy.heal()
    wait_until(lambda: all(each.view.problem is None for each in informers), "both are followed again")
    assert not follower.unseen(0)


def test_a_thread_that_has_ended_is_a_reason_to_restart(follower: Follower) -> None:
    """Nothing new would come from it any more, and only a new daemon would help."""
    follower.follow(ENFORCES, "pods", "nodes", "namespaces")
    pods = follower.cluster.pods
    wait_until(lambda: pods.view.synced is not None, "the pods are known")
    assert follower.cluster.defect is None
    (thread,) = [each for each in threading.enumerate() if each.name == "api-pods"]
    watcher = pods._watcher  # ended behind the informer's back, as a defect would
    assert watcher is not None
    watcher.stop()
    thread.join(10)
    assert pods.has_died
    assert follower.cluster.defect is not None
