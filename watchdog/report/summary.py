"""The summary of a node: the most important of its status, in a document that is small enough to ask many nodes for."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from watchdog.core.policy import Do
from watchdog.report.status import (
    AccountStatus,
    Bytes,
    GpuStatus,
    HourStatus,
    Moment,
    PlanStatus,
    Ratio,
    Seconds,
    Status,
    StatusError,
    decoded,
    decoder_of,
    encode,
)
from watchdog.report.text import inert

# Of the JSON. 500 nodes give at most 2 MB then.
MOST_BYTES: Final = 4096
_LONGEST: Final = 160  # bytes of a text that is no name
_MOST_REASONS: Final = 4
Count = Annotated[int, Meta(ge=0, le=10**6)]
# What is left for accounts, whatever else there is.
_LEAST_FOR_ACCOUNTS: Final = 1536


class GpuSummary(Struct, frozen=True, kw_only=True):
    """A card without MIG, or a MIG instance, by its short name."""

    number: str
    up: bool = False
    total: Bytes | None = None
    used: Bytes | None = None
    # How much of the time it computed; None: unknown.
    utilization: Ratio | None = None
    # A character for each four minutes.
    hour: HourStatus | UnsetType = UNSET


class AccountSummary(Struct, frozen=True, kw_only=True):
    """An account, and what happens to it next."""

    namespace: str
    pod: str
    container: str | None = None
    # The short name of its GPU; None: all of them.
    gpu: str | None = None
    used: Bytes | None = None
    used_at_least: Bytes | None = None
    # Used with what others use of its claim; compared with `allowed`.
    compared: Bytes | None = None
    allowed: Bytes | None = None
    verdict: str = "unknown"
    over_since: Moment | None = None
    # The next step; None: there is none.
    do: Do | None = None
    due_in_s: Seconds | None = None
    withheld_by: str | None = None
    # Whether an action is in progress.
    acting: bool = False
    # How much of the time of its GPUs it used; absent: unknown.
    utilization: Ratio | UnsetType = UNSET
    # For how long it has computed nothing, if that is long enough to be reported.
    idle_s: Seconds | UnsetType = UNSET
    # A character for each four minutes.
    hour: HourStatus | UnsetType = UNSET


class Summary(Struct, frozen=True, kw_only=True):
    """The summary of a node; lists that are cut short say how long they were."""

    node: str
    at: Moment
    version: str = ""
    mode: str = ""
    enforcing: bool = False
    suspended: tuple[str, ...] = ()
    stopped_why: str | None = None
    maintenance: str | None = None
    # When the last cycle ended if the loop hangs; None: it does not.
    hangs_since: Moment | None = None
    pods_stale: bool = False
    breaker_open: bool = False
    # How many data gaps there are, and the first of them.
    gaps: Count = 0
    gap: str | None = None
    # The models of its GPUs, and how many there are of each.
    models: dict[str, int] = {}
    gpus: tuple[GpuSummary, ...] = ()
    gpus_in_all: Count = 0
    # Of all GPUs together; None: that of one is unknown.
    used: Bytes | None = None
    total: Bytes | None = None
    # The mean of all GPUs of which it is known; None: of none.
    utilization: Ratio | None = None
    # The number of accounts by verdict, and of those that hold memory idle.
    verdicts: dict[str, Count] = {}
    idle: Count = 0
    # The most urgent ones first.
    accounts: tuple[AccountSummary, ...] = ()
    accounts_in_all: Count = 0


def summary_of(status: Status) -> Summary:
    """The summary of a status, with as many GPUs and accounts as fit."""
    models = Counter(_short(gpu.model) for gpu in status.gpus).most_common(_MOST_REASONS)
    first = next((_short(f"{gap.what}: {gap.why}") for gap in status.gaps), None)
    made = Summary(
        node=inert(status.node),
        at=status.at,
        version=_short(status.health.version) if status.health is not None else "",
        mode=status.mode,
        enforcing=status.enforcing,
        suspended=tuple(map(_short, status.suspended[:_MOST_REASONS])),
        stopped_why=_short(status.stopped_why) if status.stopped_why else None,
        maintenance=_short(status.maintenance) if status.maintenance else None,
        hangs_since=status.health.hangs_since if status.health is not None else None,
        pods_stale=status.pods_stale,
        breaker_open=status.breaker.open,
        gaps=len(status.gaps),
        gap=first,
        models=dict(models),
        gpus_in_all=len(status.gpus),
        used=_sum([gpu.memory.used for gpu in status.gpus]),
        total=_sum([gpu.memory.total for gpu in status.gpus]),
        utilization=mean(gpu.utilization for gpu in status.gpus),
        verdicts=dict(Counter(account.verdict for account in status.accounts)),
        idle=sum(account.idle for account in status.accounts),
        accounts_in_all=len(status.accounts),
    )
    gpus, left = _fitting(map(_gpu, status.gpus), MOST_BYTES - _LEAST_FOR_ACCOUNTS - len(encoded(made)))
    accounts, _ = _fitting(_accounts(status), left + _LEAST_FOR_ACCOUNTS)
    return structs.replace(made, gpus=gpus, accounts=accounts)


def _sum(parts: list[Bytes | None]) -> Bytes | None:
    return None if None in parts else sum(part or 0 for part in parts)


def mean(ratios: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None: none is."""
    known = [ratio for ratio in ratios if ratio is not None]
    return round(sum(known) / len(known), 3) if known else None


def encoded(value: Struct) -> bytes:
    """The JSON of a summary, or of a part of it."""
    return json.dumps(encode(value), separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="replace")


def _fitting(rows: Iterator[Any], room: int) -> tuple[tuple[Any, ...], int]:
    """The first rows whose JSON fits into `room` bytes, and the bytes that are left."""
    kept = []
    for row in rows:
        size = len(encoded(row)) + 1
        if size > room:
            break
        room -= size
        kept.append(row)
    return tuple(kept), room


def _short(text: str) -> str:
    shown = inert(text, _LONGEST)
    return shown if len(shown.encode("utf-8", errors="replace")) <= _LONGEST else inert(text, _LONGEST // 4)


def _gpu(gpu: GpuStatus) -> GpuSummary:
    memory = gpu.memory
    return GpuSummary(
        number=gpu.number,
        up=gpu.up,
        total=memory.total,
        used=memory.used,
        utilization=gpu.utilization,
        hour=_halved(gpu.hour),
    )


def _is_warning(letter: str) -> bool:
    return letter == Do.WARN.value[0]


def _halved(hour: HourStatus | UnsetType) -> HourStatus | UnsetType:
    """Half as many characters, each for two: the higher level, and rather the mark of an action than of a warning."""
    if not isinstance(hour, HourStatus):
        return hour
    pairs = range(0, len(hour.levels), 2)
    marks = (min(hour.marks[at : at + 2].replace(" ", "") or " ", key=_is_warning) for at in pairs)
    return HourStatus(levels="".join(max(hour.levels[at : at + 2]) for at in pairs), marks="".join(marks).rstrip())


def _accounts(status: Status) -> Iterator[AccountSummary]:
    """The accounts, the most urgent first.

    These are those acted on, then by when their next step is due, by how far they are over, and what is held idle.
    """
    steps: dict[object, PlanStatus] = {}
    for step in status.plan:
        steps.setdefault(step.key, step)
    numbers = {gpu.uuid: gpu.number for gpu in status.gpus}

    def order(account: AccountStatus) -> tuple[bool, bool, float, bool, bool, float, str, str]:
        step = steps.get(account.key)
        over = account.compared - account.allowed if account.allowed is not None else -1
        due_s = float(step.due_in_s) if step is not None else 0.0
        names = account.title, account.container or ""
        is_within = account.verdict != "over"
        return account.under_way is None, step is None, due_s, is_within, is_within and not account.idle, -over, *names

    for account in sorted(status.accounts, key=order):
        following = steps.get(account.key)
        yield AccountSummary(
            namespace=inert(account.namespace),
            pod=inert(account.pod),
            container=None if account.container is None else inert(account.container),
            gpu=None if account.gpu is None else numbers.get(account.gpu, _short(account.gpu)),
            used=account.used,
            used_at_least=account.used_at_least,
            compared=account.compared,
            allowed=account.allowed,
            verdict=account.verdict,
            over_since=account.over_since,
            do=following.do if following is not None else None,
            due_in_s=following.due_in_s if following is not None else None,
            withheld_by=following.withheld_by if following is not None else None,
            acting=account.under_way is not None,
            utilization=UNSET if account.utilization is None else account.utilization,
            idle_s=account.idle_s if account.idle and account.idle_s is not None else UNSET,
            hour=_halved(account.hour),
        )


_SUMMARY: Final = decoder_of(Summary)


def decode_summary(body: bytes) -> Summary:
    """The summary in a JSON document; StatusError names the first place that does not fit."""
    if len(body) > 4 * MOST_BYTES:
        raise StatusError(f"its answer has {len(body)} bytes, and a summary at most {MOST_BYTES}")
    return decoded(body, _SUMMARY)
