"""Figures that several surfaces show: sums by GPU and namespace, and bounds of what is allowed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watchdog.core.assessment import Assessment, Reason
from watchdog.core.model import Gap, Gpu, Snapshot
from watchdog.core.plan import CycleReport
from watchdog.report.text import elapsed_s


@dataclass(slots=True)
class Sum:
    """A sum in progress: `at_least` counts unknown parts as 0, `total` is None once a part is unknown."""

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
    """Whether the pod list was too old to act on at the cycle, or has never been there."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What bounds the accounts of one report: worked out once, so that asking for every account stays cheap.

    `known` is what is known to be used on each GPU, by any account or by the host itself; `hiding` are the GPUs on
    which anybody may use more than is known. Without `gpus` nothing is bounded.
    """

    gpus: tuple[Gpu, ...]
    known: Mapping[str, int]
    hiding: frozenset[str]

    @classmethod
    def of(cls, report: CycleReport) -> "Bounds":
        """The bounds that a report gives."""
        snapshot, attribution = report.snapshot, report.attribution
        known: defaultdict[str, int] = defaultdict(int)
        for use in attribution.attributed:
            known[use.gpu] += use.used or 0
        for stray in attribution.unattributed:
            if stray.reason is Reason.HOST:
                known[stray.gpu] += stray.used or 0
        # Whose pod is not known may be of anyone.
        strange = {use.gpu for use in attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
        unlisted = {gpu.uuid for gpu in snapshot.gpus if not gpu.listed}
        return cls(
            gpus=() if snapshot.blind else snapshot.gpus,
            known=dict(known),
            hiding=frozenset(strange | unlisted | snapshot.unseen) & {gpu.uuid for gpu in snapshot.gpus},
        )

    def used_at_most(self, assessment: Assessment) -> int | None:
        """Bytes that an account of the report uses at most; None where its use is known, or nothing bounds it.

        On each GPU it can use what is in use there, less what is reserved and what others are known to use. It is for
        people alone: nobody is acted on by it, and it may be the use of another whose amount is not known either.
        """
        if assessment.used is not None or not self.gpus:
            return None
        own: defaultdict[str, int] = defaultdict(int)
        for use in assessment.uses:
            own[use.gpu] += use.used or 0
        possible, bound = self._possible(assessment), 0
        for gpu in self.gpus:
            bound += own[gpu.uuid]
            if possible is None or gpu.uuid in possible:
                if gpu.used is None:
                    return None
                # `known` has the account's own part in it.
                bound += max(gpu.used - (gpu.reserved or 0) - self.known.get(gpu.uuid, 0), 0)
        return bound

    def _possible(self, assessment: Assessment) -> frozenset[str] | None:
        """The GPUs on which it may use more than is known; None: any."""
        if assessment.account.gpu is not None:
            return frozenset({assessment.account.gpu})
        silent = {use.gpu for use in assessment.uses if use.used is None}
        found = self.hiding | (silent & {gpu.uuid for gpu in self.gpus})
        # Of one that the pod list lags behind all bytes may be known, and only whose they are is not.
        return found if found or (assessment.behind and not silent) else None
