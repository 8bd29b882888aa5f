"""What `report` prints: a row per owner or namespace, as a table, CSV or JSON, and what is missing in it."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from watchdog.cli.tables import Column, notes, printed, table, without
from watchdog.core.errors import Problem
from watchdog.report.card_hours import OwnerHours, added_up
from watchdog.report.text import count, date_time, inert, rfc3339

_MOST_NODES: Final = 20
# Longer than any name: a file has them whole.
_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNote:
    """A node, or by Prometheus a cluster, with since when something is known of it, and why it is missing."""

    # Empty: the one whose journal was read, or those of a cluster.
    node: str = ""
    # Empty: there is one.
    cluster: str = ""
    # Unix time; None: nothing was held there, or that is unknown.
    begins_s: float | None = None
    # None: its card-hours are in the report.
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Card-hours of a time, of one node or of many."""

    # Unix time.
    since_s: float
    until_s: float
    # With each the name of its cluster, if several are known; sorted by what is idle.
    rows: Sequence[tuple[str, OwnerHours]]
    # Whether a row is a namespace.
    by_namespace: bool
    nodes: Sequence[NodeNote] = field(default_factory=tuple)
    is_by_prometheus: bool = False
    # Of a card for an hour; None: there is no column for it.
    price: float | None = None

    @property
    def total(self) -> OwnerHours:
        """All rows together."""
        nothing = OwnerHours(namespace="", unused=None if any(row.unused is None for _, row in self.rows) else 0.0)
        return sum((row for _, row in self.rows), nothing)

    @property
    def missing(self) -> list[NodeNote]:
        """The nodes that are not in it."""
        return [each for each in self.nodes if each.problem is not None]


def sorted_rows(rows: Iterable[OwnerHours], *, by_namespace: bool) -> list[tuple[str, OwnerHours]]:
    """The rows of a report of one cluster."""
    return [("", row) for row in added_up(rows, by_namespace=by_namespace)]


_COLUMNS: Final = (
    Column(title="CLUSTER", least=8, is_name=True),
    Column(title="NAMESPACE", least=9, is_name=True),
    Column(title="KIND", rank=3),
    Column(title="OWNER", least=24, is_name=True),
    Column(title="HELD", right=True),
    Column(title="USED", right=True),
    Column(title="IDLE", right=True),
    Column(title="UNKNOWN", right=True, rank=2),
    Column(title="UNUSED", right=True, rank=1),
    Column(title="IDLE COST", right=True),
)
_OTHERS: Final = "(others)"
# Kubernetes' names are in lower case.
_TOTAL: Final = "TOTAL"


def report_text(report: Report, *, width: int) -> str:
    """The rows and their total as a table, and what they mean and lack as a list; ends with a line break."""
    total = report.total
    rows = [_cells(cluster, row, report.price) for cluster, row in report.rows]
    rows.append(("", _TOTAL, "", "", *_cells("", total, report.price)[4:]))
    absent = [title for title, is_absent in _absent(report, total) if is_absent]
    lines = table(*without(_COLUMNS, rows, absent), width)
    return printed([*lines, "", *notes(_notes(report, total), width)])


def _absent(report: Report, total: OwnerHours) -> Iterator[tuple[str, bool]]:
    yield "CLUSTER", not any(cluster for cluster, _ in report.rows)
    yield "KIND", report.by_namespace
    yield "OWNER", report.by_namespace
    yield "UNUSED", total.unused is None
    yield "IDLE COST", report.price is None


def _cells(cluster: str, row: OwnerHours, price: float | None) -> tuple[str, ...]:
    cost = "" if price is None else f"{row.idle * price:.2f}"
    unused = "" if row.unused is None else _hours(row.unused)
    parts = (_hours(each) for each in (row.held, row.used, row.idle, row.unknown))
    return cluster, row.namespace, row.kind, row.name or ("" if row.kind else _OTHERS), *parts, unused, cost


def _hours(hours: float) -> str:
    return f"{hours:.2f}"


def _notes(report: Report, total: OwnerHours) -> Iterator[str]:
    since = f"{date_time(report.since_s)[:16]} UTC"
    unused = "" if total.unused is None else ". UNUSED was declared and not held"
    yield (
        f"Card-hours since {since}: 1 is all memory of a card for an hour, or half of it for two. USED and IDLE are "
        f"what the driver says of what was HELD; where it says nothing, that is UNKNOWN{unused}."
    )
    if report.price is not None:
        yield f"IDLE COST is IDLE x {report.price:g}, the price of a card for an hour."
    yield from gaps(report)


def gaps(report: Report) -> Iterator[str]:
    """What the report lacks: the time before journals or Prometheus begin, and nodes that did not answer."""
    late = [each for each in report.nodes if (each.begins_s or 0.0) > report.since_s]
    if late:
        yield _beginning(report, late)
    missing = report.missing
    for each in missing[:_MOST_NODES]:
        yield inert(f"Node {each.node} is missing: {each.problem}.", _LONGEST)
    if len(missing) > _MOST_NODES:
        yield f"{count(len(missing) - _MOST_NODES, 'further node is', 'further nodes are')} missing; --json names them."


def _beginning(report: Report, late: Sequence[NodeNote]) -> str:
    """Since when there is something of those that lack the beginning."""
    last = max(late, key=lambda each: (each.begins_s or 0.0, each.cluster, each.node))
    begins = f"{date_time(last.begins_s or 0.0)[:16]} UTC"
    if report.is_by_prometheus:
        of = f" of cluster {inert(last.cluster)}" if last.cluster else ""
        others = count(len(late) - 1, "further cluster", "further clusters")
        others = f", and lacks the beginning of {others}" if len(late) > 1 else ""
        return f"Prometheus has no card-seconds{of} before {begins}{others}."
    if len(report.nodes) == 1:
        return f"The journal has nothing before {begins}."
    return (
        f"The journals of {len(late)} of {len(report.nodes)} nodes have nothing of the beginning, "
        f"that of {inert(last.node)} nothing before {begins}."
    )


_AMOUNTS: Final = ("held", "used", "idle", "unknown", "unused")


def report_csv(report: Report) -> str:
    """The rows below a line of titles; amounts are card-hours."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    clusters = ["cluster"] if any(cluster for cluster, _ in report.rows) else []
    owners = [] if report.by_namespace else ["owner_kind", "owner_name"]
    costs = [] if report.price is None else ["idle_cost"]
    writer.writerow([*clusters, "namespace", *owners, *(f"{each}_card_hours" for each in _AMOUNTS), *costs])
    for cluster, row in report.rows:
        names = [*([cluster] if clusters else []), row.namespace, *([row.kind, row.name] if owners else [])]
        cost = [] if report.price is None else [round(row.idle * report.price, 6)]
        writer.writerow([*map(_plain, names), *_amounts(row).values(), *cost])
    return out.getvalue()


def _plain(name: str) -> str:
    """A name that no spreadsheet takes for a formula; a tenant chooses the kind and name of a pod's owner."""
    shown = inert(name, _LONGEST)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def _amounts(row: OwnerHours) -> dict[str, float | None]:
    """The amounts of a row, by the names of `_AMOUNTS`."""
    values = (getattr(row, each) for each in _AMOUNTS)
    return {each: None if value is None else round(value, 6) for each, value in zip(_AMOUNTS, values, strict=True)}


def report_document(report: Report) -> dict[str, Any]:
    """The report as JSON has it."""

    def cost(row: OwnerHours) -> dict[str, float]:
        return {} if report.price is None else {"idle_cost": round(row.idle * report.price, 6)}

    def named(cluster: str, row: OwnerHours) -> dict[str, Any]:
        owner = None if report.by_namespace or not row.kind + row.name else {"kind": row.kind, "name": row.name}
        return {"cluster": cluster or None, "namespace": row.namespace, "owner": owner}

    return {
        "since": rfc3339(report.since_s),
        "until": rfc3339(report.until_s),
        "by": "namespace" if report.by_namespace else "owner",
        "price": report.price,
        "rows": [{**named(cluster, row), "card_hours": _amounts(row), **cost(row)} for cluster, row in report.rows],
        "total": {"card_hours": _amounts(report.total), **cost(report.total)},
        "nodes": [
            {
                "cluster": each.cluster or None,
                "node": each.node or None,
                "begins": None if each.begins_s is None else rfc3339(each.begins_s),
                "problem": None if each.problem is None else inert(str(each.problem), _LONGEST),
            }
            for each in report.nodes
        ],
    }
