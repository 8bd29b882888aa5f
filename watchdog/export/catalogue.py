"""Every metric family that the daemon exports, and the one place where it is said what it means.

The help texts are those of /metrics, and docs/metrics.md is made of them.
"""

from dataclasses import replace
from typing import Final

from watchdog.core.assessment import Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import GapReason
from watchdog.core.plan import Result
from watchdog.export.histogram import DURATION_S, REACTION_S, RELEASE_S, series_of
from watchdog.export.series import Family, Kind, Per

RESULTS: Final = tuple(result for result in Result if result is not Result.OBSERVED)

_CARD: Final = ("gpu", "index", "model", "driver", "parent", "profile")
_PLACE: Final = ("namespace", "pod", "container", "gpu")
_POD: Final = ("namespace", "pod")
_ACCOUNT: Final = ("namespace", "pod", "container", "gpu", "rule")

GPU_INFO: Final = Family(
    name="gpu_info",
    help="Always 1. A card in MIG mode has this series only; `parent` and `profile` are set for its instances.",
    labels=_CARD,
    kind=Kind.INFO,
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
    kind=Kind.COUNTER,
    per=Per.WAY,
    times=len(RESULTS),
)
WOULD_ACT: Final = Family(
    name="would_act_total",
    help="Steps that observe mode would have taken, one an incident for kill and evict. Begins at 0.",
    labels=("rule", "action"),
    kind=Kind.COUNTER,
    per=Per.WAY,
)
WITHHELD: Final = Family(
    name="withheld_total",
    help="Steps that were due and held back, once an incident and brake. Begins at 0 for each brake.",
    labels=("brake",),
    kind=Kind.COUNTER,
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
    kind=Kind.HISTOGRAM,
    per=Per.ACTION,
    times=series_of(REACTION_S),
)
RELEASE: Final = Family(
    name="release_seconds",
    help="From the first signal to the memory seen free.",
    kind=Kind.HISTOGRAM,
    times=series_of(RELEASE_S),
)
EVENTS: Final = Family(
    name="events_total",
    help="Events on pods: written, limited (one pod had too many), refused (the API server does not take it), dropped "
    "(too many waited, or it could not be reached for an hour). Absent without the API.",
    labels=("result",),
    kind=Kind.COUNTER,
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
    kind=Kind.HISTOGRAM,
    times=series_of(DURATION_S),
)
CYCLE_DURATION: Final = replace(
    SCAN_DURATION, name="cycle_duration_seconds", help="How long a whole pass took, from asking the driver to the end."
)
GAPS: Final = Family(
    name="scan_gaps_total",
    help="Things that could not be learned, once a pass for as long as that lasts. Begins at 0 for each reason.",
    labels=("reason",),
    kind=Kind.COUNTER,
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
    name="policy_info", help="Always 1: the policy in force.", labels=("sha256", "mode"), kind=Kind.INFO
)
RELOAD_OK: Final = Family(
    name="policy_last_reload_successful",
    help="0 while the policy file on disk has errors or has not settled, and the one before it stays in force.",
)
RELOAD_TIME: Final = Family(
    name="policy_last_reload_success_timestamp_seconds", help="When a good policy was last read, as Unix time."
)
BUILD_INFO: Final = Family(
    name="build_info", help="Always 1: this daemon.", labels=("version", "python"), kind=Kind.INFO
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
