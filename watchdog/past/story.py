"""A replay in sentences: what would have happened that did not, and the other way round."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from watchdog.core.policy import Do, Policy
from watchdog.export.table import Cell, Column, Row, fits, table
from watchdog.past.replay import Found, Replayed
from watchdog.report.actions import mark, victims
from watchdog.report.brakes import withheld_because
from watchdog.report.text import byte_cell, count, inert, rfc3339, span

# The keys of the JSON.
_TOTALS: Final = {Do.KILL: "kills", Do.EVICT: "evictions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRecord:
    """What the journal says of the same time: kills and evictions begun and only observed, by their events."""

    begun: int
    observed: int
    withheld: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A replay with all that is told of it: since when it was asked for, under which policy, and what was recorded."""

    since_s: float
    policy: Policy
    replayed: Replayed
    record: StoryRecord

    @property
    def actions(self) -> tuple[Found, ...]:
        """The first action of each incident, held back or not."""
        return tuple(each for each in self.replayed.found if each.entry.do.is_force)

    @property
    def warnings(self) -> tuple[Found, ...]:
        """The first warning of each incident."""
        return tuple(each for each in self.replayed.found if not each.entry.do.is_force)


def story_document(story: Story) -> dict[str, Any]:
    """A replay as JSON."""
    record = story.record
    return {
        "policy": {"source": story.policy.source, "sha256": story.policy.sha256, "mode": story.policy.mode},
        "since": rfc3339(story.since_s),
        "seen_s": round(story.replayed.seen_s, 3),
        "deeds": [_document(each, story.policy) for each in story.actions],
        "warnings": [_document(each, story.policy) for each in story.warnings],
        "summary": summary(story),
        "then": {"begun": record.begun, "would_act": record.observed, "withheld": record.withheld},
    }


def summary(story: Story) -> dict[str, Any]:
    """The counts: actions let through by kind, incidents, workloads, and actions held back to the end by brake."""
    through = [each for each in story.actions if each.is_let_through]
    held = [each for each in story.actions if not each.is_let_through]
    return {
        **{plural: sum(each.entry.do is do for each in through) for do, plural in _TOTALS.items()},
        "observed_by_rule": sum(each.entry.assessment.observes for each in through),
        "incidents": len(story.actions),
        "workloads": len(_workloads(story.actions)),
        "withheld": dict(sorted(Counter(_brake(each) for each in held).items())),
        "warnings": len(story.warnings),
    }


def _document(found: Found, policy: Policy) -> dict[str, Any]:
    entry, assessment = found.entry, found.entry.assessment
    pod, account = assessment.pod, entry.account
    return {
        "due_at": rfc3339(found.due.wall_s),
        "at": None if found.at is None else rfc3339(found.at.wall_s),
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "workload": {"kind": pod.workload.kind, "name": pod.workload.name},
        "container": entry.victim or account.container,
        "account": {"container": account.container, "gpu": account.gpu},
        "do": entry.do.value,
        "scope": entry.definition.scope if entry.do is Do.KILL else None,
        "rule": entry.rule.name,
        "step": entry.step,
        "mark": mark(entry),
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "allowed": assessment.allowed,
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "observes": assessment.observes,
        "processes": [{"pid": key.pid, "start_ticks": key.start_ticks} for key in entry.targets],
        "withheld": [
            {
                "by": each.entry.withheld_by,
                "because": withheld_because(each.entry, policy),
                "at": rfc3339(each.at.wall_s),
                "lets_go_at": None if each.lets_go_s is None else rfc3339(each.lets_go_s),
            }
            for each in found.withheld
        ],
        "withheld_by": None if found.is_let_through else _brake(found),
        "goes_on": found.goes_on,
    }


def _brake(found: Found) -> str:
    """The brake that held last."""
    brake = found.withheld[-1].entry.withheld_by if found.withheld else None
    return "" if brake is None else brake.value


def _workloads(found: Iterable[Found]) -> set[tuple[str, str, str]]:
    pods = [each.entry.assessment.pod for each in found]
    return {(pod.namespace, pod.workload.kind, pod.workload.name) for pod in pods}


UNCUT: Final = 10**6  # characters: a pipe has no width, and whatever reads it wants names whole
_AMOUNTS: Final = (Column(title="USED", right=True), Column(title="ALLOWED", right=True))
_WIDE: Final = (Column(title="DUE"), Column(title="POD"), Column(title="WOULD"), Column(title="RULE"), *_AMOUNTS)
_NARROW: Final = (Column(title="POD", flexible=True), Column(title="DUE"), *_AMOUNTS)


def story_text(story: Story, *, colour: bool = False, width: int) -> str:
    """A replay for people, ending with a line break."""
    lines: list[str] = []
    if story.actions:
        is_wide = fits(_WIDE, [_wide(each) for each in story.actions], width)
        rows = (line for each in story.actions for line in _rows(each, story.policy, width, is_wide=is_wide))
        lines += [*table(_WIDE if is_wide else _NARROW, rows, colour=colour, width=width), ""]
    lines += [line for sentence in _sentences(story) for line in wrapped(sentence, width)]
    return "\n".join(lines) + "\n"


def _rows(found: Found, policy: Policy, width: int, *, is_wide: bool) -> Iterator[Row | str]:
    """An action as a row; where that is too narrow for it, what would be done and by which rule stand below."""
    due, pod, verb, rule, *amounts = row = _wide(found)
    yield row if is_wide else (pod, due, *amounts)
    if not is_wide:
        yield from wrapped(f"{verb.text}, by {rule.text}", width, "  ")
    for remark in _remarks(found, policy):
        yield from wrapped(remark, width, "  ")


def _wide(found: Found) -> tuple[Cell, ...]:
    entry, assessment = found.entry, found.entry.assessment
    verb = "evict the pod" if entry.do is Do.EVICT else f"kill {victims(entry)}"
    return (
        Cell(_minute(found.due.wall_s)),
        Cell(assessment.pod.title),
        Cell(verb),
        Cell(f"{entry.rule.name}: {mark(entry)}"),
        Cell(f"{'>=' if assessment.used is None else ''}{byte_cell(assessment.used_at_least)}"),
        Cell("-" if assessment.allowed is None else byte_cell(assessment.allowed)),
    )


def _remarks(found: Found, policy: Policy) -> Iterator[str]:
    for each in found.withheld:
        until = "" if each.lets_go_s is None else f", until {_minute(each.lets_go_s)}"
        yield f"held back from {_minute(each.at.wall_s)} on{until}: {withheld_because(each.entry, policy)}"
    if found.withheld and found.at is not None:
        yield f"let through at {_minute(found.at.wall_s)}"
    elif found.withheld and found.goes_on:
        yield "not let through by the end of what was replayed; the incident was not over"
    elif found.withheld:
        yield "never let through before the incident ended"
    if found.entry.assessment.observes:
        yield "only recorded: the rule only observed at that time"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A sentence in lines; names are not cut at their hyphens."""
    return textwrap.wrap(
        inert(text, 1000), width, initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False
    )


def _sentences(story: Story) -> Iterator[str]:
    found, record = summary(story), story.record
    seen = f"{span(story.replayed.seen_s)} of the past since {_minute(story.since_s)} was replayed"
    yield f"{seen}, under policy {inert(story.policy.source)}."
    done = [count(found[plural], do.verb.noun) for do, plural in _TOTALS.items() if found[plural]]
    where = f"in {count(found['incidents'], 'incident')} of {count(found['workloads'], 'workload')}"
    held = ", ".join(f"{number} by {brake}" for brake, number in found["withheld"].items())
    rest = f"; held back to the end: {held}" if held else ""
    warned = f"; {count(found['warnings'], 'warning')}"
    what = f"{' and '.join(done) or 'no kill'} {where}" if story.actions else "no kill and no eviction"
    yield f"Under this policy: {what}{rest}{warned}."
    if story.policy.mode == "observe":
        yield "Its mode is observe: all of this would have been recorded, and none of it done."
    yield (
        f"What the journal has of that time: {count(record.begun, 'deed')} begun, {record.observed} only observed, "
        f"{record.withheld} held back."
    )
    if story.actions:
        yield "Each line is the first action of an incident. Later effects are not simulated."


def _minute(wall_s: float) -> str:
    """A moment to the second: `2026-01-02 03:04:05`."""
    return rfc3339(wall_s)[:19].replace("T", " ")
