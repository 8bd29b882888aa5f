"""What was used beside what is declared, workload by workload: as a table for people and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from watchdog.core.units import format_bytes
from watchdog.export.phrases import byte_cell, count, span
from watchdog.export.table import Cell, Column, Row, table
from watchdog.past.suggest import Advice, Stand, Suggestion, advise
from watchdog.past.telling import wrapped
from watchdog.past.usage import Usage, Workload

_HOUR_S = 3600.0
# What somebody has to do something about comes first.
_ORDER = (
    Stand.TOO_LITTLE,
    Stand.MISDECLARED,
    Stand.NOTHING,
    Stand.TOO_MUCH,
    Stand.UNKNOWN,
    Stand.FITS,
    Stand.WHOLE,
    Stand.UNUSED,
)

Known = tuple[Workload, Usage, Advice]


def advised(usages: Mapping[Workload, Usage]) -> list[Known]:
    """Each workload with its advice, in the order in which they are told."""
    known = [(workload, usage, advise(usage)) for workload, usage in usages.items()]
    return sorted(known, key=lambda each: (_ORDER.index(each[2].stand), each[0].namespace, _key(each[0])))


def recommendation_document(known: list[Known]) -> list[dict[str, Any]]:
    """The workloads as JSON: amounts are bytes, times hours."""
    return [_document(workload, usage, advice) for workload, usage, advice in known]


def recommendation_text(known: list[Known], *, colour: bool = False, width: int) -> str:
    """The workloads for people, ending with a line break."""
    columns = (
        Column(title="WORKLOAD", flexible=True),
        Column(title="CONTAINER", flexible=True),
        Column(title="PODS", right=True, optional=True),
        Column(title="SEEN FOR", right=True),
        Column(title="P50", right=True),
        Column(title="P99", right=True),
        Column(title="PEAK", right=True),
        Column(title="DECLARED", right=True),
    )
    rows = (line for workload, usage, advice in known for line in _rows(workload, usage, advice, width))
    return "\n".join(table(columns, rows, colour=colour, width=width)) + "\n"


def _rows(workload: Workload, usage: Usage, advice: Advice, width: int) -> Iterator[Row | str]:
    declared = usage.last.declared
    yield (
        Cell(f"{workload.namespace}/{workload.kind} {workload.name}"),
        Cell("all" if workload.container is None else workload.container),
        Cell(str(len(usage.pods))),
        Cell(span(usage.seen_s)),
        *(Cell(_cell(usage, percent)) for percent in (50, 99)),
        Cell(_peak(usage)),
        Cell("nothing" if usage.last.declared_by is None else byte_cell(declared)),
    )
    reason = f"{advice.reason}; {_where(usage)}" if usage.per_gpu and usage.peak else advice.reason
    yield from wrapped(reason, width, "  ")
    if advice.suggestion is not None:
        yield from wrapped(_suggested(advice.suggestion), width, "  ")


def _suggested(suggestion: Suggestion) -> str:
    each = " on each GPU" if suggestion.per_gpu else ""
    allowance = " with the allowance" if suggestion.has_allowance else ""
    allows = f"which allows {format_bytes(suggestion.allows)}{allowance}"
    return f"declare {suggestion.key}: {suggestion.value}{each}, {allows}"


def _where(usage: Usage) -> str:
    return f"at most {byte_cell(usage.peak_per_gpu)} on one GPU"


def _cell(usage: Usage, percent: float) -> str:
    amount = usage.percentile(percent)
    return "-" if amount is None else byte_cell(amount)


def _peak(usage: Usage) -> str:
    if usage.seen_s <= 0:
        return "-"
    return f"{'>=' if usage.unknown_s else ''}{byte_cell(usage.peak)}"


def _document(workload: Workload, usage: Usage, advice: Advice) -> dict[str, Any]:
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
        "stand": advice.stand.value,
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
    return round(seconds / _HOUR_S, 4)


def _key(workload: Workload) -> tuple[str, str, str]:
    return (workload.kind, workload.name, workload.container or "")


def told(known: list[Known]) -> str:
    """How many workloads there are, and of how many of them something should change."""
    wanting = sum(advice.suggestion is not None for _, _, advice in known)
    return f"{count(len(known), 'workload')}, {count(wanting, 'suggestion')}."
