"""`gpu-watchdog history`: past decisions and actions, from the journal."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from watchdog import clock
from watchdog.cli.client import without_journal
from watchdog.cli.listing import listing, output_style
from watchdog.core.units import format_duration
from watchdog.journal.errors import CorruptError, JournalError
from watchdog.journal.read import history
from watchdog.report.text import GREEN, RED, YELLOW, date_time, inert

_TITLES: Final = ("TIME", "EVENT", "MESSAGE")
# For people; `--json` and the log have the names. Of the others the words are those of the name.
_WORDS: Final = {
    "intended": "recorded first",
    "signalled": "signal sent",
    "explained": "explanation",
    "released": "memory free",
    "would_act": "only observed",
    "evict_begun": "eviction started",
    "evict_blocked": "eviction blocked",
    "evict_delayed": "eviction retried",
    "evict_ended": "eviction ended",
    "kill_begun": "kill started",
    "misdeclared": "invalid declaration",
    "transferred": "memory changed hands",
    "gap_began": "data gap",
    "gap_ended": "data gap ended",
    "pods_stale": "pod list stale",
    "pods_fresh": "pod list current",
    "brakes_presumed": "brakes count as full",
}
_COLOURS: Final = {
    **dict.fromkeys(("intended", "signalled", "kill_begun", "kill_ended", "evict_begun", "evict_ended"), RED),
    **dict.fromkeys(
        (
            "warned",
            "withheld",
            "suspended",
            "policy_refused",
            "gap_began",
            "misdeclared",
            "transferred",
            "breaker_opened",
        ),
        YELLOW,
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
    elif rows:
        cells = [(date_time(row.wall_s), _words(row.event), row.sentence) for row in rows]
        colours = {_words(event): colour for event, colour in _COLOURS.items()}
        click.echo("\n".join(listing(_TITLES, cells, *output_style(colours))))
    if not rows and not as_json:
        about = "" if pod is None else f" about pod {inert(pod)}"
        past = format_duration(since_s)
        click.echo(
            f"Nothing was decided or done{about} in the last {past}; a longer --since looks further back.", err=True
        )


def _words(event: str) -> str:
    return _WORDS.get(event, event.replace("_", " "))
