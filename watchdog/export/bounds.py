"""What an account can use at most, where the driver does not tell what it uses: by the counters of its GPUs."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from watchdog.core.assessment import Assessment, Reason
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport


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
