"""The report of a finished cycle, made from what it was opened and closed with."""

from dataclasses import replace

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle
from watchdog.core.policy import Policy
from watchdog.core.units import format_duration
from watchdog.daemon.enforcement import Enforcement
from watchdog.daemon.sources import with_gaps


def report_of(
    opened: OpenCycle,
    closed: ClosedCycle,
    enforcement: Enforcement,
    *,
    policy_loaded_s: float,
    maintenance: str | None,
    ended: Now,
) -> CycleReport:
    """The report of a finished cycle, with a gap if it took too long. `policy_loaded_s` is Unix time."""
    inputs, snapshot = opened.inputs, opened.snapshot
    duration_s = ended.boottime_s - snapshot.at.boottime_s
    if duration_s > inputs.policy.interval_s:
        snapshot = replace(snapshot, gaps=(*snapshot.gaps, _late_gap(duration_s, opened.scan_s, inputs.policy)))
    return CycleReport(
        node=inputs.node,
        at=opened.snapshot.at,
        policy=inputs.policy,
        policy_loaded_at_s=policy_loaded_s,
        enforcing=enforcement.enforcing,
        suspended=enforcement.suspended,
        stops=enforcement.stops,
        snapshot=snapshot,
        pods=with_gaps(
            replace(inputs.pods, gaps=(*inputs.pods.gaps, *opened.residual_gaps)),
            opened.assessments,
            inputs.overdue,
            opened.snapshot,
            inputs.node,
        ),
        attribution=opened.attribution,
        assessments=opened.assessments,
        plan=closed.plan,
        began=closed.began,
        outcomes=closed.outcomes,
        namespaces=inputs.namespaces,
        overdue=inputs.overdue,
        drains=inputs.drains,
        pinned=inputs.pinned,
        transfers=opened.transfers,
        maintenance=maintenance,
        scan_s=opened.scan_s,
        duration_s=duration_s,
    )


def in_time(report: CycleReport) -> CycleReport:
    """The report as of a cycle that did not take longer than `interval`: repeating it takes no time."""
    gaps = tuple(gap for gap in report.snapshot.gaps if gap.reason is not GapReason.CYCLE_LATE)
    return report if gaps == report.snapshot.gaps else replace(report, snapshot=replace(report.snapshot, gaps=gaps))


def _late_gap(duration_s: float, scan_s: float, policy: Policy) -> Gap:
    """The gap of a cycle that took longer than `interval`. Its words stay the same while its figures change."""
    cause = (
        f"it took longer than interval ({format_duration(policy.interval_s)}), so limits are checked less often than "
        "the policy says"
    )
    slow = "the driver" if scan_s > duration_s / 2 else "the node's CPU, the disk, or the number and size of its pods"
    return Gap(reason=GapReason.CYCLE_LATE, what="cycle", problem=Problem(cause, f"look for what is slow: {slow}"))
