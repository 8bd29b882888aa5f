"""Two releases for two kinds of nodes, as docs/security.md has them: each has its own nodes, also when it goes."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.installed import Installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import NODE, SECOND, Cluster
from tests.cluster.real_pods import MEMORY, wait_until
from tests.cluster.second_node import SecondNode
from tests.cluster.test_installed_life import is_daemon, left
from watchdog.kube.client import USER_AGENT

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("observe", {"tenants": KILL})
LABEL: Final = "example.com/gpu-watchdog"
ACCOUNT: Final = "gpu-watchdog-mig"
GPU: Final = "nvidia.com/gpu.present=true"


class Mixed:
    """The release of all other nodes, that of the labelled ones, and the node that is labelled."""

    def __init__(self, first: Installed, second: Installed, node: SecondNode) -> None:
        self.first = first
        self.second = second
        self.node = node
        self.cluster = first.cluster

    def nodes_of(self, release: Installed) -> list[str]:
        """The nodes that a release has a daemon on."""
        return [str(each["spec"].get("nodeName")) for each in release.pods()]

    def advertising(self) -> list[str]:
        """The nodes that have the entry."""
        return [node for node in (NODE, SECOND) if MEMORY in self.cluster.node(node)["status"]["capacity"]]


@pytest.fixture(scope="module")
def mixed(
    cluster: Cluster, node_programs: Path, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """Both installed with a policy that advertises; the second node has the label of the second release."""
    folders = [tmp_path_factory.mktemp("installed") for _ in range(2)]
    with ExitStack() as stack:
        node = stack.enter_context(SecondNode(cluster, node_programs))
        node.copy_image(watchdog_image, "1")
        cluster.kubectl("label", "node", SECOND, GPU, f"{LABEL}=mig")
        first = Installed(cluster, folders[0], more={"excludeNodeLabels": {LABEL: "mig"}})
        stack.callback(first.remove)
        second = Installed(cluster, folders[1], account=ACCOUNT, more={"nodeSelector": {LABEL: "mig"}})
        stack.callback(second.remove)
        for each in (first, second):
            each.install(POLICY)
        made = Mixed(first, second, node)
        wait_until(lambda: made.advertising() == [NODE, SECOND], "both nodes advertise GPU memory")
        yield made


def test_each_node_has_the_daemon_of_one_release(mixed: Mixed) -> None:
    """The first leaves out the nodes of the second, although both have the label of GPUs."""
    assert mixed.nodes_of(mixed.first) == [NODE]
    assert mixed.nodes_of(mixed.second) == [SECOND]
    for release in (mixed.first, mixed.second):
        (found,) = release.pods()
        assert release.at(found["status"]["podIP"]).status()["mode"] == "observe"


def test_one_that_goes_leaves_the_nodes_of_the_other_alone(mixed: Mixed) -> None:
    """`helm uninstall` of either takes back what its own nodes advertise, and asks nothing of the other's."""
    cluster, since = mixed.cluster, time.time()
    kept = mixed.second.pod()["metadata"]["uid"]
    mixed.first.uninstall()
    assert mixed.advertising() == [SECOND]
    user = f"system:serviceaccount:{mixed.first.namespace}:gpu-watchdog-withdraw"
    patched = [
        each.uri
        for each in cluster.control_plane.requests(user_agent=USER_AGENT, user=user, since=since)
        if each.verb == "patch"
    ]
    assert patched
    assert all(f"/nodes/{NODE}/status" in each for each in patched)
    assert mixed.second.pod()["metadata"]["uid"] == kept
    wait_until(lambda: not any(map(is_daemon, cluster.cgroups.members())), "the first's daemon has ended")
    assert any(map(is_daemon, mixed.node.cgroups.members()))
    mixed.second.uninstall()
    assert mixed.advertising() == []
    wait_until(lambda: not left(cluster), lambda: f"objects are gone: {left(cluster)}")
    wait_until(lambda: not any(map(is_daemon, mixed.node.cgroups.members())), "the second's daemon has ended")
