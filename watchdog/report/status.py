"""The status of a node as typed values: built by the daemon, encoded as JSON, decoded by the commands.

Bytes are integers and spans are seconds; what is unknown is None. All keys but a few that identify the document have a
default, so that a command can also read the status of an older daemon; unknown keys are skipped.
"""

import math
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from watchdog.core.errors import WatchdogError
from watchdog.core.model import MAINTENANCE, is_signal
from watchdog.core.policy import Do
from watchdog.core.units import LARGEST, parse_percent
from watchdog.report.text import inert, rfc3339

# Spans are added to moments, and Python's calendar has the years 1 to 9999; a node without a clock begins in 1970.
_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)

Bytes = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[int, Meta(ge=-(10**9), le=10**9)] | Annotated[float, Meta(ge=-1e9, le=1e9)]
# A share of the time, from 0 to 1.
Ratio = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,6}(?:\.[0-9]{1,6})?%\Z")]

ABSENT: Final = UNSET  # the value of a key that is left out
DocumentT = TypeVar("DocumentT", bound=Struct)
# What identifies an account in a status: the UID of its pod, its container, its GPU.
StatusKey = tuple[str, str | None, str | None]


class StatusError(WatchdogError):
    """A document is not a status as gpu-watchdog writes it; the text names the place."""


class Moment(float):
    """A moment as Unix time, which JSON has in RFC 3339."""


class PolicyStatus(Struct, frozen=True, kw_only=True):
    """The current policy, by the SHA-256 of its file."""

    sha256: str = ""
    loaded_at: Moment | None = None


class GpuMemory(Struct, frozen=True, kw_only=True):
    """The memory of a GPU."""

    total: Bytes | None = None
    used: Bytes | None = None
    reserved: Bytes | None = None
    # What is used and neither reserved nor any process's.
    residual: Bytes | None = None


class HourStatus(Struct, frozen=True, kw_only=True):
    """The last hour as a sparkline; a character for each two minutes, the oldest first."""

    # A digit is the highest use of that time, in sevenths of what was allowed, or of the GPU's size; 8: more than that,
    # a space: unknown.
    levels: Annotated[str, Meta(max_length=60, pattern=r"^[0-8 ]*\Z")] = ""
    # The first letter of an action that began then, rather of one that is no warning; trailing spaces are left out.
    marks: Annotated[str, Meta(max_length=60, pattern=r"^[a-z ]*\Z")] = ""


class GpuStatus(Struct, frozen=True, kw_only=True):
    """A card without MIG, or a MIG instance."""

    uuid: str
    index: int | None = None
    name: str = ""
    parent: str | None = None
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    # The first memory slice that a MIG instance has on its card.
    first_slice: int | None = None
    up: bool = False
    memory: GpuMemory = GpuMemory()
    # Whether all of its processes are known.
    listed: bool = True
    unattributed: Bytes | None = None
    # How much of the time it computed; None: unknown.
    utilization: Ratio | None = None
    # Why that is unknown; None: it is known, or was not read yet.
    utilization_unknown: str | None = None
    # A `Sharing`; None: not known yet.
    sharing: str | None = None
    # That of `scan` has none.
    hour: HourStatus | UnsetType = UNSET

    @property
    def model(self) -> str:
        """Its name, with the profile of a MIG instance, which newer drivers put into the name."""
        profile = self.profile or ""
        return self.name if self.name.endswith(profile) else f"{self.name} {profile}".strip()

    @property
    def number(self) -> str:
        """Its short name in a column: `3`, or `3/1` for a MIG instance."""
        shown = inert(self.uuid or "unknown", 16) if self.index is None else str(self.index)
        return shown if self.gi is None else f"{shown}/{self.gi}"

    def has_name(self, name: str) -> bool:
        """Whether this is its short name, which compute instances of one GPU instance share, or its UUID."""
        return name in (self.number, self.uuid)


class PinnedStatus(Struct, frozen=True, kw_only=True):
    """How much memory a client may pin on a GPU, as in `PinnedLimit`."""

    # The smaller one of its server's limit and its own.
    limit: Bytes | None = None
    by_server: Bytes | None = None
    by_client: Bytes | None = None


class PinnedTotalStatus(Struct, frozen=True, kw_only=True):
    """The limits of an account's clients, as far as they are known."""

    # How many of its processes have a known limit.
    clients: int = 0
    # The highest limit of one process, over its GPUs.
    most: Bytes = 0
    # The limits of all of them in sum.
    together: Bytes = 0
    # Whether they may use more than is declared, by these limits alone.
    exceeds_declared: bool = False


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """A process of an account on one GPU."""

    pid: int
    start_ticks: int | None = None
    container: str | None = None
    gpu: str = ""
    used: Bytes | None = None
    name: str = ""
    # Only if it is a client with a known limit.
    pinned: PinnedStatus | UnsetType = UNSET


class UnattributedStatus(Struct, frozen=True, kw_only=True):
    """A process that belongs to no known pod, and why."""

    pid: int
    gpu: str = ""
    used: Bytes | None = None
    reason: str = ""
    name: str = ""


class OwnerStatus(Struct, frozen=True, kw_only=True):
    """The controller of a pod, or the pod itself."""

    kind: str = ""
    name: str = ""


class AllowanceStatus(Struct, frozen=True, kw_only=True):
    """The parts of an account's allowance."""

    percent: str | None = None
    per_context: Bytes | None = None
    contexts: int | None = None


class MisdeclarationStatus(Struct, frozen=True, kw_only=True):
    """A declaration that is wrong, or probably unintended."""

    source: str = ""
    why: str = ""
    # Whether it applies all the same; otherwise it was skipped.
    counts: bool = False


class HoursStatus(Struct, frozen=True, kw_only=True):
    """The hours of a rule."""

    hours: str = ""
    # Whether they hold now.
    now: bool = False
    # When that changes.
    changes_at: Moment | None = None
    changes: str | None = None


class UnderWayStatus(Struct, frozen=True, kw_only=True):
    """An action that has begun and whose memory has not been seen free."""

    step: int | None = None
    do: Do | None = None
    container: str | None = None
    grace_s: Seconds | None = None
    begun_at: Moment | None = None
    sigkill_at: Moment | None = None
    signals: tuple[str, ...] = ()
    ended: bool = False

    @property
    def is_draining(self) -> bool:
        """Whether clients are drained first; until they are, it is not known when SIGKILL would come."""
        is_kill = self.do is not None and self.do.ends_processes
        is_first = is_kill and not self.signals and self.step is not None and self.sigkill_at is None
        return not self.ended and (is_first or (bool(self.signals) and not any(map(is_signal, self.signals))))


class StepStatus(Struct, frozen=True, kw_only=True):
    """A step of an account's rule."""

    step: int
    do: Do
    scope: str | None = None
    above: str = ""
    threshold_bytes: Bytes | None = None
    for_s: Seconds | None = None
    grace_s: Seconds | None = None
    repeat_s: Seconds | None = None
    under_pressure: bool = False
    # On which side of the threshold the account is.
    state: str = "unknown"
    counted_s: Seconds | None = None
    tally_s: Seconds | None = None
    # Since when the account has been above the threshold; None: it is not.
    since: Moment | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True):
    """A container of an account on one GPU."""

    container: str = ""
    gpu: str = ""
    # How much of the GPU's time it used; None: unknown.
    utilization: Ratio | None = None


class AccountStatus(Struct, frozen=True, kw_only=True):
    """An account with its processes and every step of its rule."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str | None = None
    gpu: str | None = None
    used: Bytes | None = None
    used_at_least: Bytes | None = None
    used_at_most: Bytes | None = None
    declared: Bytes | None = None
    declared_by: str | None = None
    # What claims gave on each GPU, by its UUID; absent without any.
    declared_by_gpu: dict[str, Bytes] | UnsetType = UNSET
    # Which claim gave it a share of a card without an amount, and what to add, as a clause; absent unless the default,
    # or nothing, applies because of that.
    open_share: str | UnsetType = UNSET
    # Other pods that have its claims, some of them; what they use of these, and which of them uses more than its pod.
    # Each is absent if there is none.
    shared_with: tuple[str, ...] | UnsetType = UNSET
    used_beside: Bytes | UnsetType = UNSET
    # The largest `ClaimedDevice.pinned_limit` of its claims on its GPU.
    pinned_by_claim: Bytes | UnsetType = UNSET
    behind_pod: str | UnsetType = UNSET
    allowed: Bytes | None = None
    verdict: str = "unknown"
    rule: str | None = None
    protected: str | None = None
    over_since: Moment | None = None
    processes: tuple[ProcessStatus, ...] = ()
    owner: OwnerStatus | None = None
    requested: Bytes | None = None
    allowed_by_request: Bytes | None = None
    allowance: AllowanceStatus | None = None
    misdeclarations: tuple[MisdeclarationStatus, ...] = ()
    # Whether the pod list lacks one of its containers.
    behind: bool = False
    rule_unknown: str | None = None
    limit_unknown: str | None = None
    observes: bool = False
    active: HoursStatus | None = None
    under_way: UnderWayStatus | None = None
    ladder: tuple[StepStatus, ...] = ()
    advice: str | None = None
    declare_by: str | None = None
    # When its pod was found to have gone from the API server; None: it is there.
    left_since: Moment | None = None
    # How much of its GPUs' time it used; None: unknown.
    utilization: Ratio | None = None
    # Its containers on each GPU.
    containers: tuple[ContainerStatus, ...] = ()
    # For how long it has held memory and computed nothing; None: it computes, holds less than `[idle] above`, or that
    # is unknown.
    idle_s: Seconds | None = None
    # Whether that is long enough to be reported.
    idle: bool = False
    # The limits of its clients in sum, if any is known.
    pinned: PinnedTotalStatus | UnsetType = UNSET
    # That of `scan` has none.
    hour: HourStatus | UnsetType = UNSET

    @property
    def title(self) -> str:
        """Its pod as `namespace/name`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def key(self) -> StatusKey:
        """What identifies the account."""
        return self.uid, self.container, self.gpu

    @property
    def least(self) -> int:
        """What the account uses at least, in bytes."""
        return (self.used_at_least if self.used is None else self.used) or 0

    @property
    def compared(self) -> int:
        """The bytes that are compared with what it may use: with what others use of its claims."""
        return self.least + (self.used_beside if isinstance(self.used_beside, int) else 0)


class GapStatus(Struct, frozen=True, kw_only=True):
    """Something that could not be determined."""

    what: str = ""
    why: str = ""
    remedy: str | None = None
    since: Moment | None = None
    # Its kind.
    reason: str = ""
    # The UUID of the GPU concerned.
    gpu: str | None = None

    @property
    def text(self) -> str:
        """The cause and the remedy, in one line."""
        return f"{self.why}; {self.remedy}" if self.remedy else self.why


class PendingStatus(Struct, frozen=True, kw_only=True):
    """An eviction that the API server has not accepted yet."""

    tries: int = 0
    blocked: bool = False
    refused: str | None = None
    next_in_s: Seconds | None = None
    gives_up_in_s: Seconds | None = None


class AccountPart(Struct, frozen=True, kw_only=True):
    """The account of a pod that an entry of the plan is about."""

    container: str | None = None
    gpu: str | None = None


class PlanStatus(Struct, frozen=True, kw_only=True):
    """A step that is due or will be, and the brake on it."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str | None = None
    do: Do
    scope: str | None = None
    pids: tuple[int, ...] = ()
    rule: str | None = None
    step: int | None = None
    due_in_s: Seconds = 0
    due_by: str | None = None
    withheld_by: str | None = None
    account: AccountPart | None = None
    above: str = ""
    threshold_bytes: Bytes | None = None
    for_s: Seconds | None = None
    card: str | None = None
    observes: bool = False
    releases_in_s: Seconds | None = None
    held_because: str | None = None
    pending: PendingStatus | None = None
    sentence: str = ""
    # The sentence without the account and the time.
    detail: str = ""

    @property
    def title(self) -> str:
        """Its pod as `namespace/name`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def key(self) -> StatusKey | None:
        """Its account; None if an older daemon has sent it."""
        return (self.uid, self.account.container, self.account.gpu) if self.account is not None else None

    @property
    def is_now(self) -> bool:
        """Whether it is due and not withheld."""
        return self.due_in_s <= 0 and self.withheld_by is None


class BreakerStatus(Struct, frozen=True, kw_only=True):
    """Whether the breaker is open, since when, and until when."""

    open: bool = False
    since: Moment | None = None
    until: Moment | None = None


class SignalStatus(Struct, frozen=True, kw_only=True):
    """A signal that was sent, when, and to how many processes."""

    signal: str = ""
    at: Moment | None = None
    processes: int | None = None


class RecentStatus(Struct, frozen=True, kw_only=True):
    """A warning, kill or eviction of the last day."""

    at: Moment | None = None
    namespace: str | None = None
    pod: str | None = None
    uid: str | None = None
    container: str | None = None
    gpu: str | None = None
    do: Do
    scope: str | None = None
    # None while it is in progress.
    result: str | None = None
    reason: str | None = None
    rule: str | None = None
    step: int | None = None
    threshold: str | None = None
    used: Bytes | None = None
    used_at_least: Bytes | None = None
    used_beside: Bytes | None = None
    allowed: Bytes | None = None
    declared: Bytes | None = None
    why: str = ""
    outcome: str | None = None
    ended_at: Moment | None = None
    released_at: Moment | None = None
    unreleased: str | None = None
    # When a disruption budget last blocked the eviction, also once it has ended; None: none has.
    blocked_at: Moment | None = None
    # Why it did.
    blocked_by: str | None = None
    signals: tuple[SignalStatus, ...] = ()

    @property
    def compared(self) -> int:
        """The bytes that were compared with what it was allowed: with what others used of its claims."""
        return ((self.used_at_least if self.used is None else self.used) or 0) + (self.used_beside or 0)

    @property
    def effect_at(self) -> Moment | None:
        """When the first signal was sent or the eviction accepted; if neither is known, when the action began."""
        if self.signals:
            return self.signals[0].at
        return self.ended_at if self.do.deletes_pod and self.result == "done" else self.at


class ChangeStatus(Struct, frozen=True, kw_only=True):
    """What is new in a cycle, as in a line of the log; keys that do not apply are left out."""

    at: Moment
    event: str
    message: str
    namespace: str | UnsetType = UNSET
    pod: str | UnsetType = UNSET
    uid: str | UnsetType = UNSET
    container: str | UnsetType = UNSET
    gpu: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    used: Bytes | UnsetType | None = UNSET
    declared: Bytes | UnsetType | None = UNSET
    allowed: Bytes | UnsetType | None = UNSET
    action: Do | UnsetType = UNSET
    step: int | UnsetType = UNSET
    result: str | UnsetType = UNSET
    # Why an action ended this way, enforcement is suspended or data is missing.
    reason: str | UnsetType = UNSET
    # The number of the action in the journal.
    action_id: int | UnsetType = UNSET
    pids: tuple[int, ...] | UnsetType = UNSET
    # Descriptions of the action's processes.
    victims: tuple[str, ...] | UnsetType = UNSET
    reaction_s: Seconds | UnsetType = UNSET
    release_s: Seconds | UnsetType = UNSET
    # What withholds a step.
    brake: str | UnsetType = UNSET
    # That of a policy.
    sha256: str | UnsetType = UNSET


class HealthStatus(Struct, frozen=True, kw_only=True):
    """The health of the watchdog itself."""

    version: str = ""
    started_at: Moment = Moment(0)
    uptime_s: Seconds = 0
    ready: bool = False
    # The reasons why it is not ready, a sentence each.
    unready: tuple[str, ...] = ()
    last_cycle_s: Seconds | None = None
    last_cycle_ago_s: Seconds | None = None
    cycle_p99_s: Seconds | None = None
    cycles: int = 0
    # `ok`, or what is wrong with it.
    journal: str = ""
    policy_ok: bool = True
    # The errors of a rejected policy file.
    policy_error: str | None = None
    # `ok`, or what the API server has not delivered; None if it is not used.
    api: str | None = None
    # When the driver stopped answering.
    blind_since: Moment | None = None
    # When the last cycle ended, if the loop is hung.
    hangs_since: Moment | None = None
    # The path of the stop file.
    stop_file: str | None = None
    # `on`, `expensive` if it is off because of its cost on this driver, or None.
    pulse: str | None = None
    # The median time of one read of the counters.
    pulse_s: Seconds | None = None

    @property
    def turns(self) -> bool:
        """Whether cycles complete, so that the data is current."""
        return self.hangs_since is None


class StopStatus(Struct, frozen=True, kw_only=True):
    """What is known of a switch that turns enforcement off."""

    # The reason of suspension.
    switch: str = ""
    # The reason that was given.
    why: str = ""
    # Who set it and when.
    by: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """The status of a node, as the daemon or `scan` gives it."""

    node: str
    at: Moment
    mode: str = ""
    enforcing: bool = False
    suspended: tuple[str, ...] = ()
    stopped_why: str | None = None
    stops: tuple[StopStatus, ...] = ()
    policy: PolicyStatus = PolicyStatus()
    interface: str = "NVML"  # what the driver is read through; a status without it is of a daemon that knew no other
    gpus: tuple[GpuStatus, ...] = ()
    accounts: tuple[AccountStatus, ...]
    unattributed: tuple[UnattributedStatus, ...] = ()
    gaps: tuple[GapStatus, ...] = ()
    plan: tuple[PlanStatus, ...]
    contact: str = ""
    free_below: Percent | None = None
    release_timeout_s: Seconds | None = None
    pods_synced_at: Moment | None = None
    pods_stale: bool = False
    stale_after_s: Seconds | None = None
    breaker: BreakerStatus = BreakerStatus()
    maintenance: str | None = None
    maintenance_since: Moment | None = None
    maintenance_since_at_least: bool = False
    # That of `scan` has none, and no changes.
    recent: tuple[RecentStatus, ...] = ()
    changes: tuple[ChangeStatus, ...] = ()
    # That of `scan` has none.
    health: HealthStatus | None = None

    def at_node(self, node: str) -> "Status":
        """The same under the name that the API server has for its node."""
        return structs.replace(self, node=node)

    @property
    def hangs_since(self) -> float | None:
        """When the last cycle ended if the loop is hung, so everything else is that old; None if it is not."""
        return self.health.hangs_since if self.health is not None else None

    @property
    def switched_off_by(self) -> tuple[str, ...]:
        """The reasons of suspension but for maintenance, which `maintenance` has."""
        return tuple(reason for reason in self.suspended if reason.partition(":")[0] != MAINTENANCE)

    @property
    def blind(self) -> GapStatus | None:
        """The gap that leaves every GPU unknown, the driver as a whole; None if there is none."""
        return next((gap for gap in self.gaps if gap.what == self.interface), None)

    def without_gaps(self, things: Collection[str]) -> "Status":
        """The status without the gaps that name one of these things."""
        return structs.replace(self, gaps=tuple(gap for gap in self.gaps if gap.what not in things))

    @property
    def free_share(self) -> float:
        """The free share of its memory below which a card is short."""
        return float(parse_percent(self.free_below)) if self.free_below is not None else 0.0


def encode(value: Struct) -> dict[str, Any]:
    """The status, or a part of it, as plain values for JSON."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_moment_text)
    return found


def decode(body: bytes) -> Status:
    """The status in a JSON document; StatusError names the first place that does not fit."""
    return decoded(body, _STATUS)


def decoder_of(kind: type[DocumentT]) -> "msgspec.json.Decoder[DocumentT]":
    """The decoder of one kind of document, for any thread if it is made when its module is imported."""
    # msgspec prepares a type when it is first used, and other threads find it before its last field is filled in:
    # between two fields it runs Python code, and a thread that then decodes follows a null pointer
    # (`StructInfo_Convert_lock_held` in _core.c of msgspec 0.22). Commands that ask several daemons at once died of it.
    return msgspec.json.Decoder(kind, dec_hook=_moment)


def decoded(body: bytes, decoder: "msgspec.json.Decoder[DocumentT]") -> DocumentT:
    """A document of the decoder's kind; StatusError names the first place that does not fit."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StatusError(f"its answer is not a status as gpu-watchdog writes it: {inert(str(error), 300)}") from error


def _moment_text(value: object) -> str:
    if isinstance(value, Moment):
        return rfc3339(value)
    raise NotImplementedError  # every other type of the status is one of JSON's


def _moment(_type: type, value: object) -> Moment:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    if moment is None or moment.tzinfo is None or not _EARLIEST < moment < _LATEST:
        raise ValueError("Expected a time as RFC 3339 writes it")
    return Moment(moment.timestamp())


_STATUS: Final = decoder_of(Status)


def json_seconds(seconds: float) -> float:
    """A span for JSON, in milliseconds' precision; an integer if it is whole."""
    rounded = round(seconds, 3)
    return int(rounded) if math.isfinite(rounded) and rounded == int(rounded) else rounded
