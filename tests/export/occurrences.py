"""One occurrence of each kind that has an Event, as reports and as Events."""

from dataclasses import replace
from functools import cache
from typing import Any

from tests.export.build import Story, entry, killed, outcome, policy, quiet, trainer, trainer_node
from tests.worlds import MEMORY, container, rule, step
from watchdog.core.brakes import Brake
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import Policy
from watchdog.kube.event_objects import PodEvent
from watchdog.report.changes import Changes
from watchdog.report.events import pod_events

EVICT = rule(step("110%", 10, "evict", grace_s=30.0), name="batch")
# The API server's own words for it, in its own grammar, and the remedy.
BUDGET = (
    "the disruption budget trainer-pdb needs 1 healthy pods and has 1 currently; it succeeds once more pods are "
    "healthy or the budget is relaxed"
)
OBSERVING = policy(mode="observe", events_in_observe=True)


def told(*reports: CycleReport) -> tuple[PodEvent, ...]:
    """The Events of these cycles, one after the other."""
    changes = Changes()
    return tuple(pod_event for report in reports for pod_event in pod_events(changes.since(report), report))


@cache
def warned() -> PlanEntry:
    """The trainer's warning when it is due, after 5 s of 12.4Gi."""
    return entry(Story().run(12.4, 31, 26), "warn")


@cache
def evicting() -> PlanEntry:
    """The trainer's eviction when it is due, after 10 s of 12.4Gi."""
    return entry(Story(under=policy(EVICT)).run(12.4, 31, 21), "evict")


@cache
def killing() -> PlanEntry:
    """The trainer's kill when it is due, after 10 s of 12.4Gi."""
    return entry(Story().run(12.4, 31, 21))


def holding(*entries: PlanEntry, under: Policy | None = None, **more: object) -> CycleReport:
    """A report whose plan has just these entries."""
    base = quiet(31, policy=under or policy(), **more)
    return replace(base, plan=replace(base.plan, entries=entries))


def misdeclaring(text: str = "900Gi", **more: Any) -> CycleReport:
    """A report in which the trainer declares what no card has."""
    pod = trainer(containers=(container("main", None, of="u1", resources={MEMORY: text}),))
    return Story(under=policy(**more), pods=(pod,)).see(trainer_node(4.0, 31))


@cache
def occurrences() -> dict[str, PodEvent]:
    """The occurrence of each reason that docs/events.md shows."""
    blocked = outcome(evicting(), Result.BLOCKED, reason=BUDGET)
    held = replace(killing(), withheld_by=Brake.OWNER_BACKOFF, taken=False, is_new=True, releases_in_s=250.0)
    would = outcome(killing(), Result.OBSERVED)
    observed = quiet(31, policy=OBSERVING, enforcing=False, outcomes=(would,))
    found = told(
        quiet(31, outcomes=(outcome(warned()),)),
        quiet(32, began=(killed(entry=killing()),)),
        quiet(33, outcomes=(killed(entry=killing(), release_s=12.4),)),
        quiet(34, began=(outcome(evicting(), number=2),)),
        quiet(35, outcomes=(blocked,)),
        holding(held),
        misdeclaring(),
    )
    return {each.reason: each for each in found} | {"observed": told(observed)[0]}
