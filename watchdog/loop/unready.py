"""Why the daemon is not ready although passes finish: what `/readyz` says, in sentences."""

from watchdog.core.model import GapReason
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_duration
from watchdog.loop.sources import NO_PODS


def unready(report: CycleReport, *, is_stale: bool, from_api: bool) -> tuple[str, ...]:
    """What a pass lacked for doing its work; nothing: it is ready."""
    blind = [_blind(report)] if report.snapshot.blind else []
    return (*blind, *([_stale(report, from_api=from_api)] if is_stale else []))


def _blind(report: CycleReport) -> str:
    if report.maintenance is None:
        return "NVML does not answer"
    return f"{report.maintenance}: its GPUs are under maintenance, and NVML is let go"


def _stale(report: CycleReport, *, from_api: bool) -> str:
    why = "".join(f": {gap.why}" for gap in report.pods.gaps[:1] if gap.reason is GapReason.PODS)
    synced = report.pods.synced
    if synced is None:
        return f"the API server has not given the pods of this node yet{why}" if from_api else NO_PODS
    age_s = report.at.boottime_s - synced.boottime_s
    limit = format_duration(report.policy.stale_after_s)
    cause = (why or ": nothing has come from the API server") if from_api else ": is whatever writes it still running?"
    return f"the pod list is {age_s:.0f} s old (stale_after {limit}){cause}"
