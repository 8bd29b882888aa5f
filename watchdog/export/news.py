"""What is new in a report: the one notion of it that the journal, the log and the counters share."""

from collections.abc import Iterator, Mapping

from watchdog.core.assessment import MOST_MISDECLARED, AccountKey, Misdeclaration
from watchdog.core.plan import CycleReport
from watchdog.export.breaker_words import breaker_note
from watchdog.export.gap_news import GapNews
from watchdog.export.news_deeds import begun, delayed, explained, is_told_whole, outcome_news, withheld
from watchdog.export.news_item import Event, NewsItem
from watchdog.export.phrases import count, inert
from watchdog.export.staleness import Staleness
from watchdog.export.words import misdeclared_note


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
            *(withheld(entry, report) for entry in report.plan.entries if entry.withheld_by and entry.news),
            *(begun(outcome) for outcome in report.began),
            *(item for outcome in report.outcomes for item in outcome_news(outcome, report)),
            *(explained(each, report) for each in report.outcomes if is_told_whole(each)),
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
                yield delayed(entry, report)
            if is_delayed or key in before:
                self._delayed |= {key}

    def _misdeclaration_news(self, report: CycleReport) -> Iterator[NewsItem]:
        if not self._misdeclared and not any(each.misdeclarations for each in report.assessments):
            return
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
