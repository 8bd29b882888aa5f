"""`gpu-watchdog top`: the GPUs of a node, its pods and what comes next, live in a terminal or once."""

import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TextIO

import click

from watchdog.cli.client import QueryError, help_lines, query_json, query_status
from watchdog.cli.tables import Column, printed, table
from watchdog.cli.top.problems import enforcement, health, problems, why
from watchdog.cli.top.rows import (
    ASCII,
    BLOCKS,
    Signs,
    TopRow,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """The options of `top`: which daemon, how often, which accounts, and in which form."""

    url: str
    choice: Choice
    interval_s: float
    once: bool = False
    as_json: bool = False


def is_live(top_options: TopOptions) -> bool:
    """Whether to draw the live view: on a terminal, and unless the options ask for something else."""
    if top_options.once or top_options.as_json or not sys.stdout.isatty():
        return False
    if os.environ.get("TERM", "") not in ("", "dumb"):
        return True
    click.echo("TERM does not name a terminal that supports the live view; printing the status once.", err=True)
    return False


def print_top(top_options: TopOptions) -> None:
    """Print the status once."""
    if top_options.as_json:
        try:
            click.echo(json.dumps(query_json(top_options.url), indent=1))
        except QueryError as error:
            raise click.ClickException(unreached(error, "top", "--json")) from error
        return
    try:
        status = query_status(top_options.url)
    except QueryError as error:
        raise click.ClickException(unreached(error, "top", "--once")) from error
    click.echo(status_text(status, top_options.choice, prepare(sys.stdout)), nl=False)


def unreached(error: QueryError, *arguments: str) -> str:
    """Why a daemon could not be queried by a command with these arguments, and what to do about it; in lines."""
    return "\n  ".join([str(error), *help_lines(error, *arguments, terminal=arguments == ("top",))])


def prepare(out: TextIO) -> Signs:
    """Make a stream replace characters that its encoding lacks; return the bar characters that it can print."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")
    encoding = (out.encoding or "").lower().replace("-", "")
    return BLOCKS if encoding == "utf8" else ASCII


# Cells that may contain spaces come last.
_GPUS: Final = ("GPU", "STATE", "USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "UUID", "NAME")
_ACCOUNTS: Final = ("POD", "CONTAINER", "GPU", "USED", "DECLARED", "ALLOWED", "PERCENT", "VERDICT", "RULE", "NEXT")
_PROCESSES: Final = ("PID", "POD", "CONTAINER", "GPU", "USED", "NAME")
_ACTIONS: Final = ("TIME", "ACTION", "RESULT", "POD", "USED", "ALLOWED", "RULE", "WHY")
_RIGHT: Final = ("USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "DECLARED", "ALLOWED", "PERCENT", "PID")


def status_text(status: Status, choice: Choice, signs: Signs) -> str:
    """A whole status as text: tables with a line of titles each, separated by blank lines."""
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
            # No column shrinks: a script must find each name whole, on its line and in its column.
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


def _account(row: TopRow, signs: Signs) -> tuple[str, ...]:
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


def _process(row: TopRow, use: ProcessStatus, label: str | None) -> tuple[str, ...]:
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
