"""`gpu-watchdog history`: what was decided and done, from the journal."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from watchdog import clock
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import HistoryRow, history


def print_history(journal: Path, pod: str | None, since_s: float, *, as_json: bool) -> None:
    """Print the rows of the last `since_s` seconds, oldest first, of one pod (`namespace/name`) or of all."""
    try:
        rows = history(journal, pod, clock.now().wall_s - since_s)
    except JournalError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([{"at": row.at, **asdict(row)} for row in rows], indent=1))
        return
    for row in rows:
        click.echo(_line(row))
    if not rows:
        about = "" if pod is None else f" about pod {pod}"
        click.echo(f"Nothing was decided or done{about} in that time; --since 7d looks further back.", err=True)


def _line(row: HistoryRow) -> str:
    return f"{row.at} {row.event}: {row.sentence}"
