"""How each account stands, in the order in which a reader wants to know: whoever is to be acted on first."""

from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import Assessment, Verdict
from watchdog.export.page.sight import Sight
from watchdog.export.page.steps import Level, StepLine, steps_of

_LEVELS: Final = (Level.BAD, Level.WATCH, Level.GOOD)
_VERDICTS: Final = (Verdict.OVER, Verdict.UNKNOWN, Verdict.MISDECLARED, Verdict.WITHIN, Verdict.UNDECLARED)
_NEVER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An account with what follows for it, the soonest first. `is_told`: it is over, or something follows."""

    assessment: Assessment
    steps: tuple[StepLine, ...]
    level: Level

    @property
    def is_told(self) -> bool:
        """Whether it is worth more than a row of a table."""
        return bool(self.steps) or self.assessment.verdict is Verdict.OVER

    @property
    def gravest(self) -> StepLine | None:
        """What is to be told of it in a few words: the next force, a warning where there is none."""
        return next((step for step in self.steps if step.is_force), self.steps[0] if self.steps else None)


def standings(sight: Sight) -> tuple[Standing, ...]:
    """All accounts of the cycle, the most urgent first."""
    report = sight.report
    found = [_standing(each, sight) for each in (report.assessments if report is not None else ())]
    return tuple(sorted(found, key=lambda each: _urgency(each, sight)))


def _standing(assessment: Assessment, sight: Sight) -> Standing:
    steps = steps_of(assessment, sight)
    level = Level.WATCH if steps or assessment.verdict is Verdict.OVER else Level.GOOD
    if any(step.level is Level.BAD for step in steps):
        level = Level.BAD
    return Standing(assessment=assessment, steps=steps, level=level)


def _urgency(standing: Standing, sight: Sight) -> tuple[int, float, int, float, str]:
    """By level, then by when force is due, then by verdict, then by the share of what it may use that it uses."""
    assessment = standing.assessment
    state, due_s = sight.state(assessment), _NEVER_S
    if standing.steps:
        forces = [each for each in sight.entries.get(assessment.account, []) if each.do.is_force]
        due_s = min((each.due_in_s for each in forces if each.withheld_by is None), default=_NEVER_S)
        due_s = -1.0 if state is not None and state.under_way is not None else due_s
    share = assessment.used_at_least / assessment.allowed if assessment.allowed else float(assessment.used_at_least)
    return _LEVELS.index(standing.level), due_s, _VERDICTS.index(assessment.verdict), -share, assessment.title
