"""Builds the status from a finished cycle."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment, Verdict
from watchdog.core.hours import Hours
from watchdog.core.ladder import Comparison, StepReading, step_readings
from watchdog.core.ledger import AccountState, Stretch, UnderWay
from watchdog.core.model import Gap, Gpu, Now
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Policy, Step
from watchdog.core.residual import is_listed
from watchdog.core.sharing import Sharing
from watchdog.core.tally import StepKey, Tally, is_tallied
from watchdog.core.units import LARGEST, format_percent
from watchdog.core.utilization import Holder, Utilization
from watchdog.report.advice import advice, declare_by, open_share
from watchdog.report.changes import BEGUN, Change, ChangeKind
from watchdog.report.figures import (
    Bounds,
    Limits,
    all_gaps,
    pinned_by_claim,
    pinned_limit,
    pinned_total,
    pods_stale,
    residual_by_gpu,
    sharing_by_gpu,
    unattributed_by_gpu,
)
from watchdog.report.hour import Hour, card
from watchdog.report.sentences.brakes import withheld_because
from watchdog.report.sentences.following import forecast
from watchdog.report.sentences.node import breaker_status, suspensions
from watchdog.report.status import (
    ABSENT,
    AccountPart,
    AccountStatus,
    AllowanceStatus,
    ChangeStatus,
    ContainerStatus,
    GapStatus,
    GpuMemory,
    GpuStatus,
    HealthStatus,
    HoursStatus,
    HourStatus,
    MisdeclarationStatus,
    Moment,
    OwnerStatus,
    PendingStatus,
    PlanStatus,
    PolicyStatus,
    ProcessStatus,
    RecentStatus,
    Status,
    StepStatus,
    StopStatus,
    UnattributedStatus,
    UnderWayStatus,
    json_seconds,
)
from watchdog.report.text import inert, whole_intervals

_STATES: Final[Mapping[Comparison, str]] = {
    Comparison.ABOVE: "above",
    Comparison.BELOW: "below",
    Comparison.INCONCLUSIVE: "unknown",
}


def account_status(
    assessment: Assessment,
    report: CycleReport,
    bounds: Bounds,
    limits: Limits = MappingProxyType({}),
    hour: Hour | None = None,
) -> AccountStatus:
    """An account with its processes and every step of its rule; `bounds` and `limits` are those of the report."""
    state = report.plan.ledger.accounts.get(assessment.account)
    workload = assessment.pod.workload
    # The owner of a pod on which no action is ever taken has nothing to change.
    is_advised = assessment.verdict is Verdict.OVER and assessment.protected is None
    idle_s = report.utilization.idle_s.get(assessment.account)
    return AccountStatus(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=assessment.account.uid,
        container=assessment.account.container,
        gpu=assessment.account.gpu,
        used=_bytes(assessment.used),
        used_at_least=_bytes(assessment.used_at_least),
        used_at_most=_bytes(bounds.used_at_most(assessment)),
        declared=assessment.declared,
        declared_by=assessment.declared_by,
        declared_by_gpu=dict(assessment.declared_by_gpu) or ABSENT,
        open_share=open_share(assessment) or ABSENT,
        shared_with=_shared_with(assessment) or ABSENT,
        used_beside=assessment.beside or ABSENT,
        behind_pod=inert(assessment.behind_pod) or ABSENT,
        pinned_by_claim=pinned_by_claim(assessment) or ABSENT,
        allowed=assessment.allowed,
        verdict=assessment.verdict.value,
        rule=assessment.rule.name if assessment.rule is not None else None,
        protected=assessment.protected,
        over_since=_moment(state.over_since if state is not None else None),
        processes=_processes(assessment, limits),
        owner=OwnerStatus(kind=workload.kind, name=workload.name),
        requested=assessment.requested,
        allowed_by_request=assessment.allowed_by_request,
        allowance=_allowance(assessment, report.policy),
        misdeclarations=_misdeclarations(assessment),
        behind=assessment.behind,
        rule_unknown=inert(str(assessment.rule_gap.problem), 600) if assessment.rule_gap is not None else None,
        limit_unknown=inert(assessment.limit_unknown, 1000) or None,
        observes=assessment.observes,
        active=_active(assessment, report),
        under_way=_under_way(assessment, state, report),
        ladder=_ladder(assessment, state, report.policy.interval_s),
        advice=advice(assessment, report.policy, gpus=report.snapshot.gpus, node=report.node) if is_advised else None,
        declare_by=declare_by(report.policy, report.node) if assessment.verdict is Verdict.UNDECLARED else None,
        left_since=_moment(assessment.pod.left_since),
        utilization=_ratio(report.utilization.by_account.get(assessment.account)),
        containers=_containers(assessment, report.utilization),
        idle_s=json_seconds(round(idle_s)) if idle_s is not None else None,
        idle=report.utilization.is_idle_holder(assessment.account, report.policy.idle),
        pinned=pinned_total(assessment, limits) or ABSENT,
        hour=_hour(hour, assessment.account, report.at) or ABSENT,
    )


def _processes(assessment: Assessment, limits: Limits) -> tuple[ProcessStatus, ...]:
    return tuple(
        ProcessStatus(
            pid=use.key.pid,
            start_ticks=use.key.start_ticks,
            container=use.container,
            gpu=use.gpu,
            used=_bytes(use.used),
            name=inert(use.name),
            pinned=pinned_limit(limits.get((use.key, use.gpu))) or ABSENT,
        )
        for use in assessment.uses
    )


def _misdeclarations(assessment: Assessment) -> tuple[MisdeclarationStatus, ...]:
    return tuple(
        MisdeclarationStatus(source=inert(skipped.source), why=inert(skipped.why, 600), counts=skipped.counts)
        for skipped in assessment.misdeclarations
    )


def _ratio(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)


def _containers(assessment: Assessment, utilization: Utilization) -> tuple[ContainerStatus, ...]:
    holders = dict.fromkeys(Holder(use.uid, use.container, use.gpu) for use in assessment.uses)
    return tuple(
        ContainerStatus(
            container=inert(holder.container), gpu=holder.gpu, utilization=_ratio(utilization.by_holder.get(holder))
        )
        for holder in holders
    )


def _hour(hour: Hour | None, key: AccountKey, at: Now) -> HourStatus | None:
    series = hour.get(key) if hour is not None else None
    if series is None:
        return None
    return HourStatus(levels=series.levels(at.boottime_s, at.boottime_s), marks=series.letters(at.boottime_s))


def _shared_with(assessment: Assessment) -> tuple[str, ...]:
    """Other pods that have the claims of an account, a number of them."""
    names = {part.key[1] for part in assessment.shared}
    claims = (claim for claim in assessment.pod.claims.values() if claim.name in names)
    return tuple(dict.fromkeys(title for claim in claims for title in claim.shared_with))


def _allowance(assessment: Assessment, policy: Policy) -> AllowanceStatus | None:
    """How what is allowed adds up; None if there is no allowance, or several have a part in it."""
    allowed, declared = assessment.allowed, assessment.declared
    if allowed is None or declared is None or allowed == declared:
        return None
    known = len({(use.key, use.gpu) for use in assessment.uses})
    for allowance in (policy.allowance, *(declaration.allowance for declaration in policy.declarations)):
        if allowance is None:
            continue
        # Which one it was is not kept, nor whether a card is out of sight; what gives the same sum explains it.
        for contexts in (min(known, allowance.max_contexts), allowance.max_contexts):
            if allowance.allowed(declared, contexts) == allowed:
                percent = format_percent(allowance.percent)
                return AllowanceStatus(percent=percent, per_context=allowance.per_context, contexts=contexts)
    return None


def _active(assessment: Assessment, report: CycleReport) -> HoursStatus | None:
    """The hours of the rule; None if it has none, or never enforces."""
    rule = assessment.rule
    hours = rule.active if rule is not None and rule.mode != "observe" else None
    return None if hours is None else _hours_at(hours, report.at.wall_s)


@lru_cache(maxsize=16)
def _hours_at(hours: Hours, wall_s: float) -> HoursStatus:
    changes_s = hours.next_change_s(wall_s)
    changes = math.isfinite(changes_s)  # hours that cover the whole week never end
    return HoursStatus(
        hours=hours.text,
        now=hours.holds(wall_s),
        changes_at=Moment(changes_s) if changes else None,
        changes=hours.describe(changes_s) if changes else None,
    )


def _under_way(assessment: Assessment, state: AccountState | None, report: CycleReport) -> UnderWayStatus | None:
    if state is None or state.under_way is None:
        return None
    under_way, rule = state.under_way, assessment.rule
    steps = rule.steps if rule is not None else ()
    number = under_way.step_of(rule) if rule is not None else None
    step = steps[number] if number is not None else None
    killed_s = _sigkill_s(under_way, step, report)
    is_to_come = "SIGKILL" in under_way.sent or not under_way.ended
    return UnderWayStatus(
        step=number,
        do=step.do if step is not None else None,
        container=under_way.victim or None,
        grace_s=json_seconds(step.grace_s) if step is not None else None,
        begun_at=Moment(killed_s - step.grace_s) if killed_s is not None and step is not None else None,
        sigkill_at=Moment(killed_s) if killed_s is not None and is_to_come else None,
        signals=under_way.sent,
        ended=under_way.ended,
    )


def _sigkill_s(under_way: UnderWay, step: Step | None, report: CycleReport) -> float | None:
    """When the processes still running get or got SIGKILL (Unix time): a `release_timeout` before the wait ends."""
    if step is None or not step.do.ends_processes or under_way.until_s is None:
        return None
    return report.at.wall_s + under_way.until_s - report.policy.release_timeout_s - report.at.boottime_s


def _counted(count: Stretch | Tally | None, interval_s: float) -> float:
    """What has been counted, in whole intervals: who knew it exactly could time a dip."""
    counted_s = count.counted_s if count is not None else 0.0
    return json_seconds(math.floor(counted_s / interval_s + 1e-6) * interval_s)


def _ladder(assessment: Assessment, state: AccountState | None, interval_s: float) -> tuple[StepStatus, ...]:
    rule = assessment.rule
    if rule is None:
        return ()
    known = {reading.index: reading for reading in step_readings(assessment, stale=False)}
    state = state or AccountState()
    return tuple(
        _step(number, step, known.get(number), state, (rule.name, step.signature), interval_s)
        for number, step in enumerate(rule.steps)
    )


def _step(
    number: int, step: Step, reading: StepReading | None, state: AccountState, key: StepKey, interval_s: float
) -> StepStatus:
    stretch, tally = state.stretches.get(key), state.tallies.get(key)
    return StepStatus(
        step=number,
        do=step.do,
        scope=step.effective_scope,
        above=str(step.above),
        threshold_bytes=reading.threshold_bytes if reading is not None else None,
        for_s=json_seconds(step.for_s),
        grace_s=json_seconds(step.grace_s) if "grace" in step.do.keys else None,
        repeat_s=json_seconds(step.repeat_s) if "repeat" in step.do.keys else None,
        under_pressure=step.under_pressure,
        state=_STATES[reading.reading] if reading is not None else "unknown",
        counted_s=_counted(stretch, interval_s),
        tally_s=_counted(tally, interval_s) if is_tallied(step) else None,
        since=_moment(stretch.since if stretch is not None else None),
    )


_UNTIL_A_CYCLE: Final = "No cycle has completed since then: no action starts until one does."


def status_of(
    report: CycleReport,
    recent: Iterable[RecentStatus] = (),
    health: HealthStatus | None = None,
    changes: Iterable[ChangeStatus] = (),
    gaps_since: Mapping[str, float] = MappingProxyType({}),
    hour: Hour | None = None,
) -> Status:
    """The status of a finished cycle, with the control characters of process names escaped.

    `recent` and `changes` are newest first; `gaps_since` has the beginning of each gap (Unix time). `scan` has none of
    these, and no `hour`.
    """
    residual, unattributed, snapshot = residual_by_gpu(report), unattributed_by_gpu(report), report.snapshot
    sharing = sharing_by_gpu(report)
    hangs = health is not None and health.hangs_since is not None
    stale, bounds = pods_stale(report), Bounds.of(report)
    start, since_s = report.maintenance_start, report.maintenance_since_s
    limits = {(limit.key, limit.gpu): limit for limit in report.pinned}
    return Status(
        node=inert(report.node.name),
        at=Moment(report.at.wall_s),
        mode=report.policy.mode,
        enforcing=report.enforcing,
        suspended=suspensions(report),
        stopped_why="; ".join(stop.why for stop in report.stops if stop.why) or None,
        stops=tuple(StopStatus(switch=stop.switch, why=stop.why, by=stop.by) for stop in report.stops),
        policy=PolicyStatus(sha256=report.policy.sha256, loaded_at=Moment(report.policy_loaded_at_s)),
        gpus=tuple(
            _gpu(gpu, residual[gpu.uuid], unattributed[gpu.uuid], sharing[gpu.uuid], report, hour)
            for gpu in sorted(snapshot.gpus, key=_place)
        ),
        accounts=tuple(account_status(each, report, bounds, limits, hour) for each in report.assessments),
        unattributed=tuple(
            UnattributedStatus(
                pid=use.pid, gpu=use.gpu, used=_bytes(use.used), reason=use.reason.value, name=inert(use.name)
            )
            for use in report.attribution.unattributed
        ),
        gaps=tuple(_gap(gap, gaps_since.get(gap.what)) for gap in all_gaps(report)),
        plan=tuple(_entry(entry, report, stale=stale, hangs=hangs) for entry in report.plan.entries),
        contact=inert(report.policy.events.contact, 600),
        interface=report.snapshot.interface,
        free_below=format_percent(report.policy.pressure.free_below),
        release_timeout_s=json_seconds(report.policy.release_timeout_s),
        pods_synced_at=_moment(report.pods.synced),
        pods_stale=stale,
        stale_after_s=json_seconds(report.policy.stale_after_s),
        breaker=breaker_status(report),
        maintenance=inert(report.maintenance, 600) if report.maintenance is not None else None,
        maintenance_since=Moment(since_s) if since_s is not None else None,
        maintenance_since_at_least=since_s is not None and start is not None and not start.seen,
        recent=tuple(recent),
        changes=tuple(changes),
        health=health,
    )


_DETAILS: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.WITHHELD: "brake",
    ChangeKind.POLICY_LOADED: "sha256",
    ChangeKind.POLICY_REFUSED: "sha256",
}


def changes_status(changes: Iterable[Change]) -> tuple[ChangeStatus, ...]:
    """The changes as log and status have them, without those for the journal or a pod's owner alone."""
    return tuple(
        _change(change) for change in changes if change.event is not ChangeKind.EXPLAINED and not change.is_repeated
    )


def _change(change: Change) -> ChangeStatus:
    entry, outcome = change.entry, change.outcome
    values: dict[str, object] = {}
    if (assessment := entry.assessment if entry is not None else change.assessment) is not None:
        values |= {
            "namespace": assessment.pod.namespace,
            "pod": assessment.pod.name,
            "uid": assessment.pod.uid,
            "container": assessment.account.container or "",
            "gpu": assessment.account.gpu or "",
            "rule": assessment.rule.name if assessment.rule is not None else "",
            "used": assessment.used,
            "declared": assessment.declared,
            "allowed": assessment.allowed,
        }
    if entry is not None:
        container = entry.victim or entry.account.container or ""
        values |= {"container": container, "action": entry.do, "step": entry.step_index}
    if outcome is not None:
        known = {
            "result": outcome.result.value if change.event not in BEGUN else None,  # it has only begun
            "reason": outcome.reason or None,
            "action_id": outcome.number,
            "pids": tuple(key.pid for key in outcome.signalled) or None,
            "victims": tuple(inert(victim, 300) for victim in outcome.victims) or None,
            "reaction_s": round(outcome.reaction_s, 3) if outcome.reaction_s is not None else None,
            "release_s": round(outcome.release_s, 3) if outcome.release_s is not None else None,
        }
        values |= {key: value for key, value in known.items() if value is not None}
    if change.gpu:
        values["gpu"] = change.gpu
    if change.detail:
        values[_DETAILS.get(change.event, "reason")] = change.detail
    texts = {key: inert(value, 4096) if type(value) is str else value for key, value in values.items()}
    message, at = inert(change.sentence, 4096), Moment(change.at.wall_s)
    return ChangeStatus(at=at, event=change.event.value, message=message, **texts)  # type: ignore[arg-type]


def _gap(gap: Gap, since_s: float | None) -> GapStatus:
    return GapStatus(
        what=inert(gap.what),
        why=inert(gap.problem.cause, 1000),
        remedy=inert(gap.problem.remedy, 1000) or None,
        since=Moment(since_s) if since_s is not None else None,
        reason=gap.reason.value,
        gpu=gap.gpu,
    )


def _place(gpu: Gpu) -> tuple[int, str, int, int, int]:
    """Where a GPU is among those of its node: by the index of its card, an instance by its slice.

    A driver names a card that it has lost after all others.
    """
    none = -1  # a card without MIG has neither, and a driver need not say where an instance is
    first_slice = gpu.placement[1] if gpu.placement is not None else none
    gi, ci = (none if number is None else number for number in (gpu.gi, gpu.ci))
    return gpu.index, gpu.parent or "", first_slice, gi, ci


def _gpu(
    gpu: Gpu,
    residual: int | None,
    unattributed: int | None,
    sharing: Sharing | None,
    report: CycleReport,
    hour: Hour | None,
) -> GpuStatus:
    busy = report.utilization.cards.get(gpu.uuid)
    return GpuStatus(
        uuid=gpu.uuid,
        index=gpu.index,
        name=gpu.name,
        parent=gpu.parent,
        gi=gpu.gi,
        ci=gpu.ci,
        profile=gpu.profile,
        first_slice=gpu.placement[1] if gpu.placement is not None else None,
        up=gpu.up,
        memory=GpuMemory(
            total=_bytes(gpu.total), used=_bytes(gpu.used), reserved=_bytes(gpu.reserved), residual=_bytes(residual)
        ),
        listed=is_listed(gpu, report.snapshot),
        unattributed=_bytes(unattributed),
        utilization=_ratio(busy.ratio) if busy is not None else None,
        utilization_unknown=inert(busy.why, 600) or None if busy is not None else None,
        sharing=sharing.value if sharing is not None else None,
        hour=_hour(hour, card(gpu.uuid), report.at) or ABSENT,
    )


def _bytes(amount: int | None) -> int | None:
    """An amount within the bounds of the status: a driver's counters are unsigned, and a broken driver fills them."""
    return None if amount is None else max(-LARGEST, min(amount, LARGEST))


def _moment(now: Now | None) -> Moment | None:
    return Moment(now.wall_s) if now is not None else None


def _pending(entry: PlanEntry, report: CycleReport) -> PendingStatus | None:
    pending, now_s = entry.pending_eviction, report.at.boottime_s
    if pending is None:
        return None
    return PendingStatus(
        tries=pending.tries,
        blocked=pending.is_blocked,
        refused=inert(pending.refused, 600) or None,
        next_in_s=json_seconds(max(pending.next_s - now_s, 0.0)) if pending.next_s is not None else None,
        gives_up_in_s=json_seconds(max(pending.until_s - now_s, 0.0)),
    )


def _in_whole_intervals(entry: PlanEntry, interval_s: float) -> PlanEntry:
    """An entry as anybody may read it: when it is due, and released, in whole intervals."""
    if entry.due_in_s <= 0:
        return entry
    releases_in_s = entry.releases_in_s and whole_intervals(entry.releases_in_s, interval_s)
    return replace(entry, due_in_s=whole_intervals(entry.due_in_s, interval_s), releases_in_s=releases_in_s)


def _entry(entry: PlanEntry, report: CycleReport, *, stale: bool, hangs: bool) -> PlanStatus:
    pod, account, step = entry.assessment.pod, entry.account, entry.definition
    entry = _in_whole_intervals(entry, report.policy.interval_s)
    words = forecast(entry, report.at, report.policy, report.switched_off_by, stale=stale)
    waits = f" {_UNTIL_A_CYCLE}" if hangs else ""
    return PlanStatus(
        namespace=pod.namespace,
        pod=pod.name,
        uid=account.uid,
        container=entry.victim or account.container,
        do=entry.do,
        scope=step.effective_scope,
        pids=tuple(key.pid for key in entry.targets),
        rule=entry.rule.name,
        step=entry.step_index,
        due_in_s=json_seconds(entry.due_in_s),
        due_by=entry.count.value,
        withheld_by=entry.withheld_by.value if entry.withheld_by is not None else None,
        account=AccountPart(container=account.container, gpu=account.gpu),
        above=str(step.above),
        threshold_bytes=entry.threshold_bytes,
        for_s=json_seconds(step.for_s),
        card=entry.gpu,
        observes=entry.assessment.observes,
        releases_in_s=json_seconds(entry.releases_in_s) if entry.releases_in_s is not None else None,
        held_because=withheld_because(entry, report.policy) if entry.withheld_by is not None else None,
        pending=_pending(entry, report),
        sentence=words.sentence + waits,
        detail=words.detail + waits,
    )
