"""`gpu-watchdog report`: what held memory was used for, from a journal."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from watchdog import clock
from watchdog.cli.client import without_journal
from watchdog.cli.options import Since
from watchdog.cli.report_text import NodeNote, Report, gaps, report_csv, report_document, report_text, sorted_rows
from watchdog.cli.tables import output_width
from watchdog.journal.errors import JournalError
from watchdog.journal.utilization import node_hours
from watchdog.report.card_hours import HOUR_S, NodeHours
from watchdog.report.text import inert


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """What a report is to be about, and how it is printed."""

    since: Since
    # Whether each row is a namespace, not a workload.
    by_namespace: bool
    # Of a card-hour; None: no costs are shown.
    price: float | None
    form: Literal["table", "csv", "json"]


def report_of_journal(journal: Path, query: ReportQuery) -> None:
    """Print the report of one node; click's error if its journal can't be read."""
    until_s = clock.now().wall_s
    try:
        hours = node_hours(journal, "", query.since.wall_s, until_s)
    except JournalError as error:
        raise click.ClickException(without_journal(error, "report")) from error
    print_report(of_nodes([hours], [NodeNote(begins_s=hours.begins)], query, until_s), query)


def of_nodes(found: list[NodeHours], nodes: list[NodeNote], query: ReportQuery, until_s: float) -> Report:
    """The report of these nodes together."""
    rows = (row for hours in found for row in hours.owners)
    return Report(
        since_s=query.since.wall_s // HOUR_S * HOUR_S,
        until_s=until_s,
        rows=sorted_rows(rows, by_namespace=query.by_namespace),
        by_namespace=query.by_namespace,
        nodes=nodes,
        price=query.price,
    )


def print_report(report: Report, query: ReportQuery) -> None:
    """Print a report as it is wanted; what is missing in a table or a list of rows, beside it."""
    if query.form == "json":
        click.echo(json.dumps(report_document(report), indent=1))
        return
    if query.form == "csv":
        click.echo(report_csv(report), nl=False)
    elif report.rows:
        click.echo(report_text(report, width=output_width()), nl=False)
        return
    else:
        click.echo(
            f"No pod held memory of a GPU {query.since.phrase}; an earlier --since looks further back.", err=True
        )
    for sentence in gaps(report):
        click.echo(inert(sentence, 2000), err=True)
