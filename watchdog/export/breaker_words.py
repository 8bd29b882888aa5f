"""What is said when the breaker opens and closes."""

from watchdog.core.plan import CycleReport
from watchdog.core.units import format_duration, format_percent


def breaker_note(report: CycleReport) -> str:
    """Say that the breaker has opened, why, and what follows, or that it has closed."""
    breaker, crowd = report.policy.brakes.breaker, report.plan.crowd
    if report.plan.ledger.brakes.opened is None:
        return "The breaker has closed: force is used again as the rules say."
    if breaker is None:
        return "The breaker is open."
    many = "" if crowd is None or not crowd.due else f": {len(crowd.due)} of {len(crowd.known)} owners are due at once"
    limit = f"{format_percent(breaker.offenders)} of at least {breaker.of_at_least}"
    hold = format_duration(breaker.hold_s)
    return (
        f"The breaker is open{many} (the policy allows less than {limit}). Nobody is killed or evicted for {hold}, "
        f"then one owner every {hold} until fewer are over. When most are over at once, the policy or a reading is "
        "more likely wrong than all of them: look at `gpu-watchdog scan`, and at what was changed last."
    )
