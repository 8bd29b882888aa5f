"""What is new about deeds: that they are held back, begin, are delayed and end, and what their owners are told."""

from collections.abc import Iterator

from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.export.explanation import explanation
from watchdog.export.news_item import Event, NewsItem
from watchdog.export.note_words import fit
from watchdog.export.outcome_words import delay_note, outcome_note, release_note
from watchdog.export.words import begun_writer, note


def withheld(entry: PlanEntry, report: CycleReport) -> NewsItem:
    """A step that is held back."""
    return NewsItem(
        event=Event.WITHHELD,
        at=report.at,
        sentence=note(entry, report.at, policy=report.policy),
        assessment=entry.assessment,
        entry=entry,
        detail=entry.withheld_by.value if entry.withheld_by is not None else "",
    )


def delayed(entry: PlanEntry, report: CycleReport) -> NewsItem:
    """An eviction that has not come about yet."""
    return NewsItem(
        event=Event.EVICT_DELAYED, at=report.at, sentence=delay_note(entry), assessment=entry.assessment, entry=entry
    )


def begun(outcome: Outcome) -> NewsItem:
    """An action that has begun."""
    event = Event.EVICT_BEGUN if outcome.entry.do is Do.EVICT else Event.KILL_BEGUN
    return _of(outcome, event, fit(begun_writer(outcome.entry, outcome.at, len(outcome.signalled))))


def outcome_news(outcome: Outcome, report: CycleReport | None = None) -> Iterator[NewsItem]:
    """What is new with the end of one action; the report, where there is one, says why nothing was done."""
    policy, suspended = (report.policy, report.suspended) if report is not None else (None, ())
    entry = outcome.entry
    if outcome.result is Result.OBSERVED:
        yield _of(outcome, Event.WOULD_ACT, note(entry, outcome.at, observing=True, policy=policy, suspended=suspended))
    elif entry.do is Do.WARN:
        yield _of(outcome, Event.WARNED, note(entry, outcome.at))
    else:
        event = Event.KILL_ENDED
        if entry.do is Do.EVICT:
            event = Event.EVICT_BLOCKED if outcome.result is Result.BLOCKED else Event.EVICT_ENDED
        yield _of(outcome, event, outcome_note(outcome))
        if outcome.release_s is not None:
            yield _of(outcome, Event.RELEASED, release_note(outcome))


def is_told_whole(outcome: Outcome) -> bool:
    """Whether its owner should be told: a kill of which a signal may have been sent, an eviction that came about."""
    if outcome.deed is None or outcome.result in (Result.OBSERVED, Result.WITHDRAWN):
        return False
    return outcome.entry.do is Do.KILL or outcome.result is Result.DONE


def explained(outcome: Outcome, report: CycleReport) -> NewsItem:
    """What the owner of the victim should be told, whole."""
    return _of(outcome, Event.EXPLAINED, explanation(outcome, report.policy))


def _of(outcome: Outcome, event: Event, sentence: str) -> NewsItem:
    entry = outcome.entry
    return NewsItem(
        event=event, at=outcome.at, sentence=sentence, assessment=entry.assessment, entry=entry, outcome=outcome
    )
