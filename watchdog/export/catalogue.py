"""The metric catalogue: each family with its labels and help, and how its series are built."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Final, assert_never

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
    """Counts of observations up to each bound in seconds, the last one for those above all bounds, and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...] = ()
    total: float = 0.0

    def observe(self, seconds: float) -> "Histogram":
        """The histogram with one more observation."""
        place = bisect_left(self.bounds, seconds)
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        counts = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
        return replace(self, counts=counts, total=self.total + seconds)

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
    UNJUDGED = "account not judged"
    HELD = "account held back"
    ACTION = "action"
    RULE_ACTION = "rule and action"
    ACTED_ON = "pod acted on"
    REASON = "reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric family: its name as in queries, without the prefix, and its help.

    It has `times` series for each `per`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    per: Per = Per.NODE
    times: int = 1


def gauge(family: Family, series: Iterable[tuple[Labels, float | None]]) -> Metric:
    """A gauge; series without a value are omitted."""
    made = GaugeMetricFamily(PREFIX + family.name, family.help, labels=family.labels)
    for values, value in series:
        if value is not None:
            made.add_metric(_inert(values), value)
    return made


def single(family: Family, value: float | None) -> Metric:
    """A gauge without labels."""
    return gauge(family, [((), value)])


def info(family: Family, series: Iterable[Labels]) -> Metric:
    """Series whose value is always 1."""
    made = InfoMetricFamily(_bare(family), family.help, labels=family.labels)
    for values in series:
        made.add_metric(_inert(values), {})
    return made


def counter(family: Family, series: Mapping[Labels, int]) -> Metric:
    """A counter."""
    made = CounterMetricFamily(_bare(family), family.help, labels=family.labels)
    for values, value in series.items():
        made.add_metric(_inert(values), value)
    return made


def histogram(family: Family, series: Mapping[Labels, Histogram]) -> Metric:
    """A histogram of seconds."""
    made = HistogramMetricFamily(PREFIX + family.name, family.help, labels=family.labels)
    for values, value in series.items():
        made.add_metric(_inert(values), value.buckets, value.total)
    return made


def _bare(family: Family) -> str:
    """The name for the library, which appends the suffix of the type."""
    match family.kind:
        case MetricKind.COUNTER:
            return PREFIX + family.name.removesuffix("_total")
        case MetricKind.INFO:
            return PREFIX + family.name.removesuffix("_info")
        case MetricKind.GAUGE | MetricKind.HISTOGRAM:
            return PREFIX + family.name
        case _:
            assert_never(family.kind)


def _inert(values: Labels) -> list[str]:
    # A lone surrogate would make encoding the whole page fail.
    return [value if value.isprintable() else inert(value) for value in values]


RESULTS: Final = tuple(result for result in Result if result is not Result.OBSERVED)

_CARD: Final = ("gpu", "index", "model", "driver", "parent", "profile")
_PLACE: Final = ("namespace", "pod", "container", "gpu")
_POD: Final = ("namespace", "pod")
_ACCOUNT: Final = ("namespace", "pod", "container", "gpu", "rule")

GPU_INFO: Final = Family(
    name="gpu_info",
    help="Always 1. A card in MIG mode has only this series; `parent` and `profile` are set for its instances.",
    labels=_CARD,
    kind=MetricKind.INFO,
    per=Per.CARD,
)
GPU_UP: Final = Family(
    name="gpu_up",
    help="1 while the GPU responds; 0 if it does not, while a driver call hangs, and during maintenance.",
    labels=("gpu",),
    per=Per.GPU,
)
GPU_TOTAL: Final = replace(GPU_UP, name="gpu_memory_total_bytes", help="Size of the GPU or MIG instance.")
GPU_USED: Final = replace(
    GPU_UP, name="gpu_memory_used_bytes", help="In use, including what the driver reserves for itself."
)
GPU_RESERVED: Final = replace(
    GPU_UP,
    name="gpu_memory_reserved_bytes",
    help="Reserved by the driver for itself; absent if the driver does not report it separately.",
)
GPU_RESIDUAL: Final = replace(
    GPU_UP,
    name="gpu_memory_residual_bytes",
    help="Used - reserved - all listed processes: managed (UVM) memory, contexts being destroyed. Never clamped: it "
    "can be negative, by what changes between two driver calls.",
)
GPU_UNATTRIBUTED: Final = replace(
    GPU_UP,
    name="gpu_memory_unattributed_bytes",
    help="Used by listed processes that belong to no known pod: host processes, unknown pods, zombies, MPS servers.",
)

CONTAINER_USED: Final = Family(
    name="container_memory_used_bytes",
    help="Use by container and GPU; `container` is empty for processes of a container that is not in the pod list yet.",
    labels=_PLACE,
    per=Per.PLACE,
)
POD_USED: Final = Family(
    name="pod_memory_used_bytes",
    help="Use of a pod over all its containers and GPUs; absent while any part of it is unknown.",
    labels=_POD,
    per=Per.POD,
)
POD_DECLARED: Final = replace(
    POD_USED, name="pod_memory_declared_bytes", help="Declared by a pod, or its rule's default, over all its GPUs."
)
POD_PEAK: Final = replace(POD_USED, name="pod_memory_peak_bytes", help="Peak use of a pod since this daemon started.")

ACCOUNT_USED: Final = Family(
    name="account_memory_used_bytes",
    help="Use of an account; `container` and `gpu` are empty if it covers the whole pod.",
    labels=_ACCOUNT,
    per=Per.ACCOUNT,
)
ACCOUNT_DECLARED: Final = replace(
    ACCOUNT_USED, name="account_memory_declared_bytes", help="Declared by an account, or its rule's default."
)
ACCOUNT_ALLOWED: Final = replace(
    ACCOUNT_USED,
    name="account_memory_allowed_bytes",
    help="The limit of an account: declared plus allowance.",
)
ACCOUNT_OVER: Final = replace(
    ACCOUNT_USED,
    name="account_over_limit",
    help="1 over the limit, 0 within; absent if that can't be determined (undeclared, misdeclared, unknown).",
)
ACCOUNT_VERDICT: Final = replace(
    ACCOUNT_USED,
    name="account_verdict",
    help="Always 1: the verdict on an account that is neither within nor over. Also unknown while its container is not "
    "in the pod list; absent while it declares nothing and uses nothing.",
    labels=(*_ACCOUNT, "verdict"),
    per=Per.UNJUDGED,
)
ACCOUNT_WITHHELD: Final = replace(
    ACCOUNT_USED,
    name="account_withheld",
    help="Always 1: the brake that is withholding a due kill or eviction; absent otherwise. `pending` is present while "
    "an earlier action is in progress.",
    labels=(*_ACCOUNT, "brake"),
    per=Per.HELD,
)
ACCOUNTS: Final = Family(
    name="accounts", help="Accounts by verdict; every verdict is present.", labels=("verdict",), times=len(Verdict)
)

ACTIONS: Final = Family(
    name="actions_total",
    help="Steps taken, by result. Starts at 0 for everything the rules can do.",
    labels=("rule", "action", "result"),
    kind=MetricKind.COUNTER,
    per=Per.RULE_ACTION,
    times=len(RESULTS),
)
WOULD_ACT: Final = Family(
    name="would_act_total",
    help="Steps that observe mode would have taken; kill and evict once per incident. Starts at 0.",
    labels=("rule", "action"),
    kind=MetricKind.COUNTER,
    per=Per.RULE_ACTION,
)
WITHHELD: Final = Family(
    name="withheld_total",
    help="Steps that were due and withheld, once per incident and brake. Starts at 0 for each brake.",
    labels=("brake",),
    kind=MetricKind.COUNTER,
    times=len(Brake),
)
LAST_ACTION: Final = Family(
    name="pod_last_action_timestamp_seconds",
    help="When a pod was last acted on, as Unix time; kept for 15 minutes after the pod is gone. A daemon that starts "
    "has the actions of the previous 15 minutes.",
    labels=("namespace", "pod", "container", "action", "result", "rule"),
    per=Per.ACTED_ON,
)
REACTION: Final = Family(
    name="reaction_seconds",
    help="From the last reading not above the threshold, plus the step's `for`, to the action: an upper bound, since "
    "the threshold was crossed somewhere in between.",
    labels=("action",),
    kind=MetricKind.HISTOGRAM,
    per=Per.ACTION,
    times=series_of(REACTION_S),
)
RELEASE: Final = Family(
    name="release_seconds",
    help="From the first signal until the memory was seen free.",
    kind=MetricKind.HISTOGRAM,
    times=series_of(RELEASE_S),
)
EVENTS: Final = Family(
    name="events_total",
    help="Events on pods: written, limited (too many for one pod), refused (rejected by the API server), dropped (too "
    "many were waiting, or the API server was unreachable for an hour). Absent without the API.",
    labels=("result",),
    kind=MetricKind.COUNTER,
    times=4,
)

LAST_CYCLE: Final = Family(
    name="last_cycle_timestamp_seconds",
    help="When the last finished cycle read the node, as Unix time; absent until one has finished.",
)
PODS_SYNC: Final = Family(
    name="pods_last_sync_timestamp_seconds",
    help="When the pod list was last known to be current, as Unix time; absent without one.",
)
SCAN_DURATION: Final = Family(
    name="scan_duration_seconds",
    help="How long reading the driver and /proc took.",
    kind=MetricKind.HISTOGRAM,
    times=series_of(DURATION_S),
)
CYCLE_DURATION: Final = replace(
    SCAN_DURATION, name="cycle_duration_seconds", help="How long a whole cycle took, starting with the driver query."
)
GAPS: Final = Family(
    name="scan_gaps_total",
    help="Data gaps, counted in each cycle while they last. Starts at 0 for each reason.",
    labels=("reason",),
    kind=MetricKind.COUNTER,
    times=len(GapReason),
)
ENFORCING: Final = Family(
    name="enforcing",
    help="1 while enforcing, 0 while only observing. Stays 1 while the pod list is too old to act on and while a "
    "driver call hangs; see `pods_last_sync_timestamp_seconds` and `last_cycle_timestamp_seconds`.",
)
SUSPENDED: Final = Family(
    name="enforcement_suspended",
    help="1 while the policy says enforce and enforcement is suspended, one series per reason; absent otherwise.",
    labels=("reason",),
    per=Per.REASON,
)
BREAKER_OPEN: Final = Family(
    name="breaker_open", help="1 while the breaker is open or half open, so that kills and evictions are withheld."
)
POLICY_INFO: Final = Family(
    name="policy_info", help="Always 1: the current policy.", labels=("sha256", "mode"), kind=MetricKind.INFO
)
RELOAD_OK: Final = Family(
    name="policy_last_reload_successful",
    help="0 while the policy file on disk has errors or is still being written: the previous policy stays in effect.",
)
RELOAD_TIME: Final = Family(
    name="policy_last_reload_success_timestamp_seconds", help="When a valid policy was last loaded, as Unix time."
)
BUILD_INFO: Final = Family(
    name="build_info", help="Always 1: this daemon.", labels=("version", "python"), kind=MetricKind.INFO
)

SECTIONS: Final = {
    "gpus": (GPU_INFO, GPU_UP, GPU_TOTAL, GPU_USED, GPU_RESERVED, GPU_UNATTRIBUTED, GPU_RESIDUAL),
    "pods": (
        *(CONTAINER_USED, POD_USED, POD_DECLARED, POD_PEAK),
        *(ACCOUNT_USED, ACCOUNT_DECLARED, ACCOUNT_ALLOWED, ACCOUNT_OVER, ACCOUNT_VERDICT, ACCOUNT_WITHHELD, ACCOUNTS),
    ),
    "actions": (ACTIONS, WOULD_ACT, WITHHELD, LAST_ACTION, REACTION, RELEASE, EVENTS),
    "self": (
        *(LAST_CYCLE, PODS_SYNC, SCAN_DURATION, CYCLE_DURATION, GAPS, ENFORCING, SUSPENDED, BREAKER_OPEN),
        *(POLICY_INFO, RELOAD_OK, RELOAD_TIME, BUILD_INFO),
    ),
}
FAMILIES: Final = tuple(family for section in SECTIONS.values() for family in section)
