"""Two real nodes: two releases that each have their own, then one release for both, updated and uninstalled."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.rig.cluster.api import Object
from tests.rig.cluster.card import Card
from tests.rig.cluster.installed import Installed, counted, image_of, is_daemon, wait_all_gone
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.node import NODE, SECOND, Cluster
from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.rig.cluster.real_pods import MEMORY, RealPods, container, is_running, killed, pod, wait_until
from tests.rig.cluster.second_node import SecondNode
from tests.rig.cluster.workloads import DECLARED
from tests.rig.command import COMMAND, Endpoints
from tests.stub import GIB, MIB
from watchdog.kube.client import USER_AGENT
from watchdog.kube.rights import ServiceAccount, render_personal

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
TOTAL: Final = {NODE: 1024 * GIB, SECOND: 512 * GIB}
LABEL: Final = "example.com/gpu-watchdog"


@pytest.fixture(scope="module")
def second(cluster: Cluster, node_programs: Path, watchdog_image: str) -> Iterator[SecondNode]:
    """Another node, with the image."""
    began = time.monotonic()
    with SecondNode(cluster, node_programs) as made:
        made.copy_image(watchdog_image, "1", "2")
        print(f"\nthe second node is there after {time.monotonic() - began:.1f} s")
        yield made


def test_a_release_leaves_the_nodes_of_another_alone(
    cluster: Cluster, second: SecondNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two for two kinds of nodes, as in docs/security.md: each has its own, and takes back what those advertise."""

    def advertising() -> list[str]:
        return [node for node in TOTAL if MEMORY in cluster.node(node)["status"]["capacity"]]

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


class Nodes:
    """The release, and what each of the two nodes has of it."""

    def __init__(self, release: Installed, second: SecondNode) -> None:
        self.release = release
        self.second = second
        self.cluster = release.cluster
        self.pods = RealPods(self.cluster.control_plane, self.cluster.cgroups, second.cgroups)
        self.cgroups: dict[str, CgroupRoot] = {NODE: self.cluster.cgroups, SECOND: second.cgroups}
        # The paths of the release's values lead elsewhere on the second node, as they do on another machine.
        self.state = {NODE: release.state, SECOND: release.folder / "state-2"}
        driver = release.folder / "driver-2"
        shutil.copytree(release.driver, driver)
        for folder, instead in ((release.driver, driver), (release.state, self.state[SECOND])):
            folder.mkdir(exist_ok=True)
            instead.mkdir(exist_ok=True)
            command = [*second.namespaces.machine, "mount", "--bind", str(instead), str(folder)]
            subprocess.run(command, check=True, timeout=60)
        self.card = Card(driver, second.cgroups, total=TOTAL[SECOND])

    def daemon(self, node: str) -> Object:
        """The daemon's only pod of a node."""
        (found,) = [each for each in self.release.pods() if each["spec"]["nodeName"] == node]
        return found

    def at(self, node: str) -> Endpoints:
        """What that daemon answers."""
        return self.release.at(self.daemon(node)["status"]["podIP"])

    def start(self, node: str, name: str, room: str) -> None:
        """A pod over its limit, on that node."""
        one = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
        self.pods.create(pod(name, one, nodeSelector={"kubernetes.io/hostname": node}), room)

    def wait_enforcing(self) -> None:
        """Wait until both daemons enforce, and both nodes offer their memory."""
        wait_until(lambda: all(self.at(node).status()["enforcing"] for node in TOTAL), "both enforce")
        wait_until(
            lambda: all(self.release.capacity(MEMORY, "allocatable", node) for node in TOTAL), "both offer GPU memory"
        )


@pytest.fixture(scope="module")
def nodes(cluster: Cluster, second: SecondNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One release on both, enforcing."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        cluster.kubectl("label", "--overwrite", "node", SECOND, "nvidia.com/gpu.present=true")
        both = Nodes(made, second)
        with both.card:
            made.install(POLICY)
            both.wait_enforcing()
            yield both


def test_each_daemon_acts_on_the_pods_of_its_node(nodes: Nodes, tenants: str) -> None:
    """An offender on each is killed by the daemon of its node, which neither requests nor sees pods of the other."""
    for node in TOTAL:
        nodes.start(node, f"hog-on-{node}", tenants)
    for node in TOTAL:
        nodes.pods.wait(f"hog-on-{node}", killed, tenants)
    for node, total in TOTAL.items():
        assert {each["pod"] for each in nodes.release.events("kill_begun", nodes.daemon(node))} == {f"hog-on-{node}"}
        assert {each["pod"] for each in nodes.at(node).status()["accounts"]} <= {f"hog-on-{node}"}
        assert nodes.release.capacity(MEMORY, node=node) == total - 512 * MIB
    requests = nodes.cluster.control_plane.requests(user_agent=USER_AGENT)
    asked = {each.uri for each in requests if each.resource == "pods" and f":{nodes.release.namespace}:" in each.user}
    assert {node for node in TOTAL for uri in asked if f"fieldSelector=spec.nodeName%3D{node}" in uri} == set(TOTAL)
    assert all("fieldSelector=spec.nodeName%3D" in uri for uri in asked)


def test_stop_on_one_node_stops_no_other(nodes: Nodes, tenants: str) -> None:
    """The file `stop` in the journal's folder of a node: nothing is killed there, and the other node's offender is."""
    stop, spared = nodes.state[SECOND] / "stop", f"late-on-{SECOND}"
    stop.touch()
    try:
        wait_until(lambda: not nodes.at(SECOND).status()["enforcing"], "the second node's daemon has stopped")
        for node in TOTAL:
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


def top(nodes: Nodes, *options: str, token: str = "") -> "subprocess.CompletedProcess[str]":
    """`top --cluster` outside of the cluster's pods, as the admin or by this token."""
    plane = nodes.cluster.control_plane
    kubeconfig = plane.kubeconfig(token=token) if token else plane.admin_kubeconfig
    command = [*plane.network.enter, COMMAND, "top", "--cluster", "--kubeconfig", kubeconfig, *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)


def test_top_shows_every_node_from_outside(nodes: Nodes, tenants: str) -> None:
    """Through the API server's proxy: both nodes with their cards and statuses; who may not, reads which right."""
    shown = top(nodes, "--once")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("2 nodes answer through the API server's proxy\n")
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if "enforcing" in line}
    assert rows.keys() == set(TOTAL)
    assert "1Ti" in rows[NODE]
    document = json.loads(top(nodes, "--json").stdout)
    assert document["via"] == "proxy"
    for each, node in zip(document["nodes"], TOTAL, strict=True):
        assert (each["node"], each["status"]["node"], each["problem"]) == (node, node, None)
        assert each["status"]["gpus"][0]["memory"]["total"] == TOTAL[node]
        assert 0 <= each["age_s"] < 60
    plane = nodes.cluster.control_plane
    token = plane.service_account_token(tenants, "default")
    refused = top(nodes, "--once", token=token)
    assert refused.returncode == 1
    assert "an administrator gives you `list` on pods" in refused.stderr
    role = f"reader-{tenants}"
    plane.kubectl("create", "clusterrole", role, "--verb=list", "--resource=pods")
    plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--serviceaccount={tenants}:default")
    wait_until(lambda: top(nodes, "--once", token=token).returncode == 0, "the right to list is in force")
    silent = top(nodes, "--once", token=token).stdout
    assert silent.startswith("0 nodes answer through the API server's proxy, 2 do not answer\n")
    assert silent.count("an administrator gives you `get` on pods/proxy") == 2
    plane.kubectl("delete", "clusterrole,clusterrolebinding", role)


def test_a_person_needs_one_role_in_the_namespace(nodes: Nodes, tenants: str) -> None:
    """Bound in the watchdog's namespace alone, the role `view` of `rights --for-people` suffices to see all nodes."""
    plane, account = nodes.cluster.control_plane, ServiceAccount(name=f"viewer-{tenants}")
    plane.kubectl("apply", "-f", "-", input=render_personal(account))
    bound = ("--clusterrole", f"{account.name}-view", "--serviceaccount", f"{tenants}:default")
    nodes.release.kubectl("create", "rolebinding", account.name, *bound)
    token = plane.service_account_token(tenants, "default")

    def seen() -> str:
        return top(nodes, "-n", nodes.release.namespace, token=token).stdout

    wait_until(lambda: seen().startswith("2 nodes answer through the API server's proxy\n"), "the role is in force")
    assert top(nodes, token=token).returncode == 1
    nodes.release.kubectl("delete", "rolebinding", account.name)
    plane.kubectl("delete", "-f", "-", input=render_personal(account))


def test_an_update_takes_one_node_after_the_other(nodes: Nodes) -> None:
    """Of two nodes, 10% (`maxUnavailable`) are one: never both without a daemon, and never two daemons on a node."""
    before = {node: nodes.daemon(node)["metadata"]["uid"] for node in TOTAL}
    with counted(*nodes.cgroups.values()) as seen:
        nodes.release.install(POLICY, "--set-string", "image.tag=2")
        nodes.wait_enforcing()
    assert seen == {"fewest nodes": 1, "most daemons": 1}
    for node in TOTAL:
        assert image_of(nodes.daemon(node)) == "2"
        assert nodes.daemon(node)["metadata"]["uid"] != before[node]


def test_uninstall_takes_the_capacity_back_from_all_nodes(nodes: Nodes) -> None:
    """`withdraw --all-nodes` by one Job: neither node has the entry, or a daemon, or anything else of the release."""
    nodes.release.uninstall()
    for node in TOTAL:
        assert MEMORY not in nodes.cluster.node(node)["status"]["capacity"]
    wait_all_gone(nodes.cluster, nodes.second.cgroups)
    for state in nodes.state.values():
        assert (state / "journal.db").is_file()
