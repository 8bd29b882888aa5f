"""The plan of a cycle, the outcomes of its actions, and how those change the ledger."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum

from watchdog.core.assessment import (
    NO_DRAINS,
    AccountKey,
    Assessment,
    Attribution,
    ContainerKey,
    Inputs,
    KnownDrains,
    MpsHazard,
)
from watchdog.core.brakes import Brake, BreakerOwners
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
from watchdog.core.mps import clients_ended, hazard_of
from watchdog.core.policy import Do, Policy, Rule, Step
from watchdog.core.tally import Tally
from watchdog.core.transfers import FoundTransfer


class Count(StrEnum):
    """Which count of a step comes due first, or has: its stretch, its tally, or the tally of the whole pod."""

    STRETCH = "stretch"
    TALLY = "tally"
    POD = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """A step whose threshold its account is above, and which is due in `due_in_s` seconds (0 or less: now).

    `victim` is the container to act on ("" if there is none), `targets` are its listed GPU processes. `taken`: this
    cycle acts on it; `escalates`: it ends the grace period of an action in progress. `withheld_by` is the brake that
    withholds it, `is_new`: that has not been reported in this incident yet; `releases_in_s` is when the brake releases,
    None if time alone does not lift it; `presumed`: the brake counts as full, since what it counts was lost. `gpu` is
    the GPU that is short, for a step under pressure. `above_since` is when the account was first seen above the
    threshold; `not_above` is the last conclusive reading before that, if there was one; `stretch` is the time that has
    counted. `count` is what comes due first, `tally` that tally (None: the stretch does). `pending_eviction` is the
    eviction by this step that is to be tried again.
    """

    assessment: Assessment
    rule: Rule
    step_index: int
    victim: str
    targets: tuple[ProcessKey, ...]
    threshold_bytes: int
    due_in_s: float
    withheld_by: Brake | None = None
    taken: bool = False
    escalates: bool = False
    is_new: bool = False
    releases_in_s: float | None = None
    presumed: bool = False
    gpu: str | None = None
    above_since: Now
    not_above: Now | None = None
    stretch: Stretch | None = None
    count: Count = Count.STRETCH
    tally: Tally | None = None
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
    def mps_hazard(self) -> MpsHazard | None:
        """The hazard if the step would break the work of other pods; None if it would not."""
        return hazard_of(self.assessment.mps, self.effective_step, self.victim, self.targets)

    @property
    def to_drain(self) -> tuple[ProcessKey, ...]:
        """The MPS clients among its processes that are drained first, so that the work of other pods continues."""
        if not self.do.enforces:
            return ()
        return tuple(sorted(clients_ended(self.assessment.to_drain, self.effective_step, self.victim, self.targets)))

    @property
    def cards(self) -> frozenset[str]:
        """The GPUs on which the victim's memory is."""
        uses, is_whole = self.assessment.uses, self.definition.hits_whole_pod
        return frozenset(use.gpu for use in uses if is_whole or use.container == self.victim)

    def under_way(self, began: Now, release_timeout_s: float) -> UnderWay:
        """The action in progress once it has begun, waited for until grace period and release timeout are over.

        How long draining MPS clients takes before that is not known.
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
    """All entries in the order in which they would be acted on, and the ledger after this cycle.

    `breaker_owners` are the owners that the breaker counted; None if it had no reason to count.
    """

    entries: tuple[PlanEntry, ...]
    ledger: Ledger
    breaker_owners: BreakerOwners | None = None

    @property
    def taken(self) -> tuple[PlanEntry, ...]:
        """The entries that this cycle acts on, warnings included."""
        return tuple(entry for entry in self.entries if entry.taken)


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
    """A signal that was sent: its name, the processes, and how long after the first signal it was first sent."""

    signal: str
    keys: frozenset[ProcessKey]
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one plan entry, with a short `reason`; `signalled` are the processes that got a signal.

    `sent` are the signals of a kill in order, which reports use instead of its step. `for_owner` is the reason as
    reported to the pod's owner, if `reason` is only of use to the operator. `number` is its number in the journal (None
    for warnings and in observe mode). `reaction_s` runs from the last conclusive reading not above the threshold, plus
    `for`, to the first signal; `release_s` from the first signal until the memory was seen free. `victims` describe the
    processes for people. `by_change`: it was withdrawn because something had changed since the plan, not because the
    driver, the disk or the daemon was not ready.
    """

    entry: PlanEntry
    result: Result
    at: Now
    reason: str = ""
    for_owner: str = ""
    signalled: tuple[ProcessKey, ...] = ()
    sent: tuple[Sent, ...] = ()
    victims: tuple[str, ...] = ()
    number: int | None = None
    reaction_s: float | None = None
    release_s: float | None = None
    by_change: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNote:
    """What is known of a switch that turns enforcement off, by the reason of suspension that it is.

    `why` is the reason that was given (empty: none), `by` who set it and when, as far as that is known. Others wrote
    both texts: they are short and without control characters.
    """

    switch: str
    why: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """The report of one finished cycle, from which metrics, journal, log, `scan` and `/api/status` are made.

    `suspended` has the reasons why the daemon does not enforce although its policy says so. `began` are actions whose
    first signal was sent since the previous report, `outcomes` the actions that ended. `namespaces` has the labels of
    the known namespaces, `overdue` the containers that should have been in the pod list by now, `drains` what was known
    of MPS clients, `pinned` their limits, `transfers` the memory first seen to have changed hands. `maintenance` is why
    the driver is released or about to be, None if it is not; `maintenance_start` is when that began, None if it is
    unknown. `duration_s` is the duration of the cycle, `scan_s` that of reading the node. `stops` has what is known of
    the switches among `suspended`.
    """

    node: Node
    at: Now
    policy: Policy
    policy_loaded_at_s: float
    enforcing: bool
    suspended: tuple[str, ...]
    snapshot: Snapshot
    pods: PodList
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    began: tuple[Outcome, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    overdue: frozenset[ContainerKey] = frozenset()
    drains: KnownDrains = NO_DRAINS
    pinned: tuple[PinnedLimit, ...] = ()
    transfers: tuple[FoundTransfer, ...] = ()
    maintenance: str | None = None
    maintenance_start: MaintenanceStart | None = None
    stops: tuple[StopNote, ...] = ()
    scan_s: float = 0.0
    duration_s: float = 0.0

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
    is_kill = outcome.entry.do is Do.KILL
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
    """A cycle that has a plan and has not acted yet. `only` are the GPUs to read again before it acts; empty: none.

    `transfers` are those that its reading has shown first, `residual_gaps` name cards with much memory in use by no
    process, and keep no loop from resting. `intentions` are the kills and evictions that it is about to begin, by
    account. Each is a number once it is on disk, or an outcome if it ended before it could begin. `late`: why none of
    them may begin, if the daemon was late.
    """

    inputs: Inputs
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    scan_s: float
    only: frozenset[str] = frozenset()
    transfers: tuple[FoundTransfer, ...] = ()
    residual_gaps: tuple[Gap, ...] = ()
    intentions: Mapping[AccountKey, Future[int] | Outcome] = field(default_factory=dict)
    late: str = ""

    def with_inputs(self, inputs: Inputs) -> "OpenCycle":
        """The cycle with the inputs of a later moment, except for what its reading and the ledger gave."""
        own = self.inputs
        return replace(self, inputs=replace(inputs, overdue=own.overdue, hidden=own.hidden, acting=own.acting))

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
    """A cycle that has acted: its final plan, the actions begun, and those that ended since the previous cycle."""

    plan: Plan
    began: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
