"""`gpu-watchdog history`: past decisions and actions, from the journal."""

import errno
import json
import os
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from watchdog.cli.client import without_journal
from watchdog.cli.listing import listing, output_style
from watchdog.cli.options import Since
from watchdog.journal.errors import CorruptError, EmptyJournalError, JournalError, NoJournalError
from watchdog.journal.read import HistoryRow, JournalTail, history
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
    "idle": "computes nothing",
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
            "idle",
            "breaker_opened",
        ),
        YELLOW,
    ),
    **dict.fromkeys(("evict_blocked", "evict_delayed", "pods_stale"), YELLOW),
    **dict.fromkeys(("released", "resumed", "gap_ended", "breaker_closed", "pods_fresh"), GREEN),
}


# The widest cells of the columns before the message, so that rows that come later are in the same columns.
_LEAST: Final = (len("2026-01-31 14:05:10 UTC"), max(map(len, _WORDS.values())))
_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which occurrences are asked for."""

    since: Since
    # `namespace/name`; None: all pods.
    pod: str | None = None
    # Those of these actions alone; empty: all occurrences.
    actions: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The command line of the same query, without what only this machine has."""
        return ["history", *(("--pod", self.pod) if self.pod is not None else ())]

    @property
    def phrase(self) -> str:
        """What was asked for, for a sentence."""
        about = "" if self.pod is None else f" about pod {inert(self.pod)}"
        of = f" with --action {' or '.join(self.actions)}" if self.actions else ""
        return f"{about}{of} {self.since.phrase}"


def print_history(journal: Path, query: Query, *, as_json: bool) -> None:
    """Print the rows that are asked for, oldest first."""
    try:
        rows = history(journal, query.pod, query.since.wall_s, query.actions)
    except JournalError as error:
        raise click.ClickException(_unread(error, query)) from error
    if as_json:
        click.echo(json.dumps([_document(row) for row in rows], indent=1))
    elif rows:
        click.echo("\n".join(listing(_TITLES, [*map(_cells, rows)], *_style())))
    else:
        click.echo(f"Nothing was decided or done{query.phrase}; an earlier --since looks further back.", err=True)


def follow_history(journal: Path, query: Query, *, as_json: bool, until_eof: bool = False) -> None:
    """Print the rows that are asked for, and further ones as they are written, until Ctrl-C; each as a line of JSON.

    `until_eof`: also until the end of standard input, in a pod the only sign that the caller has gone.
    """
    tail = JournalTail(journal, query.pod, query.since.wall_s, query.actions)
    problem, replaced = "", 0
    with suppress(KeyboardInterrupt, EOFError):
        if not as_json:
            _print_part([], has_titles=True)
        while True:
            try:
                rows, now = tail.read(), ""
            except JournalError as error:
                if not tail.was_read and not isinstance(error, NoJournalError | EmptyJournalError):
                    raise click.ClickException(_unread(error, query)) from error
                rows, now = [], f"{str(error) if tail.was_read else _unread(error, query)}\nWaiting for it."
            if now and now != problem:
                click.echo(now, err=True)
            if tail.replaced != replaced:
                click.echo(f"Another file is in place of journal {journal}; following that one.", err=True)
            problem, replaced = now, tail.replaced
            if as_json:
                for row in rows:
                    click.echo(json.dumps(_document(row)))
            elif rows:
                _print_part(rows, has_titles=False)
            _rest(until_eof=until_eof)


def _print_part(rows: Sequence[HistoryRow], *, has_titles: bool) -> None:
    """Print rows below earlier ones, in the same columns."""
    lines = listing(_TITLES, [*map(_cells, rows)], *_style(), least=_LEAST, has_titles=has_titles)
    for line in lines:
        click.echo(line)


def _rest(*, until_eof: bool) -> None:
    """Wait until the journal is read again.

    BrokenPipeError as soon as nobody reads the output, as with `| head`; EOFError, if asked for, at the input's end.
    """
    waited = select.poll()
    waited.register(sys.stdout, 0)
    if until_eof:
        waited.register(sys.stdin, select.POLLIN)
    for descriptor, _ in waited.poll(_AGAIN_S * 1000):
        if descriptor == sys.stdout.fileno():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not os.read(descriptor, 4096):
            raise EOFError


def _style() -> tuple[Mapping[str, str], int | None]:
    return output_style({_words(event): colour for event, colour in _COLOURS.items()})


def _unread(error: JournalError, query: Query) -> str:
    """Why a journal can't be read, and the remedy."""
    if isinstance(error, CorruptError):
        remedy = "check that --journal names the journal; the daemon moves a damaged one aside and starts a new one"
        return f"{error}: {remedy}"
    return without_journal(error, *query.arguments)


def _document(row: HistoryRow) -> dict[str, Any]:
    return {"at": row.at, **asdict(row)}


def _cells(row: HistoryRow) -> tuple[str, ...]:
    return date_time(row.wall_s), _words(row.event), row.sentence


def _words(event: str) -> str:
    return _WORDS.get(event, event.replace("_", " "))
