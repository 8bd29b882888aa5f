"""The JSON of `scan --json` and `/api/status`: bytes are integers, unknown is null, times are RFC 3339 in UTC."""

from collections.abc import Iterable
from typing import Any, Final

from watchdog.core.assessment import Unattributed
from watchdog.core.model import Gap, Gpu, Snapshot
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.units import format_percent
from watchdog.export.bounds import Bounds
from watchdog.export.brake_words import withheld_because
from watchdog.export.breaker_words import breaker_times
from watchdog.export.health import Health, health_row
from watchdog.export.phrases import inert, rfc3339
from watchdog.export.recent import RecentDeed, recent_rows
from watchdog.export.status_account import account_row, json_seconds
from watchdog.export.sums import all_gaps, is_listed, pods_stale, residual_by_gpu, unattributed_by_gpu
from watchdog.export.words import forecast

_PUT_OFF: Final = "No pass has ended since this one: until one does nothing is done."


def status_document(
    report: CycleReport, recent: Iterable[RecentDeed] = (), health: Health | None = None
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
        "height": entry.height,
        "for_s": json_seconds(step.for_s),
        "card": entry.card,
        "observes": entry.assessment.observes,
        "lets_go_in_s": json_seconds(entry.lets_go_in_s) if entry.lets_go_in_s is not None else None,
        "held_because": withheld_because(entry, report.policy) if held else None,
        "trying": _trying(entry, report),
        "sentence": f"{sentence} {_PUT_OFF}" if hangs else sentence,
    }
