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
from watchdog.explain.found import LATELY_S, Explanation, by_daemon, by_journal
from watchdog.explain.unknown import Asked, say_unknown
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import HistoryRow, history
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part, StatusError

_WIDTH: Final = 100
_NARROWEST: Final = 40


def print_explanation(pod: str, url: str | None, journal: Path, *, as_json: bool) -> None:
    """Explain a pod (`namespace/name`) by the daemon at `url`, or else by the journal; None: by the journal alone."""
    try:
        explanation = explain_pod(pod, url, journal, clock.now().wall_s)
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


def explain_pod(pod: str, url: str | None, journal: Path, now_s: float) -> Explanation:
    """Find out why a pod was or was not acted on, as of now (Unix time); UnexplainedError where nothing is known."""
    status, why_not = _ask(url) if url is not None else (None, "")
    rows, no_journal = _read(journal, pod, now_s)
    is_silent = url is not None and status is None
    try:
        found = by_daemon(pod, status, rows) if status is not None else None
        if found is not None:
            return replace(found, no_past=no_journal)
        if url is None:
            why_not = "no daemon was asked (--journal); --url asks one"
        elif status is not None:
            node, at = inert(status.text("node") or ""), clock_time(status.moment("at") or now_s, now_s)
            why_not = f"the daemon of node {node} knew of no GPU memory of pod {inert(pod)} at {at}"
        if rows:
            return by_journal(pod, rows, why_not, now_s, is_silent=is_silent)
        asked = Asked(
            pod=pod,
            status=status,
            silent=is_silent,
            why_not=why_not,
            journal=journal,
            no_journal=no_journal,
            before="" if no_journal or status is not None else last_seen(journal, pod, now_s),
        )
        raise UnexplainedError(say_unknown(asked))
    except StatusError as error:
        where = inert(url or "")
        raise UnexplainedError(f"what answers at {where} is no gpu-watchdog of this kind: {error}") from error


def _ask(url: str) -> tuple[Part | None, str]:
    """The status of the daemon there, or why there is none."""
    try:
        return Part(ask_status(url)), ""
    except AskError as error:
        return None, str(error)


def _read(journal: Path, pod: str, now_s: float) -> tuple[list[HistoryRow], str]:
    """What the journal has about a pod, or why it can't be read."""
    try:
        return history(journal, pod, now_s - LATELY_S), ""
    except JournalError as error:
        return [], str(error)
