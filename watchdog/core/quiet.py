"""Quiet ticks: a cycle that equal readings and equal inputs can only repeat, and the result of repeating it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from watchdog.core.assessment import Inputs
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.model import Now, Pod
from watchdog.core.plan import ClosedCycle, CycleReport, OpenCycle, Plan, PlanEntry
from watchdog.core.policy import Policy
from watchdog.core.rules import MOST_TERMINATING_S
from watchdog.core.tally import TIMES, StepKey, Tally

# The longest rest: after it the loop checks its inputs in any case.
LONGEST_REST_S: Final = 10.0
# Moments are recorded to the millisecond, and what ends at one has ended just after it.
JUST_AFTER_S: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Readings in a row that were equal to that of a cycle."""

    # When the last of them was requested.
    last: Now
    # How much of the time since the cycle counts for steps: at most one interval between two readings.
    counted_s: float
    # How long each took.
    took_s: tuple[float, ...]

    @property
    def ended_s(self) -> float:
        """The CLOCK_BOOTTIME at which the last of them was finished."""
        return self.last.boottime_s + self.took_s[-1]


def is_quiet(opened: OpenCycle, closed: ClosedCycle) -> bool:
    """Whether running this cycle again with equal inputs would, for some time, change nothing but the time.

    So it took no action, its reading had no gaps, no action is in progress, and nothing remembered depends on the
    number of cycles. Steps may be waiting: `next_change_s` gives the time.
    """
    inputs, snapshot, ledger = opened.inputs, opened.snapshot, closed.plan.ledger
    has_acted = bool(opened.only or closed.began or closed.outcomes)
    has_acted = has_acted or any(entry.taken or entry.is_new for entry in closed.plan.entries)
    is_whole = ledger.last_cycle == snapshot.at
    if has_acted or not is_whole or snapshot.blind or snapshot.gaps or inputs.pods.gaps:
        return False
    has_more_to_come = (
        bool(inputs.unread)
        or any(state.has_action for state in ledger.accounts.values())
        or not ledger.accounts.keys() <= {assessment.account for assessment in opened.assessments}
        or ledger.brakes.opened is not None
        or ledger.trial.opened is not None
        or any(assessment.rule_gap is not None for assessment in opened.assessments)
        or any(not use.container for use in opened.attribution.attributed)
    )
    return not has_more_to_come


def next_change_s(plan: Plan, pods: Iterable[Pod], policy: Policy, at: Now, *, turn_s: float = 0.0) -> float:
    """The next CLOCK_BOOTTIME at which, without changes, a step comes due, or a brake, protection or hours end.

    `turn_s` is when the second of two accounts with the same victim gets its turn.
    """
    waits = [_wait_of(entry, turn_s) for entry in plan.entries]
    repeats_s = {step.repeat_s for rule in policy.rules for step in rule.steps if not step.do.enforces}
    for state in plan.ledger.accounts.values():  # a plan leaves out a warning that would come after an action
        waits += [step.for_s - stretch.counted_s for (_, step), stretch in state.stretches.items()]
        waits += _lefts_s(state.tallies)
        waits += [failures.retry_at_s - at.boottime_s for failures in state.failures.values()]
        waits += [warned_s + repeat_s - at.boottime_s for warned_s in state.warned_s.values() for repeat_s in repeats_s]
    for tallies in plan.ledger.tallies.values():
        waits += _lefts_s(tallies)
    for pod in pods:
        if pod.deletion_deadline_s is None and pod.terminating_since is None:
            continue  # thousands of finished pods can be listed
        since_s = pod.terminating_since.wall_s + MOST_TERMINATING_S if pod.terminating_since else None
        ends = (end_s for end_s in (pod.deletion_deadline_s, since_s) if end_s is not None)
        waits += [end_s - at.wall_s + JUST_AFTER_S for end_s in ends]
    hours = (rule.active for rule in policy.rules if rule.active is not None)
    waits += [span.next_change_s(at.wall_s) - at.wall_s for span in hours]
    return at.boottime_s + min((wait for wait in waits if wait > 0), default=math.inf)


def _lefts_s(tallies: Mapping[StepKey, Tally]) -> Iterator[float]:
    """How long each tally of use above its threshold takes to come due."""
    return (TIMES * step.for_s - tally.counted_s for (_, step), tally in tallies.items() if tally.is_above)


def _wait_of(entry: PlanEntry, turn_s: float) -> float:
    if entry.due_in_s > 0:
        return entry.due_in_s
    return turn_s if entry.withheld_by is Brake.PENDING else entry.releases_in_s or 0.0


def repeated(report: CycleReport, inputs: Inputs, ticks: Ticks) -> CycleReport:
    """The report of a quiet cycle as it would be had the cycle run at each of these ticks."""
    policy, took_s = report.policy, ticks.took_s[-1]
    under = replace(policy, interval_s=max(policy.interval_s, ticks.counted_s))  # an interval is what a reading can add
    return replace(
        report,
        at=ticks.last,
        snapshot=replace(report.snapshot, at=ticks.last),
        plan=decide(report.assessments, report.plan.ledger, ticks.last, replace(inputs, policy=under)),
        scan_s=took_s,
        duration_s=took_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """A quiet cycle while its ticks continue, for any thread."""

    report: CycleReport
    inputs: Inputs
    # Gives those so far; None: there is none.
    ticks: Callable[[], Ticks | None]

    def now(self) -> tuple[CycleReport, Ticks] | None:
        """The report as of the last tick, and the ticks; None: there is none."""
        ticks = self.ticks()
        return None if ticks is None else (repeated(self.report, self.inputs, ticks), ticks)


def are_same(before: Inputs, after: Inputs) -> bool:
    """Whether a cycle would do the same with both; when the pods were last confirmed does not matter, unless too old.

    The policy must be the identical object, since assessments refer to its rules.
    """
    if before.policy is not after.policy:
        return False
    pods = replace(after.pods, synced=before.pods.synced)
    return before == replace(after, pods=pods).as_read_in(before)
