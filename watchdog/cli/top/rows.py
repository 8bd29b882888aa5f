"""The rows of the table of accounts, and the amounts in it and in the table of GPUs: what is derived from a status."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from watchdog.cli.top.progress import AccountProgress
from watchdog.report.progress import AccountKey, account_key, steps_by_account
from watchdog.report.status import AccountStatus, GpuStatus, ProcessStatus, RecentStatus, Status, UnattributedStatus
from watchdog.report.text import byte_cell

UNATTRIBUTED: Final = "unattributed processes"
_MOST_PERCENT: Final = 9999


class Signs(NamedTuple):
    """The characters that bars are made of, in the order in which they stand; `least` is `at least`."""

    pods: str
    unattributed: str
    rest: str
    free: str
    least: str


BLOCKS: Final = Signs("█", "▓", "▒", "░", "≥")
ASCII: Final = Signs("#", "=", "-", ".", ">=")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """A row: an account, the short name of the GPU that it is about (empty: all), and what happens to it next.

    The last row is shaped like an account, without a pod, for the processes that belong to none.
    """

    account: AccountStatus
    gpu: str
    progress: AccountProgress
    is_unattributed: bool = False

    @property
    def key(self) -> AccountKey:
        """What names it from one status to the next."""
        return account_key(self.account)

    @property
    def title(self) -> str:
        """The pod as `namespace/name`, with the container and the GPU that the account is about."""
        if self.is_unattributed:
            return UNATTRIBUTED
        container = container_of(self.account)
        return (
            f"{self.account.title}{f' [{container}]' if container else ''}{f' on GPU {self.gpu}' if self.gpu else ''}"
        )


def rows_of(status: Status) -> list[AccountRow]:
    """A row for each account, in the order of the status."""
    steps, labels = steps_by_account(status), labels_of(status)
    return [
        AccountRow(
            account=account,
            gpu="" if account.gpu is None else labels.get(account.gpu) or account.gpu,
            progress=AccountProgress(account=account, steps=steps.get(account_key(account), ()), status=status),
        )
        for account in status.accounts
    ]


def unattributed_row(status: Status) -> AccountRow | None:
    """The row of the processes that belong to no pod, each with its reason as its container; None: there are none."""
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
    return AccountRow(account=account, gpu="", progress=progress, is_unattributed=True)


def labels_of(status: Status) -> Mapping[str, str]:
    """The short name of each GPU by its UUID."""
    return {gpu.uuid: gpu.number for gpu in status.gpus}


def container_of(account: AccountStatus) -> str:
    """The container that an account is about; empty: all of its pod."""
    return "unlisted containers" if account.container == "" else account.container or ""


def recent_title(recent: RecentStatus) -> str:
    """The pod of an action as `namespace/name`, with its container."""
    container = f" [{recent.container}]" if recent.container else ""
    return f"{recent.namespace or ''}/{recent.pod or ''}{container}"


class MemorySum(NamedTuple):
    """A sum of bytes: `total` is None where a part is unknown, and then it is at least `at_least`."""

    total: int | None
    at_least: int


def summed(parts: Iterable[int | None], *, is_whole: bool = True) -> MemorySum:
    """The sum of these; of the known ones where others may be missing."""
    found = list(parts)
    at_least = sum(part for part in found if part is not None)
    return MemorySum(total=at_least if is_whole and None not in found else None, at_least=at_least)


def sums_by_gpu(status: Status) -> Mapping[str, tuple[MemorySum, MemorySum]]:
    """What processes of pods use on each GPU, and what unattributed ones do, by UUID."""
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
    """Whether less than this share of its memory is free; False where that isn't known."""
    total, used = gpu.memory.total, gpu.memory.used
    return bool(total) and used is not None and (total or 0) - used < free_share * (total or 0)


def floor(account: AccountStatus) -> int:
    """What it uses for certain, at the least."""
    return account.least if account.used is None else account.used


def ratio(account: AccountStatus) -> float:
    """What it uses of what it is allowed, at the least; where nothing is allowed any use is infinitely much."""
    if not account.allowed:
        return float("inf") if account.allowed == 0 and floor(account) else 0.0
    return floor(account) / account.allowed


def amount(used: int | None, least: int | None, signs: Signs) -> str:
    """Bytes: `7.0Gi`, `≥7.0Gi` where a part is unknown, or `unknown`."""
    return byte_cell(used) if used is not None or not least else f"{signs.least}{byte_cell(least)}"


def used_of(account: AccountStatus, signs: Signs) -> str:
    """What an account uses."""
    return amount(account.used, account.used_at_least, signs)


def limit(account: AccountStatus, value: int | None) -> str:
    """What is declared or allowed; `-` where there is no limit, rather than one that isn't known."""
    if value is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(value)


def percent(account: AccountStatus, signs: Signs) -> str:
    """What it uses of what it is allowed: `87%`, `≥87%`, `unknown`, or `-` where there is no limit."""
    if account.allowed is None:
        return limit(account, None)
    if account.used is None and not account.least:
        return "unknown"
    least = "" if account.used is not None else signs.least
    share = ratio(account)
    if share > _MOST_PERCENT / 100:
        return f">{_MOST_PERCENT}%"
    whole = int(100 * share) if least else round(100 * share)
    # What is a hair above the limit is not shown as 100%, nor what is a hair below it.
    if whole == 100 and share != 1:
        whole = 101 if share > 1 else 99
    return f"{least}{whole}%"
