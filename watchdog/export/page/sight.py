"""What the page is made of: the last cycle and what is known beside it, at the moment at which somebody asks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.ledger import AccountState
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.report.figures import Bounds, pods_stale, unlisted
from watchdog.report.next import what_follows
from watchdog.report.status import HealthStatus, RecentStatus
from watchdog.report.text import clock_time

_MOST_NAMED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One moment of a daemon. `report` None: no cycle has finished. `is_still`: the reader has stopped the refreshing.

    `remedies` gives the sentence for a reason of suspension; `now_s` is Unix time, `passed_s` since the cycle looked.
    """

    report: CycleReport | None
    health: HealthStatus
    now_s: float
    passed_s: float = 0.0
    recent: tuple[RecentStatus, ...] = ()
    remedies: Mapping[str, str] = field(default_factory=dict)
    is_still: bool = False

    @cached_property
    def is_stale(self) -> bool:
        """Whether the pod list is too old to act on, so that no time counts."""
        return self.report is not None and pods_stale(self.report)

    @cached_property
    def as_of(self) -> str:
        """Which moment the numbers are of while no cycle ends: `as of 08:00:09 UTC`; empty: they are of now."""
        is_old = self.report is not None and not self.health.turns
        return f"as of {clock_time(self.report.at.wall_s, self.now_s)}" if is_old and self.report is not None else ""

    @cached_property
    def unlisted(self) -> tuple[Gpu, ...]:
        """The GPUs whose processes are not known."""
        return unlisted(self.report) if self.report is not None else ()

    @cached_property
    def entries(self) -> Mapping[AccountKey, list[PlanEntry]]:
        """What would really follow for each account, in the order of the plan."""
        found: defaultdict[AccountKey, list[PlanEntry]] = defaultdict(list)
        for entry in what_follows(self.report.plan.entries) if self.report is not None else ():
            found[entry.account].append(entry)
        return found

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The short name of each GPU, by its UUID: `GPU 3`, of a MIG instance `GPU 3, instance 1`."""
        gpus = self.report.snapshot.gpus if self.report is not None else ()
        return {gpu.uuid: gpu_label(gpu) for gpu in gpus}

    @cached_property
    def at_most(self) -> Mapping[AccountKey, int]:
        """What accounts use at most whose use is not known, for people alone; none where that is not bounded."""
        if self.report is None:
            return {}
        bounds = Bounds.of(self.report)
        found = ((each.account, bounds.used_at_most(each)) for each in self.report.assessments)
        return {account: most for account, most in found if most is not None}

    def state(self, assessment: Assessment) -> AccountState | None:
        """What the ladder remembers of an account."""
        return self.report.plan.ledger.accounts.get(assessment.account) if self.report is not None else None

    def left_s(self, entry: PlanEntry) -> float:
        """Seconds until a step is due, from now on and not from the cycle; never negative."""
        return max(entry.due_in_s - self.passed_s, 0.0)


def named(labels: Sequence[str]) -> str:
    """The first few names of GPUs, and how many more there are."""
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def not_known(gpus: Sequence[Gpu]) -> str:
    """That nobody can say who uses these GPUs; nothing where there are none."""
    return f"What runs on {named([gpu_label(gpu) for gpu in gpus])} is not known." if gpus else ""


def gpu_label(gpu: Gpu) -> str:
    """What people call a GPU."""
    return f"GPU {gpu.index}" if gpu.gi is None else f"GPU {gpu.index}, instance {gpu.gi}"


def account_place(assessment: Assessment, labels: Mapping[str, str]) -> str:
    """Which part of a pod an account is: `container main, GPU 0`; empty: all of it."""
    container, gpu = assessment.account.container, assessment.account.gpu
    parts = [] if container is None else [f"container {container}" if container else "an unknown container"]
    return ", ".join([*parts, *([] if gpu is None else [labels.get(gpu, gpu)])])
