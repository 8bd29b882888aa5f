"""What an account can use at most, where the driver does not tell what it uses: by the counters of its GPUs."""

from collections import defaultdict
from collections.abc import Mapping

from watchdog.core.findings import Assessment, Reason
from watchdog.core.plan import CycleReport


def used_at_most(assessment: Assessment, report: CycleReport) -> int | None:
    """Bytes that an account uses at most; None where its use is known, or where nothing bounds it.

    On each GPU it can use what is in use there, less what is reserved and what others are known to use. It is for
    people alone: nobody is acted on by it, and it may be the use of another whose amount is not known either.
    """
    gpus = report.snapshot.gpus
    if assessment.used is not None or not gpus or report.snapshot.blind:
        return None
    own: defaultdict[str, int] = defaultdict(int)
    for use in assessment.uses:
        own[use.gpu] += use.used or 0
    others, possible, bound = _others(assessment, report), _possible(assessment, report), 0
    for gpu in gpus:
        bound += own[gpu.uuid]
        if gpu.uuid in possible:
            if gpu.used is None:
                return None
            bound += max(gpu.used - (gpu.reserved or 0) - others[gpu.uuid] - own[gpu.uuid], 0)
    return bound


def _possible(assessment: Assessment, report: CycleReport) -> frozenset[str]:
    """The GPUs on which it may use more than is known."""
    every = frozenset(gpu.uuid for gpu in report.snapshot.gpus)
    if assessment.account.gpu is not None:
        return frozenset({assessment.account.gpu})
    silent = {use.gpu for use in assessment.uses if use.used is None}
    hiding = {gpu.uuid for gpu in report.snapshot.gpus if not gpu.listed} | report.snapshot.unseen
    # Whose pod is not known may be of this one.
    strange = {use.gpu for use in report.attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
    return frozenset(silent | hiding | strange) & every or every


def _others(assessment: Assessment, report: CycleReport) -> Mapping[str, int]:
    """What is known to be used by others, by GPU: by other accounts, and by the host itself."""
    others: defaultdict[str, int] = defaultdict(int)
    mine = set(assessment.uses)
    for use in report.attribution.attributed:
        if use not in mine:
            others[use.gpu] += use.used or 0
    for stray in report.attribution.unattributed:
        if stray.reason is Reason.HOST:
            others[stray.gpu] += stray.used or 0
    return others
