"""A status as plain tables, the same on a terminal and in a pipe: all of `top --once`, and the tables of `scan`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from watchdog.cli.rows import (
    TopRow,
    action_cells,
    chosen,
    daemon_health,
    enforcement,
    gpu_rows,
    labels_of,
    none_chosen,
    problems,
)
from watchdog.cli.tables import UNCUT, Cell, Column, printed, table, text, without
from watchdog.cli.views import BUSY, HOUR, IDLE, Choice, Signs, amount, busy_cell, spark
from watchdog.report.status import RecentStatus, Status
from watchdog.report.text import byte_cell, date_time, inert

# Cells that may contain spaces come last. Where `scan` has too little room, columns shrink or are dropped.
_GPUS: Final = (
    Column(title="GPU"),
    Column(title="STATE"),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True),
    Column(title=BUSY, right=True),
    Column(title="RESERVED", right=True, rank=4),
    Column(title="RESIDUAL", right=True, rank=3),
    Column(title="UNATTRIBUTED", right=True, rank=1),
    Column(title=HOUR, rank=6),
    Column(title="UUID", rank=5),
    Column(title="NAME", least=14, rank=2, is_name=True),
)
_ACCOUNTS: Final = (
    Column(title="POD", least=16, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="GPU", least=3, rank=2),
    Column(title="USED", right=True),
    Column(title="DECLARED", right=True, rank=4),
    Column(title="ALLOWED", right=True, rank=3),
    Column(title="PERCENT", right=True),
    Column(title="VERDICT"),
    Column(title=BUSY, right=True),
    Column(title=IDLE, right=True),
    Column(title="RULE", least=8, rank=5, is_name=True),
    Column(title=HOUR, rank=6),
)
_NEXT: Final = Column(title="NEXT")
_OF_DAEMONS: Final = (HOUR, BUSY, IDLE)
_PROCESSES: Final = (
    Column(title="PID", right=True),
    Column(title="POD", least=16, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="GPU", least=3),
    Column(title="USED", right=True),
    Column(title="NAME", least=8, is_name=True),
)
_ACTIONS: Final = (
    *(Column(title="TIME"), Column(title="ACTION"), Column(title="RESULT"), Column(title="POD")),
    *(Column(title="USED", right=True), Column(title="ALLOWED", right=True), Column(title="RULE"), Column(title="WHY")),
)


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
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    styles: Mapping[str, str] = MappingProxyType({}),
    width: int = UNCUT,
) -> Sequence[Cell]:
    """Titles and rows, an empty cell as `-`, some cells in a style; nothing without rows.

    Without anything in it, a column of what only a daemon knows is left out.

    Without a width no column shrinks: a script must find each name whole, on its line and in its column.
    """
    cells = list(rows)
    places = {column.title: number for number, column in enumerate(columns) if column.title in _OF_DAEMONS}
    absent = [title for title, number in places.items() if not any(row[number] for row in cells)]
    columns, shown = without(columns, cells, absent)
    styled = [[text(str(cell) or "-", styles.get(str(cell), "")) for cell in row] for row in shown]
    return table(columns, styled, width) if styled else []


def gpu_table(
    status: Status, signs: Signs, styles: Mapping[str, str] = MappingProxyType({}), width: int = UNCUT
) -> Sequence[Cell]:
    """A row for each GPU."""
    return plain_table(_GPUS, _gpus(status, signs), styles, width)


def account_table(
    rows: Iterable[TopRow],
    signs: Signs,
    styles: Mapping[str, str] = MappingProxyType({}),
    width: int = UNCUT,
    *,
    has_next: bool = False,
) -> Sequence[Cell]:
    """A row for each account, without the unattributed processes; what comes next as the last column, if asked for."""
    columns = (*_ACCOUNTS, _NEXT) if has_next else _ACCOUNTS
    cells = (_account(row, signs)[: len(columns)] for row in rows if not row.is_unattributed)
    return plain_table(columns, cells, styles, width)


def process_table(rows: Iterable[TopRow], status: Status, width: int = UNCUT) -> Sequence[Cell]:
    """A row for each process of these accounts on each of its GPUs."""
    return plain_table(_PROCESSES, _processes(rows, labels_of(status)), width=width)


def _gpus(status: Status, signs: Signs) -> Iterator[tuple[str, ...]]:
    for row in gpu_rows(status):
        gpu, memory = row.gpu, row.gpu.memory
        yield (
            gpu.number,
            "up" if gpu.up else "lost",
            *map(byte_cell, (memory.used, memory.total)),
            busy_cell(gpu.utilization) if status.health is not None else "",
            *map(byte_cell, (memory.reserved, memory.residual)),
            amount(row.unattributed.total, row.unattributed.at_least, signs),
            spark(gpu.hour, signs),
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
        *((busy_cell(account.utilization), row.idle or "-") if row.status.health is not None else ("", "")),
        account.rule or "",
        spark(account.hour, signs),
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
