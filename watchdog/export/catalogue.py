"""The catalogue of metrics: each family with its labels and its help, and how series of it are written."""

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

# From a fast signal to a slow disk; the release of a large card takes seconds.
REACTION_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
RELEASE_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
DURATION_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observations up to each bound in seconds, the last one for what is above all, and their sum."""

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
    """How many series a histogram with these bounds is: its buckets, `+Inf` among them, the sum and the count."""
    return len(bounds) + 3


Labels = tuple[str, ...]
PREFIX: Final = "gpu_watchdog_"


class MetricKind(StrEnum):
    """The type of a family."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"  # a gauge that is always 1, to those who know no other


class Per(StrEnum):
    """What a family has one series of, for each set of the labels' values that are said elsewhere."""

    NODE = "node"
    CARD = "card"  # a GPU row, or a card in MIG mode, which is none
    GPU = "GPU"
    PLACE = "container and GPU"
    POD = "pod"
    ACCOUNT = "account"
    UNJUDGED = "account not judged"
    HELD = "account held back"
    ACTION = "action"
    WAY = "rule and action"
    DEED = "pod acted on"
    REASON = "reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric family: its name as queries have it, without the prefix, and what it means.

    `times` is how many series it has for each `per`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    per: Per = Per.NODE
    times: int = 1


def gauge(family: Family, series: Iterable[tuple[Labels, float | None]]) -> Metric:
    """A gauge; a series without a value is left out."""
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
    """The name that the library wants, which puts the suffix of the type behind it."""
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
    # A lone surrogate would make the whole page fail to be encoded.
    return [value if value.isprintable() else inert(value) for value in values]


RESULTS: Final = tuple(result for result in Result if result is not Result.OBSERVED)

_CARD: Final = ("gpu", "index", "model", "driver", "parent", "profile")
_PLACE: Final = ("namespace", "pod", "container", "gpu")
_POD: Final = ("namespace", "pod")
_ACCOUNT: Final = ("namespace", "pod", "container", "gpu", "rule")

GPU_INFO: Final = Family(
    name="gpu_info",
    help="Always 1. A card in MIG mode has this series only; `parent` and `profile` are set for its instances.",
    labels=_CARD,
    kind=MetricKind.INFO,
    per=Per.CARD,
)
GPU_UP: Final = Family(
    name="gpu_up",
    help="1 while the GPU answers, 0 once it has stopped, while a call into the driver hangs, and during maintenance.",
    labels=("gpu",),
    per=Per.GPU,
)
GPU_TOTAL: Final = replace(GPU_UP, name="gpu_memory_total_bytes", help="Size of the card or MIG instance.")
GPU_USED: Final = replace(
    GPU_UP, name="gpu_memory_used_bytes", help="In use, with what the driver reserves for itself."
)
GPU_RESERVED: Final = replace(
    GPU_UP,
    name="gpu_memory_reserved_bytes",
    help="What the driver keeps for itself; absent where it does not tell that apart.",
)
GPU_RESIDUAL: Final = replace(
    GPU_UP,
    name="gpu_memory_residual_bytes",
    help="Used - reserved - all listed processes: managed (UVM) memory, contexts on their way out. Never clamped: it "
    "can be negative by what changes between two calls of the driver.",
)
GPU_UNATTRIBUTED: Final = replace(
    GPU_UP,
    name="gpu_memory_unattributed_bytes",
    help="Of the listed processes of no known pod: host processes, unknown pods, zombies, MPS servers.",
)

CONTAINER_USED: Final = Family(
    name="container_memory_used_bytes",
    help="Use by container and GPU; `container` is empty for processes of one that the pod list does not know yet.",
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
    POD_USED, name="pod_memory_declared_bytes", help="What a pod declares, or its rule's default, over all its GPUs."
)
POD_PEAK: Final = replace(
    POD_USED, name="pod_memory_peak_bytes", help="The most that a pod was seen to use while this daemon ran."
)

ACCOUNT_USED: Final = Family(
    name="account_memory_used_bytes",
    help="Use of an account; `container` and `gpu` are empty where it is the pod's total.",
    labels=_ACCOUNT,
    per=Per.ACCOUNT,
)
ACCOUNT_DECLARED: Final = replace(
    ACCOUNT_USED, name="account_memory_declared_bytes", help="What an account declares, or its rule's default."
)
ACCOUNT_ALLOWED: Final = replace(
    ACCOUNT_USED,
    name="account_memory_allowed_bytes",
    help="Declared plus allowance: what the use of an account is held against.",
)
ACCOUNT_OVER: Final = replace(
    ACCOUNT_USED,
    name="account_over_limit",
    help="1 over what is allowed, 0 within; absent where that can't be said (undeclared, misdeclared, unknown).",
)
ACCOUNT_VERDICT: Final = replace(
    ACCOUNT_USED,
    name="account_verdict",
    help="Always 1: the verdict on an account that is neither within nor over. Unknown too while its container is not "
    "in the pod list; absent while it declares nothing and uses nothing.",
    labels=(*_ACCOUNT, "verdict"),
    per=Per.UNJUDGED,
)
ACCOUNT_WITHHELD: Final = replace(
    ACCOUNT_USED,
    name="account_withheld",
    help="Always 1: the brake that holds back a kill or an eviction of an account that is due now; absent otherwise. "
    "`pending` is there while an earlier action takes its time.",
    labels=(*_ACCOUNT, "brake"),
    per=Per.HELD,
)
ACCOUNTS: Final = Family(
    name="accounts", help="Accounts by their verdict; every verdict is there.", labels=("verdict",), times=len(Verdict)
)

ACTIONS: Final = Family(
    name="actions_total",
    help="Steps taken, by what came of them. Begins at 0 for whatever the rules can do.",
    labels=("rule", "action", "result"),
    kind=MetricKind.COUNTER,
    per=Per.WAY,
    times=len(RESULTS),
)
WOULD_ACT: Final = Family(
    name="would_act_total",
    help="Steps that observe mode would have taken, one an incident for kill and evict. Begins at 0.",
    labels=("rule", "action"),
    kind=MetricKind.COUNTER,
    per=Per.WAY,
)
WITHHELD: Final = Family(
    name="withheld_total",
    help="Steps that were due and held back, once an incident and brake. Begins at 0 for each brake.",
    labels=("brake",),
    kind=MetricKind.COUNTER,
    times=len(Brake),
)
LAST_ACTION: Final = Family(
    name="pod_last_action_timestamp_seconds",
    help="When a pod was last acted on, as Unix time; kept 15 minutes after the pod. A daemon that starts has of "
    "earlier ones what was done in the 15 minutes before.",
    labels=("namespace", "pod", "container", "action", "result", "rule"),
    per=Per.DEED,
)
REACTION: Final = Family(
    name="reaction_seconds",
    help="From the last reading not above the mark, plus the step's `for`, to the act: an upper bound, since the mark "
    "was crossed somewhere in between.",
    labels=("action",),
    kind=MetricKind.HISTOGRAM,
    per=Per.ACTION,
    times=series_of(REACTION_S),
)
RELEASE: Final = Family(
    name="release_seconds",
    help="From the first signal to the memory seen free.",
    kind=MetricKind.HISTOGRAM,
    times=series_of(RELEASE_S),
)
EVENTS: Final = Family(
    name="events_total",
    help="Events on pods: written, limited (one pod had too many), refused (the API server does not take it), dropped "
    "(too many waited, or it could not be reached for an hour). Absent without the API.",
    labels=("result",),
    kind=MetricKind.COUNTER,
    times=4,
)

LAST_CYCLE: Final = Family(
    name="last_cycle_timestamp_seconds",
    help="When the last finished pass looked at the node, as Unix time; absent until one has finished.",
)
PODS_SYNC: Final = Family(
    name="pods_last_sync_timestamp_seconds",
    help="When the pod list was last known to be true, as Unix time; absent without one.",
)
SCAN_DURATION: Final = Family(
    name="scan_duration_seconds",
    help="How long the driver and /proc took to be read.",
    kind=MetricKind.HISTOGRAM,
    times=series_of(DURATION_S),
)
CYCLE_DURATION: Final = replace(
    SCAN_DURATION, name="cycle_duration_seconds", help="How long a whole pass took, from asking the driver to the end."
)
GAPS: Final = Family(
    name="scan_gaps_total",
    help="Things that could not be learned, once a pass for as long as that lasts. Begins at 0 for each reason.",
    labels=("reason",),
    kind=MetricKind.COUNTER,
    times=len(GapReason),
)
ENFORCING: Final = Family(
    name="enforcing",
    help="1 while force is used, 0 while it only observes. It stays 1 while the pod list is too old to act on, and "
    "while a call into the driver hangs; `pods_last_sync_timestamp_seconds` and `last_cycle_timestamp_seconds` tell.",
)
SUSPENDED: Final = Family(
    name="enforcement_suspended",
    help="1 while it is told to enforce and does not, one series a reason; absent otherwise.",
    labels=("reason",),
    per=Per.REASON,
)
BREAKER_OPEN: Final = Family(name="breaker_open", help="1 while the breaker holds force back, half open too.")
POLICY_INFO: Final = Family(
    name="policy_info", help="Always 1: the policy in force.", labels=("sha256", "mode"), kind=MetricKind.INFO
)
RELOAD_OK: Final = Family(
    name="policy_last_reload_successful",
    help="0 while the policy file on disk has errors or has not settled, and the one before it stays in force.",
)
RELOAD_TIME: Final = Family(
    name="policy_last_reload_success_timestamp_seconds", help="When a good policy was last read, as Unix time."
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
    "deeds": (ACTIONS, WOULD_ACT, WITHHELD, LAST_ACTION, REACTION, RELEASE, EVENTS),
    "self": (
        *(LAST_CYCLE, PODS_SYNC, SCAN_DURATION, CYCLE_DURATION, GAPS, ENFORCING, SUSPENDED, BREAKER_OPEN),
        *(POLICY_INFO, RELOAD_OK, RELOAD_TIME, BUILD_INFO),
    ),
}
FAMILIES: Final = tuple(family for section in SECTIONS.values() for family in section)
