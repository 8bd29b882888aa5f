"""One account in the JSON of `scan --json` and `/api/status`: what it uses, what it may use, and its rule's ladder."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from watchdog.core.assessment import Assessment, AttributedUse, Misdeclaration, Verdict
from watchdog.core.ladder import Reading, Rung, rungs
from watchdog.core.ledger import AccountState, Stretch, UnderWay
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Allowance, Do, Hours, Policy, Step
from watchdog.core.units import format_percent
from watchdog.export.advice import advice
from watchdog.export.bounds import Bounds
from watchdog.export.declaring import declare_by
from watchdog.export.phrases import inert, rfc3339

_STATES: Final[Mapping[Reading, str]] = {
    Reading.ABOVE: "above",
    Reading.BELOW: "below",
    Reading.INCONCLUSIVE: "unknown",
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
    number = under_way.rung(rule) if rule is not None else None
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
    known = {rung.index: rung for rung in rungs(assessment, stale=False)}
    stretches = state.stretches if state is not None else {}
    rule = assessment.rule
    return [
        _step(number, step, known.get(number), stretches.get((rule.name, step.signature)))
        for number, step in enumerate(rule.steps)
    ]


def _step(number: int, step: Step, rung: Rung | None, stretch: Stretch | None) -> dict[str, Any]:
    is_kill = step.do.value == "kill"
    return {
        "step": number,
        "do": step.do.value,
        "scope": step.scope if is_kill else None,
        "above": str(step.above),
        "height": rung.height if rung is not None else None,
        "for_s": json_seconds(step.for_s),
        "grace_s": json_seconds(step.grace_s) if step.do.is_force else None,
        "repeat_s": json_seconds(step.repeat_s) if not step.do.is_force else None,
        "under_pressure": step.under_pressure,
        "state": _STATES[rung.reading] if rung is not None else "unknown",
        "counted_s": json_seconds(stretch.counted_s) if stretch is not None else 0,
        "since": rfc3339(stretch.since.wall_s) if stretch is not None else None,
    }


def json_seconds(seconds: float) -> float | int:
    """A span as JSON has it: in seconds, to the millisecond, whole where it is."""
    rounded = round(seconds, 3)
    return int(rounded) if rounded == int(rounded) else rounded
