"""`top --cluster` against many daemons behind a real API server, also such as are none."""

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.cli.session import Session, session
from tests.node.support import need_root, wait_until
from tests.rig.cluster.audit import Request
from tests.rig.cluster.simulated_nodes import (
    ASTRAY,
    NAMESPACE,
    WAYS,
    SimulatedNodes,
    address_of,
    node_name,
    simulated_nodes,
)
from tests.rig.command import COMMAND

NODES: Final = 18
AT_ONCE: Final = 16
# The simulated node with a pod over its limit.
URGENT: Final = 7
# Of the 12 accounts of a node, those that its summary has room for.
SHOWN: Final = 11
AGENT: Final = "gpu-watchdog/"
BY_PROXY: Final = "through the API server's proxy"


@pytest.fixture(scope="module")
def made(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNodes]:
    """The nodes."""
    need_root()  # for a network namespace
    with simulated_nodes(tmp_path_factory.mktemp("nodes"), programs, NODES) as made:
        yield made


@pytest.fixture
def sim(made: SimulatedNodes) -> Iterator[SimulatedNodes]:
    """The nodes, each as usual before and after the test."""
    made.heads()
    yield made
    for number in range(NODES):
        made.answer(number, "usual")


def top(
    sim: SimulatedNodes, *arguments: str, kubeconfig: Path | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `top --cluster` to its end."""
    chosen = kubeconfig or sim.plane.admin_kubeconfig
    return subprocess.run(
        [*sim.plane.network.enter, *prefix, COMMAND, "top", "--cluster", *arguments, "--kubeconfig", chosen],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def live(sim: SimulatedNodes, *arguments: str, columns: int = 120, rows: int = 40) -> AbstractContextManager[Session]:
    """`top --cluster` on a terminal."""
    kubeconfig = ("--kubeconfig", sim.plane.admin_kubeconfig)
    command: list[str | Path] = [*sim.plane.network.enter, COMMAND, "top", "--cluster", *arguments, *kubeconfig]
    return session(command=command, columns=columns, rows=rows)


def states(text: str) -> dict[str, str]:
    """What the table of nodes says of each: the rest of its row."""
    return {each[1]: each[2] for each in re.finditer(r"^[> ]? ?(gpu-\d+) +\S.*?([A-Za-z ]+)$", text, re.MULTILINE)}


def remark_of(text: str, number: int) -> str:
    """What is said below the tables of a node, or of several with the same."""
    named = re.compile(rf"! [^:]*\b{node_name(number)}\b[^:]*: ")
    return next((line for line in text.splitlines() if named.match(line)), "")


LOGS: Final = f"`kubectl -n {NAMESPACE} logs gpu-watchdog-{URGENT}`"
KUBELET: Final = f"`kubectl describe node {node_name(URGENT)}`"
# What is said of a node that behaves in one of the ways: its state, the cause, the remedy.
SAID: Final = {
    "hang": ("no answer", "the API server's proxy to its pod does not answer", KUBELET),
    "close": ("no answer", "the API server does not reach its pod", KUBELET),
    "endless": ("no answer", "its answer exceeds 16 KiB", LOGS),
    "drip": ("no answer", "takes more than 10 s", LOGS),
    "garbage": ("no answer", "JSON is malformed", "see whether all nodes run the same version"),
    "huge": ("no answer", "its answer exceeds 16 KiB", LOGS),
    "other-node": ("enforcing", f"it is node 'another-{URGENT:04}'", "see NODE_NAME and --node in its DaemonSet"),
    "error": ("no answer", "its daemon answers 503: no cycle yet", LOGS),
    "redirect": ("no answer", "its daemon answers 302;", LOGS),
    "bytes": ("no answer", "its answer is not a status as gpu-watchdog writes it", "whether all nodes run the same"),
    "digits": ("enforcing", "", ""),
    "escapes": ("enforcing", f"it is node '\\x1b]0;x\\x07{URGENT:04}'", "see NODE_NAME and --node in its DaemonSet"),
}


def test_every_way_is_here() -> None:
    """A new way of the simulated nodes is one that this page has a row for."""
    assert set(SAID) == set(WAYS)


@pytest.mark.parametrize("way", SAID)
def test_a_daemon_that_answers_oddly(sim: SimulatedNodes, way: str) -> None:
    """It is named by its node with cause and remedy, the others are shown, and nothing of it is more than text."""
    state, cause, remedy = SAID[way]
    sim.answer(URGENT, way)
    ended = top(sim, "--once")
    assert (ended.returncode, ended.stderr) == (0, "")
    text = ended.stdout
    assert all(character.isprintable() for character in text.replace("\n", ""))
    silent = 1 if state == "no answer" else 0
    which = f", {silent} does not answer" if silent else ""
    assert text.splitlines()[0] == f"{NODES - silent} nodes answer {BY_PROXY}{which}"
    expected = {node_name(number): "enforcing" for number in range(NODES)} | {node_name(URGENT): state}
    assert {node: state.strip() for node, state in states(text).items()} == expected
    assert cause in remark_of(text, URGENT)
    assert remedy in remark_of(text, URGENT)
    assert len([line for line in text.splitlines() if line.startswith("!")]) == bool(cause)
    assert "\n! fake" not in text


def test_names_with_control_characters_are_text(sim: SimulatedNodes) -> None:
    """A pod's name that would clear the screen and begin a line of its own is shown for what it is, also live."""
    sim.answer(URGENT, "escapes")
    assert f"team-0/\\x1b[2J\\x0a! fake: {URGENT}-0" in top(sim, "--once").stdout
    with live(sim) as shown:  # whose screen fails on a control code that `top` does not use
        shown.see("\\x1b[2J\\x0a! fake: ", "it is node '", "q quit")
        shown.type("j\r")
        shown.see("q back")
        shown.type("q")
        shown.see("Pods: ")
        shown.type("k\r")
        shown.see(f"node {node_name(URGENT)}", "fake: ", "q back")
        shown.type("q")
        shown.see("cluster")
        shown.type("q")
        assert shown.end() == 0


def test_a_redirect_is_not_followed(sim: SimulatedNodes) -> None:
    """What takes a daemon's place can't send the request elsewhere, and no daemon ever sees the credentials."""
    sim.answer(URGENT, "redirect")
    top(sim, "--once")
    top(sim, "--json")
    heads = sim.heads()
    assert {head.split()[0] for head in heads} == {address_of(number) for number in range(NODES)}
    assert ASTRAY not in " ".join(heads)
    token = json.loads(sim.plane.admin_kubeconfig.read_text())["users"][0]["user"]["token"]
    assert not [head for head in heads if token in head or "authorization" in head.casefold()]


def test_all_daemons_behave_oddly_at_once(sim: SimulatedNodes) -> None:
    """The command ends, with little memory, and still shows the one that is well."""
    for number in range(NODES - 1):
        sim.answer(number, WAYS[number % len(WAYS)])
    # Of which 16 threads have 128 MiB for their stacks.
    for option, mib in (("--once", 256), ("--json", 512)):
        ended = top(sim, option, prefix=("prlimit", f"--data={mib * 2**20}"))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert node_name(NODES - 1) in ended.stdout


def test_json_has_each_node_with_its_status_or_its_problem(sim: SimulatedNodes) -> None:
    """One document, whatever single daemons do: by the API server's names, and null where nothing is known."""
    sim.answer(1, "garbage")
    sim.answer(2, "other-node")
    sim.answer(3, "error")
    for number, way in ((5, "digits"), (6, "bytes")):
        sim.answer(number, way)
    sim.remove_pod(4)
    try:
        document = json.loads(top(sim, "--json").stdout)
    finally:
        sim.add_pod(4)
    nodes = document["nodes"]
    assert document["via"] == "proxy"
    assert [node["node"] for node in nodes] == [node_name(number) for number in range(NODES)]
    assert all((node["status"] is None) == (node["age_s"] is None) for node in nodes)
    assert [number for number, node in enumerate(nodes) if node["status"] is None] == [1, 3, 4, 5, 6]
    assert [number for number, node in enumerate(nodes) if node["problem"]] == [1, 2, 3, 4, 5, 6]
    assert "it is node 'another-0002'" in nodes[2]["problem"]
    assert "there is no pod of it here; see the node's taints" in nodes[4]["problem"]
    assert len(nodes[0]["status"]["accounts"]) == 12
    assert 0 <= nodes[0]["age_s"] < 60


def test_nobody_else_s_pod_is_taken_for_the_daemon(sim: SimulatedNodes) -> None:
    """A tenant's pod with the watchdog's label and an owner of its kind: no command runs in it, and it is named."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "evil", "uid": "1-2-3"}
    meta = {"name": "evil", "labels": {"app.kubernetes.io/name": "gpu-memory-watchdog"}, "ownerReferences": [owner]}
    spec = {"nodeName": node_name(0), "containers": [{"name": "watchdog", "image": "x"}]}
    sim.plane.make_namespace("alice")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    sim.plane.api.call("POST", "/api/v1/namespaces/alice/serviceaccounts", account)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    sim.plane.api.ask("POST", "/api/v1/namespaces/alice/pods", body)
    running = [
        {"name": "watchdog", "state": {"running": {}}, "ready": True, "image": "x", "imageID": "x", "restartCount": 0}
    ]
    status = {"status": {"phase": "Running", "podIP": address_of(0), "containerStatuses": running}}
    sim.plane.api.ask("PATCH", "/api/v1/namespaces/alice/pods/evil/status", status)
    try:
        shown = top(sim, "--once").stdout
        command = [*sim.plane.network.enter, COMMAND, "stop", node_name(0), "--kubeconfig", sim.plane.admin_kubeconfig]
        stopped = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    finally:
        at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        sim.plane.api.call("DELETE", "/api/v1/namespaces/alice/pods/evil", at_once)
    names = f"alice/evil, {NAMESPACE}/gpu-watchdog-0"
    assert f"2 pods are the watchdog's on it: {names}" in remark_of(shown, 0)
    assert stopped.returncode == 1
    assert f"NOT CONFIRMED: several pods are the watchdog's on node {node_name(0)}: {names}; name the" in stopped.stderr


def test_a_node_without_a_daemon_and_one_that_is_not_ready(sim: SimulatedNodes) -> None:
    """A node that should have a daemon and has none is not forgotten, and a dead node's state is said."""
    sim.answer(5, "hang")
    sim.set_ready(5, "Unknown")
    sim.remove_pod(6)
    try:
        text = top(sim, "--once").stdout
    finally:
        sim.add_pod(6)
        sim.set_ready(5, "True")
    assert states(text)[node_name(6)].strip() == "no daemon"
    assert "there is no pod of it here" in remark_of(text, 6)
    assert "see the node's taints (`kubectl describe node`)" in remark_of(text, 6)
    assert "the node is NotReady: the API server's proxy" in remark_of(text, 5)


def asked(sim: SimulatedNodes, since: int) -> tuple[Request, ...]:
    """The requests of `top` so far, by the API server's own log, without the first of them."""
    return sim.plane.requests(user_agent=AGENT)[since:]


def is_complete(sim: SimulatedNodes, since: int) -> Callable[[], bool]:
    """Whether the log has each request to its end."""
    return lambda: all(not each.open for each in asked(sim, since))


def test_one_request_a_node(sim: SimulatedNodes) -> None:
    """A refresh is three lists and a GET for each node, no more: a cluster of 500 nodes is asked so, too."""
    since = len(asked(sim, 0))
    top(sim, "--once")
    wait_until(lambda: len(asked(sim, since)) >= NODES + 3)
    found = Counter((each.verb, each.resource, each.subresource) for each in asked(sim, since))
    lists = {("list", kind, ""): 1 for kind in ("pods", "daemonsets", "nodes")}
    assert found == {**lists, ("get", "pods", "proxy"): NODES}
    names = [each.name for each in asked(sim, since) if each.subresource]
    assert len(set(names)) == NODES


def test_lists_are_kept_between_refreshes(sim: SimulatedNodes) -> None:
    """Live, only the daemons are asked again and again: the lists are for half a minute."""
    since = len(asked(sim, 0))
    with live(sim, "--interval", "200ms") as shown:
        shown.see("Pods: ")
        shown.wait(lambda _: sum(each.subresource == "proxy" for each in asked(sim, since)) >= 4 * NODES)
        shown.type("q")
        assert shown.end() == 0
    found = Counter(each.resource for each in asked(sim, since) if each.verb == "list")
    assert found == {"pods": 1, "daemonsets": 1, "nodes": 1}


def test_no_more_than_16_at_a_time(sim: SimulatedNodes) -> None:
    """However many nodes there are, the API server has at most 16 requests of a view at once."""
    for number in range(NODES):
        sim.answer(number, "hang")
    since = len(asked(sim, 0))
    text = top(sim, "--once").stdout
    assert text.startswith(f"{NODES} nodes do not answer\n")
    wait_until(is_complete(sim, since))
    by_proxy = [each for each in asked(sim, since) if each.subresource == "proxy"]
    first_end_s = min(each.ended_s or 0.0 for each in by_proxy)
    assert sum(each.received_s < first_end_s for each in by_proxy) == AT_ONCE


def grant(sim: SimulatedNodes, user: str, *rules: dict[str, list[str]], namespace: str | None = None) -> Path:
    """A kubeconfig of a user with these rights alone, in one namespace or in all."""
    kind, name = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    meta, group = {"name": f"view-{user}", **name}, "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "rules": list(rules)}
    subjects = [{"kind": "User", "name": user, "apiGroup": group}]
    ref = {"kind": kind, "name": meta["name"], "apiGroup": group}
    binding = {"apiVersion": f"{group}/v1", "kind": f"{kind}Binding", "metadata": meta}
    sim.plane.apply([role, {**binding, "subjects": subjects, "roleRef": ref}])
    return sim.plane.kubeconfig(token=sim.plane.token(user))


PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
PROXY: Final = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}
PODS_AND_PROXY: Final = (PODS, PROXY)


def test_without_any_right(sim: SimulatedNodes) -> None:
    """The missing role is named, and where to look if it is held in one namespace only."""
    ended = top(sim, "--once", kubeconfig=sim.plane.kubeconfig(token=sim.plane.token("nobody")))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "listing the watchdog's pods: the API server answered 403" in ended.stderr
    assert "an administrator binds you the role gpu-watchdog-view" in ended.stderr
    assert "if you have it in the watchdog's namespace alone, name that with --namespace" in ended.stderr


def test_with_rights_in_the_namespace_only(sim: SimulatedNodes) -> None:
    """Whoever may ask the daemons of one namespace sees their nodes; that others are unknown is said."""
    kubeconfig = grant(sim, "tenant", *PODS_AND_PROXY, namespace=NAMESPACE)
    assert "name that with --namespace" in top(sim, "--once", kubeconfig=kubeconfig).stderr
    ended = top(sim, "--once", "--namespace", NAMESPACE, kubeconfig=kubeconfig)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{NODES} nodes answer {BY_PROXY}\n")
    assert ended.stdout.splitlines()[-1].startswith("! listing the watchdog's DaemonSets: the API server answered 403")
    assert "an administrator binds you the roles of `gpu-watchdog rights --for-people`" in ended.stdout


def test_without_the_right_to_ask(sim: SimulatedNodes) -> None:
    """Who may list the pods and not ask them is told which right each node wants."""
    ended = top(sim, "--once", kubeconfig=grant(sim, "daemon", PODS))
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"{NODES} nodes do not answer\n")
    remark = remark_of(ended.stdout, 0)
    assert "you may not get pods/proxy, and you may not get and create pods/portforward" in remark
    assert "an administrator binds you the role gpu-watchdog-view in namespace" in remark


def is_as_before(shown: Session) -> bool:
    """Whether the terminal is as it was: its modes, its cursor, the usual screen with nothing written on it."""
    screen = shown.screen
    return (shown.after, screen.is_other, screen.is_cursor_shown, screen.usual) == (shown.before, False, True, "")


def selected(shown: Session) -> str:
    """The name in the row that is selected."""
    found = re.search(r"^> (\S+)", shown.screen.text, re.MULTILINE)
    return found[1] if found is not None else ""


def test_keys(sim: SimulatedNodes) -> None:
    """All nodes or the urgent ones, orders, filters, moving, pause and help, by the keys that the help names."""
    calm = f"{NODES - 1} more nodes where all is well"
    with live(sim, columns=140) as shown:
        shown.see(f"{NODES} by proxy", calm, f"of {SHOWN * NODES}, by urgency", "q quit")
        assert selected(shown) == node_name(URGENT)
        shown.type("a")
        shown.wait(lambda screen: calm not in screen.text and node_name(1) in screen.text)
        shown.type("jj")
        shown.wait(lambda _: selected(shown) == node_name(1))
        shown.type("k")
        shown.wait(lambda _: selected(shown) == node_name(0))
        shown.type("a")
        shown.see(calm)
        shown.type("o")
        shown.see("by use")
        shown.type("r")
        shown.see("by use, reversed")
        shown.type("fgpu-0003 within\r")
        shown.see(f"Pods: {SHOWN}", 'filter "gpu-0003 within"')
        shown.type("\x1b")
        shown.wait(lambda screen: ", filter" not in screen.text)
        shown.type("v")
        shown.see("over limit only", "Pods: 1,")
        shown.type("v")
        shown.wait(lambda screen: "over limit only" not in screen.text)
        shown.type("?")
        shown.see("Keys", "explain the selected pod")
        shown.type("x ")
        shown.see("paused", "Pods: ")
        before = shown.screen.text
        shown.type(" ")
        shown.wait(lambda screen: "paused" not in screen.text and screen.text != before)
        shown.type("q")
        assert shown.end() == 0
        assert is_as_before(shown)


def test_enter_opens_a_node_and_a_pod(sim: SimulatedNodes) -> None:
    """From the cluster to a node's own view, to a pod's explanation, to the whole reason of a node that is silent."""
    sim.answer(2, "error")
    with live(sim) as shown:
        shown.see("503", f"of {SHOWN * (NODES - 1)}")
        assert selected(shown) == node_name(2)
        shown.type("\r")
        shown.see(f"Node {node_name(2)}", "no cycle yet", "`kubectl -n gpu-watchdog", "q back")
        shown.type("q")
        shown.see("Pods: ")
        shown.type("j\r")
        shown.see(f"node {node_name(URGENT)}", "2 GPUs", "12 pods")
        shown.type("\x1b")
        shown.see("cluster")
        shown.type("j\r")
        shown.see("q back", f"job-{URGENT}-0", "allowed")
        shown.type("\x1b")
        shown.see("Pods: ")
        shown.type("q")
        assert shown.end() == 0
        assert is_as_before(shown)


def test_the_last_answer_stays_with_its_age(sim: SimulatedNodes) -> None:
    """A node that stops answering is shown as it was, and since when; when it answers again, as it is."""
    with live(sim, "--interval", "200ms") as shown:
        shown.see(f"{NODES} by proxy")
        sim.answer(URGENT, "error")
        shown.see(f"{NODES - 1} by proxy, 1 silent", f"! {node_name(URGENT)}: no answer since", "no cycle yet")
        assert re.search(rf"^[> ] {node_name(URGENT)} +2 +14.9Gi", shown.screen.text, re.MULTILINE)
        assert f"job-{URGENT}-0" in shown.screen.text
        sim.answer(URGENT, "usual")
        shown.wait(lambda screen: f"{NODES} by proxy" in screen.text and "no answer since" not in screen.text)


def test_it_follows_the_size(sim: SimulatedNodes) -> None:
    """Another size of the window is another picture at once, however small."""
    with live(sim, "--interval", "1h") as shown:
        shown.see("NEXT", "q quit")
        shown.resize(60, 16)
        shown.see("Pods: 1-", "q quit")
        assert "NEXT" not in shown.screen.text
        shown.resize(160, 50)
        shown.see("NEXT", "q quit")
        shown.resize(20, 5)
        shown.see("gpu-watchdog")
        shown.type("q")
        assert shown.end() == 0


def report(sim: SimulatedNodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `report --cluster` to its end."""
    kubeconfig = ("--kubeconfig", sim.plane.admin_kubeconfig)
    return subprocess.run(
        [*sim.plane.network.enter, COMMAND, "report", "--cluster", *arguments, *kubeconfig],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_report_of_all_nodes(sim: SimulatedNodes) -> None:
    """Each daemon is asked once for the same time, an owner's card-hours on all nodes add up, and all are named."""
    ended = report(sim, "--since", "2026-01-31T14:00", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    everywhere, *others = document["rows"]
    assert (everywhere["namespace"], everywhere["owner"]) == ("team-0", {"kind": "Job", "name": "everywhere"})
    assert everywhere["card_hours"] == {
        "held": 4.0 * NODES, "used": 1.0 * NODES, "idle": 2.0 * NODES, "unknown": 1.0 * NODES, "unused": 0.5 * NODES,
    }  # fmt: skip
    assert {row["owner"]["name"] for row in others} == {f"job-{number}" for number in range(NODES)}
    assert [node["node"] for node in document["nodes"]] == [node_name(number) for number in range(NODES)]
    asked = [head for head in sim.heads() if " GET /api/report?since=2026-01-31T14:00:00.000Z " in head]
    assert len(asked) == NODES


@pytest.mark.parametrize("way", ["hang", "close", "garbage", "endless", "error", "bytes"])
def test_a_node_that_is_missing_in_a_report_is_named(sim: SimulatedNodes, way: str) -> None:
    """The others add up without it, and the reason is said; if none answers there is no report."""
    sim.answer(URGENT, way)
    ended = report(sim, "--by", "namespace")
    assert (ended.returncode, ended.stderr) == (0, "")
    total = next(line.split() for line in ended.stdout.splitlines() if line.startswith("TOTAL"))
    assert total[1] == f"{5 * (NODES - 1):.2f}"
    (missing,) = [line for line in ended.stdout.splitlines() if " is missing: " in line]
    assert missing.startswith(f"- Node {node_name(URGENT)} is missing: ")
    assert f"Node {node_name(URGENT)} is missing" in report(sim, "--csv").stderr


def test_without_any_answer_there_is_no_report(sim: SimulatedNodes) -> None:
    """A total of nothing does not pass for a quiet cluster."""
    for number in range(NODES):
        sim.answer(number, "close")
    ended = report(sim)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no node answers" in ended.stderr


@pytest.mark.parametrize("opened", ["", "\r", "j\r"], ids=["cluster", "node", "pod"])
@pytest.mark.parametrize("way", ["q", "\x03", "\x04", signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_every_end_gives_the_terminal_back(sim: SimulatedNodes, way: str | signal.Signals, opened: str) -> None:
    """However it ends, from each of the views, the exit code is 0, and the terminal is as it was."""
    with live(sim) as shown:
        shown.see("Pods: ", f"{NODES} by proxy")
        shown.type(opened)
        shown.wait(lambda screen: ("cluster" in screen.text) != bool(opened))
        if opened and way in ("q", "\x04"):  # Ctrl-C is a signal, and ends all
            shown.type(str(way))
            shown.see("cluster")
        shown.type(way) if isinstance(way, str) else shown.process.send_signal(way)
        assert shown.end() == 0
        assert is_as_before(shown)


def test_the_end_waits_for_no_daemon(sim: SimulatedNodes) -> None:
    """While daemons are slow keys work, and `q` ends it: no answer is waited for, and no other daemon is asked."""
    for number in range(NODES):
        sim.answer(number, "drip")
    reached: set[str] = set()

    def are_asked(_: object) -> bool:
        reached.update(head.split()[0] for head in sim.heads())
        return len(reached) >= AT_ONCE

    with live(sim) as shown:
        shown.see("waiting", "q quit")
        shown.wait(are_asked)
        shown.type("?")
        shown.see("Keys")
        shown.type("xq")
        assert shown.end() == 0
        assert is_as_before(shown)
    are_asked(None)
    assert len(reached) == AT_ONCE
