"""The rows of the account table: what each account uses, and what happens to it next, derived from a status."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from watchdog.report.progress import (
    AccountKey,
    account_key,
    brake_short,
    due_short,
    planned_short,
    steps_by_account,
    under_way_short,
)
from watchdog.report.status import (
    AccountStatus,
    GpuStatus,
    PlanStatus,
    ProcessStatus,
    RecentStatus,
    Status,
    UnattributedStatus,
)
from watchdog.report.text import byte_cell


def timers_run(status: Status) -> bool:
    """Whether the timers of steps are running: not while the pod list is stale, during maintenance or in a hang."""
    return not status.pods_stale and status.maintenance is None and status.hangs_since is None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountProgress:
    """What happens to an account next. `steps` are its steps of the plan, in order.

    Methods take the seconds elapsed since the cycle.
    """

    account: AccountStatus
    steps: tuple[PlanStatus, ...]
    status: Status

    @property
    def is_acting(self) -> bool:
        """Whether an action is in progress."""
        return self.account.under_way is not None or self._is_trying

    @property
    def is_waiting(self) -> bool:
        """Whether the next step waits for something other than its time, or is hypothetical."""
        return bool(self.steps and (self.steps[0].withheld_by or self._is_hypothetical or self._is_hung))

    @property
    def next(self) -> PlanStatus | None:
        """The next step, if there is one."""
        return self.steps[0] if self.steps else None

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds until something happens: 0 if it does now, infinite if unknown; None if nothing will."""
        if self.is_acting:
            return 0.0
        if not self.steps:
            return None
        step = self.steps[0]
        held_s = 0.0 if not step.withheld_by else inf if step.lets_go_in_s is None else step.lets_go_in_s
        return inf if self._is_hung else max(max(step.due_in_s, held_s) - elapsed_s, 0.0)

    def short(self, elapsed_s: float) -> str:
        """In a few words: `kill in 4s`, `kill held: owner, 3m`; `-` for nothing."""
        if self.account.under_way is not None:
            return _tight(under_way_short(self.account.under_way, self.status, elapsed_s))
        return _tight(planned_short(self.steps[0], self.account, self.status, elapsed_s)) if self.steps else "-"

    def full(self, elapsed_s: float) -> str:
        """With the threshold, what holds it back and why, and what follows a warning."""
        if self.is_acting:
            return self.short(elapsed_s)
        if not self.steps:
            protected = self.account.protected
            return f"protected, no action is taken: {protected}" if protected else "-"
        first, *others = self.steps
        later = next((step for step in others if step.do.enforces), None) if not first.do.enforces else None
        return "; then ".join(self._step(step, elapsed_s) for step in (first, later) if step is not None)

    @property
    def _is_hung(self) -> bool:
        return self.status.hangs_since is not None

    @property
    def _is_trying(self) -> bool:
        return bool(self.steps and self.steps[0].trying is not None and not self._is_hung)

    @property
    def _is_hypothetical(self) -> bool:
        return self.account.observes or not self.status.enforcing

    @property
    def _would(self) -> str:
        return "would " if self._is_hypothetical else ""

    def _step(self, step: PlanStatus, elapsed_s: float) -> str:
        what = " ".join(filter(None, (step.do, step.scope, f"above {step.above}" if step.above else "")))
        if self._is_hung:
            return f"{what}, postponed until the daemon completes a cycle"
        due = f"{self._would}{what} {due_short(step, elapsed_s)}"
        if not step.withheld_by:
            return due
        will_be = "will be " if step.due_in_s > elapsed_s else ""
        why = f": {step.held_because}" if step.held_because else ""
        return f"{due}, {will_be}held ({brake_short(step, elapsed_s)}){why}"


def _tight(text: str) -> str:
    """`4m 10s` as `4m10s`: columns are narrow."""
    return text.replace("m ", "m").replace("h ", "h")


UNATTRIBUTED: Final = "unattributed processes"
_MOST_PERCENT: Final = 9999


class Signs(NamedTuple):
    """The characters of bars, from left to right; `least` means `at least`."""

    pods: str
    unattributed: str
    rest: str
    free: str
    least: str


BLOCKS: Final = Signs("█", "▓", "▒", "░", "≥")
ASCII: Final = Signs("#", "=", "-", ".", ">=")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """A row: an account, the short name of its GPU (empty: all of them), and what happens to it next.

    The last row may be the unattributed processes: an account without a pod.
    """

    account: AccountStatus
    gpu: str
    progress: AccountProgress
    is_unattributed: bool = False

    @property
    def key(self) -> AccountKey:
        """Identifies it from one status to the next."""
        return account_key(self.account)

    @property
    def title(self) -> str:
        """The pod as `namespace/name`, with the container and the GPU of the account."""
        if self.is_unattributed:
            return UNATTRIBUTED
        container = container_of(self.account)
        return (
            f"{self.account.title}{f' [{container}]' if container else ''}{f' on GPU {self.gpu}' if self.gpu else ''}"
        )


def rows_of(status: Status) -> list[TopRow]:
    """A row for each account, in the order of the status."""
    steps, labels = steps_by_account(status), labels_of(status)
    return [
        TopRow(
            account=account,
            gpu="" if account.gpu is None else labels.get(account.gpu) or account.gpu,
            progress=AccountProgress(account=account, steps=steps.get(account_key(account), ()), status=status),
        )
        for account in status.accounts
    ]


def unattributed_row(status: Status) -> TopRow | None:
    """The row of processes that belong to no pod, each with its reason as its container; None if there are none."""
    uses = status.unattributed
    if not uses:
        return None
    total = summed([use.used for use in uses], is_whole=all(gpu.listed for gpu in status.gpus))
    account = AccountStatus(
        used=total.total,
        used_at_least=total.at_least,
        verdict="",
        processes=tuple(ProcessStatus(pid=use.pid, gpu=use.gpu, used=use.used, container=use.reason) for use in uses),
    )
    progress = AccountProgress(account=account, steps=(), status=status)
    return TopRow(account=account, gpu="", progress=progress, is_unattributed=True)


def labels_of(status: Status) -> Mapping[str, str]:
    """The short name of each GPU by its UUID."""
    return {gpu.uuid: gpu.number for gpu in status.gpus}


def container_of(account: AccountStatus) -> str:
    """The container of an account; empty: the whole pod."""
    return "unlisted containers" if account.container == "" else account.container or ""


def recent_title(recent: RecentStatus) -> str:
    """The pod of an action as `namespace/name`, with its container."""
    container = f" [{recent.container}]" if recent.container else ""
    return f"{recent.namespace or ''}/{recent.pod or ''}{container}"


class MemorySum(NamedTuple):
    """A sum of bytes. `total` is None if a part is unknown; the sum is then at least `at_least`."""

    total: int | None
    at_least: int


def summed(parts: Iterable[int | None], *, is_whole: bool = True) -> MemorySum:
    """The sum of the parts. `is_whole` False: parts may be missing, so the total is unknown."""
    found = list(parts)
    at_least = sum(part for part in found if part is not None)
    return MemorySum(total=at_least if is_whole and None not in found else None, at_least=at_least)


def sums_by_gpu(status: Status) -> Mapping[str, tuple[MemorySum, MemorySum]]:
    """By GPU UUID: what processes of pods use, and what unattributed processes use."""
    pods = _by_gpu(use for account in status.accounts for use in account.processes)
    unattributed = _by_gpu(status.unattributed)
    return {
        gpu.uuid: (
            summed(pods.get(gpu.uuid, ()), is_whole=gpu.listed),
            summed(unattributed.get(gpu.uuid, ()), is_whole=gpu.listed),
        )
        for gpu in status.gpus
    }


def _by_gpu(uses: Iterable[ProcessStatus | UnattributedStatus]) -> Mapping[str, Sequence[int | None]]:
    found: defaultdict[str, list[int | None]] = defaultdict(list)
    for use in uses:
        found[use.gpu].append(use.used)
    return found


def is_short(gpu: GpuStatus, free_share: float) -> bool:
    """Whether less than this share of its memory is free; False if unknown."""
    total, used = gpu.memory.total, gpu.memory.used
    return bool(total) and used is not None and (total or 0) - used < free_share * (total or 0)


def floor(account: AccountStatus) -> int:
    """What it certainly uses, in bytes."""
    return account.least if account.used is None else account.used


def ratio(account: AccountStatus) -> float:
    """The share of its limit that it certainly uses; infinite for any use of a limit of 0."""
    if not account.allowed:
        return float("inf") if account.allowed == 0 and floor(account) else 0.0
    return floor(account) / account.allowed


def amount(used: int | None, least: int | None, signs: Signs) -> str:
    """Bytes: `7.0Gi`, `≥7.0Gi` if a part is unknown, or `unknown`."""
    return byte_cell(used) if used is not None or not least else f"{signs.least}{byte_cell(least)}"


def used_of(account: AccountStatus, signs: Signs) -> str:
    """What an account uses."""
    return amount(account.used, account.used_at_least, signs)


def limit(account: AccountStatus, value: int | None) -> str:
    """What is declared or allowed; `-` if there is no limit, which is not the same as an unknown one."""
    if value is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(value)


def percent(account: AccountStatus, signs: Signs) -> str:
    """The share of its limit that it uses: `87%`, `≥87%`, `unknown`, or `-` without a limit."""
    if account.allowed is None:
        return limit(account, None)
    if account.used is None and not account.least:
        return "unknown"
    least = "" if account.used is not None else signs.least
    share = ratio(account)
    if share > _MOST_PERCENT / 100:
        return f">{_MOST_PERCENT}%"
    whole = int(100 * share) if least else round(100 * share)
    # A hair above or below the limit must not read as exactly 100%.
    if whole == 100 and share != 1:
        whole = 101 if share > 1 else 99
    return f"{least}{whole}%"
