"""`gpu-watchdog report --cluster`: what held memory was used for, from all daemons or from a Prometheus."""

from typing import TYPE_CHECKING

import click

from watchdog import clock
from watchdog.cli.cluster import ClusterChoice, opened
from watchdog.cli.cluster_rows import NodeAnswer
from watchdog.cli.fleet import Fleet
from watchdog.cli.fleet_hours import fleet_hours
from watchdog.cli.report import ReportQuery, of_nodes, print_report
from watchdog.cli.report_text import NodeNote, Report
from watchdog.report.card_hours import NodeHours
from watchdog.report.text import inert

if TYPE_CHECKING:
    from watchdog.cli.cluster_daemons import Cluster


def report_of_cluster(which: ClusterChoice, query: ReportQuery) -> None:
    """Print the report of all nodes; click's error if nothing can be asked."""
    until_s = clock.now().wall_s
    with opened(which) as source:
        if not isinstance(source, Fleet):
            print_report(_of_daemons(source, query, until_s), query)
            return
        hours = fleet_hours(source, query.since.wall_s, until_s)
        notes = [NodeNote(cluster=cluster, begins_s=begins_s) for cluster, begins_s in sorted(hours.begins.items())]
        report = Report(
            since_s=query.since.wall_s,
            until_s=until_s,
            rows=hours.rows,
            by_namespace=True,
            nodes=notes,
            is_by_prometheus=True,
            price=query.price,
        )
        print_report(report, query)


def _of_daemons(cluster: "Cluster", query: ReportQuery, until_s: float) -> Report:
    answers: list[NodeAnswer[NodeHours]] = []
    cluster.ask_card_hours(query.since.wall_s, answers.append)
    found: dict[str, NodeHours] = {}
    notes: dict[str, NodeNote] = {}
    for each in sorted((*answers, *cluster.bare), key=lambda answer: answer.key):
        # Of two releases on a node each counts everything.
        if each.answer is not None and _held(each.answer) >= _held(found.get(each.node)):
            found[each.node] = each.answer
            notes[each.node] = NodeNote(node=each.node, begins_s=each.answer.begins)
        elif each.answer is None:
            notes.setdefault(each.node, NodeNote(node=each.node, problem=each.problem))
    if not found:
        first = next(iter(notes.values()))
        raise click.ClickException(inert(f"no node answers; {first.node}: {first.problem}", 1000))
    return of_nodes([*found.values()], [*notes.values()], query, until_s)


def _held(hours: NodeHours | None) -> float:
    return 0.0 if hours is None else sum(row.held for row in hours.owners)
