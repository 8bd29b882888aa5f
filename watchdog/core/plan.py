"""The plan of a cycle: what is to be done, what holds it back, what came of it, and what that changes in the ledger."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum

from watchdog.core.assess import Setting
from watchdog.core.assessment import AccountKey, Assessment, Attribution, MpsHazard
from watchdog.core.attribute import ContainerKey
from watchdog.core.brakes import Brake, Crowd
from watchdog.core.ledger import AccountState, Ledger, Stretch, Trying, UnderWay
from watchdog.core.model import Node, Now, PodList, ProcessKey, Snapshot
from watchdog.core.mps import hazard_of
from watchdog.core.policy import Do, Policy, Rule, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """A step of an account that is above its mark: due now (`due_in_s` 0), or when it would come.

    `victim` is the container to act on ("": none can be named), `targets` its GPU processes as listed,
    `threshold_bytes` the bytes of its mark. `taken` says that this cycle acts on it; `escalates`, that it ends the
    grace of an action in progress. `news` says that this withholding has not been reported in this incident yet;
    `lets_go_in_s` when the brake lets go, None where that is not a matter of time; `presumed`, that the brake counts as
    full, since what it counts was lost. `card` is the GPU that is short, for a step under pressure. `above_since` is
    when the account was first seen above the mark; `not_above` the last conclusive reading before that, if there was
    one; `stretch` is what has counted. `trying` is the eviction by this very step that has not come about yet: it is
    tried again.
    """

    assessment: Assessment
    rule: Rule
    step: int
    victim: str
    targets: tuple[ProcessKey, ...]
    threshold_bytes: int
    due_in_s: float
    withheld_by: Brake | None = None
    taken: bool = False
    escalates: bool = False
    news: bool = False
    lets_go_in_s: float | None = None
    presumed: bool = False
    card: str | None = None
    above_since: Now
    not_above: Now | None = None
    stretch: Stretch | None = None
    trying: Trying | None = None

    @property
    def do(self) -> Do:
        """What the step does."""
        return self.definition.do

    @property
    def definition(self) -> Step:
        """The step of the rule that this is."""
        return self.rule.steps[self.step]

    @property
    def account(self) -> AccountKey:
        """The account it is about."""
        return self.assessment.account

    @property
    def hits_whole_pod(self) -> bool:
        """Whether no container of the pod is left out."""
        return self.definition.scope == "pod" or self.do is Do.EVICT

    @property
    def mps_hazard(self) -> MpsHazard | None:
        """What it would end although other pods' work breaks with that."""
        return hazard_of(self.assessment.mps, self.definition, self.victim, self.targets)

    @property
    def cards(self) -> frozenset[str]:
        """The GPUs on which the victim's memory is."""
        uses = self.assessment.uses
        return frozenset(use.gpu for use in uses if self.hits_whole_pod or use.container == self.victim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All entries in the order in which they would be acted on, and the ledger after this cycle.

    `crowd` is what the breaker looked at; None: it had no reason to look.
    """

    entries: tuple[PlanEntry, ...]
    ledger: Ledger
    crowd: Crowd | None = None

    @property
    def actions(self) -> tuple[PlanEntry, ...]:
        """The entries that this cycle acts on."""
        return tuple(entry for entry in self.entries if entry.taken)


class Result(StrEnum):
    """What came of an action: the label `result`; `observed` is the end of everything in observe mode."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    GONE = "gone"  # not needed any more: nothing is left to act on, or SIGTERM was enough
    INTERRUPTED = "interrupted"
    WITHDRAWN = "withdrawn"  # intended and written down, then found unjustified: no signal was sent
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A signal that was really sent: its name, to which processes, and how long after the first signal it began."""

    signal: str
    keys: frozenset[ProcessKey]
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one plan entry. `reason` says it in a few words; `signalled` are the processes that got a signal.

    `sent` are the signals of a kill, in their order; what is reported of it goes by them and not by its step.

    `for_owner` says it to the pod's owner where `reason` is only good for the operator.

    `number` is the journal's number of it (None for warnings and in observe mode). `reaction_s` runs from the last
    conclusive reading not above the mark, plus `for`, to the first signal; `release_s` from the first signal to the
    memory seen free. `victims` say for people what the processes were.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the daemon knows of itself when it decides: brakes that lie outside the node's readings.

    `hidden` are the UIDs of the listed pods where any of them may use more than this reading shows; None: it shows all.
    """

    pods_stale: bool = False
    journal_writable: bool = True
    maintenance: bool = False
    hidden: frozenset[str] | None = None

    @property
    def are_dark(self) -> bool:
        """Whether a cycle is good for no deadline, nor for saying that whoever is not seen uses nothing."""
        return self.pods_stale or self.maintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """One cycle, whole: everything that metrics, journal, logs, `scan` and `/api/status` are made of.

    `suspended` has the reasons why the daemon, told to enforce, does not. `began` are actions whose first signal went
    out in this cycle or since the last one, `outcomes` what ended. `namespaces` has the labels of those that are known.
    `maintenance` is why the driver is let go or about to be; None: it is not.
    `duration_s` is the cycle, `scan_s` its reading of the node.
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
    maintenance: str | None = None
    scan_s: float = 0.0
    duration_s: float = 0.0


def settle(ledger: Ledger, outcome: Outcome) -> Ledger:
    """The ledger after an outcome.

    A kill ends with its outcome, and so does an eviction that came about. One that did not holds up nothing else: all
    stretches go on, and only the next eviction waits. One that is blocked is still being tried.
    """
    if outcome.result is Result.BLOCKED:
        return ledger
    account, step = outcome.entry.account, outcome.entry.definition.signature
    if outcome.result is Result.WITHDRAWN:  # it never began, so no stretch starts over
        return ledger.note_failed(account, outcome.entry.do, outcome.at)
    is_eviction = outcome.entry.do is Do.EVICT
    has_come_about = not is_eviction or outcome.result is Result.DONE
    if outcome.number is not None and has_come_about:
        ledger = ledger.note_ended(account, step if is_eviction else None)
    if outcome.result is Result.FAILED or (outcome.number is not None and not has_come_about):
        ledger = ledger.note_failed(account, outcome.entry.do, outcome.at)
    return ledger


def accept(ledger: Ledger, entry: PlanEntry, under_way: UnderWay) -> Ledger:
    """The ledger after an eviction has been accepted; where a kill has begun meanwhile that stays the action."""
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
            changed[key] = replace(state, under_way=replace(under_way, sent=sent, ended=ended), calm=None)
    return replace(ledger, accounts={**ledger.accounts, **changed}) if changed else ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a cycle takes as given besides the reading: the pods, the policy and node, brakes, and whether it may act.

    `is_held` says that nobody is acted on for the moment, because the policy may be about to change: what is due stays
    due.
    """

    pods: PodList
    setting: Setting
    conditions: Conditions
    enforcing: bool
    is_held: bool = False

    def acts_on(self, entry: PlanEntry) -> bool:
        """Whether an entry that is let through is acted on: nothing observes, neither the mode nor the rule."""
        return self.enforcing and not entry.assessment.observes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCycle:
    """A cycle as far as its plan. `only` are the GPUs to be looked at again before it can act; empty: none.

    `intentions` are the kills and evictions that it is about to begin, by account: the number of each once it is on
    disk, or how it ended before it could begin.
    `overdue` are the containers that the pod list should have had by then and did not.
    """

    view: View
    snapshot: Snapshot
    attribution: Attribution
    assessments: tuple[Assessment, ...]
    plan: Plan
    scan_s: float
    only: frozenset[str] = frozenset()
    intentions: Mapping[AccountKey, Future[int] | Outcome] = field(default_factory=dict)
    overdue: frozenset[ContainerKey] = frozenset()

    @property
    def is_written(self) -> bool:
        """Whether it is known of each intention whether it is on disk."""
        return all(isinstance(each, Outcome) or each.done() for each in self.intentions.values())

    @property
    def wants_last_look(self) -> bool:
        """Whether there is anything to do that a last look has to bear out."""
        futures = (each for each in self.intentions.values() if not isinstance(each, Outcome))
        is_on_disk = any(each.done() and each.exception() is None for each in futures)
        return is_on_disk or any(entry.trying is not None for entry in self.plan.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What a cycle came to: the plan as it stands at the end, what began, and what has ended since the last cycle."""

    plan: Plan
    began: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
