"""The policy file as it is written: one class a table, one field a key. The policy reference is written from it."""

from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from watchdog.config import amounts, fields
from watchdog.core.policy import (
    Allowance,
    Backoff,
    Breaker,
    Do,
    Hours,
    JournalLimits,
    Mode,
    MpsControl,
    Policy,
    Protect,
    Pulse,
    Scope,
    Special,
    Step,
    Threshold,
    Window,
)

_ALLOWANCE: Final = Allowance()  # the defaults stand in one place
_CONTEXTS: Final = fields.whole(0, 100_000)

Labels = dict[Annotated[str, fields.key("the key of a label")], Annotated[str, fields.label_value()]]


class Table(BaseModel):
    """A table of the file: every key is known and of its exact type, or the file is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class UnlessTable(Table):
    """A resource that, from a number on, makes the declaration not apply."""

    resource: Annotated[str, fields.resource()] = Field(description="The resource that the same container asks for.")
    at_least: Annotated[int, fields.whole(1, 10**15)] = Field(
        description="From this number on the declaration does not apply."
    )


class OwnAllowanceTable(Table):
    """An allowance of its own; a key that is left out is taken from `[allowance]`."""

    per_context: Annotated[int | None, amounts.quantity()] = Field(
        None, description="In place of `[allowance]` `per_context`."
    )
    max_contexts: Annotated[int | None, _CONTEXTS] = Field(None, description="In place of `max_contexts`.")
    percent: Annotated[Fraction | None, amounts.percent()] = Field(None, description="In place of `percent`.")


class AllowanceTable(Table):
    """`[allowance]`: what the driver takes, on top of what was declared."""

    per_context: Annotated[int, amounts.quantity()] = Field(
        _ALLOWANCE.per_context, description="For each CUDA context: each process on each GPU that it uses."
    )
    max_contexts: Annotated[int, _CONTEXTS] = Field(
        _ALLOWANCE.max_contexts, description="At most so many contexts of an account count."
    )
    percent: Annotated[Fraction, amounts.percent()] = Field(
        _ALLOWANCE.percent, description="Of the declared amount, on top of it."
    )


class DeclarationTable(Table):
    """`[[declaration]]`: one place where GPU memory is declared."""

    resource: Annotated[
        str | None,
        fields.resource(wild=True),
    ] = Field(None, description="A resource of the container. Exactly one of `resource`, `annotation`, `label`.")
    annotation: Annotated[str | None, fields.key("the key of an annotation", wild=True, container=True)] = Field(
        None, description="An annotation of the pod. Tenants write it, and no scheduler accounts for it."
    )
    label: Annotated[str | None, fields.key("the key of a label", wild=True, container=True)] = Field(
        None, description="A label of the pod. Tenants write it, and no scheduler accounts for it."
    )
    unit: Annotated[int | Special, amounts.unit()] = Field(
        description='What the number 1 stands for: "1" for bytes, "1Mi", "256Mi", or a unit that depends on the cards.'
    )
    per: Annotated[Literal["total", "gpu"], fields.choice("total", "gpu")] = Field(
        "total", description='Whether the amount is for all GPUs of the container together, or for each ("gpu").'
    )
    shares: Annotated[str | int | None, amounts.shares()] = Field(
        None, description='Into how many shares a card is cut; required with `unit = "share"`, and only there.'
    )
    node_labels: Labels = Field({}, description="The declaration applies only on nodes that carry these labels.")
    unless: UnlessTable | None = Field(None, description="A resource that makes the declaration not apply.")
    limit_annotation: Annotated[str, fields.key("the key of an annotation", container=True, optional=True)] = Field(
        "", description="An annotation in which a tenant may name a limit above the request, in the same unit."
    )
    allowance: OwnAllowanceTable | None = Field(None, description="Its own allowance, in place of `[allowance]`.")


_STEP: Final = Step(above=Threshold(amount=0), for_s=0.0, do=Do.WARN)  # the defaults stand in one place

NamespaceName = Annotated[str, fields.pattern("the name of a namespace", "jupyter-*")]
PodName = Annotated[str, fields.pattern("NAME or NAMESPACE/NAME of a pod", "monitoring/dcgm-exporter-*", slash=True)]
KindName = Annotated[str, fields.pattern("the kind of an owner", "StatefulSet", characters="A-Za-z0-9")]


class MatchTable(Table):
    """Which pods a rule is for: all that is set must match; `{}` matches every pod."""

    namespaces: list[NamespaceName] = Field([], description="One of these names is the pod's namespace.")
    pods: list[PodName] = Field([], description="One of these is the pod's name; without a slash in any namespace.")
    labels: Labels = Field({}, description="The pod carries all of these labels.")
    owner_kinds: list[KindName] = Field(
        [],
        description="One of these is the kind of the pod's controller: `Job`, or `Deployment` behind a ReplicaSet; "
        "without a controller `Pod`.",
    )
    namespace_labels: Labels = Field({}, description="The pod's namespace carries all of these labels.")
    node_labels: Labels = Field({}, description="The node carries all of these labels.")


class StepTable(Table):
    """`[[rule.step]]`: one step of a ladder, from the lowest mark to the highest."""

    above: Annotated[Threshold, amounts.mark()] = Field(
        description="The mark above which the step counts. For kill and evict never below allowed."
    )
    for_s: Annotated[float, amounts.duration("0s", "30d")] = Field(
        alias="for", description="How long the use must stay above the mark, without interruption."
    )
    do: Annotated[Literal["warn", "kill", "evict"], fields.choice("warn", "kill", "evict")] = Field(
        description="Warn: an Event and a record. Kill: signals, as for too much RAM. Evict: by the Eviction API."
    )
    scope: Annotated[Scope, fields.choice("process", "container", "pod")] = Field(
        _STEP.scope, description="What a kill ends; only for kill."
    )
    grace: Annotated[float, amounts.duration("0s", "1d")] = Field(
        _STEP.grace_s,
        description="From SIGTERM to SIGKILL; `0s` is SIGKILL at once. Only for kill and evict; for evict at least 1s.",
    )
    repeat: Annotated[float, amounts.duration("1s", "30d")] = Field(
        _STEP.repeat_s, description="How often a warning is given again while the incident lasts; only for warn."
    )
    under_pressure: Annotated[bool, fields.flag()] = Field(
        _STEP.under_pressure, description="The step counts only while the card is short of memory."
    )
    unwarned: Annotated[bool, fields.flag()] = Field(
        _STEP.unwarned,
        description="The step may come before any warning, and `check` says nothing of it. Only for kill and evict.",
    )


class RuleTable(Table):
    """`[[rule]]`: what holds for the pods that it matches. The first rule that matches a pod is its rule."""

    name: Annotated[str, fields.line(63, may_be_empty=False)] = Field(
        description="Unique; metrics, Events and records name it."
    )
    match: MatchTable = Field(MatchTable(), description="Which pods the rule is for.")
    account: Annotated[Literal["pod", "container"], fields.choice("pod", "container")] = Field(
        "pod", description="What is compared: a pod's containers together, or each with its own declaration."
    )
    default: Annotated[int | None, amounts.quantity()] = Field(
        None, description='For an account that declares nothing. `"0"` forbids it to use any; unset leaves it alone.'
    )
    mode: Annotated[Mode | None, fields.choice("observe", "enforce")] = Field(
        None, description="`observe`: this rule only observes. It can't enforce where the policy observes."
    )
    active: Annotated[Hours | None, fields.hours()] = Field(
        None, description="Outside of it this rule only observes, by the clock of that time zone."
    )
    step: list[StepTable] = Field([], description="The ladder.")


# The defaults stand in one place, the compiled policy.
_POLICY: Final = Policy(sha256="", source="")
_JOURNAL: Final = JournalLimits()
_BACKOFF: Final = Backoff()
_BREAKER: Final = Breaker()
_PULSE: Final = Pulse()
_MPS: Final = MpsControl()


class ProtectTable(Table):
    """`[protect]`: pods that are measured and never signalled or evicted, beyond those that are built in."""

    namespaces: list[NamespaceName] = Field([], description="All pods of these namespaces.")
    pods: list[PodName] = Field([], description="These pods; without a slash in any namespace.")
    priority_at_least: Annotated[int, fields.whole(-(2**31), 2**31 - 1)] = Field(
        Protect().priority_at_least, description="Pods of this priority and above."
    )
    annotation: Annotated[str, fields.key("the key of an annotation", optional=True)] = Field(
        "", description="Pods that carry it. Where it is empty, tenants cannot exempt themselves."
    )


class BackoffTable(Table):
    """The wait between two actions on pods of one owner."""

    first: Annotated[float, amounts.duration("1s", "1d")] = Field(_BACKOFF.first_s, description="The first wait.")
    factor: Annotated[float, fields.number(1, 100)] = Field(
        _BACKOFF.factor, description="Each wait is so many times the last."
    )
    max: Annotated[float, amounts.duration("1s", "7d")] = Field(_BACKOFF.max_s, description="The longest wait.")


class BreakerTable(Table):
    """Holds everything when too many owners are due at once."""

    offenders: Annotated[Fraction, amounts.percent("0.1%")] = Field(
        _BREAKER.offenders, description="From this share of the owners on it opens."
    )
    of_at_least: Annotated[int, fields.whole(1, 100_000)] = Field(
        _BREAKER.of_at_least, description="But only from so many owners on."
    )
    hold: Annotated[float, amounts.duration("1s", "7d")] = Field(_BREAKER.hold_s, description="How long it stays open.")


class BrakesTable(Table):
    """`[brakes]`: how much force one node uses at most."""

    node: Annotated[Window | None, amounts.window()] = Field(None, description="Kills and evictions on this node.")
    namespace: Annotated[Window | None, amounts.window()] = Field(None, description="In one namespace.")
    owner: Annotated[Window | None, amounts.window()] = Field(None, description="Of pods of one owner.")
    owner_backoff: BackoffTable | None = Field(None, description="The wait between two deeds on pods of one owner.")
    breaker: BreakerTable | None = Field(None, description="Holds everything when too many are due at once.")


class PressureTable(Table):
    """`[pressure]`: when a card is short of memory, for steps with `under_pressure = true`."""

    free_below: Annotated[Fraction, amounts.percent("0.1%", "99%")] = Field(
        _POLICY.free_below, description="Less than this share of the card is free."
    )


class CapacityTable(Table):
    """`[capacity]`: advertises GPU memory as a resource of the node; off where the table is missing."""

    resource: Annotated[str, fields.resource()] = Field(description="The resource to advertise.")
    amount: Annotated[int | Literal["cards"], amounts.cards_or_quantity()] = Field(
        "cards",
        description="How much: the memory of all cards and MIG instances that are up, or a quantity; advertised in the "
        "unit in which the declaration of the resource counts.",
    )
    reserve: Annotated[int, amounts.quantity()] = Field(
        0, description="Bytes that are kept back on each card or MIG instance."
    )


class EventsTable(Table):
    """`[events]`: Kubernetes Events on the pods."""

    observe: Annotated[bool, fields.flag()] = Field(default=False, description="Events on pods in observe mode too.")
    contact: Annotated[str, fields.line(200)] = Field(
        _POLICY.contact,
        description="Whom a tenant should ask: a name, an address, a page. Empty: the operator of this cluster.",
    )


class JournalTable(Table):
    """`[journal]`: how much of the past is kept."""

    max_age: Annotated[float, amounts.duration("1s", "3650d")] = Field(
        _JOURNAL.max_age_s, description="Older records are dropped."
    )
    max_size: Annotated[int, amounts.quantity("256Ki", "1Ti")] = Field(
        _JOURNAL.max_size, description="The oldest records are dropped beyond this size."
    )


class SafetyTable(Table):
    """`[safety]`: what is less safe and allowed all the same."""

    foreign_pid_namespace: Annotated[bool, fields.flag()] = Field(
        default=False, description="Enforce outside the host's PID namespace."
    )
    signal_without_pidfd: Annotated[bool, fields.flag()] = Field(
        default=False,
        description="Enforce where the pidfd calls are missing; identity is read again before each signal.",
    )
    signal_mps_clients: Annotated[bool, fields.flag()] = Field(
        default=False,
        description="Signal and evict clients of an MPS server outside their own pod, which can break the work of its "
        "other clients.",
    )


class PulseTable(Table):
    """`[pulse]`: cheap readings between full readings. Without effect yet: while it is set, `run` only observes."""

    every: Annotated[float, amounts.duration("20ms", "1s", zero=True)] = Field(
        _PULSE.every_s, description='How often each card\'s memory counter is read; "0s" is off.'
    )
    rise: Annotated[int, amounts.quantity("1", "1Ti")] = Field(
        _PULSE.rise, description="A rise of this much since the last full reading brings the next one forward."
    )
    looks: Annotated[Window, amounts.window()] = Field(
        _PULSE.looks, description="At most this many full readings are brought forward."
    )


PipeName = Annotated[str, fields.line(400, may_be_empty=False)]


class MpsTable(Table):
    """`[mps]`: how MPS clients are drained before they are signalled. Without effect yet, as `[pulse]`."""

    control: Annotated[str, fields.line(400, may_be_empty=False)] = Field(
        _MPS.control, description="The control program: a name on the search path of the node's driver, or a path."
    )
    pipe: list[PipeName] = Field(list(_MPS.pipe), description="`CUDA_MPS_PIPE_DIRECTORY` of each control daemon.")
    timeout: Annotated[float, amounts.duration("1s", "5m")] = Field(
        _MPS.timeout_s, description="How long an answer of a control daemon is waited for."
    )


class PolicyTable(Table):
    """The keys at the top of the file, before the first table."""

    version: Annotated[int, fields.whole(1, 1)] = Field(1, description="The version of this format.")
    mode: Annotated[Mode, fields.choice("observe", "enforce")] = Field(
        _POLICY.mode, description="`observe` decides everything and does nothing; `enforce` acts."
    )
    interval: Annotated[float, amounts.duration("1s", "5m")] = Field(
        _POLICY.interval_s, description="The processes are listed at least this often."
    )
    stale_after: Annotated[float, amounts.duration("1s", "1d")] = Field(
        _POLICY.stale_after_s, description="No force on a pod list that is older than this."
    )
    release_timeout: Annotated[float, amounts.duration("1s", "1h")] = Field(
        _POLICY.release_timeout_s,
        description="How long a deed waits for its memory to be seen free before the account's next one.",
    )
    declaration: list[DeclarationTable] = Field([], description="Where GPU memory is declared, tried in order.")
    allowance: AllowanceTable = Field(AllowanceTable(), description="What the driver takes.")
    rule: list[RuleTable] = Field([], description="The rules, tried in order.")
    protect: ProtectTable = Field(ProtectTable(), description="Who is never acted on.")
    brakes: BrakesTable | None = Field(None, description="How much force at most.")
    pressure: PressureTable | None = Field(None, description="When a card is short.")
    capacity: CapacityTable | None = Field(None, description="Advertise GPU memory on the node.")
    events: EventsTable = Field(EventsTable(), description="Events on pods.")
    journal: JournalTable = Field(JournalTable(), description="How much of the past is kept.")
    safety: SafetyTable = Field(SafetyTable(), description="What is less safe and allowed.")
    pulse: PulseTable | None = Field(None, description="Cheap readings between full ones.")
    mps: MpsTable | None = Field(None, description="How MPS clients are drained.")
