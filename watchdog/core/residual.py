"""The residual of a card: what is in use there and belongs to no listed process, and since when that is much."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watchdog.core.assessment import AttributedUse, Attribution, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, Now, Snapshot, elapsed_s
from watchdog.core.units import format_bytes

# The divisor of a card's memory above which a residual is large: a tenth.
_MUCH: Final = 10
# While a process ends it is no longer listed, and its memory is still in use.
_LASTING_S: Final = 60.0
_REMEDY: Final = (
    "look for programs that use managed (UVM) memory, or that keep memory of a process that has ended "
    "(`lsof /dev/nvidia*` on the node); if there is none, reset the GPU"
)


@dataclass(slots=True)
class Sum:
    """A sum in progress."""

    # The known parts.
    at_least: int = 0
    # False once a part is unknown; `total` is None then.
    known: bool = True

    def add(self, part: int | None) -> None:
        """Add a part, or that a part is unknown."""
        self.at_least += part or 0
        self.known = self.known and part is not None

    @property
    def total(self) -> int | None:
        """The sum in bytes; None if a part is unknown."""
        return self.at_least if self.known else None


def is_listed(gpu: Gpu, snapshot: Snapshot) -> bool:
    """Whether all processes of a GPU are known: on WSL a list can be incomplete."""
    return gpu.listed and gpu.uuid not in snapshot.unseen


def total_by_gpu(snapshot: Snapshot, uses: Iterable[AttributedUse | Unattributed]) -> dict[str, int | None]:
    """What these processes use on each GPU; None if its processes are not all known."""
    sums: defaultdict[str, Sum] = defaultdict(Sum)
    for use in uses:
        sums[use.gpu].add(use.used)
    return {gpu.uuid: sums[gpu.uuid].total if is_listed(gpu, snapshot) else None for gpu in snapshot.gpus}


def residuals_of(snapshot: Snapshot, attribution: Attribution) -> dict[str, int | None]:
    """Used minus reserved minus all processes of each GPU, never clamped: what the driver itself or UVM holds.

    Compute instances that share a memory share its processes here. None if any of the three is unknown. It can be
    negative, since the numbers are read one after the other.
    """
    totals = total_by_gpu(snapshot, (*attribution.attributed, *attribution.unattributed))
    by_memory: defaultdict[tuple[str, int | None], Sum] = defaultdict(Sum)
    for gpu in snapshot.gpus:
        by_memory[gpu.memory].add(totals[gpu.uuid])
    residual: dict[str, int | None] = {}
    for gpu in snapshot.gpus:
        total = by_memory[gpu.memory].total
        is_known = gpu.used is not None and gpu.reserved is not None and total is not None
        residual[gpu.uuid] = (gpu.used or 0) - (gpu.reserved or 0) - (total or 0) if is_known else None
    return residual


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeResiduals:
    """The GPUs with a residual of more than a tenth of their memory."""

    # Since when, by GPU.
    since: Mapping[str, Now] = field(default_factory=dict)
    # How much it is now, in bytes, by GPU.
    amounts: Mapping[str, int] = field(default_factory=dict)

    def after(self, snapshot: Snapshot, attribution: Attribution) -> "LargeResiduals":
        """The memory after one more reading; a GPU whose residual is not known now keeps its time."""
        residuals = residuals_of(snapshot, attribution)
        amounts: dict[str, int] = {}
        since: dict[str, Now] = {}
        for gpu in snapshot.gpus:
            residual = residuals[gpu.uuid]
            if residual is None and gpu.uuid in self.since:
                since[gpu.uuid] = self.since[gpu.uuid]
            elif residual is not None and gpu.total and residual * _MUCH > gpu.total:
                since[gpu.uuid] = self.since.get(gpu.uuid, snapshot.at)
                amounts[gpu.uuid] = residual
        return self if not since and not self.since else LargeResiduals(since=since, amounts=amounts)

    def next_change_s(self, at: Now) -> float:
        """The CLOCK_BOOTTIME at which the next gap would come; infinity if none is to come."""
        waits = (_LASTING_S - elapsed_s(since, at) for since in self.since.values())
        return at.boottime_s + min((wait_s for wait_s in waits if wait_s > 0), default=math.inf)

    def gaps(self, at: Now) -> tuple[Gap, ...]:
        """One gap for each GPU on which that has lasted for a minute."""
        return tuple(
            Gap(reason=GapReason.RESIDUAL, what=f"{gpu} memory in use", problem=_problem(amount), gpu=gpu)
            for gpu, amount in self.amounts.items()
            if elapsed_s(self.since[gpu], at) >= _LASTING_S
        )


def _problem(amount: int) -> Problem:
    cause = f"{format_bytes(amount)} are in use by no listed process, so they count for no pod, and nothing limits them"
    return Problem(cause, _REMEDY)
