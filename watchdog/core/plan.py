"""The plan of a cycle, the outcomes of its actions, and how those change the ledger."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto

from watchdog.core.assessment import (
    NO_DRAINS,
    AccountKey,
    Assessment,
    Attribution,
    ContainerKey,
    Inputs,
    KnownDrains,
)
from watchdog.core.brakes import Brake, BreakerOwners
from watchdog.core.hazards import Hazard, clients_ended, hazard_of
from watchdog.core.ledger import AccountState, Ledger, PendingEviction, Stretch, UnderWay
from watchdog.core.model import (
    MAINTENANCE,
    Gap,
    MaintenanceStart,
    Node,
    Now,
    PinnedLimit,
    PodList,
    ProcessKey,
    Snapshot,
    began_at_s,
)
from watchdog.core.policy import Do, Policy, Rule, Step
from watchdog.core.tally import Tally
from watchdog.core.transfers import FoundTransfer
from watchdog.core.utilization import NO_UTILIZATION, Utilization


class Count(StrEnum):
    """Which count of a step comes due first, or has: its stretch, its tally, or the tally of the whole pod."""

    STRETCH = "stretch"
    TALLY = "tally"
    POD = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """A step whose threshold its account is above, with when it is due and what withholds it."""

    assessment: Assessment
    rule: Rule
    # Its place in the steps of `rule`, from 0.
    step_index: int
    # The name of the container to act on; "" if there is none.
    victim: str
    # The victim's GPU processes that the step is for, as they are listed.
    targets: tuple[ProcessKey, ...]
    threshold_bytes: int
    # Seconds until it is due; 0 or less: now.
    due_in_s: float
    # The brake that withholds it; None: none does.
    withheld_by: Brake | None = None
    # Whether this cycle acts on it.
    taken: bool = False
    # Whether it ends the grace period of an action in progress.
    escalates: bool = False
    # Whether that brake has not been reported in this incident yet.
    is_new: bool = False
    # Seconds until the brake releases; None if time alone does not lift it.
    releases_in_s: float | None = None
    # Whether the brake counts as full, since what it counts was lost.
    counts_as_full: bool = False
    # The UUID of the GPU that is short, for a step under pressure; None for the others.
    gpu: str | None = None
    # When the account was first seen above the threshold.
    above_since: Now
    # The last conclusive reading before that; None if there was none.
    not_above: Now | None = None
    # The time that has counted; None: none has yet.
    stretch: Stretch | None = None
    # What comes due first.
    count: Count = Count.STRETCH
    # The tally that comes due first; None: the stretch does.
    tally: Tally | None = None
    # The eviction by this step that is to be tried again.
    pending_eviction: PendingEviction | None = None

    @property
    def do(self) -> Do:
        """What the step does."""
        return self.definition.do

    @property
    def definition(self) -> Step:
        """The step's definition in the rule."""
        return self.rule.steps[self.step_index]

    @property
    def effective_step(self) -> Step:
        """The step as it is carried out: if the largest process has ended, scope `process` is its whole container."""
        step = self.definition
        return replace(step, scope="container") if step.scope == "process" and self.outlived else step

    @property
    def outlived(self) -> frozenset[ProcessKey]:
        """Those of its targets that have ended, whose memory outlives them."""
        return frozenset(use.key for use in self.assessment.uses if use.ended and use.key in self.targets)

    @property
    def account(self) -> AccountKey:
        """The account."""
        return self.assessment.account

    @property
    def is_tally_due(self) -> bool:
        """Whether a tally of the step is due, whatever else it waits for."""
        return self.tally is not None and self.tally.left_s(self.definition) <= 0

    @property
    def hazard(self) -> Hazard | None:
        """The hazard if the step would break the work of other pods; None if it would not."""
        if not self.assessment.hazards:
            return None
        return hazard_of(self.assessment.hazards, self.effective_step, self.victim, self.targets)

    @property
    def to_drain(self) -> tuple[ProcessKey, ...]:
        """The clients among its processes that are drained first, so that the work of other pods continues."""
        if not self.assessment.to_drain or not self.do.ends_containers:
            return ()
        return tuple(sorted(clients_ended(self.assessment.to_drain, self.effective_step, self.victim, self.targets)))

    @property
    def cards(self) -> frozenset[str]:
        """The GPUs on which the victim's memory is."""
        uses, is_whole = self.assessment.uses, self.definition.hits_whole_pod
        return frozenset(use.gpu for use in uses if is_whole or use.container == self.victim)

    def under_way(self, began: Now, release_timeout_s: float) -> UnderWay:
        """The action in progress once it has begun, waited for until grace period and release timeout are over.

        How long draining its clients takes before that is not known.
        """
        until_s = began.boottime_s + self.definition.grace_s + release_timeout_s
        return UnderWay(
            step=self.definition.signature,
            victim=self.victim,
            whole_pod=self.definition.hits_whole_pod,
            cards=self.cards,
            until_s=None if self.to_drain else until_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one cycle, and what is remembered after it."""

    # In the order in which they would be acted on.
    entries: tuple[PlanEntry, ...]
    # The ledger after this cycle.
    ledger: Ledger
    # The owners that the breaker counted; None if it had no reason to count.
    breaker_owners: BreakerOwners | None = None

    @property
    def taken(self) -> tuple[PlanEntry, ...]:
        """The entries that this cycle acts on, warnings included."""
        return tuple(entry for entry in self.entries if entry.taken)


class Moment(Enum):
    """When it is asked what speaks against an action."""

    FIRST_SIGNAL = auto()  # right before its first signal, or before the request that stands for it
    GRACE = auto()  # while a kill that has begun can still be called off
    REQUEST = auto()  # while the answer to a request is awaited: an eviction, or what comes before a first signal


# Gives a reason why an action must not go on at a moment; None: there is none.
Objection = Callable[[PlanEntry, Moment], str | None]


class Result(StrEnum):
    """The result of an action, as in the label `result`; in observe mode it is always `observed`."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    GONE = "gone"  # no longer needed: nothing is left to act on, or SIGTERM was enough
    INTERRUPTED = "interrupted"
    WITHDRAWN = "withdrawn"  # intended and written down, then found unjustified: no signal was sent
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A signal that was sent."""

    # Its name: SIGTERM; or DRAIN.
    signal: str
    # The processes that got it.
    keys: frozenset[ProcessKey]
    # How long after the action began it was first sent.
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one plan entry."""

    entry: PlanEntry
    result: Result
    at: Now
    # Why it ended this way, in a few words.
    reason: str = ""
    # The reason as reported to the pod's owner, if `reason` is only of use to the operator.
    for_owner: str = ""
    # The processes that got a signal.
    signalled: tuple[ProcessKey, ...] = ()
    # The signals of a kill in order, which reports use instead of its step.
    sent: tuple[Sent, ...] = ()
    # Descriptions of the processes for people.
    victims: tuple[str, ...] = ()
    # Its number in the journal; None for warnings and in observe mode.
    number: int | None = None
    # From the last conclusive reading not above the threshold, plus `for`, to the first signal.
    reaction_s: float | None = None
    # From the first signal until the memory was seen free.
    release_s: float | None = None
    # Whether it was withdrawn because something had changed since the plan, not because the driver, the disk or the
    # daemon was not ready.
    by_change: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNote:
    """What is known of a switch that turns enforcement off; what others wrote is short, without control characters."""

    # The reason of suspension that it is.
    switch: str
    # The reason that was given; empty: none.
    why: str = ""
    # Who set it and when, as far as that is known.
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """The report of one finished cycle, from which metrics, journal, log, `scan` and `/api/status` are made."""

    node: Node
    at: Now
    policy: Policy
    # Unix time.
    policy_loaded_at_s: float
    enforcing: bool
    # The reasons why the daemon does not enforce although its policy says so.
    suspended: tuple[str, ...]
    snapshot: Snapshot
    pods: PodList
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    # The actions whose first signal was sent since the previous report.
    began: tuple[Outcome, ...] = ()
    # The actions that ended since the previous report.
    outcomes: tuple[Outcome, ...] = ()
    # The labels of the known namespaces, by name.
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The containers that should have been in the pod list by now.
    overdue: frozenset[ContainerKey] = frozenset()
    # What control daemons had said of their clients.
    drains: KnownDrains = NO_DRAINS
    # How much those clients could pin.
    pinned: tuple[PinnedLimit, ...] = ()
    # The memory first seen to have changed hands.
    transfers: tuple[FoundTransfer, ...] = ()
    # Why the driver is released or about to be; None if it is not.
    maintenance: str | None = None
    # When the maintenance began; None if that is unknown.
    maintenance_start: MaintenanceStart | None = None
    # What is known of the switches among `suspended`.
    stops: tuple[StopNote, ...] = ()
    # How long reading the node took.
    scan_s: float = 0.0
    # How long the whole cycle took.
    duration_s: float = 0.0
    # How busy the cards and the containers on them are.
    utilization: Utilization = NO_UTILIZATION

    @property
    def switched_off_by(self) -> tuple[str, ...]:
        """The reasons of suspension but for maintenance, which withholds actions as a brake does."""
        return tuple(reason for reason in self.suspended if reason != MAINTENANCE)

    @property
    def observes(self) -> bool:
        """Whether it only observes: its policy says so, or something has switched enforcement off."""
        return not self.enforcing and (not self.suspended or bool(self.switched_off_by))

    @property
    def maintenance_since_s(self) -> float | None:
        """Unix time at which the maintenance began or was first seen; None without one, or if that is unknown."""
        start = self.maintenance_start
        return None if start is None or self.maintenance is None else began_at_s(start.at, self.at)


def settle(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The ledger after an outcome.

    A kill ends with its outcome, and so does an accepted eviction. An eviction that failed delays only the next
    eviction: all stretches continue. A blocked one is still being tried.
    """
    if outcome.result is Result.BLOCKED:
        return ledger
    account, step = outcome.entry.account, outcome.entry.definition.signature
    if outcome.result is Result.WITHDRAWN:  # it never began, so no stretch starts over
        ledger = ledger.note_withdrawn(account, outcome.entry.do, outcome.at, by_change=outcome.by_change)
        return ledger.note_unused(outcome.entry.assessment)
    if outcome.number is None:
        ledger = ledger.note_unused(outcome.entry.assessment)
    is_kill = outcome.entry.do.ends_processes
    has_succeeded = is_kill or outcome.result is Result.DONE
    if outcome.number is not None and has_succeeded:
        ledger = ledger.note_ended(account, None if is_kill else step)
    if outcome.result is Result.FAILED or (outcome.number is not None and not has_succeeded):
        ledger = ledger.note_failed(account, outcome.entry.do, outcome.at)
    return ledger


def accept(ledger: Ledger, entry: PlanEntry, under_way: UnderWay) -> Ledger:
    """The ledger after an eviction has been accepted; a kill that has begun meanwhile stays the action in progress."""
    state = ledger.accounts.get(entry.account)
    if state is not None and state.under_way is not None:
        return ledger
    return ledger.note_under_way(entry.account, under_way)


def note_sent(ledger: Ledger, kills: Iterable[tuple[AccountKey, tuple[str, ...], bool]]) -> Ledger:
    """The ledger with the signals that each kill in progress has sent, and whether its processes have ended."""
    changed: dict[AccountKey, AccountState] = {}
    for key, sent, ended in kills:
        state = ledger.accounts.get(key)
        under_way = state.under_way if state is not None else None
        if state is not None and under_way is not None and (under_way.sent, under_way.ended) != (sent, ended):
            changed[key] = replace(state, under_way=replace(under_way, sent=sent, ended=ended))
    return replace(ledger, accounts={**ledger.accounts, **changed}) if changed else ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCycle:
    """A cycle that has a plan and has not acted yet."""

    inputs: Inputs
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    # How long reading the node took.
    scan_s: float
    # The GPUs to read again before it acts; empty: none.
    only: frozenset[str] = frozenset()
    # The transfers of memory that its reading has shown first.
    transfers: tuple[FoundTransfer, ...] = ()
    # Cards with much memory in use by no process. They keep no loop from resting.
    residual_gaps: tuple[Gap, ...] = ()
    # The kills and evictions that it is about to begin, by account: each a number once it is on disk, or an outcome if
    # it ended before it could begin.
    intentions: Mapping[AccountKey, Future[int] | Outcome] = field(default_factory=dict)
    # Why none of them may begin, if the daemon was late; empty if it was not.
    late: str = ""

    def with_inputs(self, inputs: Inputs) -> "OpenCycle":
        """The cycle with the inputs of a later moment, except for what its reading and the ledger gave."""
        return replace(self, inputs=inputs.as_read_in(self.inputs))

    @property
    def is_written(self) -> bool:
        """Whether every intention is on disk or has ended."""
        return all(isinstance(intention, Outcome) or intention.done() for intention in self.intentions.values())

    @property
    def needs_last_look(self) -> bool:
        """Whether any action of the plan needs a last look."""
        futures = (intention for intention in self.intentions.values() if not isinstance(intention, Outcome))
        is_on_disk = any(future.done() and future.exception() is None for future in futures)
        return is_on_disk or any(entry.pending_eviction is not None for entry in self.plan.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedCycle:
    """A cycle that has acted."""

    # The final plan, with what withheld its entries.
    plan: Plan
    # The actions whose first signal was sent since the previous cycle.
    began: tuple[Outcome, ...]
    # The actions that ended since the previous cycle.
    outcomes: tuple[Outcome, ...]
