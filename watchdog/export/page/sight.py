"""What the page is made of: the last pass and what is known beside it, at the moment at which somebody asks."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.ledger import AccountState
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.export.bounds import used_at_most
from watchdog.export.health import Health
from watchdog.export.outlook import what_follows
from watchdog.export.recent import RecentDeed
from watchdog.export.sums import pods_stale

_MOST_UNKNOWN: Final = 16


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One moment of a daemon. `report` None: no pass has finished. `is_still`: the reader has stopped the refreshing.

    `remedies` gives the sentence for a reason of suspension; `now_s` is Unix time, `passed_s` since the pass looked.
    """

    report: CycleReport | None
    health: Health
    now_s: float
    passed_s: float = 0.0
    recent: tuple[RecentDeed, ...] = ()
    remedies: Mapping[str, str] = field(default_factory=dict)
    is_still: bool = False

    @cached_property
    def is_stale(self) -> bool:
        """Whether the pod list is too old to act on, so that no time counts."""
        return self.report is not None and pods_stale(self.report)

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
        """What accounts use at most whose use is not known, as far as there are few of them: each takes a look at all.

        It is for people alone, and none where that is not bounded.
        """
        report = self.report
        unknown = [each for each in report.assessments if each.used is None] if report is not None else []
        if report is None or len(unknown) > _MOST_UNKNOWN:
            return {}
        bounds = ((each.account, used_at_most(each, report)) for each in unknown)
        return {account: most for account, most in bounds if most is not None}

    def state(self, assessment: Assessment) -> AccountState | None:
        """What the ladder remembers of an account."""
        return self.report.plan.ledger.accounts.get(assessment.account) if self.report is not None else None

    def left_s(self, entry: PlanEntry) -> float:
        """Seconds until a step is due, from now on and not from the pass; never negative."""
        return max(entry.due_in_s - self.passed_s, 0.0)


def gpu_label(gpu: Gpu) -> str:
    """What people call a GPU."""
    return f"GPU {gpu.index}" if gpu.gi is None else f"GPU {gpu.index}, instance {gpu.gi}"


def account_place(assessment: Assessment, labels: Mapping[str, str]) -> str:
    """Which part of a pod an account is: `container main, GPU 0`; empty: all of it."""
    container, gpu = assessment.account.container, assessment.account.gpu
    parts = [] if container is None else [f"container {container}" if container else "an unknown container"]
    return ", ".join([*parts, *([] if gpu is None else [labels.get(gpu, gpu)])])
