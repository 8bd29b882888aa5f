"""The metric families of a pass: what Prometheus reads of it. Unknown is an absent series, never 0."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.model import Pod
from watchdog.core.plan import CycleReport
from watchdog.export import catalogue as of
from watchdog.export.series import Labels, gauge, info, single
from watchdog.export.sums import Sum, residual_by_gpu, unattributed_by_gpu

_OVER: Final = {Verdict.OVER: 1.0, Verdict.WITHIN: 0.0}


def gpu_families(report: CycleReport) -> Iterator[Metric]:
    """What is known of each GPU row."""
    snapshot = report.snapshot
    rows = [
        (gpu.uuid, str(gpu.index), gpu.name, snapshot.driver or "", gpu.parent or "", gpu.profile or "")
        for gpu in snapshot.gpus
    ]
    rows += [(each.uuid, str(each.index), each.name, snapshot.driver or "", "", "") for each in snapshot.parents]
    yield info(of.GPU_INFO, rows)
    gpus = [((gpu.uuid,), gpu) for gpu in snapshot.gpus]
    yield gauge(of.GPU_UP, ((key, float(gpu.up)) for key, gpu in gpus))
    yield gauge(of.GPU_TOTAL, ((key, gpu.total) for key, gpu in gpus))
    yield gauge(of.GPU_USED, ((key, gpu.used) for key, gpu in gpus))
    yield gauge(of.GPU_RESERVED, ((key, gpu.reserved) for key, gpu in gpus))
    residual, unattributed = residual_by_gpu(report), unattributed_by_gpu(report)
    yield gauge(of.GPU_UNATTRIBUTED, ((key, unattributed[gpu.uuid]) for key, gpu in gpus))
    yield gauge(of.GPU_RESIDUAL, ((key, residual[gpu.uuid]) for key, gpu in gpus))


def pod_families(report: CycleReport, peaks: Mapping[str, int]) -> Iterator[Metric]:
    """What containers and pods use; `peaks` are the most that pods have used, in bytes, by UID.

    Two pods of one name (a recreated one while the old one is still terminating) are one series: their sum, since both
    are on the card, and the larger of their peaks.
    """
    pods = {assessment.account.uid: assessment.pod for assessment in report.assessments}
    containers: dict[Labels, Sum] = {}
    for use in report.attribution.attributed:
        if use.uid in pods:
            key = (*_title(pods[use.uid]), use.container, use.gpu)
            containers.setdefault(key, Sum()).add(use.used)
    used: dict[Labels, Sum] = {}
    declared: dict[Labels, Sum] = {}
    for assessment in report.assessments:
        title = _title(assessment.pod)
        used.setdefault(title, Sum()).add(assessment.used)
        if assessment.declared is not None or assessment.verdict is Verdict.MISDECLARED:
            declared.setdefault(title, Sum()).add(assessment.declared)
    yield gauge(of.CONTAINER_USED, _totals(containers))
    yield gauge(of.POD_USED, _totals(used))
    yield gauge(of.POD_DECLARED, _totals(declared))
    yield gauge(of.POD_PEAK, _peaks((*report.pods.pods, *pods.values()), peaks).items())


def account_families(report: CycleReport) -> Iterator[Metric]:
    """How accounts stand. Of two with the same labels, the one of the pod that is not terminating is told of."""
    chosen: dict[Labels, Assessment] = {}
    for assessment in report.assessments:
        key = _account_labels(assessment)
        chosen[key] = max(chosen.get(key, assessment), assessment, key=_standing)
    found = chosen.items()
    yield gauge(of.ACCOUNT_USED, ((key, each.used) for key, each in found))
    yield gauge(of.ACCOUNT_DECLARED, ((key, each.declared) for key, each in found))
    yield gauge(of.ACCOUNT_ALLOWED, ((key, each.allowed) for key, each in found))
    yield gauge(of.ACCOUNT_OVER, ((key, _OVER.get(each.verdict)) for key, each in found))
    unjudged = ((key, _unjudged(each)) for key, each in found)
    yield gauge(of.ACCOUNT_VERDICT, (((*key, verdict.value), 1.0) for key, verdict in unjudged if verdict is not None))
    due = [entry for entry in report.plan.entries if entry.due_in_s <= 0 and entry.withheld_by is not None]
    held = dict.fromkeys((*_account_labels(entry.assessment), f"{entry.withheld_by}") for entry in due)
    yield gauge(of.ACCOUNT_WITHHELD, ((key, 1.0) for key in held))
    verdicts = dict.fromkeys(Verdict, 0)
    for assessment in report.assessments:
        verdicts[assessment.verdict] += 1
    yield gauge(of.ACCOUNTS, (((verdict.value,), float(number)) for verdict, number in verdicts.items()))


def state_families(report: CycleReport) -> Iterator[Metric]:
    """How the daemon itself stands."""
    synced = report.pods.synced
    yield single(of.LAST_CYCLE, report.at.wall_s)
    yield single(of.PODS_SYNC, synced.wall_s if synced is not None else None)
    yield single(of.ENFORCING, float(report.enforcing))
    yield gauge(of.SUSPENDED, (((reason,), 1.0) for reason in report.suspended))
    yield single(of.BREAKER_OPEN, float(report.plan.ledger.brakes.opened is not None))
    yield info(of.POLICY_INFO, [(report.policy.sha256, report.policy.mode)])


def _peaks(pods: tuple[Pod, ...], peaks: Mapping[str, int]) -> dict[Labels, int]:
    found: dict[Labels, int] = {}
    for pod in pods:
        if pod.uid in peaks:
            found[_title(pod)] = max(found.get(_title(pod), 0), peaks[pod.uid])
    return found


def _title(pod: Pod) -> Labels:
    return pod.namespace, pod.name


def _account_labels(assessment: Assessment) -> Labels:
    account, rule = assessment.account, assessment.rule
    return (*_title(assessment.pod), account.container or "", account.gpu or "", rule.name if rule is not None else "")


def _unjudged(assessment: Assessment) -> Verdict | None:
    """Why an account is neither within nor over; None where it is one of them, or there is nothing to judge."""
    if assessment.verdict in _OVER:
        return None
    if assessment.account.container == "":
        # What a container declares that the pod list does not have yet is not known: its pod must not be blamed.
        return Verdict.UNKNOWN
    if assessment.verdict is Verdict.UNDECLARED and assessment.used == 0:
        return None
    return assessment.verdict


def _standing(assessment: Assessment) -> tuple[bool, int, str]:
    over = assessment.used_at_least - (assessment.allowed or 0)
    return assessment.pod.deletion_deadline_s is None, over, assessment.account.uid


def _totals(sums: Mapping[Labels, Sum]) -> Iterator[tuple[Labels, float | None]]:
    return ((key, each.total) for key, each in sums.items())
