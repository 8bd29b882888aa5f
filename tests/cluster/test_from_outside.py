"""`kubectl gpu-watchdog` of a person outside of three real nodes, each with a stub of its own, on a real API server."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pytest

from tests.cli.session import session
from tests.rig.cluster.further_node import FurtherNode
from tests.rig.cluster.installed import is_daemon
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.node import NODE, SECOND, THIRD, Cluster
from tests.rig.cluster.nodes import TOTAL, Nodes
from tests.rig.cluster.real_pods import killed, wait_until
from tests.rig.command import COMMAND
from watchdog.kube.rights import ServiceAccount, render_personal

pytestmark = [pytest.mark.node, pytest.mark.slow]

NODES: Final = (NODE, SECOND, THIRD)
POLICY: Final = policy_text("enforce", {"tenants": KILL})


@pytest.fixture(scope="module")
def nodes(
    cluster: Cluster, node_programs: Path, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    """One release on all three, enforcing."""
    with (
        FurtherNode(cluster, node_programs, SECOND) as second,
        FurtherNode(cluster, node_programs, THIRD) as third,
        installed(cluster, tmp_path_factory.mktemp("installed")) as made,
    ):
        for each in (second, third):
            each.copy_image(watchdog_image, "1")
        with Nodes(made, second, third).equipped() as three:
            made.install(POLICY)
            three.wait_enforcing()
            yield three


def environment(nodes: Nodes, token: str = "") -> dict[str, str]:
    """What a person has outside of the cluster: the plugin on the path, and the admin's kubeconfig or a token's."""
    plane = nodes.cluster.control_plane
    kubeconfig = plane.kubeconfig(token=token) if token else plane.admin_kubeconfig
    path = f"{COMMAND.parent}:{plane.kubectl_program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(nodes.release.folder), "KUBECONFIG": str(kubeconfig), "LANG": "C.UTF-8"}


def outside(nodes: Nodes, *arguments: str, token: str = "", note: str = "") -> "subprocess.CompletedProcess[str]":
    """`kubectl gpu-watchdog` outside of the cluster's pods, as the admin or by this token.

    With a note, command and output become part of the transcript that the variable TRANSCRIPT names, if it is set:
    docs/three-nodes.txt is one.
    """
    command = ["kubectl", "gpu-watchdog", *arguments]
    ended = subprocess.run(
        [*nodes.cluster.control_plane.network.enter, *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(nodes, token),
        check=False,
    )
    if note and (transcript := os.environ.get("TRANSCRIPT")):
        printed = "".join(f"{line.rstrip()}\n" for line in (ended.stderr + ended.stdout).splitlines())
        with Path(transcript).open("a", encoding="utf-8") as file:
            file.write(f"# {note}\n$ {shlex.join(command)}\n{printed}\n")
    return ended


@contextmanager
def running(nodes: Nodes, *arguments: str) -> Iterator[IO[str]]:
    """The lines that a command prints until it is interrupted."""
    process = subprocess.Popen(
        [
            *nodes.cluster.control_plane.network.enter,
            "env",
            "--default-signal=INT",
            "kubectl",
            "gpu-watchdog",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(nodes),
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(60)


def arguments_of(pid: int) -> list[str]:
    """The command line of a process; empty once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    return []


def test_top_shows_every_node_from_outside(nodes: Nodes) -> None:
    """Through the API server's proxy, and by default where a kubeconfig is and no daemon: all nodes and cards."""
    shown = outside(nodes, "top", "--once", note="Three nodes, all well.")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("3 nodes answer through the API server's proxy\n")
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if "enforcing" in line}
    assert rows.keys() == set(NODES)
    assert "1Ti" in rows[NODE]
    document = json.loads(outside(nodes, "top", "--json").stdout)
    assert document["via"] == "proxy"
    for each, node in zip(document["nodes"], NODES, strict=True):
        assert (each["node"], each["status"]["node"], each["problem"]) == (node, node, None)
        assert each["status"]["gpus"][0]["memory"]["total"] == TOTAL[node]
        assert 0 <= each["age_s"] < 60


def test_commands_find_the_node_and_its_daemon(nodes: Nodes, tenants: str) -> None:
    """A pod is explained, with what the journal of its node has, although nobody said which node that is."""
    nodes.start(SECOND, "notebook", tenants)
    nodes.pods.wait("notebook", killed, tenants)
    wait_until(lambda: "was killed" in outside(nodes, "explain", f"{tenants}/notebook").stdout, "the kill has ended")
    explained = outside(nodes, "explain", f"{tenants}/notebook", note="A pod was killed; on which node, nobody said.")
    assert explained.returncode == 0, explained.stderr
    assert explained.stdout.startswith(f"Pod {tenants}/notebook on node {SECOND}, ")
    assert "from the journal" in explained.stdout
    # Its container starts again, and may be in the middle of its next kill by now.
    assert "was killed" in explained.stdout or "A kill of this pod started" in explained.stdout
    document = json.loads(outside(nodes, "explain", f"{tenants}/notebook", "--json").stdout)
    assert (document["pod"], document["node"]) == ("notebook", SECOND)
    past = json.loads(outside(nodes, "history", "--pod", f"{tenants}/notebook", "--since", "1h", "--json").stdout)
    assert {row["node"] for row in past} == {SECOND}
    assert "kill_ended" in {row["event"] for row in past}
    # Without the pod, a node is named.
    kills = outside(nodes, "history", SECOND, "--action", "kill", note="What was done on a node.")
    assert "notebook" in kills.stdout
    assert "notebook" not in outside(nodes, "history", NODE).stdout
    read = outside(nodes, "scan", "--json", SECOND)
    assert read.returncode == 0, read.stderr
    scanned = json.loads(read.stdout)
    assert (scanned["node"], scanned["gpus"][0]["memory"]["total"]) == (SECOND, TOTAL[SECOND])
    # Once the pod is gone, its node is the one whose daemon remembers it.
    nodes.pods.delete("notebook", tenants)
    assert f"on node {SECOND}" in outside(nodes, "explain", f"{tenants}/notebook").stdout
    lost = outside(nodes, "explain", f"{tenants}/lost", note="A pod that nobody remembers.")
    assert lost.returncode == 1
    assert "no daemon has it among its pods or recent actions; to read the journal of the node" in lost.stderr
    assert f"`kubectl gpu-watchdog explain {tenants}/lost NODE`" in lost.stderr


def test_the_past_is_followed_from_outside(nodes: Nodes, tenants: str) -> None:
    """`history -f` of another node prints what happens while it runs; once it is left, nothing of it stays there."""

    def followers() -> list[int]:
        return [pid for pid in nodes.cgroups[SECOND].members() if "history" in arguments_of(pid)]

    with running(nodes, "history", SECOND, "--follow", "--json") as lines:
        nodes.start(SECOND, "followed", tenants)
        ended = (each for each in map(json.loads, lines) if each["pod"] == "followed" and each["event"] == "kill_ended")
        assert next(ended)["node"] == SECOND
        assert followers()
    nodes.pods.delete("followed", tenants)
    wait_until(lambda: not followers(), "the command in the pod has ended")


def test_stop_and_resume_from_outside(nodes: Nodes) -> None:
    """`stop NODE` turns enforcement off there, and only there; the exit code is that of the command in the pod."""
    stopped = outside(nodes, "stop", SECOND, "--why", "maintenance of the rack", note="Enforcement off on one node.")
    try:
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.startswith(f"Stopped: the watchdog of node {SECOND}")
        assert stopped.stdout.endswith(f"From here: kubectl gpu-watchdog resume {SECOND}\n")
        assert not nodes.at(SECOND).status()["enforcing"]
        assert nodes.at(NODE).status()["enforcing"]
        shown = outside(nodes, "top", "--once", note="It is off there, and everybody sees why.").stdout
        assert f"! {SECOND}: suspended: stop_file" in shown
        assert "maintenance of the rack" in shown
    finally:
        resumed = outside(nodes, "resume", SECOND, note="And on again.")
    assert resumed.returncode == 0, resumed.stderr
    nodes.wait_enforcing()
    nowhere = outside(nodes, "stop", "node-9")
    assert nowhere.returncode == 1
    assert (
        f"there is no pod of the watchdog on node node-9; there is one on {NODE}, {SECOND}, {THIRD}" in nowhere.stderr
    )


def test_a_closed_network_is_passed_by_port_forward(nodes: Nodes) -> None:
    """A packet filter keeps the API server from a pod: the kubelet leads there, and the first line says so and why."""
    address = nodes.daemon(SECOND)["status"]["podIP"]
    rule = ("OUTPUT", "-d", address, "-p", "tcp", "--dport", "9837", "-j", "DROP")
    enter = nodes.cluster.control_plane.network.enter
    subprocess.run([*enter, "iptables", "-I", *rule], check=True, timeout=30)
    try:
        shown = outside(nodes, "top", "--once", note="A packet filter keeps the API server from one daemon.")
    finally:
        subprocess.run([*enter, "iptables", "-D", *rule], check=True, timeout=30)
    assert shown.returncode == 0, shown.stderr
    first = shown.stdout.splitlines()[0]
    assert first.startswith("2 nodes answer through the API server's proxy, 1 answers by port-forward (the API server")
    assert {line.split()[0] for line in shown.stdout.splitlines() if "enforcing" in line} == set(NODES)


def test_a_person_with_few_rights_reads_which_is_missing(nodes: Nodes, tenants: str) -> None:
    """Each right that is missing is named with what it is for; what can be shown without it is shown."""
    plane = nodes.cluster.control_plane
    token = plane.service_account_token(tenants, "default")
    refused = outside(nodes, "top", "--once", token=token, note="As somebody without any right.")
    assert refused.returncode == 1
    assert "an administrator binds you the role gpu-watchdog-view (`gpu-watchdog rights --for-people`" in refused.stderr
    role = f"reader-{tenants}"

    def grant(name: str, *rights: str) -> None:
        plane.kubectl("create", "clusterrole", name, *rights)
        plane.kubectl(
            "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={tenants}:default"
        )

    grant(role, "--verb=list", "--verb=get", "--resource=pods")
    wait_until(lambda: outside(nodes, "top", "--once", token=token).returncode == 0, "the right to list is in force")
    silent = outside(nodes, "top", "--once", token=token, note="As somebody who may list pods, and no more.").stdout
    assert silent.startswith("3 nodes do not answer\n")
    missing = "you may not get pods/proxy, and you may not get and create pods/portforward"
    assert f"! {NODE}, {SECOND}, {THIRD}: {missing}; an administrator binds you the role" in silent
    assert "nodes without a pod of the watchdog are not shown" in silent
    grant(f"{role}-proxy", "--verb=get", "--resource=pods/proxy")
    wait_until(
        lambda: outside(nodes, "top", "--once", token=token).stdout.startswith("3 nodes answer through"), "the proxy's"
    )
    # Without the right to run a command in the pod, an explanation comes from the daemon, and lacks the past.
    pod = nodes.daemon(NODE)["metadata"]
    nodes.start(NODE, "trainer", tenants)
    nodes.pods.wait("trainer", killed, tenants)
    explained = outside(nodes, "explain", f"{tenants}/trainer", token=token)
    assert explained.returncode == 0, explained.stderr
    assert f"Pod {tenants}/trainer on node {NODE}" in explained.stdout
    assert f"History is not available here: it is in the journal on node {NODE}" in explained.stderr
    note = "As somebody who may look, and not run commands in the watchdog's pods."
    stopped = outside(nodes, "stop", NODE, token=token, note=note)
    assert stopped.returncode == 1
    assert (
        "you may not get and create pods/exec; an administrator binds you the role gpu-watchdog-oper" in stopped.stderr
    )
    assert nodes.daemon(NODE)["metadata"]["uid"] == pod["uid"]
    plane.kubectl("delete", "clusterrole,clusterrolebinding", role, f"{role}-proxy")


def test_a_person_needs_one_role_in_the_namespace(nodes: Nodes, tenants: str) -> None:
    """Bound in the watchdog's namespace alone, the role `view` of `rights --for-people` suffices to see all nodes."""
    plane, account = nodes.cluster.control_plane, ServiceAccount(name=f"viewer-{tenants}")
    plane.kubectl("apply", "-f", "-", input=render_personal(account))
    bound = ("--clusterrole", f"{account.name}-view", "--serviceaccount", f"{tenants}:default")
    nodes.release.kubectl("create", "rolebinding", account.name, *bound)
    token = plane.service_account_token(tenants, "default")

    def seen() -> str:
        return outside(nodes, "top", "-n", nodes.release.namespace, token=token).stdout

    wait_until(lambda: seen().startswith("3 nodes answer through the API server's proxy\n"), "the role is in force")
    assert outside(nodes, "top", token=token).returncode == 1
    assert "listing the nodes" in seen()
    everywhere = ("--clusterrole", f"{account.name}-view-nodes", "--serviceaccount", f"{tenants}:default")
    plane.kubectl("create", "clusterrolebinding", account.name, *everywhere)
    wait_until(lambda: "listing the nodes" not in seen(), "the nodes are known")
    nodes.release.kubectl("delete", "rolebinding", account.name)
    plane.kubectl("delete", "clusterrolebinding", account.name)
    plane.kubectl("delete", "-f", "-", input=render_personal(account))


def test_a_daemon_that_is_stopped_is_named(nodes: Nodes) -> None:
    """A daemon that hangs: its node is named with what was tried, and the others are shown as ever."""
    (pid,) = filter(is_daemon, nodes.cgroups[THIRD].members())
    os.kill(pid, signal.SIGSTOP)
    try:
        shown = outside(nodes, "top", "--once", note="A daemon that hangs.")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("2 nodes answer through the API server's proxy, 1 does not answer\n")
    (remark,) = [line for line in shown.stdout.splitlines() if line.startswith("! ")]
    assert remark.startswith(f"! {THIRD}: its daemon takes a connection and does not answer within 5 s; see its log")


@pytest.mark.parametrize("command", ["scan", "history", "explain"])
def test_what_runs_elsewhere_fits_this_terminal(nodes: Nodes, tenants: str, command: str) -> None:
    """A command prints in the daemon's pod, into no terminal: it does so for the one that a person has outside."""
    if command == "explain":
        nodes.start(NODE, "narrow", tenants)
        nodes.pods.wait("narrow", killed, tenants)
    arguments = ("kubectl", "gpu-watchdog", command, f"{tenants}/narrow" if command == "explain" else NODE)
    variables = (f"{name}={value}" for name, value in environment(nodes).items())
    enter = (*nodes.cluster.control_plane.network.enter, "env", *variables)
    with session(command=[*enter, *arguments], columns=60) as shown:
        assert shown.end() == 0, shown.screen.usual
        lines = shown.screen.usual.splitlines()
    assert max(map(len, lines)) <= 60, max(lines, key=len)
