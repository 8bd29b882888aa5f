"""A status as plain tables, the same on a terminal and in a pipe: all of `top --once`, and the tables of `scan`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from watchdog.cli.rows import (
    Choice,
    Signs,
    TopRow,
    action_cells,
    amount,
    chosen,
    daemon_health,
    enforcement,
    gpu_rows,
    labels_of,
    none_chosen,
    problems,
)
from watchdog.cli.tables import Cell, Column, printed, table, text
from watchdog.report.status import RecentStatus, Status
from watchdog.report.text import byte_cell, date_time, inert

# Cells that may contain spaces come last.
_GPUS: Final = ("GPU", "STATE", "USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "UUID", "NAME")
_ACCOUNTS: Final = ("POD", "CONTAINER", "GPU", "USED", "DECLARED", "ALLOWED", "PERCENT", "VERDICT", "RULE")
_PROCESSES: Final = ("PID", "POD", "CONTAINER", "GPU", "USED", "NAME")
_ACTIONS: Final = ("TIME", "ACTION", "RESULT", "POD", "USED", "ALLOWED", "RULE", "WHY")
_RIGHT: Final = ("USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "DECLARED", "ALLOWED", "PERCENT", "PID")


def status_text(status: Status, choice: Choice, signs: Signs) -> str:
    """A whole status as text: tables with a line of titles each, separated by blank lines."""
    rows = chosen(status, choice)
    state = ", ".join(filter(None, (enforcement(status), daemon_health(status))))
    lines: list[Cell] = [
        inert(f"node {status.node}, {date_time(status.at)}, mode {status.mode or 'unknown'}, {state}", 1000)
    ]
    lines += [f"! {problem}" for problem in problems(status)]
    for part in (
        gpu_table(status, signs),
        account_table(rows, signs, has_next=True) or [text(f"{none_chosen(status, choice)}.")],
        process_table(rows, status),
        plain_table(_ACTIONS, (_action(recent, status.at, signs) for recent in status.recent)),
    ):
        if part:
            lines += ["", *part]
    return printed(lines)


def plain_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], styles: Mapping[str, str] = MappingProxyType({})
) -> Sequence[Cell]:
    """Titles and rows, an empty cell as `-`, some cells in a style; nothing without rows.

    No column shrinks: a script must find each name whole, on its line and in its column.
    """
    cells = [[text(cell or "-", styles.get(cell, "")) for cell in row] for row in rows]
    return table([Column(title=title, right=title in _RIGHT) for title in titles], cells) if cells else []


def gpu_table(status: Status, signs: Signs, styles: Mapping[str, str] = MappingProxyType({})) -> Sequence[Cell]:
    """A row for each GPU."""
    return plain_table(_GPUS, _gpus(status, signs), styles)


def account_table(
    rows: Iterable[TopRow],
    signs: Signs,
    styles: Mapping[str, str] = MappingProxyType({}),
    *,
    has_next: bool = False,
) -> Sequence[Cell]:
    """A row for each account, without the unattributed processes; what comes next as the last column, if asked for."""
    titles = (*_ACCOUNTS, "NEXT") if has_next else _ACCOUNTS
    cells = (_account(row, signs)[: len(titles)] for row in rows if not row.is_unattributed)
    return plain_table(titles, cells, styles)


def process_table(rows: Iterable[TopRow], status: Status) -> Sequence[Cell]:
    """A row for each process of these accounts on each of its GPUs."""
    return plain_table(_PROCESSES, _processes(rows, labels_of(status)))


def _gpus(status: Status, signs: Signs) -> Iterator[tuple[str, ...]]:
    for row in gpu_rows(status):
        gpu, memory = row.gpu, row.gpu.memory
        yield (
            gpu.number,
            "up" if gpu.up else "lost",
            *map(byte_cell, (memory.used, memory.total, memory.reserved, memory.residual)),
            amount(row.unattributed.total, row.unattributed.at_least, signs),
            gpu.uuid,
            gpu.model,
        )


def _account(row: TopRow, signs: Signs) -> tuple[str, ...]:
    account = row.account
    return (
        account.title,
        row.container.replace(" ", "_"),
        row.gpus,
        row.used(signs),
        row.declared,
        row.allowed,
        row.percent(signs),
        account.verdict,
        account.rule or "",
        row.next_full(),
    )


def _processes(rows: Iterable[TopRow], labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        pod = "" if row.is_unattributed else row.account.title
        for use in row.account.processes:
            where = labels.get(use.gpu, use.gpu)
            yield str(use.pid), pod, use.container or "", where, byte_cell(use.used), use.name


def _action(recent: RecentStatus, at: float, signs: Signs) -> tuple[str, ...]:
    time_, do, _, title, *rest = action_cells(recent, at, signs)
    when = "" if recent.at is None else time_.replace(" ", "T")
    return when, do, recent.result or "in_progress", title.replace(" ", ""), *rest
