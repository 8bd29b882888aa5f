"""The policy file as it is written: one class a table, one field a key. The policy reference is written from it."""

from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import Field

from watchdog.config import amounts, fields, names
from watchdog.config.declaration_schema import AllowanceTable, DeclarationTable, Table
from watchdog.config.rule_schema import NamespaceName, PodName, RuleTable
from watchdog.core.policy import Backoff, Breaker, JournalLimits, Mode, MpsControl, Policy, Protect, Pulse, Window

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
    annotation: Annotated[str, names.key("the key of an annotation", optional=True)] = Field(
        "", description="Pods that carry it. Where it is empty, tenants cannot exempt themselves."
    )


class BackoffTable(Table):
    """The wait between two deeds on pods of one owner."""

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

    resource: Annotated[str, names.resource()] = Field(description="The resource to advertise.")
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
