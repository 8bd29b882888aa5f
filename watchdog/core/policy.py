"""The policy as values: rules with their hours and steps, protection and brakes.

Amounts are bytes, durations seconds, shares exact fractions. Each field of the policy file is defined here: its
default, its key and its meaning (`_key`). Where the type is not enough, the arguments of `Annotated` give the kind of
value and its range; `watchdog.config` reads and writes it accordingly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Final, Literal, NamedTuple, TypeVar, assert_never

from watchdog.core.hours import Hours
from watchdog.core.units import LARGEST, format_percent, format_quantity

_T = TypeVar("_T")
Mode = Literal["observe", "enforce"]
Scope = Literal["process", "container", "pod"]
Special = Literal["percent", "fraction", "share", "cards", "mig", "named"]

ByteAmount = Annotated[int, "quantity"]
Contexts = Annotated[int, "whole", 0, 100_000]
Percent = Annotated[Fraction, "percent", "0%", "100%"]
Resource = Annotated[str, "resource"]
NamespacePattern = Annotated[str, "pattern", "the name of a namespace", "jupyter-*"]
PodPattern = Annotated[str, "pattern", "NAME or NAMESPACE/NAME of a pod", "monitoring/dcgm-exporter-*", "slash"]
SchemeName = Annotated[str, "scheme"]
KindPattern = Annotated[str, "pattern", "the kind of an owner", "StatefulSet", "kind"]
Labels = Annotated[Mapping[str, str], "labels"]


def _key(meaning: str, name: str = "") -> dict[str, str]:
    """The metadata of a field: its meaning in the reference, and its key if that is not the field's name."""
    return {"meaning": meaning, "key": name}


def _default(value: _T, meaning: str, name: str = "") -> _T:
    """A field with a default value; typed as `dataclasses.field` is."""
    made: _T = field(default=value, metadata=_key(meaning, name))
    return made


def too_old_after_s(interval_s: float) -> float:
    """How old the last cycle may become before it counts for nothing: three intervals, at least 10 s."""
    return max(3 * interval_s, 10.0)


def longest_step_s(interval_s: float) -> float:
    """The longest time between two consecutive cycles; more is a gap."""
    return 1.5 * interval_s + 0.25


class Verb(NamedTuple):
    """An action in the forms that sentences need."""

    # `kill`.
    base: str
    # `kills`.
    does: str
    # `killing`.
    doing: str
    # `killed`.
    done: str
    # `a kill`.
    noun: str
    # The event from which the release time is counted, as in "free 3s after ...".
    first_effect: str

    @property
    def an_action(self) -> str:
        """The noun with its article."""
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What distinguishes one action from the others; each is explained at the property of `Do` of that name."""

    verb: Verb
    keys: frozenset[str]
    enforces: bool = True
    ends_containers: bool = False
    ends_processes: bool = False
    deletes_pod: bool = False
    least_grace_s: float = 0.0


class Do(StrEnum):
    """What a step does."""

    WARN = "warn"
    KILL = "kill"
    EVICT = "evict"

    @property
    def verb(self) -> Verb:
        """Its forms for use in sentences."""
        return _KINDS[self].verb

    @property
    def enforces(self) -> bool:
        """Whether it affects the pod, so that brakes, observe mode and protection hold it back."""
        return _KINDS[self].enforces

    @property
    def ends_containers(self) -> bool:
        """Whether containers end by it, so that what else needs their processes must be spared or drained first."""
        return _KINDS[self].ends_containers

    @property
    def ends_processes(self) -> bool:
        """Whether the watchdog ends processes itself, with a grace period that it keeps."""
        return _KINDS[self].ends_processes

    @property
    def deletes_pod(self) -> bool:
        """Whether it asks the API server to delete the whole pod, which does so when it may."""
        return _KINDS[self].deletes_pod

    @property
    def least_grace_s(self) -> float:
        """The shortest grace period that it can have."""
        return _KINDS[self].least_grace_s

    @property
    def keys(self) -> frozenset[str]:
        """The keys of a step that are valid with it; keys that no action names here are valid with all."""
        return _KINDS[self].keys

    @property
    def takes_scope(self) -> bool:
        """Whether it acts on the container that exceeds its declaration, or on what `scope` says."""
        return "scope" in self.keys


def _kind_of(do: Do) -> _Kind:
    match do:
        case Do.WARN:
            verb = Verb("warn", "warns", "warning", "warned", "warning", "the warning")
            return _Kind(verb=verb, keys=frozenset({"repeat"}), enforces=False)
        case Do.KILL:
            verb = Verb("kill", "kills", "killing", "killed", "kill", "the first signal")
            keys = frozenset({"scope", "grace", "unwarned"})
            return _Kind(verb=verb, keys=keys, ends_containers=True, ends_processes=True)
        case Do.EVICT:
            verb = Verb("evict", "evicts", "evicting", "evicted", "eviction", "the eviction was accepted")
            keys = frozenset({"grace", "unwarned"})
            # The API server allows no grace period of 0.
            return _Kind(verb=verb, keys=keys, ends_containers=True, deletes_pod=True, least_grace_s=1.0)
        case _:
            assert_never(do)


_KINDS: Final = {do: _kind_of(do) for do in Do}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The bound above which a step counts; exactly one field is set."""

    # A share of allowed.
    share: Fraction | None = None
    # Bytes above allowed.
    plus: int | None = None
    # Bytes.
    amount: int | None = None

    def threshold_bytes(self, allowed: int, do: Do) -> int:
        """Bytes of `used_at_least` above which the step counts; never below `allowed` for kill and evict."""
        if self.share is not None:
            threshold_bytes = allowed * self.share.numerator // self.share.denominator
        elif self.plus is not None:
            threshold_bytes = allowed + self.plus
        else:
            threshold_bytes = self.amount or 0
        return min(max(threshold_bytes, allowed) if do.enforces else threshold_bytes, LARGEST)

    def __str__(self) -> str:
        if self.share is not None:
            return format_percent(self.share)
        if self.plus is not None:
            return f"+{format_quantity(self.plus)}"
        return format_quantity(self.amount or 0)


class StepSignature(NamedTuple):
    """What identifies a step across reloads."""

    above: Threshold
    for_s: float
    do: Do
    under_pressure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a ladder, from the lowest threshold to the highest."""

    above: Threshold = field(
        metadata=_key("The threshold above which the step counts. For kill and evict never below allowed.")
    )
    for_s: Annotated[float, "duration", "0s", "30d"] = field(
        metadata=_key(
            "How long use must stay above the threshold; with dips for twice that, each counting double against it.",
            "for",
        )
    )
    do: Do = field(
        metadata=_key(
            "warn: an Event and a record. kill: SIGTERM, then SIGKILL after `grace`. evict: through the Eviction API."
        )
    )
    scope: Scope = _default("container", "What a kill ends; only for kill.")
    grace_s: Annotated[float, "duration", "0s", "1d"] = _default(
        10.0,
        "From SIGTERM to SIGKILL; `0s` sends SIGKILL immediately. Only for kill and evict; at least 1s for evict.",
        "grace",
    )
    repeat_s: Annotated[float, "duration", "1s", "30d"] = _default(
        3600.0, "How often the warning is repeated while the incident lasts; only for warn.", "repeat"
    )
    under_pressure: bool = _default(False, "The step counts only while the card is short of memory.")
    unwarned: bool = _default(
        False, "The step may come before any warning, and `check` does not warn about it. Only for kill and evict."
    )

    @property
    def signature(self) -> StepSignature:
        """What identifies the step across reloads."""
        return StepSignature(self.above, self.for_s, self.do, self.under_pressure)

    @property
    def effective_scope(self) -> Scope | None:
        """`scope`, if the action takes it."""
        return self.scope if self.do.takes_scope else None

    @property
    def hits_whole_pod(self) -> bool:
        """Whether it ends all containers of the pod."""
        return self.do.ends_containers and self.effective_scope in (None, "pod")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The pods that a rule applies to: every key that is set must match; `{}` matches every pod."""

    namespaces: tuple[NamespacePattern, ...] = _default((), "The pod's namespace is one of these.")
    pods: tuple[PodPattern, ...] = _default((), "The pod's name is one of these; without a slash, in any namespace.")
    labels: Labels = field(default_factory=dict, metadata=_key("The pod has all of these labels."))
    owner_kinds: tuple[KindPattern, ...] = _default(
        (),
        "The kind of the pod's controller is one of these: `Job`, or `Deployment` behind a ReplicaSet; `Pod` if it "
        "has no controller.",
    )
    namespace_labels: Labels = field(
        default_factory=dict, metadata=_key("The pod's namespace has all of these labels.")
    )
    node_labels: Labels = field(default_factory=dict, metadata=_key("The node has all of these labels."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: which pods it matches, and what applies to them. The first matching rule is a pod's rule."""

    name: Annotated[str, "line", 1, 63] = field(metadata=_key("A unique name, used in metrics, Events and records."))
    match: Match = _default(Match(), "The pods that the rule applies to; if omitted, every pod.")
    account: Literal["pod", "container"] = _default(
        "pod", "What is compared: a pod's containers together, or each container with its own declaration."
    )
    default: ByteAmount | None = _default(
        None,
        'The amount for an account that declares nothing. `"0"` forbids any use; if omitted, the account is left '
        "alone.",
    )
    mode: Mode | None = _default(
        None, "`observe`: this rule only observes. A rule cannot enforce while the policy observes."
    )
    active: Hours | None = _default(None, "Outside these hours the rule only observes, by the clock of that time zone.")
    steps: tuple[Step, ...] = _default((), "The ladder.", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Driver overhead, added to what was declared."""

    per_context: ByteAmount = _default(512 * 2**20, "For each CUDA context: each process on each GPU that it uses.")
    max_contexts: Contexts = _default(4, "The most contexts of one account that count.")
    percent: Percent = _default(Fraction(2, 100), "This share of the declared amount.")

    def allowed(self, declared: int, contexts: int) -> int:
        """Bytes that an account may use: floor(declared x (1 + percent)) + per_context x contexts."""
        share = declared * self.percent.numerator // self.percent.denominator
        return declared + share + self.per_context * min(contexts, self.max_contexts)


NO_ALLOWANCE = Allowance(per_context=0, max_contexts=0, percent=Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unless:
    """A resource that makes the declaration not apply at or above some number (`tencent.com/vcuda-core` of 100)."""

    resource: Resource = field(metadata=_key("The resource that the same container requests."))
    at_least: Annotated[int, "whole", 1, 10**15] = field(
        metadata=_key("The declaration does not apply at or above this number.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAnnotation:
    """An annotation in which a tenant may set a limit above the request.

    A text in place of a list of these tables is the key of the only one.
    """

    key: Annotated[str, "key", "the key of an annotation", "container"] = field(
        metadata=_key("The key of the annotation.")
    )
    unit: Annotated[int | Special, "limit_unit"] | None = _default(
        None, "What the number 1 stands for; if omitted, the same as in the declaration."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One place where GPU memory is declared."""

    resource: Annotated[str, "resource", "wild"] | None = _default(
        None,
        "A resource of the container; one that the node does not list never raises a limit. Exactly one of `resource`, "
        "`annotation`, `label`.",
    )
    annotation: Annotated[str, "key", "the key of an annotation", "wild", "container"] | None = _default(
        None, "An annotation of the pod. Tenants write it, and no scheduler accounts for it."
    )
    label: Annotated[str, "key", "the key of a label", "wild", "container"] | None = _default(
        None, "A label of the pod. Tenants write it, and no scheduler accounts for it."
    )
    # The number of bytes that 1 stands for, or the name of a unit that depends on the cards, or on the resource's name.
    unit: Annotated[int | Special, "unit"] = field(
        metadata=_key(
            'What the number 1 stands for: "1" for bytes, "1Mi", "256Mi", or a unit that depends on the cards or on '
            "the resource's name."
        )
    )
    per: Literal["total", "gpu"] = _default(
        "total", 'Whether the amount is for all GPUs of the container together, or for each ("gpu").'
    )
    shares: Annotated[str | int, "shares"] | None = _default(
        None, 'The number of shares a card is divided into; required with `unit = "share"`, and only there.'
    )
    of: Annotated[int, "whole", 1, 10**6] | None = _default(
        None, 'With `unit = "cards"`: this many make a card. A smaller number declares nothing.'
    )
    zero: Literal["none", "unset"] = _default(
        "none",
        'What 0 means: no memory is used, or ("unset") nothing is declared, so that the next table applies. Where a '
        "scheme knows the key, what it means there.",
    )
    unit_differs: bool = _default(
        False,
        "The unit is right, although that of the scheme that knows the key differs. Without it, a table with a smaller "
        "unit applies to no pod: its accounts are misdeclared.",
    )
    node_labels: Labels = field(
        default_factory=dict, metadata=_key("The declaration applies only on nodes with these labels.")
    )
    unless: Unless | None = _default(None, "A resource that makes the declaration not apply.")
    container_annotation: Annotated[str, "key", "the key of an annotation", "optional"] = _default(
        "",
        "The annotation is for one container of the pod: the one that this other annotation names, else the first.",
    )
    limits: tuple[LimitAnnotation, ...] = _default(
        (),
        "The key of an annotation in which a tenant may set a limit above the request, in the same unit; or a list of "
        "them with their units, of which the first that is set applies.",
        "limit_annotation",
    )
    # None if that of the policy applies.
    allowance: Allowance | None = _default(None, "Replaces `[allowance]`; a key that is left out is taken from there.")
    # The one that it comes from, empty for the policy's own; that makes no difference to what is declared.
    scheme: str = field(default="", compare=False)
    # Why its unit is most likely a mistake, so that it applies to no pod; empty if it is not.
    wrong_unit: str = ""

    @property
    def kind(self) -> Literal["resource", "annotation", "label"]:
        """The kind of key that is read."""
        if self.resource is not None:
            return "resource"
        return "annotation" if self.annotation is not None else "label"

    @property
    def counts_devices(self) -> bool:
        """Whether the number counts whole cards or MIG instances, whatever their size."""
        return self.unit in ("cards", "mig")

    @property
    def key(self) -> str:
        """The name of the resource, annotation or label."""
        return self.resource or self.annotation or self.label or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protect:
    """Pods that are measured and warned but never signalled or evicted, in addition to those that are built in."""

    namespaces: tuple[NamespacePattern, ...] = _default((), "All pods of these namespaces.")
    pods: tuple[PodPattern, ...] = _default((), "These pods; without a slash, in any namespace.")
    priority_at_least: Annotated[int, "whole", -(2**31), 2**31 - 1] = _default(
        2_000_000_000, "Pods of this priority and above, in the namespaces of `priority_namespaces`."
    )
    priority_namespaces: tuple[NamespacePattern, ...] = _default(
        ("*",),
        "Where a priority protects: 2000000000 and above, and `priority_at_least`. With `*`, any tenant protects its "
        "pods by `system-node-critical`, unless a quota forbids it.",
    )
    annotation: Annotated[str, "key", "the key of an annotation", "optional"] = _default(
        "", "Pods with this annotation. If empty, tenants cannot exempt themselves."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """At most `count` in any `per_s` seconds."""

    count: int
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The wait between two actions on pods of one owner: `first`, then `factor` times the last, at most `max`."""

    first_s: Annotated[float, "duration", "1s", "1d"] = _default(60.0, "The first wait.", "first")
    factor: Annotated[float, "number", 1, 100] = _default(2.0, "Each wait is this many times the previous one.")
    max_s: Annotated[float, "duration", "1s", "7d"] = _default(3600.0, "The longest wait.", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Withholds all enforcement when too many owners are due at once."""

    offenders: Annotated[Fraction, "percent", "0.1%", "100%"] = _default(
        Fraction(1, 2), "It opens when at least this share of the owners is due."
    )
    of_at_least: Annotated[int, "whole", 1, 100_000] = _default(
        3, "It opens only if there are at least this many owners."
    )
    hold_s: Annotated[float, "duration", "1s", "7d"] = _default(600.0, "How long it stays open.", "hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """The most kills and evictions on one node; a key that is left out sets no bound."""

    node: Window | None = _default(None, "At most this many kills and evictions on this node.")
    namespace: Window | None = _default(None, "At most this many kills and evictions in one namespace.")
    owner: Window | None = _default(None, "At most this many kills and evictions of one owner's pods.")
    owner_backoff: Backoff | None = _default(None, "The wait between two actions on pods of one owner.")
    breaker: Breaker | None = _default(None, "Withholds all enforcement when too many owners are due at once.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """When a card counts as short of memory, for steps with `under_pressure = true`."""

    free_below: Annotated[Fraction, "percent", "0.1%", "99%"] = _default(
        Fraction(5, 100), "Less than this share of the card is free."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Advertises GPU memory as a resource of the node; off if the table is absent."""

    resource: Resource = field(metadata=_key("The resource to advertise."))
    # Bytes; None for the memory of the cards.
    amount: Annotated[int | None, "cards_or_quantity"] = _default(
        None,
        "The memory of all cards and MIG instances that are up, or a quantity; advertised in the unit in which the "
        "declaration of the resource counts.",
    )
    reserve: ByteAmount = _default(0, "Bytes reserved on each card or MIG instance.")
    # The number of bytes in which the declaration of the resource counts.
    unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Kubernetes Events on the pods."""

    observe: bool = _default(False, "Write Events on pods in observe mode too.")
    contact: Annotated[str, "line", 0, 200] = _default(
        "", "Whom tenants should contact: a name, an address, a page. If empty: the operator of this cluster."
    )
    page_url: Annotated[str, "page_url"] = _default(
        "", "Where people open the page of a pod: its link ends the Events on that pod. If empty: Events have no link."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """How much of the past the journal keeps."""

    max_age_s: Annotated[float, "duration", "1s", "3650d"] = _default(
        30 * 86400.0, "Older records are dropped.", "max_age"
    )
    max_size: Annotated[int, "quantity", "256Ki", "1Ti"] = _default(
        256 * 2**20, "Beyond this size the oldest records are dropped."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """Safety checks that the operator overrides."""

    foreign_pid_namespace: bool = _default(False, "Enforce outside the host's PID namespace.")
    signal_without_pidfd: bool = _default(
        False, "Enforce where the pidfd calls are missing; identity is read again before each signal."
    )
    signal_mps_clients: bool = _default(
        False,
        "Signal and evict clients of an MPS server outside their own pod, which can break the work of its other "
        "clients.",
    )


# The pulse is for steps that can act within this time; an account above the threshold of another is seen at the tick.
_QUICK_S: Final = 1.0
CLAIMS: Final = "dra"  # the scheme by which resource claims are read
# How long a policy file that is written in place must have stayed the same.
SETTLING_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Reads of memory counters between full readings, while a rule can act within a second; off without this table."""

    every_s: Annotated[float, "duration", "20ms", "1s", "0s"] = _default(
        0.05, 'How often each card\'s memory counter is read; "0s" is off.', "every"
    )
    rise: Annotated[int, "quantity", "1", "1Ti"] = _default(
        16 * 2**20,
        "A rise by more than this, from the lowest since the last full reading, brings the next one forward.",
    )
    looks: Window = _default(
        Window(count=60, per_s=60.0),
        "At most this many full readings are brought forward. Half of them belong to the cards in equal shares, the "
        "others to whichever comes first.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """How clients of a shared MPS server are drained before they are ended; off if the table is absent."""

    control: Annotated[str, "line", 1, 400] = _default(
        "nvidia-cuda-mps-control", "The control program: a name on the search path of the node's driver, or a path."
    )
    pipe: tuple[Annotated[str, "folder"], ...] = _default(
        ("/run/nvidia/mps/*/pipe",), "`CUDA_MPS_PIPE_DIRECTORY` of each control daemon."
    )
    timeout_s: Annotated[float, "duration", "1s", "5m"] = _default(
        5.0, "How long to wait for a reply from a control daemon.", "timeout"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """How what resource claims gave is read, with the scheme `dra`."""

    count_shares: bool = _default(
        False,
        "A claim that was given n of the m shares of a card, and no amount of memory, declares n/m of the card; "
        "without this it declares nothing.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """When maintenance of the GPUs that does not end is reported."""

    alert_after_s: Annotated[float, "duration", "1m", "30d"] = _default(
        3600.0,
        "How long maintenance of the GPUs may last before an alert fires; until then the alerts that it causes are "
        "silenced.",
        "alert_after",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Memory that is held without computing; it is reported, and no action comes of it."""

    after_s: Annotated[float, "duration", "10s", "30d", "0s"] = _default(
        7200.0,
        "Reported are accounts that have computed nothing for this long, while that was known. Survives restarts; "
        '"0s": none are.',
        "after",
    )
    above: ByteAmount = _default(2**30, "Accounts that use less than this are left out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The whole policy; its own keys are at the top of the file, before the first table."""

    # That of the file that it was read from.
    sha256: str = ""
    # The name of that file.
    source: str = ""
    # Those of `check`.
    warnings: tuple[str, ...] = ()
    version: Annotated[int, "whole", 1, 1] = _default(1, "The version of this format.")
    mode: Mode = _default("observe", "`observe` makes every decision but takes no action; `enforce` acts.")
    interval_s: Annotated[float, "duration", "1s", "5m"] = _default(
        1.0, "Processes are listed at least this often.", "interval"
    )
    stale_after_s: Annotated[float, "duration", "1s", "1d"] = _default(
        180.0, "No enforcement on a pod list older than this.", "stale_after"
    )
    release_timeout_s: Annotated[float, "duration", "1s", "1h"] = _default(
        30.0,
        "How long an action waits for its memory to be seen free before the account's next one.",
        "release_timeout",
    )
    # Once compiled, those that apply, by name.
    schemes: tuple[SchemeName, ...] | None = _default(
        None,
        'Built-in declaration tables by name, tried after those in the file; `"*"`: all whose unit is unambiguous. If '
        'omitted: `["*"]` if the file has no `[[declaration]]`, otherwise none.',
    )
    # Once compiled, the tables of the schemes come after the policy's own.
    declarations: tuple[Declaration, ...] = _default((), "Where GPU memory is declared, tried in order.", "declaration")
    allowance: Allowance = _default(Allowance(), "Driver overhead.")
    rules: tuple[Rule, ...] = _default((), "The rules, tried in order.", "rule")
    protect: Protect = _default(Protect(), "Pods that are measured and warned but never signalled or evicted.")
    brakes: Brakes = _default(Brakes(), "The most kills and evictions.")
    pressure: Pressure = _default(Pressure(), "When a card is short of memory.")
    capacity: Capacity | None = _default(None, "Advertises GPU memory on the node.")
    events: Events = _default(Events(), "Events on pods.")
    journal: JournalLimits = _default(JournalLimits(), "How much of the past is kept.")
    safety: Safety = _default(Safety(), "Safety checks that the operator overrides.")
    pulse: Pulse | None = _default(None, "Reads of memory counters between full readings.")
    mps: Draining | None = _default(None, "How MPS clients are drained.")
    maintenance: Maintenance = _default(Maintenance(), "Maintenance of the GPUs that does not end.")
    claims: Claims = _default(Claims(), "What resource claims gave.")
    idle: Idle = _default(Idle(), "Memory that is held without computing.")

    @property
    def reads_claims(self) -> bool:
        """Whether what resource claims gave counts; once compiled."""
        return CLAIMS in (self.schemes or ())

    @property
    def _enforced_steps(self) -> tuple[Step, ...]:
        """The steps of the rules that enforce; none if the policy observes."""
        enforcing = (rule for rule in self.rules if self.mode == "enforce" and rule.mode != "observe")
        return tuple(step for rule in enforcing for step in rule.steps)

    @property
    def has_pulse(self) -> bool:
        """Whether there is a pulse, of use or not."""
        return self.pulse is not None and bool(self.pulse.every_s)

    @property
    def useful_pulse(self) -> Pulse | None:
        """The pulse, if some rule that enforces can kill or evict within a second; None: it would be of no use."""
        is_quick = any(step.do.enforces and step.for_s <= _QUICK_S for step in self._enforced_steps)
        return self.pulse if self.has_pulse and is_quick else None

    @property
    def reads_namespaces(self) -> bool:
        """Whether the labels of namespaces have to be read through the API, besides the pods and the Node object."""
        return any(rule.match.namespace_labels for rule in self.rules)

    @property
    def writes_events(self) -> bool:
        """Whether Events are written on pods; a policy that observes does so only on request."""
        return self.mode == "enforce" or self.events.observe

    def takes(self, do: Do) -> bool:
        """Whether some step takes this action and is enforced."""
        return any(step.do is do for step in self._enforced_steps)

    @property
    def reset_after_s(self) -> float:
        """How long without a conclusive reading ends every stretch."""
        return too_old_after_s(self.interval_s)

    def counts_like(self, other: "Policy") -> bool:
        """Whether the time that accounts have spent above thresholds counts the same under another policy.

        Rules count as a whole; what only withholds actions and what only concerns reporting does not.
        """
        alike = replace(
            self,
            sha256=other.sha256,
            source=other.source,
            warnings=other.warnings,
            schemes=other.schemes,  # their tables are in the declarations; that of claims has none
            stale_after_s=other.stale_after_s,
            release_timeout_s=other.release_timeout_s,
            protect=other.protect,
            brakes=other.brakes,
            journal=other.journal,
            safety=other.safety,
            capacity=other.capacity,
            events=other.events,
            pulse=other.pulse,
            mps=other.mps,
            maintenance=other.maintenance,
            idle=other.idle,
        )
        return alike == other and self.reads_claims == other.reads_claims
