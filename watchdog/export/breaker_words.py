"""What is said of the breaker: when it opens and closes, and how it stands."""

from dataclasses import dataclass

from watchdog.core.brakes import breaker_wait_s
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Breaker
from watchdog.core.units import format_duration, format_percent
from watchdog.export.phrases import clock_time


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTimes:
    """Since when the breaker is open, and when it lets the next one through (None: now); Unix times."""

    since_s: float
    until_s: float | None


def breaker_times(report: CycleReport) -> BreakerTimes | None:
    """How the breaker stands at a pass; None: it is closed."""
    memory, now = report.plan.ledger.brakes, report.at
    if memory.opened is None:
        return None
    wait_s = breaker_wait_s(memory, report.policy.brakes.breaker, now.boottime_s)
    since_s = now.wall_s - (now.boottime_s - memory.opened.at_s)
    return BreakerTimes(since_s=since_s, until_s=now.wall_s + wait_s if wait_s > 0 else None)


def breaker_note(report: CycleReport) -> str:
    """Say that the breaker has opened, or was open before, why, and what follows; or that it has closed."""
    times, breaker, opened = breaker_times(report), report.policy.brakes.breaker, report.plan.ledger.brakes.opened
    if times is None or opened is None:
        return "The breaker has closed: force is used again as the rules say."
    if breaker is None:
        return "The breaker is open."
    if opened.at_s < report.at.boottime_s:
        return _still_open(times, breaker, report.at.wall_s)
    crowd, hold = report.plan.crowd, format_duration(breaker.hold_s)
    many = "" if crowd is None or not crowd.due else f": {len(crowd.due)} of {len(crowd.known)} owners are due at once"
    limit = f"{format_percent(breaker.offenders)} of at least {breaker.of_at_least}"
    return (
        f"The breaker is open{many} (the policy allows less than {limit}). Nobody is killed or evicted for {hold}, "
        f"then one owner every {hold} until fewer are over. When most are over at once, the policy or a reading is "
        "more likely wrong than all of them: look at `gpu-watchdog scan`, and at what was changed last."
    )


def _still_open(times: BreakerTimes, breaker: Breaker, wall_s: float) -> str:
    """What a daemon says of a breaker that it found open in the journal: nothing has been counted by it yet."""
    hold = format_duration(breaker.hold_s)
    nobody = f"Nobody is killed or evicted until {clock_time(times.until_s, wall_s)}, then" if times.until_s else "Now"
    return (
        f"The breaker is still open, since {clock_time(times.since_s, wall_s)}. {nobody} one owner is let through "
        f"every {hold} until fewer are over: look at `gpu-watchdog scan`, and at what was changed last."
    )
