"""`top --cluster`: what it says of nodes and pods, and what it makes of answers that are none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.report.build import busy, climbing, quiet, status_document
from watchdog.cli.cluster import NodeAnswer, cluster_text
from watchdog.core.errors import Problem
from watchdog.kube.daemons import DaemonPod
from watchdog.report.status import StatusError, decode
from watchdog.report.summary import MOST_BYTES, Summary, decode_summary, encoded, summary_of


def answered(report: Any, node: str = "n1") -> NodeAnswer[Summary]:
    """What the daemon of a node answers while this is its last cycle."""
    status = decode(json.dumps({**status_document(report), "node": node}).encode())
    daemon = DaemonPod(node=node, namespace="gpu-memory-watchdog", name=f"gpu-watchdog-{node}")
    return NodeAnswer(daemon=daemon, answer=decode_summary(encoded(summary_of(status))))


def silent(node: str, cause: str, remedy: str = "") -> NodeAnswer[Summary]:
    """A node without an answer."""
    daemon = DaemonPod(node=node, namespace="gpu-memory-watchdog", name=f"gpu-watchdog-{node}")
    return NodeAnswer(daemon=daemon, problem=Problem(cause, remedy))


def test_the_most_urgent_of_all_nodes_comes_first() -> None:
    """A node with something to say is above the calm ones, a pod that is acted on above one that is due later."""
    now_s = climbing(9).at.wall_s + 1
    text = cluster_text([answered(quiet(), "a"), answered(climbing(9), "b"), answered(busy(9, 20.0), "c")], now_s)
    head, nodes, pods = text.split("\n\n")
    assert head == "3 nodes answer through the API server's proxy"
    assert [line.split()[0] for line in nodes.splitlines()] == ["NODE", "b", "c", "a"]
    assert [line.split()[0] for line in pods.splitlines()] == ["NODE", "c", "b"]
    assert "in progress" in pods.splitlines()[1]
    assert "kill in" in pods.splitlines()[2] or "kill now" in pods.splitlines()[2]


def test_a_node_that_does_not_answer_is_named_with_the_remedy() -> None:
    """Nobody takes a node that can't be asked for one where all is well."""
    text = cluster_text([answered(quiet(), "a"), silent("b", "its pod does not run (Pending)", "see x")], 0.0)
    assert text.startswith("1 node answers through the API server's proxy, 1 does not answer\n")
    assert text.endswith("\n! b: its pod does not run (Pending); see x\n")


def test_what_is_the_matter_with_a_node_is_in_its_row() -> None:
    """Suspended, stopped, blind and old: each is said, with the reason that was given."""
    stopped = quiet(suspended=("stop_file",), enforcing=False)
    text = cluster_text([answered(stopped, "a")], stopped.at.wall_s + 100)
    assert "NOT enforcing; suspended: stop_file" in text
    assert "last read 1m 40s ago" in text


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
    text = cluster_text([replace(answered(climbing(9)), answer=odd)], whole.at)
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def replace_names(summary: Summary, name: str) -> Summary:
    """The summary with this in place of each text."""
    document = json.loads(encoded(summary))
    document |= {"node": name, "gap": name, "gaps": 1, "suspended": [name], "stopped_why": name}
    for account in document["accounts"]:
        account |= {"namespace": name, "pod": name, "container": name, "verdict": name, "withheld_by": name}
    return decode_summary(json.dumps(document).encode())
