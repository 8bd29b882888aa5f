"""What would follow from a pass, a sentence each: the lines of `scan` and of the page."""

from collections.abc import Iterable

from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.export.sums import pods_stale
from watchdog.export.words import forecast


def outlook(report: CycleReport) -> list[str]:
    """The sentences of what would follow, in the order of the plan."""
    stale = pods_stale(report)
    entries = what_follows(report.plan.entries)
    return [forecast(each, report.at, report.policy, report.suspended, stale=stale) for each in entries]


def what_follows(entries: Iterable[PlanEntry]) -> list[PlanEntry]:
    """The entries of a plan that would really come: where one is acted on now, no lesser step of its account does."""
    entries = tuple(entries)
    acted_on = {entry.account: entry.step for entry in entries if entry.taken and entry.do.is_force}
    return [each for each in entries if each.due_in_s <= 0 or each.step >= acted_on.get(each.account, 0)]
