"""Two real nodes: two releases that each have their own, then one release for both, updated and uninstalled."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.rig.cluster.further_node import FurtherNode
from tests.rig.cluster.installed import counted, image_of, is_daemon, wait_all_gone
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.node import NODE, SECOND, Cluster
from tests.rig.cluster.nodes import TOTAL, Nodes
from tests.rig.cluster.real_pods import MEMORY, is_running, killed, wait_until
from tests.stub import MIB
from watchdog.kube.client import USER_AGENT

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
BOTH: Final = (NODE, SECOND)
LABEL: Final = "example.com/gpu-watchdog"


@pytest.fixture(scope="module")
def second(cluster: Cluster, node_programs: Path, watchdog_image: str) -> Iterator[FurtherNode]:
    """Another node, with the image."""
    began = time.monotonic()
    with FurtherNode(cluster, node_programs) as made:
        made.copy_image(watchdog_image, "1", "2")
        print(f"\nthe second node is there after {time.monotonic() - began:.1f} s")
        yield made


def test_a_release_leaves_the_nodes_of_another_alone(
    cluster: Cluster, second: FurtherNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two for two kinds of nodes, as in docs/security.md: each has its own, and takes back what those advertise."""

    def advertising() -> list[str]:
        return [node for node in BOTH if MEMORY in cluster.node(node)["status"]["capacity"]]

    policy = policy_text("observe", {"tenants": KILL})
    cluster.kubectl("label", "node", SECOND, "nvidia.com/gpu.present=true", f"{LABEL}=mig")
    plain = {"excludeNodeLabels": {LABEL: "mig"}}
    labelled = {"nodeSelector": {LABEL: "mig"}}
    with (
        installed(cluster, tmp_path_factory.mktemp("installed"), plain) as one,
        installed(cluster, tmp_path_factory.mktemp("installed"), labelled, account="gpu-watchdog-mig") as other,
    ):
        for each in (one, other):
            each.install(policy)
        wait_until(lambda: advertising() == [NODE, SECOND], "both nodes advertise GPU memory")
        assert [each.pod()["spec"]["nodeName"] for each in (one, other)] == [NODE, SECOND]
        kept, since = other.pod()["metadata"]["uid"], time.time()
        one.uninstall()
        assert advertising() == [SECOND]
        user = f"system:serviceaccount:{one.namespace}:gpu-watchdog-withdraw"
        asked = cluster.control_plane.requests(user_agent=USER_AGENT, user=user, since=since)
        assert {each.name for each in asked if each.verb == "patch"} == {NODE}
        assert other.pod()["metadata"]["uid"] == kept
        wait_until(lambda: not any(map(is_daemon, cluster.cgroups.members())), "the first's daemon has ended")
        assert any(map(is_daemon, second.cgroups.members()))
        other.uninstall()
        assert advertising() == []
        wait_all_gone(cluster, second.cgroups)
    cluster.kubectl("label", "node", SECOND, f"{LABEL}-")


@pytest.fixture(scope="module")
def nodes(cluster: Cluster, second: FurtherNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One release on both, enforcing."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made, Nodes(made, second).equipped() as both:
        made.install(POLICY)
        both.wait_enforcing()
        yield both


def test_each_daemon_acts_on_the_pods_of_its_node(nodes: Nodes, tenants: str) -> None:
    """An offender on each is killed by the daemon of its node, which neither requests nor sees pods of the other."""
    for node in BOTH:
        nodes.start(node, f"hog-on-{node}", tenants)
    for node in BOTH:
        nodes.pods.wait(f"hog-on-{node}", killed, tenants)
    for node in BOTH:
        assert {each["pod"] for each in nodes.release.events("kill_begun", nodes.daemon(node))} == {f"hog-on-{node}"}
        assert {each["pod"] for each in nodes.at(node).status()["accounts"]} <= {f"hog-on-{node}"}
        assert nodes.release.capacity(MEMORY, node=node) == TOTAL[node] - 512 * MIB
    requests = nodes.cluster.control_plane.requests(user_agent=USER_AGENT)
    asked = {each.uri for each in requests if each.resource == "pods" and f":{nodes.release.namespace}:" in each.user}
    assert {node for node in BOTH for uri in asked if f"fieldSelector=spec.nodeName%3D{node}" in uri} == set(BOTH)
    assert all("fieldSelector=spec.nodeName%3D" in uri for uri in asked)


def test_stop_on_one_node_stops_no_other(nodes: Nodes, tenants: str) -> None:
    """The file `stop` in the journal's folder of a node: nothing is killed there, and the other node's offender is."""
    stop, spared = nodes.state[SECOND] / "stop", f"late-on-{SECOND}"
    stop.touch()
    try:
        wait_until(lambda: not nodes.at(SECOND).status()["enforcing"], "the second node's daemon has stopped")
        for node in BOTH:
            nodes.start(node, f"late-on-{node}", tenants)
        nodes.pods.wait(f"late-on-{NODE}", killed, tenants)
        nodes.pods.wait(spared, is_running, tenants)

        def over() -> set[str]:
            return {each["pod"] for each in nodes.at(SECOND).status()["accounts"] if each["verdict"] == "over"}

        wait_until(lambda: spared in over(), "it is seen")
        assert nodes.pods.untouched(spared, tenants, "main")
    finally:
        stop.unlink()
    nodes.pods.wait(spared, killed, tenants)


def test_an_update_takes_one_node_after_the_other(nodes: Nodes) -> None:
    """Of two nodes, 10% (`maxUnavailable`) are one: never both without a daemon, and never two daemons on a node."""
    before = {node: nodes.daemon(node)["metadata"]["uid"] for node in BOTH}
    with counted(*nodes.cgroups.values()) as seen:
        nodes.release.install(POLICY, "--set-string", "image.tag=2")
        nodes.wait_enforcing()
    assert seen == {"fewest nodes": 1, "most daemons": 1}
    for node in BOTH:
        assert image_of(nodes.daemon(node)) == "2"
        assert nodes.daemon(node)["metadata"]["uid"] != before[node]


def test_uninstall_takes_the_capacity_back_from_all_nodes(nodes: Nodes) -> None:
    """`withdraw --all-nodes` by one Job: neither node has the entry, or a daemon, or anything else of the release."""
    nodes.release.uninstall()
    for node in BOTH:
        assert MEMORY not in nodes.cluster.node(node)["status"]["capacity"]
    wait_all_gone(nodes.cluster, nodes.cgroups[SECOND])
    for state in nodes.state.values():
        assert (state / "journal.db").is_file()
