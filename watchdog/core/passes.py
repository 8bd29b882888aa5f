"""A pass as values: what it takes as given, how far it has come, and what it came to."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from watchdog.core.assess import Setting
from watchdog.core.findings import AccountKey, Assessment, Attribution
from watchdog.core.model import PodList, Snapshot
from watchdog.core.plan import Conditions, Outcome, Plan, PlanEntry
from watchdog.core.unlisted import ContainerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a pass takes as given besides the reading: the pods, the policy and node, brakes, and whether it may act.

    `is_held` says that nobody is acted on for the moment, because the policy may be about to change: what is due stays
    due.
    """

    pods: PodList
    setting: Setting
    conditions: Conditions
    enforcing: bool
    is_held: bool = False

    def acts_on(self, entry: PlanEntry) -> bool:
        """Whether an entry that is let through is acted on: nothing observes, neither the mode nor the rule."""
        return self.enforcing and not entry.assessment.observes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass as far as its plan. `only` are the GPUs to be looked at again before it can act; empty: none.

    `intentions` are the kills and evictions that it is about to begin, by account: the number of each once it is on
    disk, or how it ended before it could begin.
    `overdue` are the containers that the pod list should have had by then and did not.
    """

    view: View
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    scan_s: float
    only: frozenset[str] = frozenset()
    intentions: Mapping[AccountKey, Future[int] | Outcome] = field(default_factory=dict)
    overdue: frozenset[ContainerKey] = frozenset()

    @property
    def is_written(self) -> bool:
        """Whether it is known of each intention whether it is on disk."""
        return all(isinstance(each, Outcome) or each.done() for each in self.intentions.values())

    @property
    def wants_last_look(self) -> bool:
        """Whether there is anything to do that a last look has to bear out."""
        futures = (each for each in self.intentions.values() if not isinstance(each, Outcome))
        is_on_disk = any(each.done() and each.exception() is None for each in futures)
        return is_on_disk or any(entry.trying is not None for entry in self.plan.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What a pass came to: the plan as it stands at the end, what began, and what has ended since the last pass."""

    plan: Plan
    began: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
