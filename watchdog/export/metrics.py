"""The metrics: gauges from the last cycle, counters kept from cycle to cycle; rendered for /metrics."""

import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from watchdog import __version__
from watchdog.core.assessment import Assessment, Attribution, Verdict, without_parts
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason, Now, Pod
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Policy
from watchdog.core.quiet import Resting, Ticks
from watchdog.core.residual import Sum
from watchdog.core.sharing import Sharing
from watchdog.core.utilization import NO_UTILIZATION, STATES, CardSeconds
from watchdog.export import catalogue
from watchdog.export.catalogue import (
    DURATION_S,
    REACTION_S,
    RELEASE_S,
    RESULTS,
    Histogram,
    Labels,
    metric,
    single,
)
from watchdog.node.drivers.thread import PulseState
from watchdog.report.figures import all_gaps, residual_by_gpu, sharing_by_gpu, unattributed_by_gpu
from watchdog.report.recent import LastAction, aged, last_action, merge

Key = TypeVar("Key")
_RELEASE: Final = Histogram(RELEASE_S)
_DURATION: Final = Histogram(DURATION_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters; replaced whole, so that a scrape on another thread sees one cycle and not parts of two."""

    # By rule, action and result.
    actions: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    # By rule and action: what was only observed.
    would_act: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    # By brake.
    withheld: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys((brake.value for brake in Brake), 0))
    # By reason.
    gaps: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys((reason.value for reason in GapReason), 0))
    # By action; all histograms are of seconds.
    reactions: Mapping[str, Histogram] = field(default_factory=dict)
    release: Histogram = _RELEASE
    scan: Histogram = _DURATION
    cycle: Histogram = _DURATION
    # The peak use of each pod in bytes, by UID.
    peaks: Mapping[str, int] = field(default_factory=dict)
    last_actions: tuple[LastAction, ...] = ()
    # The SHA-256 of the policy whose steps are counted.
    policy: str = ""

    def after(self, report: CycleReport) -> "Counters":
        """The counters after one more cycle."""
        before = self.under(report.policy)
        ended = [outcome for outcome in report.outcomes if outcome.result is not Result.OBSERVED]
        acted = [outcome for outcome in ended if outcome.result is not Result.WITHDRAWN]
        observed = [outcome for outcome in report.outcomes if outcome.result is Result.OBSERVED]
        withheld = [entry.withheld_by.value for entry in report.plan.entries if entry.withheld_by and entry.is_new]
        released_s = [outcome.release_s for outcome in report.outcomes if outcome.release_s is not None]
        return replace(
            before,
            actions=_add(before.actions, ((*_action(outcome), outcome.result.value) for outcome in ended)),
            would_act=_add(before.would_act, map(_action, observed)),
            withheld=_add(before.withheld, withheld),
            gaps=_add(before.gaps, (gap.reason.value for gap in all_gaps(report))),
            reactions=_react(before.reactions, (*report.began, *report.outcomes)),
            release=before.release.observe(*released_s),
            scan=before.scan.observe(report.scan_s),
            cycle=before.cycle.observe(report.duration_s),
            peaks=_peaks(before.peaks, report),
            last_actions=aged(merge(before.last_actions, map(last_action, acted)), report),
        )

    def repeated(self, ticks: Ticks) -> "Counters":
        """The counters after ticks that have only repeated the last cycle."""
        return replace(self, scan=self.scan.observe(*ticks.took_s), cycle=self.cycle.observe(*ticks.took_s))

    def under(self, policy: Policy) -> "Counters":
        """The counters with a zero for everything the rules of a policy can do, so that the first time is an increase.

        The counts of removed rules stay: a counter never falls.
        """
        if self.policy == policy.sha256:
            return self
        ways = sorted({(rule.name, step.do.value) for rule in policy.rules for step in rule.steps})
        actions: dict[tuple[str, ...], int] = {(*way, result.value): 0 for way in ways for result in RESULTS}
        return replace(
            self,
            policy=policy.sha256,
            actions={**actions, **_counted(self.actions, actions)},
            would_act={**dict.fromkeys(ways, 0), **_counted(self.would_act, ways)},
            reactions={**{action: Histogram(REACTION_S) for _, action in ways}, **self.reactions},
        )

    def recalling(self, earlier: Iterable[LastAction], closed_s: float) -> "Counters":
        """The counters with what earlier daemons did; what was closed for them, at `closed_s` (Unix time), counts."""
        recalled = tuple(earlier)
        closed = [action for action in recalled if action.wall_s == closed_s]
        counted = ((action.rule, action.action, action.result) for action in closed)
        # What was recalled happened before this daemon's own actions; what was closed only now, after them.
        last = merge(merge(merge((), recalled), self.last_actions), closed)
        return replace(self, actions=_add(self.actions, counted), last_actions=last)


def _counted(counts: Mapping[Key, int], preset: Container[Key]) -> dict[Key, int]:
    return {key: number for key, number in counts.items() if number or key in preset}


def _action(outcome: Outcome) -> tuple[str, ...]:
    return outcome.entry.rule.name, outcome.entry.do.value


def _add(counts: Mapping[Key, int], keys: Iterable[Key]) -> Mapping[Key, int]:
    more = Counter(keys)
    return {**counts, **{key: counts.get(key, 0) + number for key, number in more.items()}} if more else counts


def _react(reactions: Mapping[str, Histogram], outcomes: Iterable[Outcome]) -> Mapping[str, Histogram]:
    updated = dict(reactions)
    for outcome in outcomes:
        if outcome.reaction_s is not None:
            action = outcome.entry.do.value
            updated[action] = updated.get(action, Histogram(REACTION_S)).observe(outcome.reaction_s)
    return updated


def _peaks(peaks: Mapping[str, int], report: CycleReport) -> Mapping[str, int]:
    """The peak use of each listed pod in bytes; unknown parts count as 0."""
    sums: defaultdict[str, Sum] = defaultdict(Sum)
    for assessment in without_parts(report.assessments):
        pod = sums[assessment.account.uid]
        pod.at_least += assessment.used_at_least
        pod.known = pod.known and assessment.used is not None
    listed = {pod.uid for pod in report.pods.pods} | sums.keys()
    kept = {uid: peak for uid, peak in peaks.items() if uid in listed}
    for uid, used in sums.items():
        if used.known or used.at_least:
            kept[uid] = max(kept.get(uid, 0), used.at_least)
    return kept


_OVER: Final = {Verdict.OVER: 1.0, Verdict.WITHIN: 0.0}


def _gpu_families(report: CycleReport, sharing: Mapping[str, Sharing | None]) -> Iterator[Metric]:
    """The series of each GPU and MIG instance; `sharing` is how each is shared."""
    snapshot = report.snapshot
    driver = snapshot.driver or ""
    rows = [(gpu.uuid, str(gpu.index), gpu.name, driver, gpu.parent or "", gpu.profile or "") for gpu in snapshot.gpus]
    rows += [(parent.uuid, str(parent.index), parent.name, driver, "", "") for parent in snapshot.parents]
    yield metric(catalogue.GPU_INFO, (((*row, sharing[row[0]] or ""), 1) for row in rows))
    gpus = [((gpu.uuid,), gpu) for gpu in snapshot.gpus]
    yield metric(catalogue.GPU_UP, ((key, float(gpu.up)) for key, gpu in gpus))
    yield metric(catalogue.GPU_TOTAL, ((key, gpu.total) for key, gpu in gpus))
    yield metric(catalogue.GPU_USED, ((key, gpu.used) for key, gpu in gpus))
    yield metric(catalogue.GPU_RESERVED, ((key, gpu.reserved) for key, gpu in gpus))
    residual, unattributed = residual_by_gpu(report), unattributed_by_gpu(report)
    yield metric(catalogue.GPU_UNATTRIBUTED, ((key, unattributed[gpu.uuid]) for key, gpu in gpus))
    yield metric(catalogue.GPU_RESIDUAL, ((key, residual[gpu.uuid]) for key, gpu in gpus))
    cards = report.utilization.cards.values()
    yield metric(catalogue.GPU_UTILIZATION, (((card.gpu,), card.ratio) for card in cards))


def _pod_families(report: CycleReport, peaks: Mapping[str, int]) -> Iterator[Metric]:
    """What containers and pods use; `peaks` are the peaks of pods in bytes, by UID.

    Two pods of the same name (a new one while the old one is still terminating) share one series: the sum of their use,
    and the larger of their peaks.
    """
    pods = {assessment.account.uid: assessment.pod for assessment in report.assessments}
    containers: defaultdict[Labels, Sum] = defaultdict(Sum)
    for use in report.attribution.attributed:
        if use.uid in pods:
            containers[*_title(pods[use.uid]), use.container, use.gpu].add(use.used)
    used: defaultdict[Labels, Sum] = defaultdict(Sum)
    declared: defaultdict[Labels, Sum] = defaultdict(Sum)
    for assessment in without_parts(report.assessments):
        title = _title(assessment.pod)
        used[title].add(assessment.used)
        if assessment.declared is not None or assessment.verdict is Verdict.MISDECLARED:
            declared[title].add(assessment.declared)
    yield metric(catalogue.CONTAINER_USED, _totals(containers))
    by_holder = report.utilization.by_holder.items()
    busy = {(*_title(pods[each.uid]), each.container, each.gpu): ratio for each, ratio in by_holder if each.uid in pods}
    yield metric(catalogue.CONTAINER_UTILIZATION, busy.items())
    yield metric(catalogue.POD_USED, _totals(used))
    yield metric(catalogue.POD_DECLARED, _totals(declared))
    shown_peaks: dict[Labels, int] = {}
    for pod in (*report.pods.pods, *pods.values()):
        if pod.uid in peaks:
            shown_peaks[_title(pod)] = max(shown_peaks.get(_title(pod), 0), peaks[pod.uid])
    yield metric(catalogue.POD_PEAK, shown_peaks.items())


def _account_families(report: CycleReport) -> Iterator[Metric]:
    """The series of accounts. Of two with the same labels, the one whose pod is not terminating is shown."""
    chosen: dict[Labels, Assessment] = {}
    for assessment in report.assessments:
        key = _account_labels(assessment)
        chosen[key] = max(chosen.get(key, assessment), assessment, key=_precedence)
    accounts = chosen.items()
    yield metric(catalogue.ACCOUNT_USED, ((key, account.used) for key, account in accounts))
    yield metric(catalogue.ACCOUNT_BESIDE, ((key, account.beside or None) for key, account in accounts))
    yield metric(catalogue.ACCOUNT_DECLARED, ((key, account.declared) for key, account in accounts))
    yield metric(catalogue.ACCOUNT_ALLOWED, ((key, account.allowed) for key, account in accounts))
    yield metric(catalogue.ACCOUNT_OVER, ((key, _OVER.get(account.verdict)) for key, account in accounts))
    unjudged = ((key, _unjudged(account)) for key, account in accounts)
    yield metric(
        catalogue.ACCOUNT_VERDICT, (((*key, verdict.value), 1.0) for key, verdict in unjudged if verdict is not None)
    )
    due = [entry for entry in report.plan.entries if entry.due_in_s <= 0 and entry.withheld_by is not None]
    held = dict.fromkeys((*_account_labels(entry.assessment), f"{entry.withheld_by}") for entry in due)
    yield metric(catalogue.ACCOUNT_WITHHELD, ((key, 1.0) for key in held))
    idle = report.utilization.known_idle_s
    yield metric(catalogue.ACCOUNT_IDLE, ((key, idle.get(account.account)) for key, account in accounts))
    verdicts = Counter(assessment.verdict for assessment in report.assessments)
    yield metric(catalogue.ACCOUNTS, (((verdict.value,), verdicts[verdict]) for verdict in Verdict))


def _state_families(report: CycleReport) -> Iterator[Metric]:
    """The state of the daemon itself."""
    synced = report.pods.synced
    yield single(catalogue.LAST_CYCLE, report.at.wall_s)
    yield single(catalogue.PODS_SYNC, synced.wall_s if synced is not None else None)
    yield single(catalogue.ENFORCING, float(report.enforcing))
    yield metric(catalogue.SUSPENDED, (((reason,), 1.0) for reason in report.suspended))
    yield single(catalogue.MAINTENANCE_SINCE, report.maintenance_since_s)
    yield single(catalogue.MAINTENANCE_ALERT_AFTER, report.policy.maintenance.alert_after_s)
    yield single(catalogue.IDLE_AFTER, report.policy.idle.after_s or None)
    yield single(catalogue.BREAKER_OPEN, float(report.plan.ledger.brakes.opened is not None))
    yield metric(catalogue.POLICY_INFO, [((report.policy.sha256, report.policy.mode), 1)])


def _card_seconds(by_namespace: Mapping[str, CardSeconds]) -> Metric:
    spent = ((namespace, state, parts) for namespace, parts in by_namespace.items() for state in STATES)
    return metric(
        catalogue.CARD_SECONDS, (((namespace, state), getattr(parts, state)) for namespace, state, parts in spent)
    )


def _title(pod: Pod) -> Labels:
    return pod.namespace, pod.name


def _account_labels(assessment: Assessment) -> Labels:
    account, rule = assessment.account, assessment.rule
    return (*_title(assessment.pod), account.container or "", account.gpu or "", rule.name if rule is not None else "")


def _unjudged(assessment: Assessment) -> Verdict | None:
    """The verdict if it is neither within nor over; None otherwise, or if there is nothing to judge."""
    if assessment.verdict in _OVER:
        return None
    if assessment.account.container == "":
        # What a container declares that is not in the pod list yet is unknown: its pod must not be blamed.
        return Verdict.UNKNOWN
    if assessment.verdict is Verdict.UNDECLARED and assessment.used == 0:
        return None
    return assessment.verdict


def _precedence(assessment: Assessment) -> tuple[bool, int, str]:
    over = assessment.compared - (assessment.allowed or 0)
    return assessment.pod.deletion_deadline_s is None, over, assessment.account.uid


def _totals(sums: Mapping[Labels, Sum]) -> Iterator[tuple[Labels, float | None]]:
    return ((key, total.total) for key, total in sums.items())


def _counter_families(counters: Counters) -> Iterator[Metric]:
    """What was counted since the daemon started, and the last actions."""
    yield metric(catalogue.ACTIONS, counters.actions.items())
    yield metric(catalogue.WOULD_ACT, counters.would_act.items())
    yield metric(catalogue.WITHHELD, _keyed(counters.withheld))
    yield metric(catalogue.LAST_ACTION, ((action.labels, action.wall_s) for action in counters.last_actions))
    yield metric(catalogue.REACTION, _keyed(counters.reactions))
    yield single(catalogue.RELEASE, counters.release)
    yield single(catalogue.SCAN_DURATION, counters.scan)
    yield single(catalogue.CYCLE_DURATION, counters.cycle)
    yield single(catalogue.CYCLE_LATE, counters.gaps[GapReason.CYCLE_LATE.value])
    yield metric(catalogue.GAPS, _keyed(counters.gaps))


def _keyed(values: Mapping[str, float | Histogram]) -> Iterator[tuple[Labels, float | Histogram]]:
    return (((key,), value) for key, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What a scrape shows: the last cycle, and the counters."""

    report: CycleReport | None = None
    # The CLOCK_BOOTTIME at which that cycle had finished.
    at_s: float = 0.0
    counters: Counters = field(default_factory=Counters)
    # Whether the policy file was valid when it was last read; None: it has not been reported yet.
    reload_ok: bool | None = None
    # The Unix time at which it was last read and valid; None: likewise.
    reloaded_at_s: float | None = None
    # The ticks that repeat the last cycle; None: the loop does not rest.
    resting: Resting | None = None

    def now(self) -> "_State":
        """The state as of the last tick, if ticks repeat the last cycle."""
        latest = self.resting.now() if self.resting is not None else None
        return self if latest is None else self.repeated(*latest)

    def repeated(self, report: CycleReport, ticks: Ticks) -> "_State":
        """The state after ticks that have only repeated the last cycle."""
        counters = self.counters.repeated(ticks)
        return replace(self, report=report, at_s=ticks.ended_s, counters=counters, resting=None)


class Metrics(Collector):
    """All metrics of the daemon, including those of its process.

    All methods but `collect` are called from one thread; a scrape may come from any other, and sees a whole cycle.
    `events` counts Events by result and is called at each scrape; None if no Events are written. `now` is the clock by
    which the last cycle becomes too old to show; None if it never does. Unless the daemon `has_lock`, another one of
    the node counts the same card-seconds, and these are not shown: sums over daemons would have them twice.
    """

    def __init__(
        self,
        events: Callable[[], Mapping[str, int]] | None = None,
        now: Callable[[], Now] | None = None,
        pulse: Callable[[], PulseState] = PulseState,
        has_lock: Callable[[], bool] = lambda: True,
    ) -> None:
        self.registry = CollectorRegistry()
        self._events = events
        self._now = now
        self._pulse = pulse
        self._has_lock = has_lock
        self._state = _State()
        self._revision = 0
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def update(self, report: CycleReport, ticks: Ticks | None = None) -> None:
        """Add a cycle; or ticks that have only repeated the last one, with the report as of the last of them."""
        state = self._state
        if ticks is not None:
            self._replace(state.repeated(report, ticks))
            return
        if state.reload_ok is None:
            state = replace(state, reload_ok=True, reloaded_at_s=report.policy_loaded_at_s)
        at_s = self._now().boottime_s if self._now is not None else 0.0
        self._replace(replace(state, report=report, at_s=at_s, counters=state.counters.after(report), resting=None))

    def begin_rest(self, resting: Resting) -> None:
        """From now on, until the next cycle, collect the last one as of its last tick."""
        self._state = replace(self._state, resting=resting)

    def policy_reload(self, *, ok: bool, wall_s: float, policy: Policy | None = None) -> None:
        """Record that the policy file was read at a moment (Unix time), whether it was valid, and the policy.

        From then on there are zeros for everything the policy can do, before its first cycle.
        """
        state = self._state
        counters = state.counters.under(policy) if policy is not None else state.counters
        reloaded_at_s = wall_s if ok else state.reloaded_at_s
        self._replace(replace(state, counters=counters, reload_ok=ok, reloaded_at_s=reloaded_at_s))

    def recall(self, earlier: Iterable[LastAction], closed_s: float) -> None:
        """Add what earlier daemons did; what was closed for them, at `closed_s` (Unix time), counts."""
        self._replace(replace(self._state, counters=self._state.counters.recalling(earlier, closed_s)))

    @property
    def revision(self) -> tuple[int, int]:
        """Numbers that rise with the collected state; state collected after reading them is never older."""
        resting, revision = self._state.resting, self._revision
        ticks = resting.ticks() if resting is not None else None
        return revision, len(ticks.took_s) if ticks is not None else 0

    def _replace(self, state: _State) -> None:
        self._state = state
        self._revision += 1

    def collect(self) -> Iterator[Metric]:
        """Every family, from the state after the last cycle."""
        state = self._state.now()
        yield metric(catalogue.BUILD_INFO, [((__version__, platform.python_version()), 1)])
        if state.reload_ok is not None:
            yield single(catalogue.RELOAD_OK, float(state.reload_ok))
            yield single(catalogue.RELOAD_TIME, state.reloaded_at_s)
        yield from _counter_families(state.counters)
        yield metric(catalogue.EVENTS, _keyed(self._events() if self._events is not None else {}))
        pulse = self._pulse()
        yield single(catalogue.PULSE_LOOKS_SPENT, pulse.looks_spent)
        if state.report is not None:
            report, sharing = state.report, sharing_by_gpu(state.report)
            if self._now is not None and self._now().boottime_s - state.at_s > report.policy.reset_after_s:
                report = without_late_values(report)
            yield from _state_families(report)
            yield _card_seconds(report.utilization.by_namespace if self._has_lock() else {})
            yield single(catalogue.PULSE_ACTIVE, float(pulse.is_active) if report.policy.has_pulse else None)
            yield from _gpu_families(report, sharing)
            yield from _pod_families(report, state.counters.peaks)
            yield from _account_families(report)


def without_late_values(report: CycleReport) -> CycleReport:
    """What is still true of a cycle that is too old: use and due steps are unknown, and no GPU responds.

    While a driver call hangs, no cycle ends: without this the last numbers would stay forever.
    """
    gpus = tuple(replace(gpu, up=False, listed=False, used=None) for gpu in report.snapshot.gpus)
    unknown = {"used": None, "used_at_least": 0, "beside": 0, "verdict": Verdict.UNKNOWN, "uses": ()}
    return replace(
        report,
        snapshot=replace(report.snapshot, gpus=gpus, uses=()),
        attribution=Attribution(),
        plan=replace(report.plan, entries=()),
        utilization=replace(NO_UTILIZATION, by_namespace=report.utilization.by_namespace),
        assessments=tuple(replace(known, **unknown) for known in report.assessments),  # type: ignore[arg-type]
    )


def render(registry: CollectorRegistry, *, openmetrics: bool) -> bytes:
    """Every metric of a registry, in OpenMetrics or in the text format."""
    if openmetrics:
        page: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
        return page
    return generate_latest(registry)
