"""`gpu-watchdog replay`: what another policy would have done first in each incident of this node's past."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from watchdog import clock
from watchdog.cli.check import load_or_exit
from watchdog.cli.client import without_journal
from watchdog.cli.tables import Cell, Column, Row, fits, output_width, printed, table, wrapped
from watchdog.core.policy import Do, Policy
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import recorded_cycles
from watchdog.journal.read import history
from watchdog.past.replay import TOTALS, Found, JournalCounts, Replay, ReplayReport, replay_document, summary
from watchdog.report.changes import ChangeKind
from watchdog.report.sentences.action import victims
from watchdog.report.sentences.brakes import withheld_because
from watchdog.report.sentences.usage import threshold_text
from watchdog.report.text import byte_cell, count, has_colour, inert, rfc3339, span

_ENFORCING: Final = frozenset(do for do in Do if do.enforces)


def print_replay(journal: Path, policy_file: Path, back_s: float, *, as_json: bool) -> None:
    """Print what a policy would have done in the last `back_s` seconds."""
    since_s = clock.now().wall_s - back_s
    policy = load_or_exit(policy_file)
    try:
        replayed = Replay(policy, since_s).run(recorded_cycles(journal, since_s))
        found = tuple(action for action in replayed.found if action.due.wall_s >= since_s)
        record = _record(journal, since_s)
    except JournalError as error:
        raise click.ClickException(without_journal(error, "replay")) from error
    report = ReplayReport(since_s=since_s, policy=policy, replayed=replace(replayed, found=found), record=record)
    if as_json:
        click.echo(json.dumps(replay_document(report), indent=1))
    else:
        click.echo(replay_text(report, colour=has_colour(sys.stdout), width=output_width()), nl=False)


def _record(journal: Path, since_s: float) -> JournalCounts:
    rows = [row for row in history(journal, None, since_s) if row.do in _ENFORCING]
    return JournalCounts(
        begun=sum(row.event == "intended" for row in rows),
        observed=sum(row.event == ChangeKind.WOULD_ACT for row in rows),
        withheld=sum(row.event == ChangeKind.WITHHELD for row in rows),
    )


_AMOUNTS: Final = (Column(title="USED", right=True), Column(title="ALLOWED", right=True))
_WIDE: Final = (Column(title="DUE"), Column(title="POD"), Column(title="WOULD"), Column(title="RULE"), *_AMOUNTS)
_NARROW: Final = (Column(title="POD", least=20, leads=True), Column(title="DUE"), *_AMOUNTS)


def replay_text(report: ReplayReport, *, colour: bool = False, width: int) -> str:
    """A replay for people, ending with a line break."""
    lines: list[Cell] = []
    if report.actions:
        is_wide = fits(_WIDE, [_wide(action) for action in report.actions], width)
        rows = (line for action in report.actions for line in _rows(action, report.policy, is_wide=is_wide))
        lines += [*table(_WIDE if is_wide else _NARROW, rows, width), ""]
    lines += [line for sentence in _sentences(report) for line in wrapped(sentence, width)]
    return printed(lines, colour=colour)


def _rows(found: Found, policy: Policy, *, is_wide: bool) -> Iterator[Row | str]:
    """An action as a row; in a narrow table, what would be done and by which rule is below it."""
    due, pod, verb, rule, *amounts = row = _wide(found)
    yield row if is_wide else (pod, due, *amounts)
    if not is_wide:
        yield f"{verb}, rule {rule}"
    yield from _remarks(found, policy)


def _wide(found: Found) -> tuple[str, ...]:
    entry, assessment = found.entry, found.entry.assessment
    return (
        _second(found.due.wall_s),
        assessment.pod.title,
        f"kill {victims(entry)}" if entry.do is Do.KILL else f"{entry.do.verb.base} the pod",
        f"{entry.rule.name}: {threshold_text(entry)}",
        f"{'>=' if assessment.used is None else ''}{byte_cell(assessment.used_at_least)}",
        "-" if assessment.allowed is None else byte_cell(assessment.allowed),
    )


def _remarks(found: Found, policy: Policy) -> Iterator[str]:
    for held in found.withheld:
        until = "" if held.lets_go_s is None else f", until {_second(held.lets_go_s)}"
        yield f"held from {_second(held.at.wall_s)}{until}: {withheld_because(held.entry, policy)}"
    if found.withheld and found.at is not None:
        yield f"released at {_second(found.at.wall_s)}"
    elif found.withheld and found.goes_on:
        yield "still held when the replay ended; the incident was not over"
    elif found.withheld:
        yield "held until the incident ended"
    if found.entry.assessment.observes:
        yield "only recorded: the rule was in observe mode at that time"


def _sentences(report: ReplayReport) -> Iterator[str]:
    totals, record = summary(report), report.record
    seen = f"Replayed {span(report.replayed.seen_s)} of the past since {_second(report.since_s)}"
    yield f"{seen}, under policy {inert(report.policy.source)}."
    done = [count(totals[plural], do.verb.noun) for do, plural in TOTALS.items() if totals[plural]]
    where = f"in {count(totals['incidents'], 'incident')} of {count(totals['workloads'], 'workload')}"
    held = ", ".join(f"{number} by {brake}" for brake, number in totals["withheld"].items())
    rest = f"; held to the end: {held}" if held else ""
    warned = f"; {count(totals['warnings'], 'warning')}"
    what = f"{' and '.join(done) or 'no kill'} {where}" if report.actions else "no kill and no eviction"
    yield f"Under this policy: {what}{rest}{warned}."
    if report.policy.mode == "observe":
        yield "Its mode is observe: all of this would have been recorded, and no action taken."
    yield (
        f"In the journal for that time: {count(record.begun, 'action')} started, {record.observed} only observed, "
        f"{record.withheld} held."
    )
    if report.actions:
        yield "Each row is the first action of an incident. Later effects are not simulated."


def _second(wall_s: float) -> str:
    """A moment to the second: `2026-01-02 03:04:05`."""
    return rfc3339(wall_s)[:19].replace("T", " ")
