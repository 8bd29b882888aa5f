"""The metric catalogue: each family with its labels and help, and how its series are built."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import Any, Final, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from watchdog.core.assessment import Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.core.plan import Result
from watchdog.report.text import inert

# From a fast signal to a slow disk; releasing the memory of a large GPU takes seconds.
REACTION_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
RELEASE_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
DURATION_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations of durations."""

    # In seconds.
    bounds: tuple[float, ...]
    # Of the observations up to each bound; the last one is for those above all bounds.
    counts: tuple[int, ...] = ()
    # The sum of the observations, in seconds.
    total: float = 0.0

    def observe(self, *observations_s: float) -> "Histogram":
        """The histogram with more observations."""
        counts, total = [*(self.counts or (0,) * (len(self.bounds) + 1))], self.total
        for seconds in observations_s:
            counts[bisect_left(self.bounds, seconds)] += 1
            total += seconds
        return replace(self, counts=tuple(counts), total=total)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, with each bound as Prometheus writes it."""
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        names = (*(repr(bound) for bound in self.bounds), "+Inf")
        return list(zip(names, map(float, accumulate(counts)), strict=True))


def series_of(bounds: tuple[float, ...]) -> int:
    """The number of series of a histogram with these bounds: its buckets including `+Inf`, its sum and its count."""
    return len(bounds) + 3


Labels = tuple[str, ...]
PREFIX: Final = "gpu_watchdog_"


class MetricKind(StrEnum):
    """The type of a family."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"  # exposed as a gauge that is always 1 where the format has no info type


class Per(StrEnum):
    """The thing for which a family has one series each."""

    NODE = "node"
    CARD = "card"  # a GPU or MIG instance, or a card in MIG mode, which is neither
    GPU = "GPU"
    PLACE = "container and GPU"
    POD = "pod"
    ACCOUNT = "account"
    SHARING = "account sharing a claim"
    UNJUDGED = "account not judged"
    HELD = "account withheld"
    NAMESPACE = "namespace"
    ACTION = "action"
    RULE_ACTION = "rule and action"
    ACTED_ON = "pod acted on"
    REASON = "reason"
    MAINTENANCE = "maintenance"  # one while it lasts


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family."""

    # As in queries, without the prefix.
    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    # It has `times` series for each of these.
    per: Per = Per.NODE
    times: int = 1


_CLASSES: Final[Mapping[MetricKind, Any]] = {
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
    MetricKind.INFO: InfoMetricFamily,
}


def metric(family: Family, series: Iterable[tuple[Labels, float | Histogram | None]]) -> Metric:
    """A family with its series; those without a value are omitted, and an `info` shows 1 whatever its value."""
    # The library appends the suffix of the type.
    name = PREFIX + family.name.removesuffix("_total").removesuffix("_info")
    made = _CLASSES[family.kind](name, family.help, labels=family.labels)
    for labels, value in series:
        # A lone surrogate would make encoding the whole page fail.
        printable = [label if label.isprintable() else inert(label) for label in labels]
        if isinstance(value, Histogram):
            made.add_metric(printable, value.buckets, value.total)
        elif value is not None:
            made.add_metric(printable, {} if family.kind is MetricKind.INFO else value)
    return cast("Metric", made)


def single(family: Family, value: float | Histogram | None) -> Metric:
    """A family without labels."""
    return metric(family, [((), value)])


RESULTS: Final = tuple(result for result in Result if result is not Result.OBSERVED)

_ACCOUNT: Final = ("namespace", "pod", "container", "gpu", "rule")
_of_gpu: Final = partial(Family, labels=("gpu",), per=Per.GPU)
_of_pod: Final = partial(Family, labels=("namespace", "pod"), per=Per.POD)
_of_account: Final = partial(Family, labels=_ACCOUNT, per=Per.ACCOUNT)
_counter: Final = partial(Family, kind=MetricKind.COUNTER)
_histogram: Final = partial(Family, kind=MetricKind.HISTOGRAM)
_info: Final = partial(Family, kind=MetricKind.INFO)

GPU_INFO: Final = _info(
    "gpu_info",
    "Always 1. A card in MIG mode has only this series; `parent` and `profile` are set for its instances. `sharing` is "
    "empty until the node's object is known.",
    labels=("gpu", "index", "model", "driver", "parent", "profile", "sharing"),
    per=Per.CARD,
)
GPU_UP: Final = _of_gpu(
    "gpu_up", "1 while the GPU responds; 0 if it does not, while a driver call hangs, and during maintenance."
)
GPU_TOTAL: Final = _of_gpu("gpu_memory_total_bytes", "Size of the GPU or MIG instance.")
GPU_USED: Final = _of_gpu("gpu_memory_used_bytes", "In use, including what the driver reserves for itself.")
GPU_RESERVED: Final = _of_gpu(
    "gpu_memory_reserved_bytes",
    "Reserved by the driver for itself; absent if the driver does not report it separately.",
)
GPU_RESIDUAL: Final = _of_gpu(
    "gpu_memory_residual_bytes",
    "Used - reserved - all listed processes: managed (UVM) memory, contexts being destroyed. Never clamped: it can be "
    "negative, by what changes between two driver calls.",
)
GPU_UNATTRIBUTED: Final = _of_gpu(
    "gpu_memory_unattributed_bytes",
    "Used by listed processes that belong to no known pod: host processes, unknown pods, zombies, MPS servers.",
)
GPU_UTILIZATION: Final = _of_gpu(
    "gpu_utilization_ratio",
    "Share of the last ten seconds or so in which the GPU computed, or moved memory, encoded or decoded if that is "
    "more. Absent where unknown: MIG instances, vGPU guests, drivers that do not report it or take too long to.",
)

CONTAINER_UTILIZATION: Final = Family(
    "container_gpu_utilization_ratio",
    "Share of the GPU's time in which the container's processes used it, over the last ten seconds or so. Absent where "
    "unknown, also while the driver says 0 of every process on a GPU that computes.",
    labels=("namespace", "pod", "container", "gpu"),
    per=Per.PLACE,
)
CONTAINER_USED: Final = Family(
    "container_memory_used_bytes",
    "Use by container and GPU; `container` is empty for processes of a container that is not in the pod list yet.",
    labels=("namespace", "pod", "container", "gpu"),
    per=Per.PLACE,
)
POD_USED: Final = _of_pod(
    "pod_memory_used_bytes", "Use of a pod over all its containers and GPUs; absent while any part of it is unknown."
)
POD_DECLARED: Final = _of_pod(
    "pod_memory_declared_bytes", "Declared by a pod, or its rule's default, over all its GPUs."
)
POD_PEAK: Final = _of_pod("pod_memory_peak_bytes", "Peak use of a pod since this daemon started.")

ACCOUNT_USED: Final = _of_account(
    "account_memory_used_bytes", "Use of an account; `container` and `gpu` are empty if it covers the whole pod."
)
ACCOUNT_DECLARED: Final = _of_account("account_memory_declared_bytes", "Declared by an account, or its rule's default.")
ACCOUNT_ALLOWED: Final = _of_account(
    "account_memory_allowed_bytes", "The limit of an account: declared plus allowance."
)
ACCOUNT_BESIDE: Final = _of_account(
    "account_memory_used_beside_bytes",
    "What others certainly use of a resource claim that they share with an account: compared with the limit together "
    "with its own use. Absent if there is none.",
    per=Per.SHARING,
)
ACCOUNT_OVER: Final = _of_account(
    "account_over_limit",
    "1 over the limit, 0 within; absent if that can't be determined (undeclared, misdeclared, unknown).",
)
ACCOUNT_VERDICT: Final = Family(
    "account_verdict",
    "Always 1: the verdict on an account that is neither within nor over. Also unknown while its container is not in "
    "the pod list; absent while it declares nothing and uses nothing.",
    labels=(*_ACCOUNT, "verdict"),
    per=Per.UNJUDGED,
)
ACCOUNT_WITHHELD: Final = Family(
    "account_withheld",
    "Always 1: the brake that is withholding a due kill or eviction; absent otherwise. `pending` is present while an "
    "earlier action is in progress.",
    labels=(*_ACCOUNT, "brake"),
    per=Per.HELD,
)
ACCOUNT_IDLE: Final = _of_account(
    "account_idle_seconds",
    "For how long an account that uses more than `[idle] above` has computed nothing for certain; 0 if it computes. "
    "Unknown time does not count. Absent where unknown.",
)
CARD_SECONDS: Final = _counter(
    "namespace_card_seconds_total",
    "Cards times seconds, by the share of each card's memory that pods of a namespace held. `held` is all of it; "
    "`computing` the part whose share of the card's time they used, `idle` the part whose share they did not. The rest "
    "of `held` is unknown.",
    labels=("namespace", "state"),
    per=Per.NAMESPACE,
    times=3,
)
ACCOUNTS: Final = Family(
    "accounts", "Accounts by verdict; every verdict is present.", labels=("verdict",), times=len(Verdict)
)

ACTIONS: Final = _counter(
    "actions_total",
    "Steps taken, by result. Starts at 0 for everything the rules can do.",
    labels=("rule", "action", "result"),
    per=Per.RULE_ACTION,
    times=len(RESULTS),
)
WOULD_ACT: Final = _counter(
    "would_act_total",
    "Steps that observe mode would have taken; kill and evict once per incident. Starts at 0.",
    labels=("rule", "action"),
    per=Per.RULE_ACTION,
)
WITHHELD: Final = _counter(
    "withheld_total",
    "Steps that were due and withheld, once per incident and brake. Starts at 0 for each brake.",
    labels=("brake",),
    times=len(Brake),
)
LAST_ACTION: Final = Family(
    "pod_last_action_timestamp_seconds",
    "When an action on a pod last got this result, as Unix time (done: when its memory was free, or no longer waited "
    "for); kept for 15 minutes after the pod is gone. A daemon that starts has the actions of the previous 15 minutes.",
    labels=("namespace", "pod", "container", "action", "result", "rule"),
    per=Per.ACTED_ON,
)
REACTION: Final = _histogram(
    "reaction_seconds",
    "From the last reading not above the threshold, plus the step's `for`, to the action: an upper bound, since the "
    "threshold was crossed somewhere in between.",
    labels=("action",),
    per=Per.ACTION,
    times=series_of(REACTION_S),
)
RELEASE: Final = _histogram(
    "release_seconds",
    "From the first signal, or the acceptance of an eviction, until the memory was seen free.",
    times=series_of(RELEASE_S),
)
EVENTS: Final = _counter(
    "events_total",
    "Events on pods: written, limited (too many for one pod), refused (rejected by the API server), dropped (too many "
    "were waiting, or one could not be written in an hour or in 12 tries). Absent without the API.",
    labels=("result",),
    times=4,
)

LAST_CYCLE: Final = Family(
    "last_cycle_timestamp_seconds",
    "When the last finished cycle read the node, as Unix time; absent until one has finished.",
)
PODS_SYNC: Final = Family(
    "pods_last_sync_timestamp_seconds",
    "When the pod list was last known to be current, as Unix time; absent without one.",
)
SCAN_DURATION: Final = _histogram(
    "scan_duration_seconds", "How long reading the driver and /proc took.", times=series_of(DURATION_S)
)
CYCLE_DURATION: Final = _histogram(
    "cycle_duration_seconds",
    "How long a whole cycle took, starting with the driver query.",
    times=series_of(DURATION_S),
)
GAPS: Final = _counter(
    "scan_gaps_total",
    "Data gaps, counted in each cycle while they last. Starts at 0 for each reason.",
    labels=("reason",),
    times=len(GapReason),
)
CYCLE_LATE: Final = _counter(
    "cycle_late_total",
    "Cycles that took longer than the policy's `interval`. Each is a data gap with the reason `cycle_late` as well.",
)
ENFORCING: Final = Family(
    "enforcing",
    "1 while enforcing, 0 while only observing. Stays 1 while the pod list is too old to act on and while a driver "
    "call hangs; see `pods_last_sync_timestamp_seconds` and `last_cycle_timestamp_seconds`.",
)
SUSPENDED: Final = Family(
    "enforcement_suspended",
    "1 while the policy says enforce and enforcement is suspended, one series per reason; absent otherwise.",
    labels=("reason",),
    per=Per.REASON,
)
MAINTENANCE_SINCE: Final = Family(
    "maintenance_since_timestamp_seconds",
    "When the maintenance of the GPUs began, or was first seen, as Unix time; absent without maintenance. A restart of "
    "the daemon does not change it.",
    per=Per.MAINTENANCE,
)
MAINTENANCE_ALERT_AFTER: Final = Family(
    "maintenance_alert_after_seconds",
    "How long maintenance of the GPUs may last before an alert fires: `[maintenance] alert_after` of the policy.",
)
IDLE_AFTER: Final = Family(
    "idle_after_seconds",
    "From when on an account that holds memory and computes nothing is reported: `[idle] after` of the policy. Absent "
    "if none is.",
)
BREAKER_OPEN: Final = Family(
    "breaker_open", "1 while the breaker is open or half open, so that kills and evictions are withheld."
)
PULSE_ACTIVE: Final = Family(
    "pulse_active",
    "1 while memory counters are read between readings; 0 while they are not although the policy has `[pulse]`: "
    "nothing is enforced, no rule acts within a second, no card has a counter, or reading them takes too long. Absent "
    "without `[pulse]`.",
)
PULSE_LOOKS_SPENT: Final = _counter(
    "pulse_looks_spent_total",
    "Rises of memory counters that brought no reading forward at once, since the looks of their cards were spent.",
)
POLICY_INFO: Final = _info("policy_info", "Always 1: the current policy.", labels=("sha256", "mode"))
RELOAD_OK: Final = Family(
    "policy_last_reload_successful",
    "0 while the policy file on disk has errors or is still being written: the previous policy stays in effect.",
)
RELOAD_TIME: Final = Family(
    "policy_last_reload_success_timestamp_seconds", "When a valid policy was last loaded, as Unix time."
)
BUILD_INFO: Final = _info("build_info", "Always 1: this daemon.", labels=("version", "python"))

SECTIONS: Final = {
    "gpus": (GPU_INFO, GPU_UP, GPU_TOTAL, GPU_USED, GPU_RESERVED, GPU_UNATTRIBUTED, GPU_RESIDUAL, GPU_UTILIZATION),
    "pods": (
        *(CONTAINER_USED, CONTAINER_UTILIZATION, POD_USED, POD_DECLARED, POD_PEAK),
        *(ACCOUNT_USED, ACCOUNT_BESIDE, ACCOUNT_DECLARED, ACCOUNT_ALLOWED),
        *(ACCOUNT_OVER, ACCOUNT_VERDICT, ACCOUNT_WITHHELD, ACCOUNT_IDLE, ACCOUNTS, CARD_SECONDS),
    ),
    "actions": (ACTIONS, WOULD_ACT, WITHHELD, LAST_ACTION, REACTION, RELEASE, EVENTS),
    "self": (
        *(LAST_CYCLE, PODS_SYNC, SCAN_DURATION, CYCLE_DURATION, CYCLE_LATE, GAPS, ENFORCING, SUSPENDED, BREAKER_OPEN),
        *(MAINTENANCE_SINCE, MAINTENANCE_ALERT_AFTER, IDLE_AFTER, PULSE_ACTIVE, PULSE_LOOKS_SPENT),
        *(POLICY_INFO, RELOAD_OK, RELOAD_TIME, BUILD_INFO),
    ),
}
FAMILIES: Final = tuple(family for section in SECTIONS.values() for family in section)
