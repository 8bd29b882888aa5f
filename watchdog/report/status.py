"""The status as JSON: accounts, the plan, and whether the daemon is ready and healthy."""

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from watchdog.core.assessment import Assessment, AttributedUse, Misdeclaration, Unattributed, Verdict
from watchdog.core.ladder import Comparison, StepReading, step_readings
from watchdog.core.ledger import AccountState, Stretch, UnderWay
from watchdog.core.model import Gap, GapReason, Gpu, PodList, Snapshot
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Allowance, Do, Hours, Policy, Step
from watchdog.core.units import format_percent
from watchdog.report.advice import advice, declare_by
from watchdog.report.brakes import breaker_times, withheld_because
from watchdog.report.figures import Bounds, all_gaps, is_listed, pods_stale, residual_by_gpu, unattributed_by_gpu
from watchdog.report.next import forecast
from watchdog.report.recent import RecentAction, recent_rows
from watchdog.report.text import inert, rfc3339

_STATES: Final[Mapping[Comparison, str]] = {
    Comparison.ABOVE: "above",
    Comparison.BELOW: "below",
    Comparison.INCONCLUSIVE: "unknown",
}


def account_row(assessment: Assessment, report: CycleReport, bounds: Bounds) -> dict[str, Any]:
    """An account with its processes and every step of its rule; `bounds` are those of the report."""
    state = report.plan.ledger.accounts.get(assessment.account)
    over_since = state.over_since if state is not None else None
    workload = assessment.pod.workload
    return {
        "namespace": assessment.pod.namespace,
        "pod": assessment.pod.name,
        "uid": assessment.account.uid,
        "container": assessment.account.container,
        "gpu": assessment.account.gpu,
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "used_at_most": bounds.used_at_most(assessment),
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "allowed": assessment.allowed,
        "verdict": assessment.verdict.value,
        "rule": assessment.rule.name if assessment.rule is not None else None,
        "protected": assessment.protected,
        "over_since": rfc3339(over_since.wall_s) if over_since is not None else None,
        "processes": [_process(use) for use in assessment.uses],
        "owner": {"kind": workload.kind, "name": workload.name},
        "requested": assessment.requested,
        "allowed_by_request": assessment.allowed_by_request,
        "allowance": _allowance(assessment, report.policy),
        "misdeclarations": [_misdeclared(each) for each in assessment.misdeclarations],
        "behind": assessment.behind,
        "rule_unknown": inert(assessment.rule_gap.why, 600) if assessment.rule_gap is not None else None,
        "observes": assessment.observes,
        "active": _active(assessment, report),
        "under_way": _under_way(assessment, state, report),
        "ladder": _ladder(assessment, state),
        "advice": advice(assessment, report.policy, gpus=report.snapshot.gpus) if _can_heed(assessment) else None,
        "declare_by": declare_by(report.policy) if assessment.verdict is Verdict.UNDECLARED else None,
    }


def _misdeclared(found: Misdeclaration) -> dict[str, Any]:
    return {"source": inert(found.source), "why": inert(found.why, 600), "counts": found.counts}


def _can_heed(assessment: Assessment) -> bool:
    """Whether its owner has to change anything: a pod that is never acted on has not."""
    return assessment.verdict is Verdict.OVER and assessment.protected is None


def _process(use: AttributedUse) -> dict[str, Any]:
    return {
        "pid": use.key.pid,
        "start_ticks": use.key.start_ticks,
        "container": use.container,
        "gpu": use.gpu,
        "used": use.used,
        "name": inert(use.name),
    }


def _allowance(assessment: Assessment, policy: Policy) -> dict[str, Any] | None:
    """How what is allowed adds up; null where several allowances have a part in it, or none."""
    allowed, declared = assessment.allowed, assessment.declared
    if allowed is None or declared is None or allowed == declared:
        return None
    seen = len({(use.key, use.gpu) for use in assessment.uses})
    for each in _allowances(policy):
        # Which one it was is not kept, nor whether a card is out of sight; what gives the very same sum explains it.
        for contexts in (min(seen, each.max_contexts), each.max_contexts):
            if each.allowed(declared, contexts) == allowed:
                return {"percent": format_percent(each.percent), "per_context": each.per_context, "contexts": contexts}
    return None


def _allowances(policy: Policy) -> tuple[Allowance, ...]:
    own = (declaration.allowance for declaration in policy.declarations)
    return (policy.allowance, *(each for each in own if each is not None))


def _active(assessment: Assessment, report: CycleReport) -> dict[str, Any] | None:
    """The hours of the rule, whether they hold, and when that changes; null for a rule that has none."""
    hours = assessment.rule.active if assessment.rule is not None else None
    return None if hours is None else dict(_hours_at(hours, report.at.wall_s))


@lru_cache(maxsize=16)
def _hours_at(hours: Hours, wall_s: float) -> tuple[tuple[str, Any], ...]:
    """What is told of hours at a moment: the same for every account of the rule."""
    changes_s = hours.next_change_s(wall_s)
    changes = math.isfinite(changes_s)  # hours that cover the whole week never end
    return (
        ("hours", hours.text),
        ("now", hours.holds(wall_s)),
        ("changes_at", rfc3339(changes_s) if changes else None),
        ("changes", hours.say(changes_s) if changes else None),
    )


def _under_way(assessment: Assessment, state: AccountState | None, report: CycleReport) -> dict[str, Any] | None:
    if state is None or state.under_way is None:
        return None
    under_way, rule = state.under_way, assessment.rule
    steps = rule.steps if rule is not None else ()
    number = under_way.step_reading(rule) if rule is not None else None
    step = steps[number] if number is not None else None
    killed_s = sigkill_s(under_way, step, report)
    is_to_come = "SIGKILL" in under_way.sent or not under_way.ended
    return {
        "step": number,
        "do": step.do.value if step is not None else None,
        "container": under_way.victim or None,
        "grace_s": json_seconds(step.grace_s) if step is not None else None,
        "begun_at": rfc3339(killed_s - step.grace_s) if killed_s is not None and step is not None else None,
        "sigkill_at": rfc3339(killed_s) if killed_s is not None and is_to_come else None,
        "signals": list(under_way.sent),
        "ended": under_way.ended,
    }


def sigkill_s(under_way: UnderWay, step: Step | None, report: CycleReport) -> float | None:
    """When what is left gets SIGKILL, or got it (Unix time): a `release_timeout` before its memory is given up."""
    if step is None or step.do is not Do.KILL or under_way.until_s is None:
        return None
    return report.at.wall_s + under_way.until_s - report.policy.release_timeout_s - report.at.boottime_s


def _ladder(assessment: Assessment, state: AccountState | None) -> list[dict[str, Any]]:
    if assessment.rule is None:
        return []
    known = {step_reading.index: step_reading for step_reading in step_readings(assessment, stale=False)}
    stretches = state.stretches if state is not None else {}
    rule = assessment.rule
    return [
        _step(number, step, known.get(number), stretches.get((rule.name, step.signature)))
        for number, step in enumerate(rule.steps)
    ]


def _step(number: int, step: Step, step_reading: StepReading | None, stretch: Stretch | None) -> dict[str, Any]:
    is_kill = step.do.value == "kill"
    return {
        "step": number,
        "do": step.do.value,
        "scope": step.scope if is_kill else None,
        "above": str(step.above),
        "height": step_reading.threshold_bytes if step_reading is not None else None,
        "for_s": json_seconds(step.for_s),
        "grace_s": json_seconds(step.grace_s) if step.do.is_force else None,
        "repeat_s": json_seconds(step.repeat_s) if not step.do.is_force else None,
        "under_pressure": step.under_pressure,
        "state": _STATES[step_reading.reading] if step_reading is not None else "unknown",
        "counted_s": json_seconds(stretch.counted_s) if stretch is not None else 0,
        "since": rfc3339(stretch.since.wall_s) if stretch is not None else None,
    }


def json_seconds(seconds: float) -> float | int:
    """A span as JSON has it: in seconds, to the millisecond, whole where it is."""
    rounded = round(seconds, 3)
    return int(rounded) if rounded == int(rounded) else rounded


OK: Final = "ok"
NO_PASS: Final = "no pass has finished yet"
_LONGEST: Final = 1000
_MOST_PASSES: Final = 600  # ten minutes at the default interval
_OF_API: Final = frozenset({GapReason.PODS, GapReason.NODE, GapReason.NAMESPACES})


class Durations:
    """How long the last cycles took, in seconds, in a few KiB whatever their number."""

    def __init__(self) -> None:
        self.count = 0
        self._last = array("d", bytes(8 * _MOST_PASSES))

    def add(self, seconds: float) -> None:
        """A cycle has taken so long."""
        self._last[self.count % _MOST_PASSES] = seconds
        self.count += 1

    @property
    def last(self) -> float | None:
        """The last one; None: there was none."""
        return self._last[(self.count - 1) % _MOST_PASSES] if self.count else None

    @property
    def p99(self) -> float | None:
        """What 99 of 100 of the last 600 passes stayed below, by nearest rank; None: there was none."""
        known = sorted(self._last[: min(self.count, _MOST_PASSES)])
        return known[-(-99 * len(known) // 100) - 1] if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the watchdog is at a moment. Times are Unix times, spans seconds; what is not known yet is None.

    `unready` says why it is not ready, a sentence each. `journal` is `ok` or what is wrong with it. `policy_error` has
    the errors of a policy file that was refused, or says that it has not settled; empty: it was taken. `api` is `ok`,
    or what is missing of what the API server tells; None: it is not asked. `blind_since` is when NVML last began not to
    answer.
    `gaps_since` is since when what a gap names is missing.
    `stop_file` is the path at which the daemon looks for it; empty: not told.
    `hangs_since` is when the last cycle ended, or the daemon began, while the loop does not turn; None: it turns.
    """

    version: str
    started_s: float
    uptime_s: float
    ready: bool
    unready: tuple[str, ...] = ()
    last_pass_s: float | None = None
    last_pass_ago_s: float | None = None
    pass_p99_s: float | None = None
    passes: int = 0
    journal: str = OK
    policy_error: str = ""
    api: str | None = None
    blind_since_s: float | None = None
    hangs_since_s: float | None = None
    gaps_since: Mapping[str, float] = field(default_factory=dict)
    stop_file: str = ""

    @property
    def turns(self) -> bool:
        """Whether passes end, so that what is known is of now."""
        return self.hangs_since_s is None


def api_state(pods: PodList) -> str | None:
    """Whether all that the API server is asked for has come, as `Health.api` says it."""
    if pods.by_file:
        return None
    gaps = [gap for gap in pods.gaps if gap.reason in _OF_API]
    return f"{gaps[0].what}: {gaps[0].why}" if gaps else OK


def health_row(health: Health) -> dict[str, Any]:
    """How the watchdog is, as the status has it."""
    return {
        "version": health.version,
        "started_at": rfc3339(health.started_s),
        "uptime_s": json_seconds(health.uptime_s),
        "ready": health.ready,
        "unready": _texts(health.unready),
        "last_pass_s": _span(health.last_pass_s),
        "last_pass_ago_s": _span(health.last_pass_ago_s),
        "pass_p99_s": _span(health.pass_p99_s),
        "passes": health.passes,
        "journal": inert(health.journal, _LONGEST),
        "policy_ok": not health.policy_error,
        "policy_error": inert(health.policy_error, _LONGEST) or None,
        "api": inert(health.api, _LONGEST) if health.api is not None else None,
        "blind_since": rfc3339(health.blind_since_s) if health.blind_since_s is not None else None,
        "hangs_since": rfc3339(health.hangs_since_s) if health.hangs_since_s is not None else None,
        "stop_file": health.stop_file or None,
    }


def _texts(lines: Iterable[str]) -> list[str]:
    return [inert(line, _LONGEST) for line in lines]


def _span(seconds: float | None) -> float | int | None:
    return None if seconds is None else json_seconds(seconds)


_PUT_OFF: Final = "No pass has ended since this one: until one does nothing is done."


def status_document(
    report: CycleReport, recent: Iterable[RecentAction] = (), health: Health | None = None
) -> dict[str, Any]:
    """A report as the JSON that the outside relies on. Process names have their control characters escaped.

    `recent` is what was done lately, newest first, and `health` how the watchdog is: a single look has neither.
    """
    residual, strangers, seen = residual_by_gpu(report), unattributed_by_gpu(report), report.snapshot
    hangs = health is not None and not health.turns
    synced, stale, bounds = report.pods.synced, pods_stale(report), Bounds.of(report)
    return {
        "node": report.node.name,
        "at": rfc3339(report.at.wall_s),
        "mode": report.policy.mode,
        "enforcing": report.enforcing,
        "suspended": list(report.suspended),
        "policy": {"sha256": report.policy.sha256, "loaded_at": rfc3339(report.policy_loaded_at_s)},
        "gpus": [_gpu(gpu, residual[gpu.uuid], strangers[gpu.uuid], seen) for gpu in seen.gpus],
        "accounts": [account_row(assessment, report, bounds) for assessment in report.assessments],
        "unattributed": [_unattributed(use) for use in report.attribution.unattributed],
        "gaps": [_gap(gap, health) for gap in all_gaps(report)],
        "plan": [_entry(entry, report, stale=stale, hangs=hangs) for entry in report.plan.entries],
        "contact": inert(report.policy.contact, 600),
        "free_below": format_percent(report.policy.free_below),
        "release_timeout_s": json_seconds(report.policy.release_timeout_s),
        "pods_synced_at": rfc3339(synced.wall_s) if synced is not None else None,
        "pods_stale": stale,
        "breaker": _breaker(report),
        "maintenance": inert(report.maintenance, 600) if report.maintenance is not None else None,
        "recent": recent_rows(recent),
        "health": health_row(health) if health is not None else None,
    }


def _gap(gap: Gap, health: Health | None) -> dict[str, Any]:
    since_s = health.gaps_since.get(gap.what) if health is not None else None
    since = rfc3339(since_s) if since_s is not None else None
    return {"what": inert(gap.what), "why": inert(gap.why, 1000), "since": since}


def _breaker(report: CycleReport) -> dict[str, Any]:
    times = breaker_times(report)
    if times is None:
        return {"open": False, "since": None, "until": None}
    until = rfc3339(times.until_s) if times.until_s is not None else None
    return {"open": True, "since": rfc3339(times.since_s), "until": until}


def _gpu(gpu: Gpu, residual: int | None, unattributed: int | None, seen: Snapshot) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "parent": gpu.parent,
        "gi": gpu.gi,
        "ci": gpu.ci,
        "profile": gpu.profile,
        "up": gpu.up,
        "memory": {"total": gpu.total, "used": gpu.used, "reserved": gpu.reserved, "residual": residual},
        "listed": is_listed(gpu, seen),
        "unattributed": unattributed,
    }


def _unattributed(use: Unattributed) -> dict[str, Any]:
    return {"pid": use.pid, "gpu": use.gpu, "used": use.used, "reason": use.reason.value}


def _trying(entry: PlanEntry, report: CycleReport) -> dict[str, Any] | None:
    """An eviction that has not come about yet."""
    trying, now_s = entry.trying, report.at.boottime_s
    if trying is None:
        return None
    return {
        "tries": trying.tries,
        "blocked": trying.is_blocked,
        "refused": inert(trying.refused, 600) or None,
        "next_in_s": json_seconds(max(trying.next_s - now_s, 0.0)) if trying.next_s is not None else None,
        "gives_up_in_s": json_seconds(max(trying.until_s - now_s, 0.0)),
    }


def _entry(entry: PlanEntry, report: CycleReport, *, stale: bool, hangs: bool) -> dict[str, Any]:
    pod, account, step = entry.assessment.pod, entry.account, entry.definition
    held = entry.withheld_by is not None
    sentence = forecast(entry, report.at, report.policy, report.suspended, stale=stale)
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": entry.account.uid,
        "container": entry.victim or entry.account.container,
        "do": entry.do.value,
        "scope": entry.definition.scope if entry.do.value == "kill" else None,
        "pids": [key.pid for key in entry.targets],
        "rule": entry.rule.name,
        "step": entry.step,
        "due_in_s": json_seconds(entry.due_in_s),
        "withheld_by": entry.withheld_by.value if entry.withheld_by is not None else None,
        "account": {"container": account.container, "gpu": account.gpu},
        "above": str(step.above),
        "height": entry.threshold_bytes,
        "for_s": json_seconds(step.for_s),
        "card": entry.card,
        "observes": entry.assessment.observes,
        "lets_go_in_s": json_seconds(entry.lets_go_in_s) if entry.lets_go_in_s is not None else None,
        "held_because": withheld_because(entry, report.policy) if held else None,
        "trying": _trying(entry, report),
        "sentence": f"{sentence} {_PUT_OFF}" if hangs else sentence,
    }
