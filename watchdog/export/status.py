"""The JSON of `scan --json` and `/api/status`: bytes are integers, unknown is null, times are RFC 3339 in UTC."""

from typing import Any

from watchdog.core.findings import Assessment, AttributedUse, Unattributed
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.export.phrases import inert, rfc3339
from watchdog.export.sums import all_gaps, residual_by_gpu


def status_document(report: CycleReport) -> dict[str, Any]:
    """A report as the JSON that the outside relies on. Process names have their control characters escaped."""
    residual = residual_by_gpu(report)
    return {
        "node": report.node.name,
        "at": rfc3339(report.at.wall_s),
        "mode": report.policy.mode,
        "enforcing": report.enforcing,
        "suspended": list(report.suspended),
        "policy": {"sha256": report.policy.sha256, "loaded_at": rfc3339(report.policy_loaded_at_s)},
        "gpus": [_gpu(gpu, residual[gpu.uuid]) for gpu in report.snapshot.gpus],
        "accounts": [_account(assessment, report) for assessment in report.assessments],
        "unattributed": [_unattributed(use) for use in report.attribution.unattributed],
        "gaps": [{"what": inert(gap.what), "why": inert(gap.why, 1000)} for gap in all_gaps(report)],
        "plan": [_entry(entry) for entry in report.plan.entries],
    }


def _gpu(gpu: Gpu, residual: int | None) -> dict[str, Any]:
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
    }


def _account(assessment: Assessment, report: CycleReport) -> dict[str, Any]:
    state = report.plan.ledger.accounts.get(assessment.account)
    over_since = state.over_since if state is not None else None
    return {
        "namespace": assessment.pod.namespace,
        "pod": assessment.pod.name,
        "uid": assessment.account.uid,
        "container": assessment.account.container,
        "gpu": assessment.account.gpu,
        "used": assessment.used,
        "used_at_least": assessment.used_at_least,
        "declared": assessment.declared,
        "declared_by": assessment.declared_by,
        "allowed": assessment.allowed,
        "verdict": assessment.verdict.value,
        "rule": assessment.rule.name if assessment.rule is not None else None,
        "protected": assessment.protected,
        "over_since": rfc3339(over_since.wall_s) if over_since is not None else None,
        "processes": [_process(use) for use in assessment.uses],
    }


def _process(use: AttributedUse) -> dict[str, Any]:
    return {
        "pid": use.key.pid,
        "start_ticks": use.key.start_ticks,
        "container": use.container,
        "gpu": use.gpu,
        "used": use.used,
        "name": inert(use.name),
    }


def _unattributed(use: Unattributed) -> dict[str, Any]:
    return {"pid": use.pid, "gpu": use.gpu, "used": use.used, "reason": use.reason.value}


def _entry(entry: PlanEntry) -> dict[str, Any]:
    pod = entry.assessment.pod
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
        "due_in_s": _seconds(entry.due_in_s),
        "withheld_by": entry.withheld_by.value if entry.withheld_by is not None else None,
    }


def _seconds(seconds: float) -> float | int:
    rounded = round(seconds, 3)
    return int(rounded) if rounded == int(rounded) else rounded
