"""The second look, right before force: what the GPUs concerned and their processes say then, and what is left to do."""

from collections.abc import Callable
from dataclasses import replace

from watchdog.core.assess import assess
from watchdog.core.attribute import attribute
from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.model import Now, ProcessKey, Snapshot
from watchdog.core.passes import Pass
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do
from watchdog.core.pressure import allowed_under_pressure
from watchdog.core.victim import targets_of, victim_of
from watchdog.node.driver import DriverReading
from watchdog.node.scan import Scanner


def look_again(scanner: Scanner, opened: Pass, second: DriverReading | None, now: Now) -> dict[AccountKey, Assessment]:
    """How the accounts stand that a pass is about to act on, by a second reading of their GPUs; nothing without one."""
    if second is None or not opened.only:
        return {}
    view = opened.view
    snapshot = scanner.look_again(opened.snapshot, second, opened.only, now)
    attribution = attribute(snapshot, view.pods.pods)
    concerned = {entry.account.uid for entry in opened.plan.actions}
    pods = [pod for pod in view.pods.pods if pod.uid in concerned]
    return {each.account: each for each in assess(attribution, snapshot, pods, view.setting)}


def renew(entry: PlanEntry, assessment: Assessment | None, now: Now) -> PlanEntry | Outcome | None:
    """The entry by the second look; an outcome where nothing is left to act on, None where that can't be said."""
    if assessment is None or assessment.allowed is None:
        return None
    step = entry.definition
    allowed = allowed_under_pressure(assessment) if step.under_pressure else assessment.allowed
    height = step.above.height(assessment.allowed if allowed is None else allowed, entry.do)
    if assessment.used_at_least <= height:
        if assessment.used is None:
            return None
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its use was at or below the mark again")
    changed = assessment.rule is not entry.rule or assessment.protected is not None or assessment.observes
    victim = victim_of(assessment, entry.card) if entry.do is Do.KILL else entry.victim
    if changed or victim != entry.victim:
        return None
    if entry.card is not None and entry.card not in assessment.short:
        return Outcome(entry=entry, result=Result.GONE, at=now, reason="its card had room again")
    targets = targets_of(assessment, victim, step, entry.card)
    return replace(entry, assessment=assessment, targets=targets, height=height)


def still_listed(scanner: Scanner, snapshot: Snapshot) -> Callable[[ProcessKey], bool]:
    """Whether the driver may still list a process, be it only its memory after its end."""
    pids = {use.pid for use in snapshot.uses}

    def is_listed(key: ProcessKey) -> bool:
        process = snapshot.processes.get(key.pid)
        is_there = key.pid in pids and (process is None or process.key in (None, key))
        return is_there or snapshot.blind or scanner.may_be_listed(key, snapshot)

    return is_listed
