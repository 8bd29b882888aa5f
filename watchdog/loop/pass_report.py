"""A pass as everybody outside the loop gets to know of it."""

from watchdog.core.model import Now
from watchdog.core.plan import CycleReport
from watchdog.cycle.cycle import Finish, Pass
from watchdog.loop.enforcement import Enforcement
from watchdog.loop.sources import with_gaps


def report_of(
    opened: Pass,
    finish: Finish,
    enforcement: Enforcement,
    *,
    policy_loaded_s: float,
    maintenance: str | None,
    ended: Now,
) -> CycleReport:
    """Put together what a pass saw, and what it came to. `policy_loaded_s` is Unix time."""
    setting = opened.view.setting
    return CycleReport(
        node=setting.node,
        at=opened.snapshot.at,
        policy=setting.policy,
        policy_loaded_at_s=policy_loaded_s,
        enforcing=enforcement.enforcing,
        suspended=enforcement.suspended,
        snapshot=opened.snapshot,
        pods=with_gaps(opened.view.pods, opened.assessments, opened.overdue),
        attribution=opened.attribution,
        assessments=opened.assessments,
        plan=finish.plan,
        began=finish.began,
        outcomes=finish.outcomes,
        namespaces=setting.namespaces,
        maintenance=maintenance,
        scan_s=opened.scan_s,
        duration_s=ended.boottime_s - opened.snapshot.at.boottime_s,
    )
