"""A pass as values: what it takes as given, how far it has come, and what it came to."""

from dataclasses import dataclass

from watchdog.core.assess import Setting
from watchdog.core.findings import Assessment, Attribution
from watchdog.core.model import PodList, Snapshot
from watchdog.core.plan import Conditions, Outcome, Plan, PlanEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a pass takes as given besides the reading: the pods, the policy and node, brakes, and whether it may act."""

    pods: PodList
    setting: Setting
    conditions: Conditions
    enforcing: bool

    def acts_on(self, entry: PlanEntry) -> bool:
        """Whether an entry that is let through is acted on: nothing observes, neither the mode nor the rule."""
        return self.enforcing and not entry.assessment.observes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass as far as its plan. `only` are the GPUs to be looked at again before it can act; empty: none."""

    view: View
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    scan_s: float
    only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What a pass came to: the plan as it stands at the end, what began, and what has ended since the last pass."""

    plan: Plan
    began: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
