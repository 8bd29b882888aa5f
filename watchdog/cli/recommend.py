"""`gpu-watchdog recommend`: what each workload used and declares, and what it should declare."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from watchdog import clock
from watchdog.cli.check import is_absent, load_or_exit
from watchdog.cli.client import without_journal
from watchdog.cli.tables import Column, Row, output_width, printed, table
from watchdog.config.load import built_in_policy
from watchdog.core.policy import Policy
from watchdog.core.units import format_bytes
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import NothingRecordedError, recorded_cycles
from watchdog.past.recommendation import (
    Advice,
    Known,
    Meter,
    Usage,
    Workload,
    advised,
    recommendation_document,
)
from watchdog.report.text import byte_cell, count, has_colour, span


def print_recommendation(
    journal: Path, policy_file: Path, back_s: float, *, is_policy_named: bool, as_json: bool
) -> None:
    """Print what the workloads of the last `back_s` seconds should declare, by the declarations of a policy."""
    policy = _policy(policy_file, is_named=is_policy_named)
    try:
        known = used(journal, policy, clock.now().wall_s - back_s)
    except NothingRecordedError as error:
        # As with `history`: that nothing was recorded is an answer.
        click.echo(f"{error}; so there is nothing to recommend", err=True)
        known = []
    except JournalError as error:
        raise click.ClickException(without_journal(error, "recommend")) from error
    if as_json:
        click.echo(json.dumps(recommendation_document(known), indent=1))
        return
    if known:
        click.echo(recommendation_text(known, colour=has_colour(sys.stdout), width=output_width()), nl=False)


def used(journal: Path, policy: Policy, since_s: float) -> list[Known]:
    """The workloads since a Unix time, each with its advice; JournalError."""
    meter = Meter(policy, since_s)
    meter.run(recorded_cycles(journal, since_s))
    return advised(meter.usages)


def _policy(file: Path, *, is_named: bool) -> Policy:
    if not is_named and is_absent(file):
        click.echo(f"No policy at {file}: reading declarations as the built-in one does.", err=True)
        return built_in_policy()
    return load_or_exit(file)


_COLUMNS = (
    Column(title="WORKLOAD", least=20, leads=True),
    Column(title="CONTAINER", least=8, is_name=True),
    Column(title="PODS", right=True, rank=1),
    Column(title="SEEN FOR", right=True),
    Column(title="P50", right=True),
    Column(title="P99", right=True),
    Column(title="PEAK", right=True),
    Column(title="DECLARED", right=True),
)


def recommendation_text(known: list[Known], *, colour: bool = False, width: int) -> str:
    """The workloads as a table, and the number of suggestions, ending with a line break."""
    rows = (line for workload, usage, advice in known for line in _rows(workload, usage, advice))
    suggestions = sum(advice.suggestion is not None for _, _, advice in known)
    total = f"{count(len(known), 'workload')}, {count(suggestions, 'suggestion')}."
    return printed([*table(_COLUMNS, rows, width), "", total], colour=colour)


def _rows(workload: Workload, usage: Usage, advice: Advice) -> Iterator[Row | str]:
    yield (
        f"{workload.namespace}/{workload.kind} {workload.name}",
        "all" if workload.container is None else workload.container,
        str(len(usage.pods)),
        span(usage.seen_s),
        *(_percentile(usage, percent) for percent in (50, 99)),
        _peak(usage),
        "nothing" if usage.last.declared_by is None else byte_cell(usage.last.declared),
    )
    where = f"; at most {byte_cell(usage.peak_per_gpu)} on one GPU" if usage.per_gpu and usage.peak else ""
    yield f"{advice.reason}{where}"
    suggestion = advice.suggestion
    if suggestion is not None:
        on_each = " on each GPU" if suggestion.per_gpu else ""
        allowance = " with the allowance" if suggestion.has_allowance else ""
        allows = f"which allows {format_bytes(suggestion.allows)}{allowance}"
        yield f"declare {suggestion.key}: {suggestion.value}{on_each}, {allows}"


def _percentile(usage: Usage, percent: float) -> str:
    amount = usage.percentile(percent)
    return "-" if amount is None else byte_cell(amount)


def _peak(usage: Usage) -> str:
    if usage.seen_s <= 0:
        return "-"
    return f"{'>=' if usage.unknown_s else ''}{byte_cell(usage.peak)}"
