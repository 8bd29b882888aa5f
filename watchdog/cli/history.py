"""`gpu-watchdog history`: past decisions and actions, from the journal."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from watchdog import clock
from watchdog.cli.client import without_journal
from watchdog.core.units import format_duration
from watchdog.journal.errors import CorruptError, JournalError
from watchdog.journal.read import HistoryRow, history
from watchdog.report.text import BOLD, GREEN, RED, YELLOW, has_colour, inert, paint

_LONGEST: Final = 4000
_WIDE: Final = 80  # from this width on the sentence is next to the event, otherwise below it
_LEAST: Final = 40
_TIME_WIDTH: Final = len("00:00:00  ")
_COLOURS: Final = {
    **dict.fromkeys(("intended", "signalled", "kill_begun", "kill_ended", "evict_begun", "evict_ended"), RED),
    **dict.fromkeys(
        ("warned", "withheld", "suspended", "policy_refused", "gap_began", "misdeclared", "breaker_opened"), YELLOW
    ),
    **dict.fromkeys(("evict_blocked", "evict_delayed", "pods_stale"), YELLOW),
    **dict.fromkeys(("released", "resumed", "gap_ended", "breaker_closed", "pods_fresh"), GREEN),
}


def print_history(journal: Path, pod: str | None, since_s: float, *, as_json: bool) -> None:
    """Print the rows of the last `since_s` seconds, oldest first, of one pod (`namespace/name`) or of all."""
    try:
        rows = history(journal, pod, clock.now().wall_s - since_s)
    except CorruptError as error:
        remedy = "check that --journal names the journal; the daemon moves a damaged one aside and starts a new one"
        raise click.ClickException(f"{error}: {remedy}") from error
    except JournalError as error:
        arguments = ["history", *(("--pod", pod) if pod is not None else ())]
        raise click.ClickException(without_journal(error, *arguments)) from error
    if as_json:
        click.echo(json.dumps([{"at": row.at, **asdict(row)} for row in rows], indent=1))
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        click.echo(timeline(rows, width, colour=has_colour(sys.stdout)), nl=False)
    else:
        click.echo("".join(f"{row.at} {row.event}: {inert(row.sentence, _LONGEST)}\n" for row in rows), nl=False)
    if not rows and not as_json:
        about = "" if pod is None else f" about pod {inert(pod)}"
        past = format_duration(since_s)
        click.echo(
            f"Nothing was decided or done{about} in the last {past}; a longer --since looks further back.", err=True
        )


def timeline(rows: Iterable[HistoryRow], width: int, *, colour: bool = False) -> str:
    """Rows for a terminal: a heading per day, then titled columns of time, event and the wrapped sentence."""
    lines: list[str] = []
    for day, within in groupby(rows, key=lambda row: f"{_moment(row):%A %Y-%m-%d}"):
        lines += [*([""] if lines else []), paint(f"{day}, times in UTC", BOLD, is_on=colour)]
        lines += _day(list(within), width, colour=colour)
    return "".join(f"{line}\n" for line in lines)


def _day(rows: Sequence[HistoryRow], width: int, *, colour: bool) -> Iterable[str]:
    widest = max(len("EVENT"), *(len(row.event) for row in rows))
    indent = _TIME_WIDTH + (widest + 2 if width >= _WIDE else 0)
    titles = "TIME      EVENT"
    yield paint(f"{titles:<{indent}}MESSAGE" if width >= _WIDE else titles, BOLD, is_on=colour)
    for row in rows:
        event = inert(row.event)
        head = f"{_moment(row):%H:%M:%S}  {paint(event, _COLOURS.get(row.event, ''), is_on=colour)}"
        wrapped = textwrap.wrap(
            inert(row.sentence, _LONGEST),
            max(width - indent, _LEAST),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        if width >= _WIDE:
            yield f"{head}{' ' * (widest - len(event) + 2)}{wrapped.pop(0)}"
        else:
            yield head
        yield from (f"{' ' * indent}{line}" for line in wrapped)


def _moment(row: HistoryRow) -> datetime:
    return datetime.fromtimestamp(row.wall_s, tz=UTC)
