"""The status of a node as tables of text: for eyes, pipes and scripts."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.tables import Column, printed, table
from watchdog.cli.top.problems import enforcement, health, problems, why
from watchdog.cli.top.rows import (
    AccountRow,
    Signs,
    amount,
    container_of,
    labels_of,
    limit,
    percent,
    recent_title,
    sums_by_gpu,
    used_of,
)
from watchdog.cli.top.state import Choice, chosen
from watchdog.report.status import ProcessStatus, RecentStatus, Status
from watchdog.report.text import byte_cell, clock_time, date_time, inert

# What may have spaces in it stands at the end of a line.
_GPUS: Final = ("GPU", "STATE", "USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "UUID", "NAME")
_ACCOUNTS: Final = ("POD", "CONTAINER", "GPU", "USED", "DECLARED", "ALLOWED", "PERCENT", "VERDICT", "RULE", "NEXT")
_PROCESSES: Final = ("PID", "POD", "CONTAINER", "GPU", "USED", "NAME")
_ACTIONS: Final = ("TIME", "ACTION", "RESULT", "POD", "USED", "ALLOWED", "RULE", "WHY")
_RIGHT: Final = ("USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "DECLARED", "ALLOWED", "PERCENT", "PID")


def once(status: Status, choice: Choice, signs: Signs) -> str:
    """A whole status as text; each table has a line of titles, and a blank line before it."""
    rows, labels = chosen(status, choice), labels_of(status)
    tables = (
        (_GPUS, list(_gpus(status, signs))),
        (_ACCOUNTS, [_account(row, signs) for row in rows if not row.is_unattributed]),
        (_PROCESSES, [_process(row, use, labels.get(use.gpu)) for row in rows for use in row.account.processes]),
        (_ACTIONS, [_action(each, status.at, signs) for each in status.recent]),
    )
    lines = list(_head(status))
    for titles, body in tables:
        if body:
            # None of them gives way: a script must find each name whole, on its line and in its column.
            columns = [Column(title=title, right=title in _RIGHT) for title in titles]
            lines += ["", *map(str, table(columns, [[cell or "-" for cell in row] for row in body]))]
    return printed(lines)


def _head(status: Status) -> Iterator[str]:
    state = ", ".join(filter(None, (enforcement(status), health(status))))
    yield inert(f"node {status.node}, {date_time(status.at)}, mode {status.mode or 'unknown'}, {state}", 1000)
    yield from (f"! {problem}" for problem in problems(status))


def _gpus(status: Status, signs: Signs) -> Iterator[tuple[str, ...]]:
    sums = sums_by_gpu(status)
    for gpu in status.gpus:
        memory, (_, unattributed) = gpu.memory, sums[gpu.uuid]
        yield (
            gpu.number,
            "up" if gpu.up else "lost",
            *map(byte_cell, (memory.used, memory.total, memory.reserved, memory.residual)),
            amount(unattributed.total, unattributed.at_least, signs),
            gpu.uuid,
            f"{gpu.name} {gpu.profile or ''}".strip(),
        )


def _account(row: AccountRow, signs: Signs) -> tuple[str, ...]:
    account = row.account
    return (
        account.title,
        container_of(account).replace(" ", "_"),
        row.gpu,
        used_of(account, signs),
        limit(account, account.declared),
        limit(account, account.allowed),
        percent(account, signs),
        account.verdict,
        account.rule or "",
        row.progress.full(0.0),
    )


def _process(row: AccountRow, use: ProcessStatus, label: str | None) -> tuple[str, ...]:
    pod = "-" if row.is_unattributed else row.account.title
    return str(use.pid), pod, use.container or "", label or use.gpu, byte_cell(use.used), use.name


def _action(recent: RecentStatus, at: float, signs: Signs) -> tuple[str, ...]:
    when = "" if recent.at is None else clock_time(recent.at, at)
    return (
        when.removesuffix(" UTC").replace(" ", "T"),
        recent.do,
        recent.result or "in_progress",
        recent_title(recent).replace(" ", ""),
        amount(recent.used, recent.used_at_least, signs),
        byte_cell(recent.allowed),
        recent.rule or "",
        why(recent),
    )
