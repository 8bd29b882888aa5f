"""Which Events a pass gives to the owners of pods: none at rest, and of each occurrence one."""

from collections.abc import Iterable, Iterator

from watchdog.core.assessment import MOST_MISDECLARED, Assessment, Misdeclaration
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.tiding import Tiding
from watchdog.export.tiding_form import (
    EVICTED,
    EVICTION_BLOCKED,
    KILLED,
    OVER_LIMIT,
    RELEASED,
    WITHHELD,
    misdeclared,
    tiding,
    told,
)
from watchdog.export.tiding_notes import blocked_note, due_note, ended_note, is_idle_for, wrong_note


class Tidings:
    """Tells what each report has for owners of pods; at rest nothing.

    To a pod that is only observed, by the mode or by its rule, nothing is told unless the policy wants that, and then
    as `GPUMemoryOverLimit` whatever would have been done: nobody is to find a kill there that was none.
    """

    def __init__(self) -> None:
        self._misdeclared: dict[str, frozenset[Misdeclaration]] = {}
        self._begun: frozenset[int] = frozenset()

    def since(self, report: CycleReport) -> tuple[Tiding, ...]:
        """What is new in this report; each report is to be handed in once, in the order of their passes."""
        return (
            *self._wrong(report),
            *(_withheld(entry, report) for entry in report.plan.entries if entry.news and _is_told(entry, report)),
            *self._begin(report.began, report),
            *(tiding for outcome in report.outcomes for tiding in self._end(outcome, report)),
        )

    def _wrong(self, report: CycleReport) -> Iterator[Tiding]:
        if self._misdeclared:
            listed = {pod.uid for pod in report.pods.pods}
            self._misdeclared = {uid: told for uid, told in self._misdeclared.items() if uid in listed}
        for assessment in report.assessments:
            # A pod that no rule is for is none of this policy's business.
            if not assessment.misdeclarations or assessment.rule is None or not _is_for(assessment, report):
                continue
            uid = assessment.account.uid
            told = self._misdeclared.get(uid, frozenset())
            found = dict.fromkeys(each for each in assessment.misdeclarations if each not in told)
            new = tuple(found)[: MOST_MISDECLARED - len(told)]
            yield from (_misdeclared(assessment, each, report) for each in new)
            self._misdeclared[uid] = told.union(new)

    def _begin(self, outcomes: Iterable[Outcome], report: CycleReport) -> Iterator[Tiding]:
        for outcome in outcomes:
            if outcome.deed is not None:
                self._begun |= {outcome.deed}
            yield _begun(outcome, report)

    def _end(self, outcome: Outcome, report: CycleReport) -> Iterator[Tiding]:
        """What came of a step: of a deed that has begun its end, of one that has not what is left to be said."""
        entry, deed = outcome.entry, outcome.deed
        if outcome.result is Result.OBSERVED:
            yield from (_observed(outcome, report),) if report.policy.events_in_observe else ()
        elif not entry.do.is_force:
            yield told(entry, OVER_LIMIT, outcome, due_note(entry, outcome.at, report))
        elif deed is not None and deed in self._begun:
            self._begun -= {deed}
            yield _ended(outcome, report)
        elif entry.do is Do.EVICT and outcome.result in (Result.BLOCKED, Result.FAILED):
            yield told(entry, EVICTION_BLOCKED, outcome, blocked_note(outcome, report))
        elif outcome.signalled:  # it failed in the very moment in which it began
            yield from (_begun(outcome, report), _ended(outcome, report))


def _is_for(assessment: Assessment, report: CycleReport) -> bool:
    return report.policy.events_in_observe or not is_idle_for(assessment, report)


def _is_told(entry: PlanEntry, report: CycleReport) -> bool:
    return entry.withheld_by is not None and _is_for(entry.assessment, report)


def _withheld(entry: PlanEntry, report: CycleReport) -> Tiding:
    brake = entry.withheld_by.value if entry.withheld_by is not None else ""
    more = {"brake": brake, "would": entry.do.value}
    text = due_note(entry, report.at, report, observing=is_idle_for(entry.assessment, report))
    return tiding(entry, WITHHELD, text, report.at.wall_s, detail=brake, more=more)


def _begun(outcome: Outcome, report: CycleReport) -> Tiding:
    entry = outcome.entry
    text = due_note(entry, outcome.at, report, processes=len(outcome.signalled) or None)
    return told(entry, EVICTED if entry.do is Do.EVICT else KILLED, outcome, text)


def _observed(outcome: Outcome, report: CycleReport) -> Tiding:
    text = due_note(outcome.entry, outcome.at, report, observing=True)
    return told(outcome.entry, OVER_LIMIT, outcome, text, would=outcome.entry.do.value)


def _ended(outcome: Outcome, report: CycleReport) -> Tiding:
    return told(outcome.entry, RELEASED, outcome, ended_note(outcome, report.policy))


def _misdeclared(assessment: Assessment, skipped: Misdeclaration, report: CycleReport) -> Tiding:
    return misdeclared(assessment, skipped, wrong_note(assessment, skipped, report), report.at.wall_s)
