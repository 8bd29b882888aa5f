"""The accounts that are over or for which something follows, each with its bar, its next step and the time left."""

from collections.abc import Iterator, Sequence
from typing import Final

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.units import format_bytes
from watchdog.export.page.bars import BarMark, Segment, bar
from watchdog.export.page.html import items, name, section, sentence, tag, text
from watchdog.export.page.sight import Sight, account_place
from watchdog.export.page.standing import Standing
from watchdog.export.page.steps import StepLine
from watchdog.report.actions import amount_used, capital, source
from watchdog.report.advice import advice
from watchdog.report.text import count, elapsed_s, span

MARKS: Final = "In a bar the thick mark is what is allowed, the dashed one what is declared."
_WHOLE: Final = 3  # with every sentence; the others with what is read first
_MOST: Final = 12  # the others stand in the table of all accounts


def told(sight: Sight, all_standings: Sequence[Standing]) -> str:
    """The section of those that a reader was called for; nothing where there are none."""
    found = [each for each in all_standings if each.is_told]
    if not found:
        return ""
    drawn = items((_item(each, sight, is_whole=number < _WHOLE) for number, each in enumerate(found[:_MOST])), "told")
    if len(found) > _MOST:
        more = count(len(found) - _MOST, "more account")
        drawn += tag("p", f'{more} like these: <a href="#accounts">all accounts</a>.')
    return section("told", "Over a mark, and what follows", drawn)


def _item(standing: Standing, sight: Sight, *, is_whole: bool) -> str:
    assessment = standing.assessment
    place = account_place(assessment, sight.labels)
    where = f" <small>{name(place)}</small>" if place else ""
    lines = [f"<h3>{name(assessment.pod.title)}{where}</h3>"]
    lines += [tag("p", _steps(standing.steps), "next")] if standing.steps else []
    lines += [account_bar(assessment), tag("p", _use(standing, sight, is_whole=is_whole))]
    for step in standing.steps:
        if step.is_held or (is_whole and step is standing.gravest):
            lines.append(tag("p", sentence(step.sentence)))
    return "".join([*lines, *(_more(assessment, sight) if is_whole else ())])


def _steps(steps: Sequence[StepLine]) -> str:
    """All that follows in the order in which it comes: `Warn in 21s; then kill in 2m`."""
    shorts = [capital(steps[0].short), *(f"then {step.short}" for step in steps[1:])]
    return "; ".join(tag("span", text(short), step.level) for short, step in zip(shorts, steps, strict=True))


def account_bar(assessment: Assessment) -> str:
    """What an account uses, with a mark at what it declared and one at what it may use."""
    used, allowed, declared = assessment.used_at_least, assessment.allowed, assessment.declared
    if allowed is None or (assessment.used is None and not used):
        return ""
    css = "over" if assessment.verdict is Verdict.OVER else "use"
    marks = [BarMark(css="allowed", amount=allowed)]
    if declared is not None and declared != allowed:
        marks.append(BarMark(css="declared", amount=declared))
    # A little room beyond the larger of the two, so that a mark is seen to be one.
    return bar([Segment(css=css, amount=used)], max(used, allowed) * 21 // 20, marks)


def _use(standing: Standing, sight: Sight, *, is_whole: bool) -> str:
    assessment, state = standing.assessment, sight.state(standing.assessment)
    parts = [f"<b>{text(amount_used(assessment))}</b> used"]
    if assessment.allowed is not None and assessment.declared is not None:
        origin = f" ({format_bytes(assessment.declared)} {source(assessment)})" if is_whole else ""
        allowed, used = assessment.allowed, assessment.used_at_least
        parts.append(f"{format_bytes(allowed)} allowed{text(origin)}")
        if used > allowed:
            parts.append(f"<b>{format_bytes(used - allowed)} too much</b>")
    if state is not None and state.over_since is not None and sight.report is not None:
        over_s = elapsed_s(state.over_since, sight.report.at) + (0.0 if sight.as_of else sight.passed_s)
        lasting = f"over for {span(over_s)}" if over_s >= 1 else "just now over"
        parts.append(f"{lasting} {sight.as_of}".strip())
    return ", ".join(parts) + "."


def _more(assessment: Assessment, sight: Sight) -> Iterator[str]:
    if assessment.protected is not None:
        yield tag("p", f"Never acted on: {sentence(assessment.protected)}.")
    elif assessment.verdict is Verdict.OVER and sight.report is not None:
        yield tag("p", f"Its owner can {sentence(advice(assessment, sight.report.policy))}.", "later")
