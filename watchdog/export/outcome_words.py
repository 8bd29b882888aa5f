"""Sentences for people about what came of a step: its outcome, an eviction that waits, the memory seen free."""

from collections.abc import Callable
from typing import Final

from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.export.clauses import capital, holder, sent_signals
from watchdog.export.eviction_words import AGAIN, brief
from watchdog.export.idle_words import observing_because
from watchdog.export.note_words import LONGEST_NOTE, VERBS, acted, by, fit
from watchdog.export.phrases import span


def outcome_note(outcome: Outcome, size: int = LONGEST_NOTE) -> str:
    """Say what came of a step, in at most `size` bytes of UTF-8 (1 kB)."""

    def write(limit: int) -> str:
        what = _OUTCOMES[outcome.result](outcome, limit)
        return f"{capital(holder(outcome.entry.assessment, limit))}: {what}{by(outcome.entry, limit)}."

    return fit(write, size)


def delay_note(entry: PlanEntry) -> str:
    """Say that an eviction has not come about yet, and why, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        why = brief(entry.trying.refused, limit) if entry.trying is not None else ""
        what = f"{acted(VERBS[entry.do].doing, entry, None, limit)} has not come about yet {AGAIN}: {why}"
        return f"{capital(holder(entry.assessment, limit))}: {what}{by(entry, limit)}."

    return fit(write)


def release_note(outcome: Outcome) -> str:
    """Say when the memory of a kill was seen free, or that it was not, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        title = capital(holder(outcome.entry.assessment, limit))
        if outcome.release_s is not None:
            return f"{title}: its memory was free again {span(outcome.release_s)} after {_beginning(outcome.entry)}."
        return f"{title}: its memory has not been seen free again{_reason(outcome, limit)}."

    return fit(write)


def _reason(outcome: Outcome, limit: int) -> str:
    return f": {brief(outcome.reason, limit)}" if outcome.reason else ""


def _tried(outcome: Outcome, limit: int) -> str:
    return acted(VERBS[outcome.entry.do].doing, outcome.entry, len(outcome.signalled) or None, limit)


def _done(outcome: Outcome, limit: int) -> str:
    begun = _beginning(outcome.entry)
    freed = f"; the memory was free {span(outcome.release_s)} after {begun}" if outcome.release_s else ""
    done = acted(VERBS[outcome.entry.do].done, outcome.entry, len(outcome.signalled) or None, limit)
    how = f" with {sent_signals(outcome.sent)}" if outcome.sent else ""
    return f"{done}{how}{_reason(outcome, limit)}{freed}"


def _beginning(entry: PlanEntry) -> str:
    return "the eviction was accepted" if entry.do is Do.EVICT else "the first signal"


def _observed(outcome: Outcome, limit: int) -> str:
    done = acted(VERBS[outcome.entry.do].done, outcome.entry, None, limit)
    if outcome.entry.assessment.observes:
        return f"would have {done}, but {observing_because(outcome.entry.assessment, limit)}{_reason(outcome, limit)}"
    return f"observe mode would have {done}{_reason(outcome, limit)}"


_OUTCOMES: Final[dict[Result, Callable[[Outcome, int], str]]] = {
    Result.DONE: _done,
    Result.FAILED: lambda outcome, limit: f"{_tried(outcome, limit)} failed{_reason(outcome, limit)}",
    Result.BLOCKED: lambda outcome, limit: f"{_tried(outcome, limit)} is blocked {AGAIN}{_reason(outcome, limit)}",
    Result.GONE: lambda outcome, limit: f"{_tried(outcome, limit)} was not needed any more{_reason(outcome, limit)}",
    Result.INTERRUPTED: lambda outcome, limit: f"{_tried(outcome, limit)} was interrupted{_reason(outcome, limit)}",
    Result.WITHDRAWN: lambda outcome, limit: f"{_tried(outcome, limit)} was withdrawn{_reason(outcome, limit)}",
    Result.OBSERVED: _observed,
}
