"""What the metrics remember from pass to pass: counters, histograms, peaks and last actions."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Policy
from watchdog.export.catalogue import RESULTS
from watchdog.export.histogram import DURATION_S, REACTION_S, RELEASE_S, Histogram
from watchdog.export.last_actions import LastAction, aged, last_action, merge
from watchdog.export.news_item import Event, NewsItem
from watchdog.export.sums import Sum, all_gaps

Key = TypeVar("Key")
_RELEASE: Final = Histogram(RELEASE_S)
_DURATION: Final = Histogram(DURATION_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A value: the collector swaps it whole, so that a scrape on another thread sees one pass and not parts of two."""

    actions: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    would_act: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    withheld: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys((each.value for each in Brake), 0))
    gaps: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys((each.value for each in GapReason), 0))
    reactions: Mapping[str, Histogram] = field(default_factory=dict)
    release: Histogram = _RELEASE
    scan: Histogram = _DURATION
    cycle: Histogram = _DURATION
    peaks: Mapping[str, int] = field(default_factory=dict)
    last_actions: tuple[LastAction, ...] = ()
    policy: str = ""

    def after(self, report: CycleReport, news: Iterable[NewsItem]) -> "Tally":
        """The tally after one more pass, of which this is new."""
        before = self.under(report.policy)
        outcomes = (*report.began, *report.outcomes)
        ended = [each for each in report.outcomes if each.result is not Result.OBSERVED]
        acted = [each for each in ended if each.result is not Result.WITHDRAWN]
        observed = [each for each in report.outcomes if each.result is Result.OBSERVED]
        withheld = (item.detail for item in news if item.event is Event.WITHHELD)
        return replace(
            before,
            actions=_add(before.actions, ((*_action(each), each.result.value) for each in ended)),
            would_act=_add(before.would_act, (_action(each) for each in observed)),
            withheld=_add(before.withheld, withheld),
            gaps=_add(before.gaps, (gap.reason.value for gap in all_gaps(report))),
            reactions=_react(before.reactions, outcomes),
            release=_observe(before.release, (each.release_s for each in report.outcomes)),
            scan=before.scan.observe(report.scan_s),
            cycle=before.cycle.observe(report.duration_s),
            peaks=_peaks(before.peaks, report),
            last_actions=aged(merge(before.last_actions, map(last_action, acted)), report),
        )

    def under(self, policy: Policy) -> "Tally":
        """The tally with a zero for whatever the rules of a policy can do, so that the first time is an increase.

        Of a rule that is not there any more, what it has counted stays: a counter never falls.
        """
        if self.policy == policy.sha256:
            return self
        ways = sorted({(rule.name, step.do.value) for rule in policy.rules for step in rule.steps})
        actions: dict[tuple[str, ...], int] = {(*way, each.value): 0 for way in ways for each in RESULTS}
        return replace(
            self,
            policy=policy.sha256,
            actions={**actions, **_counted(self.actions, actions)},
            would_act={**dict.fromkeys(ways, 0), **_counted(self.would_act, ways)},
            reactions={**{action: Histogram(REACTION_S) for _, action in ways}, **self.reactions},
        )

    def recalling(self, earlier: Iterable[LastAction], closed_s: float) -> "Tally":
        """The tally with what earlier daemons did; what was closed in their place, at a moment (Unix time), counts."""
        found = tuple(earlier)
        closed = [action for action in found if action.wall_s == closed_s]
        counted = ((action.rule, action.action, action.result) for action in closed)
        # What was recalled came before what this daemon did; what was closed only now came after it.
        last = merge(merge(merge((), found), self.last_actions), closed)
        return replace(self, actions=_add(self.actions, counted), last_actions=last)


def _counted(counts: Mapping[Key, int], preset: Container[Key]) -> dict[Key, int]:
    return {key: number for key, number in counts.items() if number or key in preset}


def _action(outcome: Outcome) -> tuple[str, ...]:
    return outcome.entry.rule.name, outcome.entry.do.value


def _add(counts: Mapping[Key, int], keys: Iterable[Key]) -> Mapping[Key, int]:
    more = Counter(keys)
    return {**counts, **{key: counts.get(key, 0) + number for key, number in more.items()}} if more else counts


def _observe(histogram: Histogram, seconds: Iterable[float | None]) -> Histogram:
    for each in seconds:
        histogram = histogram if each is None else histogram.observe(each)
    return histogram


def _react(reactions: Mapping[str, Histogram], outcomes: Iterable[Outcome]) -> Mapping[str, Histogram]:
    found = dict(reactions)
    for outcome in outcomes:
        if outcome.reaction_s is not None:
            action = outcome.entry.do.value
            found[action] = found.get(action, Histogram(REACTION_S)).observe(outcome.reaction_s)
    return found


def _peaks(peaks: Mapping[str, int], report: CycleReport) -> Mapping[str, int]:
    """The most that each pod of the list has been seen to use, in bytes; unknown parts count as 0 in it."""
    sums: dict[str, Sum] = {}
    for assessment in report.assessments:
        pod = sums.setdefault(assessment.account.uid, Sum())
        pod.at_least += assessment.used_at_least
        pod.known = pod.known and assessment.used is not None
    listed = {pod.uid for pod in report.pods.pods} | sums.keys()
    kept = {uid: peak for uid, peak in peaks.items() if uid in listed}
    for uid, used in sums.items():
        if used.known or used.at_least:
            kept[uid] = max(kept.get(uid, 0), used.at_least)
    return kept
