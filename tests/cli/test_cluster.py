"""`top --cluster`: what it says of nodes and pods, and what it makes of answers that are none."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from msgspec import structs
from rich.cells import cell_len

from tests.cli.build import busy as busy_node
from tests.report.build import busy, climbing, quiet, status_document
from watchdog.cli.cluster_rows import SORTS, NodeAnswer, PodRow, cluster_text, node_rows, pod_rows, totals_of
from watchdog.cli.cluster_view import ClusterFrame, draw_cluster
from watchdog.cli.main import CLUSTER_SORTS
from watchdog.cli.top_keys import Selection
from watchdog.cli.top_view import ScreenFrame, draw
from watchdog.cli.views import BLOCKS, Choice
from watchdog.core.errors import Problem
from watchdog.core.model import Now
from watchdog.core.policy import Do
from watchdog.kube.daemons import DaemonPod
from watchdog.report.status import Moment, StatusError, decode
from watchdog.report.summary import MOST_BYTES, AccountSummary, Summary, decode_summary, encoded, summary_of
from watchdog.report.text import count


def answered(report: Any, node: str = "n1") -> NodeAnswer[Summary]:
    """What the daemon of a node answers while this is its last cycle."""
    status = decode(json.dumps({**status_document(report), "node": node}).encode())
    daemon = DaemonPod(node=node, namespace="gpu-memory-watchdog", name=f"gpu-watchdog-{node}")
    summary = decode_summary(encoded(summary_of(status)))
    return NodeAnswer(node=node, daemon=daemon, answer=summary, at_s=100.0, via="proxy")


def silent(node: str, cause: str, remedy: str = "") -> NodeAnswer[Summary]:
    """A node without an answer."""
    daemon = DaemonPod(node=node, namespace="gpu-memory-watchdog", name=f"gpu-watchdog-{node}")
    return NodeAnswer(node=node, daemon=daemon, problem=Problem(cause, remedy))


URGENT: Final = Choice(sort="urgency")
USUAL: Final = Selection(choice=URGENT)


def now(wall_s: float) -> Now:
    """Ten seconds after all answers came."""
    return Now(boottime_s=110.0, wall_s=wall_s, boot_id="")


def test_the_most_urgent_of_all_nodes_comes_first() -> None:
    """A node with something to say is above the calm ones, a pod that is acted on above one that is due later."""
    now_s = climbing(9).at.wall_s + 1
    answers = [answered(quiet(), "a"), answered(climbing(9), "b"), answered(busy(9, 20.0), "c")]
    text = cluster_text(answers, URGENT, now(now_s))
    head, nodes, pods = text.split("\n\n")
    assert head == "3 nodes answer through the API server's proxy"
    assert [line.split()[0] for line in nodes.splitlines()] == ["NODE", "b", "c", "a"]
    first, second = pods.splitlines()[1:]
    assert (first.split()[1], second.split()[1]) == ("c", "b")
    assert "in progress" in pods.splitlines()[1]
    assert "kill in" in pods.splitlines()[2] or "kill now" in pods.splitlines()[2]


def test_a_node_that_does_not_answer_is_named_with_the_remedy() -> None:
    """Nobody takes a node that can't be asked for one where all is well."""
    answers = [answered(quiet(), "a"), silent("b", "its pod does not run (Pending)", "see x")]
    text = cluster_text(answers, URGENT, now(0.0))
    assert text.startswith("1 node answers through the API server's proxy, 1 does not answer\n")
    assert text.endswith("\n! b: its pod does not run (Pending); see x\n")


def test_what_does_not_answer_is_not_well() -> None:
    """Nobody reads that no pod is over its limit where that is not known."""
    lost, well = silent("b", "x"), answered(quiet(), "a")
    for answers, words in (
        ([lost], "No node answers, so nothing is known about any pod."),
        ([lost, well], "No pod on the nodes that answer is over its limit, and no step is due."),
        ([well], "No pod is over its limit, and no step is due."),
    ):
        assert f"\n\n{words}\n" in cluster_text(answers, URGENT, now(quiet().at.wall_s))


def test_what_is_the_matter_with_a_node_is_in_its_row() -> None:
    """Suspended, stopped, blind and old: each is said, with the reason that was given."""
    stopped = quiet(suspended=("stop_file",), enforcing=False)
    text = cluster_text([answered(stopped, "a")], URGENT, now(stopped.at.wall_s + 100))
    assert "NOT enforcing\n" in text
    assert "! a: suspended: stop_file" in text
    assert "last read 1m 40s ago" in text


def test_an_answer_stays_with_its_age() -> None:
    """A node that no longer answers is shown as it was, and since when and why there is nothing newer."""
    kept = replace(answered(climbing(9), "a"), problem=Problem("the node is NotReady", "see x"))
    text = cluster_text([kept], URGENT, now(climbing(9).at.wall_s))
    assert text.startswith("1 node does not answer\n")
    assert "12.4Gi" in text
    assert "! a: no answer since 10s: the node is NotReady; see x" in text
    # Nobody reads that it still enforces, or that a kill is seconds away.
    assert "enforcing" not in text
    assert "no answer\n" in text
    assert pod_rows([kept], URGENT)[0].next == "unknown"
    fresh = replace(answered(climbing(9)), node="b")
    assert [row.of.node for row in pod_rows([kept, fresh], URGENT)] == ["b", "a"]


def test_which_way_it_took_and_why() -> None:
    """The first line: an operator learns that the network is closed, and not only that it works anyway."""
    other = replace(answered(quiet(), "b"), via="port-forward", why="the proxy does not answer")
    text = cluster_text([answered(quiet(), "a"), other, silent("c", "x")], URGENT, now(quiet().at.wall_s))
    ways = "1 node answers through the API server's proxy, 1 answers by port-forward, 1 does not answer"
    assert text.splitlines()[0] == f"{ways} (the proxy does not answer)"


def account(name: str, **values: object) -> AccountSummary:
    """An account of 1 byte within its limit of 10."""
    known = {"namespace": "a", "pod": name, "used": 1, "compared": 1, "allowed": 10, "verdict": "within", **values}
    return AccountSummary(**known)  # type: ignore[arg-type]


ACCOUNTS: Final = {
    "n2": (account("calm", used=7, compared=7), account("old", used=12, compared=12, verdict="over", over_since=50.0)),
    "n1": (
        account("far", used=30, compared=30, verdict="over", over_since=90.0),
        account("due", namespace="b", do=Do.KILL, due_in_s=3.0, used=11, compared=11, verdict="over", over_since=80.0),
        account("acting", acting=True, used=20, compared=20, verdict="over", over_since=70.0),
        account("unknown", namespace="c", used=None, used_at_least=5, compared=5, verdict="unknown"),
        account("idle", namespace="d", idle_s=7800),
    ),
}


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        (Choice(sort="urgency"), "acting due far old idle unknown calm"),
        (Choice(sort="use"), "far acting old due calm unknown idle"),
        (Choice(sort="over"), "far acting old due calm unknown idle"),
        (Choice(sort="age"), "old acting due far calm unknown idle"),
        (Choice(sort="namespace"), "acting calm far old due unknown idle"),
        (Choice(sort="node"), "acting far due unknown idle calm old"),
        (Choice(sort="node", backwards=True), "calm old acting far due unknown idle"),
        (Choice(sort="urgency", over=True), "acting due far old"),
        (Choice(sort="urgency", idle=True), "idle"),
        (Choice(sort="urgency", text="N2 within"), "calm"),
        (Choice(sort="urgency", text="b/"), "due"),
        (Choice(sort="urgency", text="missing"), ""),
    ],
)
def test_the_orders_and_filters(choice: Choice, shown: str) -> None:
    """Each order that `--sort` and `o` name, and what the filters leave."""
    answers = [
        NodeAnswer(node=node, answer=Summary(node=node, at=Moment(0.0), accounts=accounts))
        for node, accounts in ACCOUNTS.items()
    ]
    assert [row.account.pod for row in pod_rows(answers, choice)] == shown.split()


def test_how_busy_nodes_are_and_what_is_idle() -> None:
    """The mean of a node's GPUs, how many accounts are idle and which; `-` where nothing is known."""
    summary = summary_of(busy_node())
    answers = [
        NodeAnswer(node="n1", daemon=DaemonPod(node="n1", namespace="a", name="d"), answer=summary, via="proxy"),
        answered(quiet(), "n2"),
    ]
    _, nodes, pods, *_ = cluster_text(answers, replace(URGENT, idle=True), now(summary.at)).split("\n\n")
    titles, *lines = (line.split() for line in nodes.splitlines())
    found = {line[0]: (line[titles.index("BUSY")], line[titles.index("IDLE")]) for line in lines}
    assert found == {"n1": ("35%", "1"), "n2": ("-", "0")}
    assert [line.split()[0] for line in pods.splitlines()[1:]] == ["ns/idle"]
    assert "2h10m" in pods
    totals = totals_of(answers)
    assert (totals.utilization, totals.idle) == (0.35, 1)
    none = cluster_text(answers[1:], replace(URGENT, idle=True), now(quiet().at.wall_s))
    assert "No pod is known to hold memory idle." in none
    assert "BUSY" not in none


def busy_of_pods(text: str) -> dict[str, str]:
    """How busy each pod is by the table of pods, without those of which the table has no such column."""
    _, _, pods, *_ = text.split("\n\n")
    titles, *lines = (line.split() for line in pods.splitlines())
    return {line[0]: line[titles.index("BUSY")] for line in lines} if "BUSY" in titles else {}


def test_how_busy_pods_are() -> None:
    """Each account's, as `top` of its node has it; a daemon that does not say, such as an older one, has no column."""
    summary = summary_of(busy_node())
    order = Choice(sort="namespace")
    answered = NodeAnswer(node="n1", daemon=DaemonPod(node="n1", namespace="a", name="d"), answer=summary, via="proxy")
    found = busy_of_pods(cluster_text([answered], order, now(summary.at)))
    assert found == {"ns/computes": "35%", "ns/idle": "0%", "ns/soon": "0%", "ns/unknown": "-"}
    old = json.loads(encoded(summary))
    for each in old["accounts"]:
        each.pop("utilization", None)
    silent_on_pods = replace(answered, answer=decode_summary(json.dumps(old).encode()))
    text = cluster_text([silent_on_pods], order, now(summary.at))
    assert busy_of_pods(text) == {}
    assert "BUSY" in text, "that of the node is known"


def live(
    listed: Sequence[NodeAnswer[Summary]],
    calm: Sequence[NodeAnswer[Summary]] = (),
    selection: Selection = USUAL,
    *,
    at_s: float = 0.0,
    pods: Sequence[PodRow] = (),
    width: int = 80,
    height: int = 20,
) -> list[str]:
    """The lines of the live view, which lists some nodes and sums up those where all is well."""
    frame = ClusterFrame(
        answers=[*listed, *calm], nodes=node_rows(listed, now(at_s)), calm=node_rows(calm, now(at_s)), pods=pods,
        selection=selection, now=now(at_s), width=width, height=height, signs=BLOCKS,
    )  # fmt: skip
    return [line.plain for line in draw_cluster(frame)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_only_what_is_idle_live(width: int) -> None:
    """At any width the view says for how long; what a summary has left out is counted, with where to look."""
    choice = replace(URGENT, idle=True)
    summary = structs.replace(summary_of(busy_node()), idle=3)
    answers = [NodeAnswer(node="n1", answer=summary, at_s=100.0, via="proxy")]
    pods = pod_rows(answers, choice)
    lines = live([], answers, Selection(choice=choice), at_s=summary.at, pods=pods, width=width)
    assert any(line.startswith("> ns/idle") and "2h10m" in line for line in lines)
    assert any(line.startswith("Pods: 1, by urgency, idle only, and 2 more: open the") for line in lines)
    assert any("35% busy" in line and "3 idle" in line for line in lines)
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("calm", [0, 2])
@pytest.mark.parametrize("place", [0, 19])
def test_nodes_without_room_are_counted(place: int, calm: int) -> None:
    """Nobody takes the nodes that the terminal has room for as all that do not answer."""
    lost = [silent(f"n{number:02}", f"cause {number}") for number in range(20)]
    well = [answered(quiet(), f"w{number}") for number in range(calm)]
    lines = live(lost, well, Selection(choice=URGENT, place=place), at_s=quiet().at.wall_s)
    names = [line[2:].split()[0] for line in lines if line.endswith(" no answer")]
    assert len(names) < 20
    which = f"Nodes {int(names[0][1:]) + 1}-{int(names[-1][1:]) + 1} of 20"
    (shown,) = [line for line in lines if line.startswith("Nodes ")]
    assert shown.startswith(f"{which}, and 2 more where all is well: 4 GPUs, ") if calm else shown == which
    assert (names[0] == "n00", names[-1] == "n19") == (place == 0, place == 19)


@pytest.mark.parametrize(
    ("lost", "well", "words"),
    [(2, 0, "Unknown: no node has answered."), (1, 1, "None on the nodes that have answered."), (0, 1, "None.")],
)
def test_what_has_not_answered_is_not_nothing_live(lost: int, well: int, words: str) -> None:
    """What has not answered is unknown in the live view too: no count of pods or GPUs takes it for none."""
    empty = Summary(node="n1", at=Moment(0.0), gpus_in_all=1, used=0, total=0)
    silents = [silent(f"n{number}", "x") for number in range(lost)]
    lines = live([*silents, *[replace(answered(quiet()), answer=empty)] * well])
    assert lines[lines.index("Pods: 0, by urgency") + 1] == words
    assert lines[1] == f"{count(lost + well, 'node')}{', 1 GPU: 0 of 0' if well else ''}"


def test_the_help_is_whole_on_a_usual_terminal() -> None:
    """In 80 columns no key's line is cut, here and in the view of a node, which fits 24 rows too."""
    helping = Selection(help=True)
    node = ScreenFrame(
        status=None, rows=(), selection=helping, elapsed_s=0.0, width=80, height=24, signs=BLOCKS,
    )  # fmt: skip
    of_node = [line.plain for line in draw(node)]
    assert not [line for line in (*live([], selection=helping, height=24), *of_node) if line.endswith("~")]
    assert "how long" in of_node[22], "the last of its sentences"


def test_the_orders_are_those_of_the_command_line() -> None:
    """main.py names them without importing the view."""
    assert tuple(SORTS) == CLUSTER_SORTS


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("length", [8, 63, 253])
def test_it_fits_a_terminal(width: int, length: int) -> None:
    """Names as long as Kubernetes allows, on any width: no line is wider, and the numbers are whole."""
    node = "n" * length
    answers = [answered(climbing(9), node), silent(f"x{node}", "the proxy does not answer", "let it " * 30)]
    text = cluster_text(answers, URGENT, now(climbing(9).at.wall_s), width=width)
    assert all(cell_len(line) <= max(width, 50) for line in text.splitlines())
    assert "12.4Gi" in text


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"<html>", b'{"node": 1, "at": "x"}', b"[" * 5000, b'{"node":"' + b"x" * 4 * MOST_BYTES + b'"}'],
)
def test_an_answer_that_is_none_is_a_problem_of_its_node(body: bytes) -> None:
    """A daemon may have been replaced by anything: bounded, and an error that says so."""
    with pytest.raises(StatusError):
        decode_summary(body)


def test_names_in_an_answer_stay_text() -> None:
    """What a node calls itself and its pods can't move the cursor or begin another line."""
    whole = answered(climbing(9)).answer
    assert whole is not None
    odd = replace_names(whole, "\x1b[2J\n")
    text = cluster_text([replace(answered(climbing(9)), answer=odd)], URGENT, now(whole.at))
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def replace_names(summary: Summary, name: str) -> Summary:
    """The summary with this in place of each text."""
    document = json.loads(encoded(summary))
    document |= {"node": name, "gap": name, "gaps": 1, "suspended": [name], "stopped_why": name}
    for account in document["accounts"]:
        account |= {"namespace": name, "pod": name, "container": name, "verdict": name, "withheld_by": name}
    return decode_summary(json.dumps(document).encode())
