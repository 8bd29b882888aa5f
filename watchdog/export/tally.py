"""What the metrics remember from pass to pass: counters, histograms, peaks and last actions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason, Now
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Policy
from watchdog.export.histogram import DURATION_S, REACTION_S, RELEASE_S, Histogram
from watchdog.export.news import Event, NewsItem
from watchdog.export.phrases import elapsed_s
from watchdog.export.sums import Sum, all_gaps

RESULTS: Final = tuple(result for result in Result if result is not Result.OBSERVED)
Key = TypeVar("Key")
_RELEASE: Final = Histogram(RELEASE_S)
_DURATION: Final = Histogram(DURATION_S)
_KEPT_S: Final = 900.0  # how long a pod's last action outlives it: what alerts use


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAction:
    """What was last done to a pod in this way: labels namespace, pod, container, action, result, rule."""

    labels: tuple[str, ...]
    uid: str
    wall_s: float
    gone_since: Now | None = None


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
        before = self if self.policy == report.policy.sha256 else self._preset(report.policy)
        outcomes = (*report.began, *report.outcomes)
        ended = [each for each in report.outcomes if each.result is not Result.OBSERVED]
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
            last_actions=_last(before.last_actions, ended, report),
        )

    def _preset(self, policy: Policy) -> "Tally":
        """The tally with a zero for whatever the rules can do, so that the first time is an increase."""
        ways = {(rule.name, step.do.value) for rule in policy.rules for step in rule.steps}
        actions: dict[tuple[str, ...], int] = {(*way, each.value): 0 for way in sorted(ways) for each in RESULTS}
        return replace(
            self,
            policy=policy.sha256,
            actions={**actions, **self.actions},
            would_act={**dict.fromkeys(sorted(ways), 0), **self.would_act},
            reactions={**{action: Histogram(REACTION_S) for _, action in sorted(ways)}, **self.reactions},
        )


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


def _last(before: tuple[LastAction, ...], ended: Iterable[Outcome], report: CycleReport) -> tuple[LastAction, ...]:
    latest = {action.labels: action for action in before}
    for outcome in ended:
        pod = outcome.entry.assessment.pod
        container = outcome.entry.victim or outcome.entry.account.container or ""
        rule, action = _action(outcome)
        labels = (pod.namespace, pod.name, container, action, outcome.result.value, rule)
        latest[labels] = LastAction(labels=labels, uid=pod.uid, wall_s=outcome.at.wall_s)
    if not latest:
        return ()
    listed = {pod.uid for pod in report.pods.pods}
    aged = (_age(action, report.at, is_listed=action.uid in listed) for action in latest.values())
    return tuple(action for action in aged if action is not None)


def _age(action: LastAction, now: Now, *, is_listed: bool) -> LastAction | None:
    if is_listed:
        return replace(action, gone_since=None)
    gone_since = action.gone_since or now
    return None if elapsed_s(gone_since, now) > _KEPT_S else replace(action, gone_since=gone_since)
