"""What the daemon follows by the API under a policy, and after a reload: counted at a real API server."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cluster.accounts import Account, NewAccount, wait_until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.informer_rig import MATCHES_BY_NAMESPACE, OBSERVES, has_threads
from tests.cluster.pods import Pods
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.policy import Policy
from watchdog.core.rules import MIG_STATE, maintenance_of
from watchdog.daemon.cluster import Cluster
from watchdog.options import Options

ENFORCES: Policy = replace(MATCHES_BY_NAMESPACE, mode="enforce")


class Follower:
    """What a daemon follows on a node, as an account with the rights of its policy."""

    def __init__(self, account: Account, node: str) -> None:
        self._account = account
        self.cluster = Cluster(Options(node=node, kubeconfig=account.kubeconfig), Bell())

    def asked(self) -> list[tuple[str, str]]:
        """Kind and verb of each request so far, in the order of the alphabet."""
        seen = self._account.plane.requests(user=self._account.identity.user)
        return sorted((each.resource, each.verb) for each in seen if each.user_agent.startswith("gpu-memory-watchdog/"))

    def has_asked(self, *kinds: str) -> bool:
        """Whether it was one list and one watch of each of these kinds, and nothing else."""
        return self.asked() == sorted((kind, verb) for kind in kinds for verb in ("list", "watch"))

    def maintenance(self) -> str | None:
        """Why the node, as it is known, wants the driver to be let go."""
        return maintenance_of(self.cluster.node.read(clock.now())[0])


@pytest.fixture
def node(pods: Pods) -> str:
    """A node."""
    return pods.node()


@pytest.fixture
def watcher(new_account: NewAccount, node: str) -> Iterator[Follower]:
    """Follows nothing yet; it may follow all there is."""
    made = Follower(new_account(ENFORCES, node), node)
    yield made
    made.cluster.close(0.1)
    wait_until(lambda: not has_threads(), "its threads have ended")


def test_a_start_is_one_list_and_one_watch_of_the_pods_and_of_the_node(watcher: Follower) -> None:
    """Also for a policy that only observes, and asks for nothing of the node: it holds the driver open all the same."""
    watcher.cluster.follow(OBSERVES)
    wait_until(lambda: watcher.has_asked("pods", "nodes"), "both are followed")
    watcher.cluster.follow(OBSERVES)  # a reload that changes nothing costs nothing
    watcher.cluster.follow(ENFORCES)
    wait_until(lambda: watcher.has_asked("pods", "nodes", "namespaces"), "namespaces are followed too")


def test_a_reload_to_observe_in_the_middle_of_maintenance(
    control_plane: ControlPlane, watcher: Follower, node: str
) -> None:
    """The node is followed on: forgotten, its driver would be opened again under the hands of whoever changes it."""
    watcher.cluster.follow(ENFORCES)
    wait_until(lambda: watcher.has_asked("pods", "nodes", "namespaces"), "all is followed")
    control_plane.kubectl("label", "node", node, f"{MIG_STATE}=pending")
    wait_until(lambda: watcher.maintenance() is not None, "the label has come")
    watcher.cluster.follow(OBSERVES)
    assert watcher.maintenance() == f"the node's label {MIG_STATE} is pending"
    assert watcher.cluster.namespaces.read(clock.now()) == ({}, ())  # what nobody follows is forgotten
    control_plane.kubectl("label", "--overwrite", "node", node, f"{MIG_STATE}=success")
    wait_until(lambda: watcher.maintenance() is None, "the end of it has come by the same watch")
    assert watcher.has_asked("pods", "nodes", "namespaces")
