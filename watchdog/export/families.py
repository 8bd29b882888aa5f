"""The metric families: one pass and the tally as Prometheus reads them. Unknown is an absent series, never 0."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import Metric

from watchdog.core.findings import Assessment, Verdict
from watchdog.core.model import Pod
from watchdog.core.plan import CycleReport
from watchdog.export.histogram import Histogram
from watchdog.export.series import Labels, counter, gauge, histogram, info, single
from watchdog.export.sums import Sum, residual_by_gpu, unattributed_by_gpu
from watchdog.export.tally import Tally

_POD: Final = ("namespace", "pod")
_ACCOUNT: Final = ("namespace", "pod", "container", "gpu", "rule")


def gpu_families(report: CycleReport) -> Iterator[Metric]:
    """What is known of each GPU row."""
    snapshot = report.snapshot
    rows = [
        (gpu.uuid, str(gpu.index), gpu.name, snapshot.driver or "", gpu.parent or "", gpu.profile or "")
        for gpu in snapshot.gpus
    ]
    rows += [(each.uuid, str(each.index), each.name, snapshot.driver or "", "", "") for each in snapshot.parents]
    residual, unattributed = residual_by_gpu(report), unattributed_by_gpu(report)
    gpus = [((gpu.uuid,), gpu) for gpu in snapshot.gpus]
    label = ("gpu",)
    yield info("gpu", "GPU rows and MIG parents.", ("gpu", "index", "model", "driver", "parent", "profile"), rows)
    yield gauge("gpu_up", "Whether the GPU answers.", label, ((key, float(gpu.up)) for key, gpu in gpus))
    for name, help_, of in (
        ("total", "Memory of the GPU.", {gpu.uuid: gpu.total for gpu in snapshot.gpus}),
        ("used", "Memory in use, what the driver reserves included.", {gpu.uuid: gpu.used for gpu in snapshot.gpus}),
        ("reserved", "Memory that the driver reserves.", {gpu.uuid: gpu.reserved for gpu in snapshot.gpus}),
        ("residual", "Used minus reserved minus all listed processes; can be negative.", residual),
        ("unattributed", "Memory of the listed processes of no known pod.", unattributed),
    ):
        yield gauge(f"gpu_memory_{name}_bytes", help_, label, ((key, of[key[0]]) for key, _ in gpus))


def pod_families(report: CycleReport, tally: Tally) -> Iterator[Metric]:
    """What containers and pods use.

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
    peaks: dict[Labels, int] = {}
    for pod in (*report.pods.pods, *pods.values()):
        if pod.uid in tally.peaks:
            peaks[_title(pod)] = max(peaks.get(_title(pod), 0), tally.peaks[pod.uid])
    of_container = ("namespace", "pod", "container", "gpu")
    yield gauge("container_memory_used_bytes", "GPU memory of a container.", of_container, _totals(containers))
    yield gauge("pod_memory_used_bytes", "GPU memory of a pod, over all GPUs.", _POD, _totals(used))
    yield gauge("pod_memory_declared_bytes", "GPU memory that a pod declares.", _POD, _totals(declared))
    yield gauge("pod_memory_peak_bytes", "The most that a pod was seen to use.", _POD, peaks.items())


def account_families(report: CycleReport) -> Iterator[Metric]:
    """How accounts stand. Of two with the same labels, the one of the pod that is not terminating is told of."""
    chosen: dict[Labels, Assessment] = {}
    for assessment in report.assessments:
        key = _account_labels(assessment)
        chosen[key] = max(chosen.get(key, assessment), assessment, key=_standing)
    found = chosen.items()
    over = {Verdict.OVER: 1.0, Verdict.WITHIN: 0.0}
    for name, help_, series in (
        ("memory_used_bytes", "GPU memory in use.", [(key, each.used) for key, each in found]),
        ("memory_declared_bytes", "GPU memory declared.", [(key, each.declared) for key, each in found]),
        ("memory_allowed_bytes", "GPU memory allowed.", [(key, each.allowed) for key, each in found]),
        ("over_limit", "Whether more is in use than allowed.", [(key, over.get(each.verdict)) for key, each in found]),
    ):
        yield gauge(f"account_{name}", f"{help_} One series an account.", _ACCOUNT, series)
    verdicts = dict.fromkeys(Verdict, 0)
    for assessment in report.assessments:
        verdicts[assessment.verdict] += 1
    counts = [((verdict.value,), float(number)) for verdict, number in verdicts.items()]
    yield gauge("accounts", "Accounts by their verdict.", ("verdict",), counts)


def state_families(report: CycleReport) -> Iterator[Metric]:
    """How the daemon itself stands."""
    synced = report.pods.synced
    yield single("last_cycle_timestamp_seconds", "When the last pass began.", report.at.wall_s)
    yield single(
        "pods_last_sync_timestamp_seconds",
        "When the pod list was last known to be true.",
        synced.wall_s if synced is not None else None,
    )
    yield single("enforcing", "Whether force is used.", float(report.enforcing))
    yield single(
        "breaker_open", "Whether the breaker holds force back.", float(report.plan.ledger.brakes.opened is not None)
    )
    yield gauge(
        "enforcement_suspended",
        "Told to enforce and not enforcing, by reason.",
        ("reason",),
        [((reason,), 1.0) for reason in report.suspended],
    )
    policy = report.policy
    yield info("policy", "The policy in force.", ("sha256", "mode"), [(policy.sha256, policy.mode)])


def tally_families(tally: Tally) -> Iterator[Metric]:
    """What has been counted since the daemon began."""
    actions, would = ("rule", "action", "result"), ("rule", "action")
    last = [(action.labels, action.wall_s) for action in tally.last_actions]
    yield counter("actions", "Steps that were taken, by what came of them.", actions, tally.actions)
    yield counter("would_act", "Steps that observe mode would have taken.", would, tally.would_act)
    yield counter("withheld", "Steps held back, once an incident and brake.", ("brake",), _keyed(tally.withheld))
    yield counter("scan_gaps", "Things that could not be learned.", ("reason",), _keyed(tally.gaps))
    yield gauge(
        "pod_last_action_timestamp_seconds",
        "When a pod was last acted on; kept 15 minutes after the pod.",
        ("namespace", "pod", "container", "action", "result", "rule"),
        last,
    )
    reactions: dict[Labels, Histogram] = {(action,): each for action, each in tally.reactions.items()}
    yield histogram("reaction_seconds", "From crossing a mark, plus `for`, to the act.", ("action",), reactions)
    yield histogram("release_seconds", "From the first signal to the memory seen free.", (), {(): tally.release})
    yield histogram("scan_duration_seconds", "Reading the node.", (), {(): tally.scan})
    yield histogram("cycle_duration_seconds", "A whole pass.", (), {(): tally.cycle})


def event_families(counts: Mapping[str, int]) -> Metric:
    """What became of the Events on pods; no series where none are written."""
    return counter("events", "Events on pods, by what became of them.", ("result",), _keyed(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """How the last loading of the policy went, and when the last good one was (Unix time)."""

    ok: bool
    success_s: float | None


def reload_families(reload: Reload) -> Iterator[Metric]:
    """How the last loading of the policy went."""
    name = "policy_last_reload"
    yield single(f"{name}_successful", "Whether the policy file, when last read, was good.", float(reload.ok))
    yield single(f"{name}_success_timestamp_seconds", "When a good policy was last read.", reload.success_s)


def _title(pod: Pod) -> Labels:
    return pod.namespace, pod.name


def _account_labels(assessment: Assessment) -> Labels:
    account, rule = assessment.account, assessment.rule
    return (*_title(assessment.pod), account.container or "", account.gpu or "", rule.name if rule is not None else "")


def _standing(assessment: Assessment) -> tuple[bool, int, str]:
    over = assessment.used_at_least - (assessment.allowed or 0)
    return assessment.pod.deletion_deadline_s is None, over, assessment.account.uid


def _totals(sums: Mapping[Labels, Sum]) -> Iterator[tuple[Labels, float | None]]:
    return ((key, each.total) for key, each in sums.items())


def _keyed(counts: Mapping[str, int]) -> dict[Labels, int]:
    return {(key,): number for key, number in counts.items()}
