"""`gpu-watchdog explain`: why a pod was or was not acted on, in words that its owner can be sent."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from watchdog import clock
from watchdog.ask import AskError, ask_status
from watchdog.core.errors import WatchdogError
from watchdog.explain.before import last_seen
from watchdog.explain.blind import out_of_sight
from watchdog.explain.found import LATELY_S, Explanation, by_daemon, by_journal
from watchdog.explain.unknown import Asked, say_unknown
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import HistoryRow, history
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part, StatusError
from watchdog.unreached import help_lines, to_run_inside

_WIDTH: Final = 100
_NARROWEST: Final = 40


def print_explanation(pod: str, url: str | None, journal: Path, *, as_json: bool, from_afar: bool = False) -> None:
    """Explain a pod (`namespace/name`) by the daemon at `url`, or else by the journal; None: by the journal alone.

    `from_afar`: the daemon is another node's, maybe, and the journal that lies here is not its own.
    """
    try:
        explanation = explain_pod(pod, url, journal, clock.now().wall_s, from_afar=from_afar)
    except UnexplainedError as error:
        raise click.ClickException(str(error)) from error
    if explanation.no_past:
        click.echo(f"What was done before can't be said here: {explanation.no_past}", err=True)
    if as_json:
        click.echo(json.dumps(explanation.document, indent=1))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo("\n".join(explanation.lines(max(width, _NARROWEST))))


class UnexplainedError(WatchdogError):
    """Nothing is known of a pod; the text says what was asked and which pods may have been meant."""


def explain_pod(pod: str, url: str | None, journal: Path, now_s: float, *, from_afar: bool = False) -> Explanation:
    """Find out why a pod was or was not acted on, as of now (Unix time); UnexplainedError where nothing is known."""
    status, silent = _ask(url) if url is not None else (None, None)
    rows, no_journal = _read(journal, pod, now_s)
    if from_afar and not rows and not journal.exists():
        no_journal = "it stands in the journal of the daemon's own node, and none is kept here"
        if status is not None:
            no_journal = f"it stands in the journal of the daemon's own node: {to_run_inside('explain', pod)}"
    try:
        found = by_daemon(pod, status, rows) if status is not None else None
        if found is not None:
            return replace(found, no_past=no_journal)
        hints: tuple[str, ...] = ()
        if status is not None:
            why_not = _nothing(status, pod, now_s)
        elif silent is not None:
            why_not, hints = str(silent), help_lines(silent, "explain", pod)
        else:
            why_not = "no daemon was asked (--journal); --url asks one"
        if rows:
            return by_journal(pod, rows, why_not, now_s, hints)
        before = "" if no_journal or status is not None else last_seen(journal, pod, now_s)
        raise UnexplainedError(
            say_unknown(
                Asked(
                    pod=pod,
                    status=status,
                    why_not=why_not,
                    hints=hints,
                    journal=journal,
                    no_journal=no_journal,
                    before=before,
                )
            )
        )
    except StatusError as error:
        where = inert(url or "")
        raise UnexplainedError(f"what answers at {where} is no gpu-watchdog of this kind: {error}") from error


def _nothing(status: Part, pod: str, now_s: float) -> str:
    """Why the daemon that answers has nothing about a pod: what it can't see comes first."""
    node, at = inert(status.text("node") or ""), clock_time(status.moment("at") or now_s, now_s)
    blind = out_of_sight(status)
    if blind:
        return f"the daemon of node {node} does not see all of its node at {at}. {' '.join(blind).rstrip('.')}"
    return f"the daemon of node {node} knew of no GPU memory of pod {inert(pod)} at {at}"


def _ask(url: str) -> tuple[Part | None, AskError | None]:
    """The status of the daemon there, or why there is none."""
    try:
        return Part(ask_status(url), doubts=[]), None
    except AskError as error:
        return None, error


def _read(journal: Path, pod: str, now_s: float) -> tuple[list[HistoryRow], str]:
    """What the journal has about a pod, or why it can't be read."""
    try:
        return history(journal, pod, now_s - LATELY_S), ""
    except JournalError as error:
        return [], str(error)
