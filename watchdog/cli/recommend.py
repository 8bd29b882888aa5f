"""`gpu-watchdog recommend`: what each workload used and declares, and what it should declare."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from watchdog.cli.check import is_absent, load_or_exit
from watchdog.cli.client import without_journal
from watchdog.cli.past_bar import PastBar
from watchdog.cli.tables import Column, notes, output_width, printed, table
from watchdog.config.load import built_in_policy
from watchdog.core.policy import Policy
from watchdog.core.units import format_bytes
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import NothingRecordedError, recorded_cycles
from watchdog.past.recommendation import Advice, Known, Meter, Suggestion, Usage, Workload, advised
from watchdog.report.text import byte_cell, count, has_colour, span


def print_recommendation(
    journal: Path, policy_file: Path, since_s: float, *, is_policy_named: bool, as_json: bool
) -> None:
    """Print what the workloads since a moment (Unix time) should declare, by the declarations of a policy."""
    policy = _policy(policy_file, is_named=is_policy_named)
    try:
        known = used(journal, policy, since_s)
    except NothingRecordedError as error:
        # As with `history`: that nothing was recorded is an answer.
        click.echo(f"{error}; so there is nothing to recommend", err=True)
        known = []
    except JournalError as error:
        raise click.ClickException(without_journal(error, "recommend")) from error
    if as_json:
        click.echo(json.dumps([_document(*entry) for entry in known], indent=1))
    elif known:
        click.echo(recommendation_text(known, colour=has_colour(sys.stdout), width=output_width()), nl=False)


def used(journal: Path, policy: Policy, since_s: float) -> list[Known]:
    """The workloads since a Unix time, each with its advice; JournalError."""
    meter = Meter(policy, since_s)
    with PastBar("Measuring", since_s) as bar:
        meter.run(bar.over(recorded_cycles(journal, since_s, bar.begin)))
    return advised(meter.usages)


def _policy(file: Path, *, is_named: bool) -> Policy:
    if not is_named and is_absent(file):
        click.echo(f"No policy at {file}: reading declarations as the built-in one does.", err=True)
        return built_in_policy()
    return load_or_exit(file)


def _document(workload: Workload, usage: Usage, advice: Advice) -> dict[str, Any]:
    """A workload as JSON: amounts are bytes, times hours."""
    has_peak = usage.known_s > 0 or usage.peak > 0
    suggestion = advice.suggestion
    return {
        "namespace": workload.namespace,
        "workload": {"kind": workload.kind, "name": workload.name},
        "container": workload.container,
        "pods": len(usage.pods),
        "seen_hours": _hours(usage.seen_s),
        "unknown_hours": _hours(usage.unknown_s),
        "idle_hours": _hours(usage.idle_s),
        "over_hours": _hours(usage.over_s),
        "p50_bytes": usage.percentile(50),
        "p99_bytes": usage.percentile(99),
        "peak_bytes": usage.peak if has_peak else None,
        "peak_is_at_least": usage.unknown_s > 0,
        "peak_per_gpu_bytes": usage.peak_per_gpu if has_peak else None,
        "declared_bytes": usage.last.declared,
        "declared_by": usage.last.declared_by,
        "declared_per": "gpu" if usage.per_gpu else "total",
        "stand": advice.fit.value,
        "reason": advice.reason,
        "suggested": None
        if suggestion is None
        else {
            "key": suggestion.key,
            "value": suggestion.value,
            "bytes": suggestion.amount,
            "allows": suggestion.allows,
            "per": "gpu" if suggestion.per_gpu else "total",
        },
    }


def _hours(seconds: float) -> float:
    return round(seconds / 3600, 4)


_COLUMNS: Final = (
    Column(title="WORKLOAD", least=16, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="PODS", right=True, rank=5),
    Column(title="SEEN FOR", right=True, rank=4),
    Column(title="P50", right=True, rank=3),
    Column(title="P99", right=True, rank=2),
    Column(title="PEAK", right=True),
    Column(title="DECLARED", right=True),
    Column(title="SUGGESTED"),
)


def recommendation_text(known: list[Known], *, colour: bool = False, width: int) -> str:
    """The workloads as a table, the reasons as a list, and the number of suggestions, ending with a line break.

    Where there is too little room for the table, the keys of the suggestions are in the list.
    """
    lines = table(_COLUMNS, [_row(*entry) for entry in known])
    has_room = max(line.cell_len for line in lines) <= width
    if not has_room:
        lines = table(_COLUMNS, [_row(*entry, has_key=False) for entry in known], width)
    reasons = notes((_reason(*entry, has_key=not has_room) for entry in known), width)
    suggestions = sum(advice.suggestion is not None for _, _, advice in known)
    total = f"{count(len(known), 'workload')}, {count(suggestions, 'suggestion')}."
    return printed([*lines, "", *reasons, "", total], colour=colour)


def _title(workload: Workload) -> str:
    """A workload as people write it: `Job training/finetune`, `pod notebooks/jupyter-7`."""
    kind = "pod" if workload.kind == "Pod" else workload.kind
    return f"{kind} {workload.namespace}/{workload.name}"


def _row(workload: Workload, usage: Usage, advice: Advice, *, has_key: bool = True) -> tuple[str, ...]:
    suggestion = advice.suggestion
    return (
        _title(workload),
        "all" if workload.container is None else workload.container,
        str(len(usage.pods)),
        span(usage.seen_s),
        *(_percentile(usage, percent) for percent in (50, 99)),
        _peak(usage),
        "nothing" if usage.last.declared_by is None else byte_cell(usage.last.declared),
        "-" if suggestion is None else _suggested(suggestion, has_key=has_key),
    )


def _suggested(suggestion: Suggestion, *, has_key: bool) -> str:
    return f"{suggestion.key}: {suggestion.value}" if has_key else suggestion.value


def _reason(workload: Workload, usage: Usage, advice: Advice, *, has_key: bool = False) -> str:
    """Why a workload should declare something else, and what the suggestion allows."""
    who = _title(workload) if workload.container is None else f"container {workload.container} of {_title(workload)}"
    where = f"; at most {format_bytes(usage.peak_per_gpu)} on one GPU" if usage.per_gpu and usage.peak else ""
    suggestion, allows = advice.suggestion, ""
    if suggestion is not None:
        on_each = " on each GPU" if suggestion.per_gpu else ""
        allowance = " with the allowance" if suggestion.has_allowance else ""
        allows = (
            f"; {_suggested(suggestion, has_key=has_key)}{on_each} allows {format_bytes(suggestion.allows)}{allowance}"
        )
    return f"{who}: {advice.reason}{where}{allows}"


def _percentile(usage: Usage, percent: float) -> str:
    amount = usage.percentile(percent)
    return "-" if amount is None else byte_cell(amount)


def _peak(usage: Usage) -> str:
    if usage.seen_s <= 0:
        return "-"
    return f"{'>=' if usage.unknown_s else ''}{byte_cell(usage.peak)}"
