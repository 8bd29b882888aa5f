"""`gpu-watchdog top --cluster`: the GPUs of every node, the most urgent pods of all, and who does not answer."""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import click

from watchdog import clock
from watchdog.cli.tables import Cell, Column, printed, table
from watchdog.core.errors import Problem
from watchdog.kube.client import PERSONAL_AGENT, Api
from watchdog.kube.daemons import DaemonError, DaemonPod, ask_daemon, find_daemons
from watchdog.kube.kubeconfig import ContextChoice
from watchdog.report.status import StatusError, decode
from watchdog.report.summary import AccountSummary, Summary, decode_summary
from watchdog.report.text import byte_cell, count, inert, span

_AT_A_TIME: Final = 16
_MOST_PODS: Final = 40
_OLD_S: Final = 30.0
_NO_DAEMONS: Final = (
    "there is no pod of the watchdog here: install it (docs/install.md), or name another namespace with --namespace or "
    "another cluster with --context or --kubeconfig"
)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer(Generic[Answer]):
    """What a node's daemon has answered, or why there is no answer."""

    daemon: DaemonPod
    answer: Answer | None = None
    problem: Problem | None = None


def ask_nodes(
    api: Api, daemons: Sequence[DaemonPod], path: str, read: Callable[[bytes], Answer]
) -> list[NodeAnswer[Answer]]:
    """Ask each daemon, at most 16 at a time; what can't be read is a problem of that node alone."""

    def ask(daemon: DaemonPod) -> NodeAnswer[Answer]:
        try:
            return NodeAnswer(daemon=daemon, answer=read(ask_daemon(api, daemon, path)))
        except DaemonError as error:
            return NodeAnswer(daemon=daemon, problem=error.problem)
        except StatusError as error:
            return NodeAnswer(daemon=daemon, problem=Problem(str(error), "see whether all nodes run the same version"))

    with ThreadPoolExecutor(_AT_A_TIME, "cluster") as pool:
        return list(pool.map(ask, daemons))


def print_cluster(chosen: ContextChoice, namespace: str, *, as_json: bool) -> None:
    """Print every node once."""
    with Api(chosen, PERSONAL_AGENT) as api:
        try:
            daemons = find_daemons(api, namespace)
        except DaemonError as error:
            raise click.ClickException(inert(str(error), 1000)) from error
        if not daemons:
            raise click.ClickException(_NO_DAEMONS)
        if as_json:
            click.echo(json.dumps(_document(ask_nodes(api, daemons, "/api/status", _checked)), indent=1))
        else:
            click.echo(
                cluster_text(ask_nodes(api, daemons, "/api/summary", decode_summary), clock.now().wall_s), nl=False
            )


def _checked(body: bytes) -> tuple[float, Any]:
    """When a status was read, and the status as the daemon wrote it; StatusError if it is none."""
    return decode(body).at, json.loads(body)


def _document(answers: Iterable[NodeAnswer[tuple[float, Any]]]) -> dict[str, Any]:
    now_s = clock.now().wall_s
    nodes = []
    for each in answers:
        at_s, status = each.answer or (None, None)
        age_s = None if at_s is None else round(max(now_s - at_s, 0.0), 1)
        problem = None if each.problem is None else inert(str(each.problem), 1000)
        nodes.append({"node": inert(each.daemon.node), "age_s": age_s, "status": status, "problem": problem})
    return {"via": "proxy", "nodes": nodes}


_NODES: Final = (
    Column(title="NODE"),
    Column(title="GPUS", right=True),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True),
    Column(title="PODS", right=True),
    Column(title="OVER", right=True),
    Column(title="STATE"),
)
_PODS: Final = (
    Column(title="NODE"),
    Column(title="POD"),
    Column(title="CONTAINER"),
    Column(title="GPU", right=True),
    Column(title="USED", right=True),
    Column(title="ALLOWED", right=True),
    Column(title="VERDICT"),
    Column(title="NEXT"),
)


def cluster_text(answers: Sequence[NodeAnswer[Summary]], now_s: float) -> str:
    """All nodes as tables: the nodes, those first of which there is something to say; pods; who does not answer."""
    known = [each.answer for each in answers if each.answer is not None]
    silent = [each for each in answers if each.answer is None]
    lines: list[Cell] = [_headline(len(known), len(silent))]
    if known:
        rows = sorted(known, key=lambda each: (not _remarks(each, now_s), each.node))
        lines += ["", *table(_NODES, [_node(each, now_s) for each in rows])]
        urgent = _urgent(known)
        shown = urgent[:_MOST_PODS]
        if shown:
            lines += ["", *table(_PODS, [_pod(node, account) for node, account in shown])]
        lines += [f"and {len(urgent) - len(shown)} more"] if len(urgent) > len(shown) else []
        lines += [] if shown else ["", "No pod is over its limit, and no step is due."]
    lines += ["", *(_silent(each) for each in silent)] if silent else []
    return printed(lines)


def _headline(known: int, silent: int) -> str:
    missing = f", {silent} {'does' if silent == 1 else 'do'} not answer" if silent else ""
    answers = "answers" if known == 1 else "answer"
    return f"{count(known, 'node')} {answers} through the API server's proxy{missing}"


def _node(node: Summary, now_s: float) -> tuple[str, ...]:
    used, total = ([getattr(gpu, name) for gpu in node.gpus] for name in ("used", "total"))
    is_whole = len(node.gpus) == node.gpus_in_all
    state = "enforcing" if node.enforcing else "observing" if node.mode == "observe" else "NOT enforcing"
    return (
        inert(node.node),
        str(node.gpus_in_all),
        *(byte_cell(sum(each)) if is_whole and None not in each else "unknown" for each in (used, total)),
        str(node.accounts_in_all),
        str(node.verdicts.get("over", 0)),
        "; ".join([state, *_remarks(node, now_s)]),
    )


def _remarks(node: Summary, now_s: float) -> list[str]:
    """What is the matter with a node, each in a few words."""
    down = [gpu.number for gpu in node.gpus if not gpu.up]
    why = f" ({inert(node.stopped_why, 100)})" if node.stopped_why else ""
    remarks = [f"suspended: {inert(', '.join(node.suspended), 200)}{why}"] if node.suspended else []
    remarks += [f"maintenance: {inert(node.maintenance, 100)}"] if node.maintenance and not node.suspended else []
    remarks += ["its loop hangs"] if node.hangs_since is not None else []
    remarks += [f"last read {span(now_s - node.at)} ago"] if now_s - node.at > _OLD_S else []
    remarks += ["its pod list is old"] if node.pods_stale else []
    remarks += ["the breaker is open"] if node.breaker_open else []
    remarks += [f"{'GPU' if len(down) == 1 else 'GPUs'} {', '.join(map(inert, down))} down"] if down else []
    remarks += [f"{count(node.gaps, 'data gap')}, first {inert(node.gap or '', 160)}"] if node.gaps else []
    over = node.verdicts.get("over", 0)
    return remarks + ([f"{count(over, 'account')} over"] if over else [])


def _urgent(nodes: Iterable[Summary]) -> list[tuple[Summary, AccountSummary]]:
    """The accounts over their limit, acted on or with a step, of all nodes, the most urgent first."""
    found = [
        (node, each) for node in nodes for each in node.accounts if each.acting or each.do or each.verdict == "over"
    ]

    def order(pair: tuple[Summary, AccountSummary]) -> tuple[bool, bool, float, float, str, str]:
        node, each = pair
        over = (each.compared or 0) - each.allowed if each.allowed is not None else 0
        due_s = float(each.due_in_s) if each.due_in_s is not None else 0.0
        return not each.acting, each.do is None, due_s, -over, node.node, f"{each.namespace}/{each.pod}"

    return sorted(found, key=order)


def _pod(node: Summary, account: AccountSummary) -> tuple[str, ...]:
    return (
        inert(node.node),
        f"{inert(account.namespace)}/{inert(account.pod)}",
        "-" if account.container is None else inert(account.container) or "unlisted containers",
        inert(account.gpu or "-"),
        byte_cell(account.used if account.used is not None else account.used_at_least),
        "-" if account.allowed is None else byte_cell(account.allowed),
        inert(account.verdict, 40),
        _next(account),
    )


def _next(account: AccountSummary) -> str:
    if account.acting:
        return "in progress"
    if account.do is None:
        return "-"
    if account.withheld_by:
        return f"{account.do} withheld: {inert(account.withheld_by, 40)}"
    due_s = account.due_in_s or 0
    return f"{account.do} in {span(due_s)}" if due_s > 0 else f"{account.do} now"


def _silent(each: NodeAnswer[Summary]) -> str:
    problem = each.problem or Problem("no answer")
    return f"! {inert(each.daemon.node) or 'a pod without a node'}: {inert(str(problem), 600)}"
