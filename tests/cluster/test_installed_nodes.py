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
from tests.rig.cluster.further_node import FurtherNode
from tests.rig.cluster.installed import Installed, counted, image_of, is_daemon, wait_all_gone
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.node import NODE, SECOND, Cluster
from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.rig.cluster.real_pods import MEMORY, RealPods, container, is_running, killed, pod, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.rig.command import COMMAND, Endpoints
from tests.stub import GIB, MIB
from watchdog.kube.client import USER_AGENT

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
TOTAL: Final = {NODE: 1024 * GIB, SECOND: 512 * GIB}
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

    def __init__(self, release: Installed, second: FurtherNode) -> None:
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
def nodes(cluster: Cluster, second: FurtherNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
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


def outside(nodes: Nodes, *arguments: str, token: str = "") -> "subprocess.CompletedProcess[str]":
    """A command outside of the cluster's pods, as the admin or by this token, with a kubeconfig as a person has it."""
    plane = nodes.cluster.control_plane
    kubeconfig = plane.kubeconfig(token=token) if token else plane.admin_kubeconfig
    command = [*plane.network.enter, "env", f"KUBECONFIG={kubeconfig}", str(COMMAND), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_top_shows_every_node_from_outside(nodes: Nodes) -> None:
    """Through the API server's proxy, and by default where a kubeconfig is and no daemon: all nodes and cards."""
    shown = outside(nodes, "top", "--once")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("2 nodes answer through the API server's proxy\n")
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if "enforcing" in line}
    assert rows.keys() == set(TOTAL)
    assert "1Ti" in rows[NODE]
    document = json.loads(outside(nodes, "top", "--json").stdout)
    assert document["via"] == "proxy"
    for each, node in zip(document["nodes"], TOTAL, strict=True):
        assert (each["node"], each["status"]["node"], each["problem"]) == (node, node, None)
        assert each["status"]["gpus"][0]["memory"]["total"] == TOTAL[node]
        assert 0 <= each["age_s"] < 60


def test_commands_find_the_node_and_its_daemon(nodes: Nodes, tenants: str) -> None:
    """A pod is explained, with what the journal of its node has, although nobody said which node that is."""
    nodes.start(SECOND, "asked-for", tenants)
    nodes.pods.wait("asked-for", killed, tenants)
    explained = outside(nodes, "explain", f"{tenants}/asked-for")
    assert explained.returncode == 0, explained.stderr
    assert explained.stdout.startswith(f"Pod {tenants}/asked-for on node {SECOND}, ")
    assert "from the journal" in explained.stdout
    assert "was killed" in explained.stdout
    document = json.loads(outside(nodes, "explain", f"{tenants}/asked-for", "--json").stdout)
    assert (document["pod"], document["node"]) == ("asked-for", SECOND)
    past = json.loads(outside(nodes, "history", "--pod", f"{tenants}/asked-for", "--since", "1h", "--json").stdout)
    assert {row["node"] for row in past} == {SECOND}
    assert "kill_ended" in {row["event"] for row in past}
    # Without the pod, a node is named.
    assert "asked-for" in outside(nodes, "history", SECOND, "--action", "kill").stdout
    assert "asked-for" not in outside(nodes, "history", NODE).stdout
    scanned = json.loads(outside(nodes, "scan", "--json", SECOND).stdout)
    assert (scanned["node"], scanned["gpus"][0]["memory"]["total"]) == (SECOND, TOTAL[SECOND])
    # Once the pod is gone, its node is the one whose daemon remembers it.
    nodes.pods.delete("asked-for", tenants)
    assert f"on node {SECOND}" in outside(nodes, "explain", f"{tenants}/asked-for").stdout
    lost = outside(nodes, "explain", f"{tenants}/never-there")
    assert lost.returncode == 1
    assert "no daemon has it among its pods or recent actions; name the node" in lost.stderr


def test_stop_and_resume_from_outside(nodes: Nodes) -> None:
    """`stop NODE` turns enforcement off there, and only there; the exit code is that of the command in the pod."""
    stopped = outside(nodes, "stop", SECOND, "--why", "maintenance of the rack")
    try:
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.startswith(f"Stopped: the watchdog of node {SECOND}")
        assert not nodes.at(SECOND).status()["enforcing"]
        assert nodes.at(NODE).status()["enforcing"]
        shown = outside(nodes, "top", "--once").stdout
        assert f"! {SECOND}: suspended: stop_file" in shown
        assert "maintenance of the rack" in shown
    finally:
        resumed = outside(nodes, "resume", SECOND)
    assert resumed.returncode == 0, resumed.stderr
    nodes.wait_enforcing()
    nowhere = outside(nodes, "stop", "node-9")
    assert nowhere.returncode == 1
    assert f"there is no pod of the watchdog on node node-9; there is one on {NODE}, {SECOND}" in nowhere.stderr


def test_a_closed_network_is_passed_by_port_forward(nodes: Nodes) -> None:
    """A packet filter keeps the API server from a pod: the kubelet leads there, and the first line says so and why."""
    address = nodes.daemon(SECOND)["status"]["podIP"]
    rule = ("OUTPUT", "-d", address, "-p", "tcp", "--dport", "9837", "-j", "DROP")
    enter = nodes.cluster.control_plane.network.enter
    subprocess.run([*enter, "iptables", "-I", *rule], check=True, timeout=30)
    try:
        shown = outside(nodes, "top", "--once")
    finally:
        subprocess.run([*enter, "iptables", "-D", *rule], check=True, timeout=30)
    assert shown.returncode == 0, shown.stderr
    first = shown.stdout.splitlines()[0]
    assert first.startswith("1 node answers through the API server's proxy, 1 answers by port-forward (the API server")
    assert {line.split()[0] for line in shown.stdout.splitlines() if "enforcing" in line} == set(TOTAL)


def test_a_person_with_few_rights_reads_which_is_missing(nodes: Nodes, tenants: str) -> None:
    """Each right that is missing is named with what it is for; what can be shown without it is shown."""
    plane = nodes.cluster.control_plane
    token = plane.service_account_token(tenants, "default")
    refused = outside(nodes, "top", "--once", token=token)
    assert refused.returncode == 1
    assert "an administrator gives you `list` on pods" in refused.stderr
    role = f"reader-{tenants}"

    def grant(name: str, *rights: str) -> None:
        plane.kubectl("create", "clusterrole", name, *rights)
        plane.kubectl(
            "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={tenants}:default"
        )

    grant(role, "--verb=list", "--verb=get", "--resource=pods")
    wait_until(lambda: outside(nodes, "top", "--once", token=token).returncode == 0, "the right to list is in force")
    silent = outside(nodes, "top", "--once", token=token).stdout
    assert silent.startswith("2 nodes do not answer\n")
    assert silent.count("an administrator gives you `get` on pods/proxy") == 2
    assert silent.count("`get` and `create` on pods/portforward") == 2
    assert "nodes without a pod of the watchdog are not shown" in silent
    grant(f"{role}-proxy", "--verb=get", "--resource=pods/proxy")
    wait_until(
        lambda: outside(nodes, "top", "--once", token=token).stdout.startswith("2 nodes answer through"), "the proxy's"
    )
    # Without the right to run a command in the pod, an explanation comes from the daemon, and lacks the past.
    pod = nodes.daemon(NODE)["metadata"]
    nodes.start(NODE, "explained", tenants)
    nodes.pods.wait("explained", killed, tenants)
    explained = outside(nodes, "explain", f"{tenants}/explained", token=token)
    assert explained.returncode == 0, explained.stderr
    assert f"Pod {tenants}/explained on node {NODE}" in explained.stdout
    assert f"History is not available here: it is in the journal on node {NODE}" in explained.stderr
    stopped = outside(nodes, "stop", NODE, token=token)
    assert stopped.returncode == 1
    assert "`get` and `create` on pods/exec in the watchdog's namespace" in stopped.stderr
    assert nodes.daemon(NODE)["metadata"]["uid"] == pod["uid"]
    plane.kubectl("delete", "clusterrole,clusterrolebinding", role, f"{role}-proxy")


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
