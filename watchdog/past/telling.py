"""What a replay found, for people: a table of deeds, with what held them back, and a summary."""

import textwrap
from collections.abc import Iterator
from typing import Final

from watchdog.core.policy import Do, Policy
from watchdog.export.brake_words import withheld_because
from watchdog.export.clauses import mark, victims
from watchdog.export.phrases import byte_cell, count, inert, rfc3339, span
from watchdog.export.table import Cell, Column, Row, fits, table
from watchdog.past.incidents import Found
from watchdog.past.story import Story, summary

UNCUT: Final = 10**6  # characters: a pipe has no width, and whatever reads it wants names whole
_AMOUNTS: Final = (Column(title="USED", right=True), Column(title="ALLOWED", right=True))
_WIDE: Final = (Column(title="DUE"), Column(title="POD"), Column(title="WOULD"), Column(title="RULE"), *_AMOUNTS)
_NARROW: Final = (Column(title="POD", flexible=True), Column(title="DUE"), *_AMOUNTS)
_DEEDS = {Do.KILL: ("kill", "kills"), Do.EVICT: ("eviction", "evictions")}


def story_text(story: Story, *, colour: bool = False, width: int) -> str:
    """A replay for people, ending with a line break."""
    lines: list[str] = []
    if story.deeds:
        is_wide = fits(_WIDE, [_wide(each) for each in story.deeds], width)
        rows = (line for each in story.deeds for line in _rows(each, story.policy, width, is_wide=is_wide))
        lines += [*table(_WIDE if is_wide else _NARROW, rows, colour=colour, width=width), ""]
    lines += [line for sentence in _sentences(story) for line in wrapped(sentence, width)]
    return "\n".join(lines) + "\n"


def _rows(found: Found, policy: Policy, width: int, *, is_wide: bool) -> Iterator[Row | str]:
    """A deed as a row; where that is too narrow for it, what would be done and by which rule stand below."""
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
    done = [count(found[f"{plural}"], *_DEEDS[do]) for do, (_, plural) in _DEEDS.items() if found[plural]]
    where = f"in {count(found['incidents'], 'incident')} of {count(found['workloads'], 'workload')}"
    held = ", ".join(f"{number} by {brake}" for brake, number in found["withheld"].items())
    rest = f"; held back to the end: {held}" if held else ""
    warned = f"; {count(found['warnings'], 'warning')}"
    what = f"{' and '.join(done) or 'no kill'} {where}" if story.deeds else "no kill and no eviction"
    yield f"Under this policy: {what}{rest}{warned}."
    if story.policy.mode == "observe":
        yield "Its mode is observe: all of this would have been recorded, and none of it done."
    yield (
        f"What the journal has of that time: {count(record.begun, 'deed')} begun, {record.observed} only observed, "
        f"{record.withheld} held back."
    )
    if story.deeds:
        yield "Each line is the first deed of an incident. What would have followed it, nobody can say."


def _minute(wall_s: float) -> str:
    """A moment to the second: `2026-01-02 03:04:05`."""
    return rfc3339(wall_s)[:19].replace("T", " ")
