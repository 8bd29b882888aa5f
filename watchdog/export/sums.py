"""Sums over a report: bytes by GPU, by container and by pod. A sum with an unknown part is unknown (None)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watchdog.core.model import Gap, Gpu, Snapshot
from watchdog.core.plan import CycleReport
from watchdog.export.phrases import elapsed_s


@dataclass(slots=True)
class Sum:
    """A sum under way: `at_least` counts unknown parts as 0, `total` is None once a part is unknown."""

    at_least: int = 0
    known: bool = True

    def add(self, part: int | None) -> None:
        """Add a part, or that a part is unknown."""
        self.at_least += part or 0
        self.known = self.known and part is not None

    @property
    def total(self) -> int | None:
        """The sum in bytes; None if a part is unknown."""
        return self.at_least if self.known else None


def pods_stale(report: CycleReport) -> bool:
    """Whether the pod list was too old to act on at the pass, or has never been there."""
    synced = report.pods.synced
    return synced is None or elapsed_s(synced, report.at) > report.policy.stale_after_s


def _by_gpu(parts: Iterable[tuple[str, int | None]]) -> Mapping[str, Sum]:
    sums: defaultdict[str, Sum] = defaultdict(Sum)
    for gpu, used in parts:
        sums[gpu].add(used)
    return sums


def is_listed(gpu: Gpu, seen: Snapshot) -> bool:
    """Whether all processes of a GPU are known: on WSL a list that came need not be whole."""
    return gpu.listed and gpu.uuid not in seen.unseen


def unlisted(report: CycleReport) -> tuple[Gpu, ...]:
    """The GPUs whose processes are not known: who uses them can't be said."""
    return tuple(gpu for gpu in report.snapshot.gpus if not is_listed(gpu, report.snapshot))


def unattributed_by_gpu(report: CycleReport) -> dict[str, int | None]:
    """What the listed processes of no known pod use on each GPU; None where its processes are not all known."""
    sums = _by_gpu((use.gpu, use.used) for use in report.attribution.unattributed)
    return {gpu.uuid: _total(gpu, sums, report.snapshot) for gpu in report.snapshot.gpus}


def residual_by_gpu(report: CycleReport) -> dict[str, int | None]:
    """Used minus reserved minus all processes of each GPU, never clamped: what the driver itself or UVM holds.

    None where any of the three is unknown. It can be negative, since the numbers are read one after the other.
    """
    theirs = [(use.gpu, use.used) for use in report.attribution.attributed]
    sums = _by_gpu([*theirs, *((use.gpu, use.used) for use in report.attribution.unattributed)])
    return {gpu.uuid: _residual(gpu, _total(gpu, sums, report.snapshot)) for gpu in report.snapshot.gpus}


def _total(gpu: Gpu, sums: Mapping[str, Sum], seen: Snapshot) -> int | None:
    if not is_listed(gpu, seen):
        return None
    return sums[gpu.uuid].total if gpu.uuid in sums else 0


def _residual(gpu: Gpu, processes: int | None) -> int | None:
    if gpu.used is None or gpu.reserved is None or processes is None:
        return None
    return gpu.used - gpu.reserved - processes


def all_gaps(report: CycleReport) -> tuple[Gap, ...]:
    """What could not be learned of the node and of its pods."""
    return (*report.snapshot.gaps, *report.pods.gaps)
