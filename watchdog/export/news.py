"""What is new in a report: the one notion of it that the journal, the log and the counters share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from watchdog.core.findings import MOST_MISDECLARED, AccountKey, Assessment, Misdeclaration
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.export.breaker_words import breaker_note
from watchdog.export.explanation import explanation
from watchdog.export.gap_news import GapNews
from watchdog.export.phrases import count, inert
from watchdog.export.staleness import Staleness
from watchdog.export.words import delay_note, misdeclared_note, note, outcome_note, release_note


class Event(StrEnum):
    """The name of an occurrence, in the log and in the journal."""

    WARNED = "warned"
    KILL_BEGUN = "kill_begun"
    KILL_ENDED = "kill_ended"
    EXPLAINED = "explained"
    RELEASED = "released"
    EVICT_BEGUN = "evict_begun"
    EVICT_BLOCKED = "evict_blocked"
    EVICT_DELAYED = "evict_delayed"
    EVICT_ENDED = "evict_ended"
    WOULD_ACT = "would_act"
    WITHHELD = "withheld"
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    MISDECLARED = "misdeclared"
    GAP_BEGAN = "gap_began"
    GAP_ENDED = "gap_ended"
    PODS_STALE = "pods_stale"
    PODS_FRESH = "pods_fresh"
    POLICY_LOADED = "policy_loaded"
    POLICY_REFUSED = "policy_refused"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One occurrence, with the sentence that tells it and whatever of the report it is about.

    `detail` is the brake, the reason of a suspension or gap, or the SHA-256 of a policy; `gpu` is of a gap.
    """

    event: Event
    at: Now
    sentence: str
    assessment: Assessment | None = None
    entry: PlanEntry | None = None
    outcome: Outcome | None = None
    detail: str = ""
    gpu: str = ""


class News:
    """Tells what each report has that the ones before it had not; at rest it tells nothing.

    `remedies` gives the sentence for a reason of suspension.
    """

    def __init__(self, remedies: Mapping[str, str] | None = None) -> None:
        self._remedies = remedies or {}
        self._policy = ""
        self._suspended: frozenset[str] = frozenset()
        self._staleness = Staleness()
        self._gaps = GapNews()
        self._misdeclared: dict[str, frozenset[Misdeclaration]] = {}
        self._breaker_open = False
        self._delayed: frozenset[tuple[AccountKey, float]] = frozenset()

    def since(self, report: CycleReport) -> tuple[NewsItem, ...]:
        """What is new in this report; each report is to be handed in once, in the order of their passes."""
        return (
            *self._policy_news(report),
            *self._suspension_news(report),
            *self._gap_news(report),
            *self._staleness_news(report),
            *self._misdeclaration_news(report),
            *self._breaker_news(report),
            *self._delay_news(report),
            *(_withheld(entry, report) for entry in report.plan.entries if entry.withheld_by and entry.news),
            *(_begun(outcome) for outcome in report.began),
            *(item for outcome in report.outcomes for item in outcome_news(outcome, report)),
            *(_explained(each, report) for each in report.outcomes if _is_told_whole(each)),
        )

    def _policy_news(self, report: CycleReport) -> Iterator[NewsItem]:
        policy = report.policy
        if policy.sha256 == self._policy:
            return
        self._policy = policy.sha256
        rules = count(len(policy.rules), "rule")
        sentence = f"Policy {inert(policy.source)} is in force: mode {policy.mode}, {rules}."
        yield NewsItem(event=Event.POLICY_LOADED, at=report.at, sentence=sentence, detail=policy.sha256)

    def _suspension_news(self, report: CycleReport) -> Iterator[NewsItem]:
        before, self._suspended = self._suspended, frozenset(report.suspended)
        for reason in sorted(self._suspended - before):
            sentence = f"Told to enforce, but only observing: {self._remedies.get(reason, inert(reason))}."
            yield NewsItem(event=Event.SUSPENDED, at=report.at, sentence=sentence, detail=reason)
        for reason in sorted(before - self._suspended):
            rest = "Enforcing again" if report.enforcing else "Still not enforcing"
            sentence = f"No longer a reason against enforcing: {inert(reason)}. {rest}."
            yield NewsItem(event=Event.RESUMED, at=report.at, sentence=sentence, detail=reason)

    def _gap_news(self, report: CycleReport) -> Iterator[NewsItem]:
        for change in self._gaps.since(report):
            event = Event.GAP_BEGAN if change.began else Event.GAP_ENDED
            gap = change.gap
            yield NewsItem(
                event=event, at=report.at, sentence=change.sentence, detail=gap.reason.value, gpu=gap.gpu or ""
            )

    def _staleness_news(self, report: CycleReport) -> Iterator[NewsItem]:
        if sentence := self._staleness.news(report):
            event = Event.PODS_STALE if self._staleness.lasts else Event.PODS_FRESH
            yield NewsItem(event=event, at=report.at, sentence=sentence)

    def _breaker_news(self, report: CycleReport) -> Iterator[NewsItem]:
        is_open = report.plan.ledger.brakes.opened is not None
        if is_open == self._breaker_open:
            return
        self._breaker_open = is_open
        event = Event.BREAKER_OPENED if is_open else Event.BREAKER_CLOSED
        yield NewsItem(event=event, at=report.at, sentence=breaker_note(report))

    def _delay_news(self, report: CycleReport) -> Iterator[NewsItem]:
        """Evictions that something else than a disruption budget keeps from coming about, each once."""
        before, self._delayed = self._delayed, frozenset()
        for entry in report.plan.entries:
            if entry.trying is None:
                continue
            key = (entry.account, entry.trying.until_s)
            is_delayed = entry.trying.refused and not entry.trying.is_blocked
            if is_delayed and key not in before:
                yield _delayed(entry, report)
            if is_delayed or key in before:
                self._delayed |= {key}

    def _misdeclaration_news(self, report: CycleReport) -> Iterator[NewsItem]:
        listed = {pod.uid for pod in report.pods.pods}
        self._misdeclared = {uid: told for uid, told in self._misdeclared.items() if uid in listed}
        for assessment in report.assessments:
            told = self._misdeclared.get(assessment.account.uid, frozenset())
            for skipped in assessment.misdeclarations:
                if skipped not in told and len(told) < MOST_MISDECLARED:
                    told |= {skipped}
                    sentence = misdeclared_note(assessment, skipped)
                    item = NewsItem(event=Event.MISDECLARED, at=report.at, sentence=sentence, assessment=assessment)
                    yield item
            if told:
                self._misdeclared[assessment.account.uid] = told


def _withheld(entry: PlanEntry, report: CycleReport) -> NewsItem:
    return NewsItem(
        event=Event.WITHHELD,
        at=report.at,
        sentence=note(entry, report.at, policy=report.policy),
        assessment=entry.assessment,
        entry=entry,
        detail=entry.withheld_by.value if entry.withheld_by is not None else "",
    )


def _delayed(entry: PlanEntry, report: CycleReport) -> NewsItem:
    return NewsItem(
        event=Event.EVICT_DELAYED, at=report.at, sentence=delay_note(entry), assessment=entry.assessment, entry=entry
    )


def _begun(outcome: Outcome) -> NewsItem:
    event = Event.EVICT_BEGUN if outcome.entry.do is Do.EVICT else Event.KILL_BEGUN
    return _of(outcome, event, note(outcome.entry, outcome.at, processes=len(outcome.signalled)))


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


def _is_told_whole(outcome: Outcome) -> bool:
    """Whether its owner should be told: a kill of which a signal may have been sent, an eviction that came about."""
    if outcome.deed is None or outcome.result is Result.OBSERVED:
        return False
    return outcome.entry.do is Do.KILL or outcome.result is Result.DONE


def _explained(outcome: Outcome, report: CycleReport) -> NewsItem:
    """What the owner of the victim should be told, whole."""
    return _of(outcome, Event.EXPLAINED, explanation(outcome, report.policy))


def _of(outcome: Outcome, event: Event, sentence: str) -> NewsItem:
    entry = outcome.entry
    return NewsItem(
        event=event, at=outcome.at, sentence=sentence, assessment=entry.assessment, entry=entry, outcome=outcome
    )
