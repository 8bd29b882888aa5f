"""Figures that several surfaces show: sums by GPU, and bounds of use that is not known."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from watchdog.core.assessment import Assessment, Reason
from watchdog.core.model import Gap, Gpu, PinnedLimit, ProcessKey, elapsed_s
from watchdog.core.plan import CycleReport
from watchdog.core.residual import residuals_of, total_by_gpu
from watchdog.core.sharing import Sharing, sharing_of
from watchdog.core.units import LARGEST
from watchdog.report.status import PinnedStatus, PinnedTotalStatus


def pods_stale(report: CycleReport) -> bool:
    """Whether the pod list was too old to act on at the cycle, or has never arrived."""
    synced = report.pods.synced
    return synced is None or elapsed_s(synced, report.at) > report.policy.stale_after_s


def unattributed_by_gpu(report: CycleReport) -> dict[str, int | None]:
    """What unattributed processes use on each GPU; None if its processes are not all known."""
    return total_by_gpu(report.snapshot, report.attribution.unattributed)


def residual_by_gpu(report: CycleReport) -> dict[str, int | None]:
    """Used minus reserved minus all processes of each GPU; see `core/residual`."""
    return residuals_of(report.snapshot, report.attribution)


def sharing_by_gpu(report: CycleReport) -> Mapping[str, Sharing | None]:
    """How each GPU is shared, and each card in MIG mode; see `core/sharing`."""
    return sharing_of(report.snapshot, report.attribution, report.node, report.pods.pods)


def all_gaps(report: CycleReport) -> tuple[Gap, ...]:
    """What could not be learned of the node and of its pods."""
    return (*report.snapshot.gaps, *report.pods.gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What bounds the use of a report's accounts, calculated once for all of them."""

    # Without any, nothing is bounded.
    gpus: tuple[Gpu, ...]
    # The known use of each GPU by accounts and by the host, in bytes.
    known: Mapping[str, int]
    # The GPUs on which any account may use more than is known.
    hiding: frozenset[str]

    @classmethod
    def of(cls, report: CycleReport) -> "Bounds":
        """The bounds that a report gives."""
        snapshot, attribution = report.snapshot, report.attribution
        known: defaultdict[str, int] = defaultdict(int)
        for use in attribution.attributed:
            known[use.gpu] += use.used_at_least
        for stray in attribution.unattributed:
            if stray.reason is Reason.HOST:
                known[stray.gpu] += stray.used or 0
        # A process whose pod is unknown may belong to any account.
        unknown = {use.gpu for use in attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
        unlisted = {gpu.uuid for gpu in snapshot.gpus if not gpu.listed}
        return cls(
            gpus=() if snapshot.blind else snapshot.gpus,
            known=dict(known),
            hiding=frozenset(unknown | unlisted | snapshot.unseen) & {gpu.uuid for gpu in snapshot.gpus},
        )

    def used_at_most(self, assessment: Assessment) -> int | None:
        """Bytes that an account of the report uses at most; None if its use is known, or nothing bounds it.

        On each GPU it can use what is in use there, less what is reserved and what others are known to use. It is for
        people only, and leads to no action: it may be the use of another account that is not known either.
        """
        if assessment.used is not None or not self.gpus:
            return None
        own: defaultdict[str, int] = defaultdict(int)
        for use in assessment.uses:
            own[use.gpu] += use.used_at_least
        possible, bound = self._possible(assessment), 0
        for gpu in self.gpus:
            bound += own[gpu.uuid]
            if possible is None or gpu.uuid in possible:
                if gpu.used is None:
                    return None
                # `known` includes the account's own part.
                bound += max(gpu.used - (gpu.reserved or 0) - self.known.get(gpu.uuid, 0), 0)
        return bound

    def _possible(self, assessment: Assessment) -> frozenset[str] | None:
        """The GPUs on which it may use more than is known; None: any."""
        if assessment.account.gpu is not None:
            return frozenset({assessment.account.gpu})
        silent = {use.gpu for use in assessment.uses if use.used is None}
        found = self.hiding | (silent & {gpu.uuid for gpu in self.gpus})
        # If the pod list lags behind, all bytes may be known, but not which account they belong to.
        return found if found or (assessment.behind and not silent) else None


Limits = Mapping[tuple[ProcessKey, str], PinnedLimit]  # of processes, by GPU


def pinned_limit(limit: PinnedLimit | None) -> PinnedStatus | None:
    """The limit of a client on a GPU; None if none is known."""
    if limit is None or limit.limit is None:
        return None
    return PinnedStatus(limit=limit.limit, by_server=limit.by_server, by_client=limit.by_client)


def pinned_total(assessment: Assessment, limits: Limits) -> PinnedTotalStatus | None:
    """The known limits of an account's clients, each client's on all GPUs of the account together."""
    by_client: dict[ProcessKey, int] = {}
    for use in assessment.uses:
        limit = limits.get((use.key, use.gpu))
        if limit is not None and limit.limit is not None:
            by_client[use.key] = by_client.get(use.key, 0) + limit.limit
    if not by_client:
        return None
    together, declared = min(sum(by_client.values()), LARGEST), assessment.declared
    return PinnedTotalStatus(
        clients=len(by_client),
        most=min(max(by_client.values()), LARGEST),
        together=together,
        exceeds_declared=declared is not None and together > declared,
    )


def pinned_by_claim(assessment: Assessment) -> int | None:
    """The largest limit that its pod's claims set for each client of an account, on its GPU; None if they set none."""
    devices = (device for claim in assessment.pod.claims.values() for device in claim.devices)
    gpu = assessment.account.gpu
    own = (each.pinned_limit for each in devices if gpu is None or gpu in (each.uuid, each.parent))
    return max((limit for limit in own if limit is not None), default=None)
