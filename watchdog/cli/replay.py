"""`gpu-watchdog replay`: what another policy would have done first in each incident of this node's past."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from watchdog.cli.check import load_or_exit
from watchdog.cli.client import without_journal
from watchdog.cli.past_bar import PastBar
from watchdog.cli.tables import Cell, Column, notes, output_width, printed, table, wrapped
from watchdog.core.policy import Do, Policy
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import recorded_cycles
from watchdog.journal.read import history
from watchdog.past.replay import Replay, Replayed, ReplayedAction
from watchdog.report.changes import ChangeKind
from watchdog.report.recent import INTENDED
from watchdog.report.sentences.action import victims
from watchdog.report.sentences.brakes import withheld_because
from watchdog.report.sentences.usage import threshold_text
from watchdog.report.text import byte_cell, count, date_time, has_colour, inert, rfc3339, span

_TOTALS: Final = {do: f"{do.verb.noun}s" for do in Do if do.enforces}  # the keys of the JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """A replay as reported."""

    # The requested start (Unix time).
    since_s: float
    policy: Policy
    replayed: Replayed
    # The journal's own counts.
    journal_counts: dict[str, int]

    @property
    def actions(self) -> tuple[ReplayedAction, ...]:
        """The first action of each incident, withheld or not."""
        return tuple(finding for finding in self.replayed.findings if finding.entry.do.enforces)

    @property
    def warnings(self) -> tuple[ReplayedAction, ...]:
        """The first warning of each incident."""
        return tuple(finding for finding in self.replayed.findings if not finding.entry.do.enforces)


def print_replay(journal: Path, policy_file: Path, since_s: float, *, as_json: bool) -> None:
    """Print what a policy would have done since a moment (Unix time)."""
    policy = load_or_exit(policy_file)
    try:
        with PastBar("Replaying", since_s) as bar:
            replayed = Replay(policy, since_s).run(bar.over(recorded_cycles(journal, since_s, bar.begin)))
        counts = _journal_counts(journal, since_s)
    except JournalError as error:
        raise click.ClickException(without_journal(error, "replay")) from error
    findings = tuple(finding for finding in replayed.findings if finding.due.wall_s >= since_s)
    report = ReplayReport(
        since_s=since_s, policy=policy, replayed=replace(replayed, findings=findings), journal_counts=counts
    )
    if as_json:
        click.echo(json.dumps(replay_document(report), indent=1))
    else:
        click.echo(replay_text(report, colour=has_colour(sys.stdout), width=output_width()), nl=False)


def _journal_counts(journal: Path, since_s: float) -> dict[str, int]:
    """The journal's kills and evictions in that time: begun, only observed, and withheld."""
    events = Counter(row.event for row in history(journal, None, since_s) if row.do in _TOTALS)
    names = {"begun": INTENDED, "would_act": ChangeKind.WOULD_ACT, "withheld": ChangeKind.WITHHELD}
    return {name: events[event] for name, event in names.items()}


def replay_document(report: ReplayReport) -> dict[str, Any]:
    """A replay as JSON."""
    return {
        "policy": {"source": report.policy.source, "sha256": report.policy.sha256, "mode": report.policy.mode},
        "since": rfc3339(report.since_s),
        "seen_s": round(report.replayed.seen_s, 3),
        "blind_s": round(report.replayed.blind_s, 3),
        "actions": [_document(action, report.policy) for action in report.actions],
        "warnings": [_document(warning, report.policy) for warning in report.warnings],
        "summary": _summary(report),
        "then": report.journal_counts,
    }


def _summary(report: ReplayReport) -> dict[str, Any]:
    """The counts: actions let through by kind, incidents, workloads, and actions withheld to the end by brake."""
    through = [action for action in report.actions if action.at is not None]
    held = [action for action in report.actions if action.at is None]
    pods = [action.entry.assessment.pod for action in report.actions]
    return {
        **{plural: sum(action.entry.do is do for action in through) for do, plural in _TOTALS.items()},
        "observed_by_rule": sum(action.entry.assessment.observes for action in through),
        "incidents": len(report.actions),
        "workloads": len({(pod.namespace, pod.workload.kind, pod.workload.name) for pod in pods}),
        "withheld": dict(sorted(Counter(_last_brake(action) for action in held).items())),
        "warnings": len(report.warnings),
    }


def _document(finding: ReplayedAction, policy: Policy) -> dict[str, Any]:
    entry, assessment = finding.entry, finding.entry.assessment
    pod, account = assessment.pod, entry.account
    return {
        "due_at": rfc3339(finding.due.wall_s),
        "at": None if finding.at is None else rfc3339(finding.at.wall_s),
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "workload": {"kind": pod.workload.kind, "name": pod.workload.name},
        "container": entry.victim or account.container,
        "account": {"container": account.container, "gpu": account.gpu},
        "do": entry.do.value,
        "scope": entry.definition.effective_scope,
        "rule": entry.rule.name,
        "step": entry.step_index,
        "threshold": threshold_text(entry),
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "used_beside": assessment.beside or None,
        "allowed": assessment.allowed,
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "observes": assessment.observes,
        "processes": [{"pid": key.pid, "start_ticks": key.start_ticks} for key in entry.targets],
        "withheld": [
            {
                "by": withholding.entry.withheld_by,
                "because": withheld_because(withholding.entry, policy),
                "at": rfc3339(withholding.at.wall_s),
                "releases_at": None if withholding.releases_s is None else rfc3339(withholding.releases_s),
            }
            for withholding in finding.withheld
        ],
        "withheld_by": None if finding.at is not None else _last_brake(finding),
        "goes_on": finding.goes_on,
    }


def _last_brake(finding: ReplayedAction) -> str:
    brake = finding.withheld[-1].entry.withheld_by if finding.withheld else None
    return "" if brake is None else brake.value


_COLUMNS: Final = (
    Column(title="DUE"),
    Column(title="POD", least=14, is_name=True),
    Column(title="WOULD", least=9, is_name=True),
    Column(title="RULE", least=18, rank=1),
    Column(title="USED", right=True, rank=2),
    Column(title="ALLOWED", right=True, rank=3),
)


def replay_text(report: ReplayReport, *, colour: bool = False, width: int) -> str:
    """A replay for people, ending with a line break."""
    lines: list[Cell] = []
    if report.actions:
        lines += [*_table(report.actions, width), ""]
    if remarks := notes((each for action in report.actions for each in _remarks(action, report.policy)), width):
        lines += [*remarks, ""]
    lines += [line for sentence in _sentences(report) for line in wrapped(sentence, width)]
    return printed(lines, colour=colour)


def _table(actions: Sequence[ReplayedAction], width: int) -> Sequence[Cell]:
    """A row for each action, in fewer words if there is too little room."""
    lines = table(_COLUMNS, map(_row, actions))
    if max(line.cell_len for line in lines) <= width:
        return lines
    columns = (replace(_COLUMNS[0], title="DUE (UTC)"), *_COLUMNS[1:])
    return table(columns, map(_short_row, actions), width)


def _row(finding: ReplayedAction) -> tuple[str, ...]:
    entry, assessment = finding.entry, finding.entry.assessment
    return (
        date_time(finding.due.wall_s),
        assessment.pod.title,
        f"kill {victims(entry)}" if entry.do.ends_processes else f"{entry.do.verb.base} the pod",
        f'"{entry.rule.name}": {threshold_text(entry)}',
        f"{'>=' if assessment.used is None else ''}{byte_cell(assessment.used_at_least)}",
        "-" if assessment.allowed is None else byte_cell(assessment.allowed),
    )


def _short_row(finding: ReplayedAction) -> tuple[str, ...]:
    """The same with the action in a few words: `kill main` for a container, `kill pod`, `evict pod`."""
    entry, (due, pod, _, *rest) = finding.entry, _row(finding)
    scope = entry.effective_step.scope if entry.do.takes_scope else "pod"
    whom = entry.victim or scope if scope == "container" else scope
    return due.removesuffix(" UTC"), pod, f"{entry.do.verb.base} {whom}", *rest


def _remarks(finding: ReplayedAction, policy: Policy) -> Iterator[str]:
    pod = finding.entry.assessment.pod.title
    for held in finding.withheld:
        until = "" if held.releases_s is None else f", until {date_time(held.releases_s)}"
        yield f"{pod}: withheld from {date_time(held.at.wall_s)}{until}: {withheld_because(held.entry, policy)}"
    if finding.withheld and finding.at is not None:
        yield f"{pod}: released at {date_time(finding.at.wall_s)}"
    elif finding.withheld and finding.goes_on:
        yield f"{pod}: still withheld when the replay ended; the incident was not over"
    elif finding.withheld:
        yield f"{pod}: withheld until the incident ended"
    if finding.entry.assessment.observes:
        yield f"{pod}: only recorded: the rule was in observe mode at that time"


def _sentences(report: ReplayReport) -> Iterator[str]:
    totals, counts = _summary(report), report.journal_counts
    seen = f"Replayed {span(report.replayed.seen_s)} of the past since {date_time(report.since_s)}"
    yield f"{seen}, under policy {inert(report.policy.source)}."
    if report.replayed.blind_s:
        blind = span(report.replayed.blind_s)
        yield f"For {blind} of that the driver gave no reading: no policy would have acted then."
    done = [count(totals[plural], do.verb.noun) for do, plural in _TOTALS.items() if totals[plural]]
    where = f"in {count(totals['incidents'], 'incident')} of {count(totals['workloads'], 'workload')}"
    held = ", ".join(f"{number} by {brake}" for brake, number in totals["withheld"].items())
    rest = f"; withheld to the end: {held}" if held else ""
    warned = f"; {count(totals['warnings'], 'warning')}"
    what = f"{' and '.join(done) or 'no kill'} {where}" if report.actions else "no kill and no eviction"
    yield f"Under this policy: {what}{rest}{warned}."
    if not report.actions:
        yield from _why_none(report)
    if report.policy.mode == "observe":
        yield "Its mode is observe: all of this would have been recorded, and no action taken."
    yield (
        f"In the journal for that time: {count(counts['begun'], 'action')} started, {counts['would_act']} only "
        f"observed, {counts['withheld']} withheld."
    )
    if report.actions:
        yield "Each row is the first action of an incident. Later effects are not simulated."


def _why_none(report: ReplayReport) -> Iterator[str]:
    """What may explain that nothing would have been done, other than that all pods kept to their limits."""
    pods, seen_s = report.replayed.pods, report.replayed.seen_s
    if pods and not report.replayed.limited:
        yield f"It gives no limit to any of the {count(len(pods), 'pod')}: they declare nothing that it reads."
    steps = [step for rule in report.policy.rules for step in rule.steps if step.do.enforces]
    shortest_s = min((step.for_s for step in steps), default=0.0)
    if shortest_s > seen_s:
        yield f"Its first kill or eviction is due after {span(shortest_s)}, longer than what was replayed."
