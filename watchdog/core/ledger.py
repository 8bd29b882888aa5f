"""The ledger: what has been counted, warned and begun for each account, and what the brakes remember.

Durations are differences of CLOCK_BOOTTIME.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from watchdog.core.assessment import AccountKey, Assessment, Verdict
from watchdog.core.brakes import Begun, BrakeMemory, owner_of
from watchdog.core.model import Now
from watchdog.core.policy import Do, Policy, Rule, StepSignature
from watchdog.core.tally import StepKey, Tally

_Count = TypeVar("_Count", "Stretch", Tally)

# A step that failed (no right to signal, no API) must not be tried again at every cycle: earlyoom once looped on EPERM.
_RETRY_FIRST_S = 10.0
_RETRY_MAX_S = 600.0
# What was withdrawn because of a change has not failed: no tenant must put it off for longer by changing its pod.
_RETRY_CHANGED_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """An uninterrupted time during which an account was above the threshold of one step."""

    # The time between conclusive readings that counted, at most an interval each.
    counted_s: float
    # The first of those readings.
    since: Now
    # The latest of them.
    last: Now
    # The lowest use during the stretch, in bytes.
    least_used: int
    # The highest threshold during the stretch.
    threshold_bytes: int
    # The last reading before it with known use; None if there was none.
    not_above: Now | None = None
    # Whether its rule only observed.
    observes: bool = False

    def lasts_until(self, other: "Stretch", reset_after_s: float) -> bool:
        """Whether a reading can extend it: not after a long gap, and not once its rule starts to enforce."""
        gap_s = other.last.boottime_s - self.last.boottime_s
        is_near = other.last.boot_id == self.last.boot_id and 0 <= gap_s < reset_after_s
        return is_near and (other.observes or not self.observes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often an action has failed in this incident."""

    count: int
    # The CLOCK_BOOTTIME before which it is not tried again.
    retry_at_s: float
    # Whether the last one was withdrawn before it began.
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldUse:
    """The use over a threshold that brakes have withheld an action for, summed over time."""

    # The sum up to `at_s`, in byte-seconds.
    byte_s: float
    # By how many bytes per second it has grown since then, 0 while no brake withholds it. While use is below every
    # threshold it falls, twice as fast as it grew last.
    over: int
    # As CLOCK_BOOTTIME.
    at_s: float
    # By how many bytes per second it grew last.
    grew: int = 0

    def by(self, now: Now) -> float:
        """The byte-seconds up to a moment."""
        return max(self.byte_s + self.over * max(now.boottime_s - self.at_s, 0.0), 0.0)

    def then(self, over: int | None, now: Now) -> "WithheldUse":
        """The sum from now on; None: it falls. The identical object if it goes on changing by as much."""
        over = -2 * self.grew if over is None else over
        if over == self.over:
            return self
        return WithheldUse(byte_s=self.by(now), over=over, at_s=now.boottime_s, grew=max(over, 0) or self.grew)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An action in progress: it has begun, and its memory has not been seen free yet."""

    # The signature of its step, since a reload can change the index; None: left by an earlier daemon.
    step: StepSignature | None
    # The name of the container.
    victim: str
    # Whether it ends the whole pod.
    whole_pod: bool = False
    # The GPUs that its memory is on; None if unknown.
    cards: frozenset[str] | None = None
    # The CLOCK_BOOTTIME until which it is waited for; None: that is not known yet.
    until_s: float | None = None
    # The names of the signals of a kill sent so far.
    sent: tuple[str, ...] = ()
    # Whether the processes of a kill have ended.
    ended: bool = False

    def step_of(self, rule: Rule) -> int | None:
        """The index of its step in a rule as it is now; None: the rule no longer has it."""
        return next((index for index, step in enumerate(rule.steps) if step.signature == self.step), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEviction:
    """An eviction that the API server has not accepted yet; it withholds no other step, and is not begun twice."""

    # The signature of its step.
    step: StepSignature
    # The number of attempts so far.
    tries: int
    # The CLOCK_BOOTTIME at which it is given up.
    until_s: float
    # The CLOCK_BOOTTIME of the next attempt; None: an answer is awaited.
    next_s: float | None = None
    # Why the last attempt failed.
    refused: str = ""
    # Whether it failed because of a disruption budget.
    is_blocked: bool = False
    # The GPUs that the pod's memory is on.
    cards: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """What is remembered of one account."""

    # The names of the rules that have applied to it.
    ran_under: frozenset[str] = frozenset()
    # One for each step of those rules that it is above.
    stretches: Mapping[StepKey, Stretch] = field(default_factory=dict)
    # The second counts of those steps, which outlast the incident until they are 0.
    tallies: Mapping[StepKey, Tally] = field(default_factory=dict)
    # The last reading with known use.
    read: Now | None = None
    # The first reading over the limit, which an unknown one keeps and one within the limit ends.
    over_since: Now | None = None
    # The CLOCK_BOOTTIME of the incident's last warning, separately for rules that only observe (True).
    warned_s: Mapping[bool, float] = field(default_factory=dict)
    # The failures of this incident, by action.
    failures: Mapping[Do, Failures] = field(default_factory=dict)
    # For which kinds of rules the incident's one action was planned without being carried out: for those that only
    # observe (True), for the others (False).
    observed: frozenset[bool] = frozenset()
    # Whether an action has begun in this incident.
    acted: bool = False
    # The use that brakes have withheld since the last action; None: nothing.
    withheld: WithheldUse | None = None
    # The action in progress; None: there is none.
    under_way: UnderWay | None = None
    # The eviction that was begun and is not accepted yet; None: there is none.
    pending_eviction: PendingEviction | None = None
    # The names of the brakes already reported in this incident.
    reported: frozenset[str] = frozenset()

    @property
    def has_action(self) -> bool:
        """Whether an action is in progress or pending; it is remembered even if its account is not seen."""
        return self.under_way is not None or self.pending_eviction is not None

    @property
    def is_in_incident(self) -> bool:
        """Whether anything is remembered that only the end of the incident clears, such as failures or reports."""
        is_reported = self.warned_s or self.observed or self.reported
        return bool(self.stretches or self.failures or is_reported or self.acted)

    def withheld_byte_s(self, now: Now) -> float:
        """The byte-seconds that brakes have withheld since the last action."""
        return self.withheld.by(now) if self.withheld is not None else 0.0

    def with_withheld(self, over: int | None, now: Now) -> "AccountState":
        """The state while brakes withhold an action for use this far over a threshold.

        0: they withhold none; None: its use is below the thresholds of all kills and evictions.
        """
        if self.withheld is None and not over:
            return self
        before = self.withheld or WithheldUse(byte_s=0.0, over=0, at_s=now.boottime_s)
        after = before.then(over, now)
        if not over and after.by(now) == 0:
            return replace(self, withheld=None)
        return self if after is self.withheld else replace(self, withheld=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is remembered of all accounts, and of actions for the brakes."""

    accounts: Mapping[AccountKey, AccountState] = field(default_factory=dict)
    # Those of whole pods, by UID: of pods with an account for each container or card.
    tallies: Mapping[str, Mapping[StepKey, Tally]] = field(default_factory=dict)
    # The last cycle that read the whole node conclusively.
    last_cycle: Now | None = None
    brakes: BrakeMemory = field(default_factory=BrakeMemory)
    # The brakes' memory for rules that only observe: what those would have done must not withhold real actions.
    trial: BrakeMemory = field(default_factory=BrakeMemory)

    def reset(self) -> "Ledger":
        """The ledger when enforcement starts: without stretches, but with the actions in progress."""
        return replace(self._without_stretches(), brakes=self.brakes.without_observed())

    def reloaded(self, before: Policy, after: Policy) -> "Ledger":
        """The ledger after a reload: all accounts start over unless the new policy counts time the same way."""
        return self if after.counts_like(before) else self._without_stretches()

    def _without_stretches(self) -> "Ledger":
        actions = {
            key: AccountState(under_way=state.under_way, pending_eviction=state.pending_eviction)
            for key, state in self.where(lambda state: state.has_action)
        }
        return replace(self, accounts=actions, tallies={}, last_cycle=None)

    def where(self, holds: Callable[[AccountState], bool]) -> Iterator[tuple[AccountKey, AccountState]]:
        """The accounts of whose state this holds, which is asked once of each state.

        Those of which nothing is remembered share one. A tenant who changes large pods in turn, so that they wait to be
        read, can have tens of thousands of them.
        """
        found = {
            number for number, state in {id(each): each for each in self.accounts.values()}.items() if holds(state)
        }
        return (each for each in self.accounts.items() if id(each[1]) in found) if found else iter(())

    def missing_accounts(self, assessments: Iterable[Assessment]) -> Iterator[Assessment]:
        """Assessments of accounts in an incident, or with a tally, that the current rule does not have.

        They are made from the pod's other accounts.

        A pod that is relabelled from a rule for pods to one for containers, or back, keeps its incident.
        """
        missing = {key for key, _ in self.where(lambda state: state.is_in_incident or bool(state.tallies))}
        if not missing:
            return
        pods: dict[str, list[Assessment]] = {}
        for assessment in assessments:
            missing.discard(assessment.account)
            pods.setdefault(assessment.account.uid, []).append(assessment)
        for key in sorted(missing, key=lambda key: key.sort_key):
            if key.uid in pods:
                yield _assess_missing(key, pods[key.uid])

    def note_begun(self, assessment: Assessment, action: UnderWay | PendingEviction, now: Now) -> "Ledger":
        """The ledger after an action on an account has begun: the brakes count it, whatever its result."""
        brakes = self.brakes.add_begun(owner_of(assessment.pod), Begun(now.boottime_s))
        key = assessment.account
        if isinstance(action, PendingEviction):
            ledger = self._note_pending_eviction(key, action)
        else:
            ledger = self.note_under_way(key, action)
        return replace(ledger._without_withheld(key), brakes=brakes)

    def note_not_begun(self, assessment: Assessment) -> "Ledger":
        """The ledger once an action that was about to begin, and counted, has been withdrawn."""
        state = self.accounts.get(assessment.account)
        ledger = replace(self, brakes=self.brakes.without_last(owner_of(assessment.pod)))
        return ledger if state is None else ledger._with(assessment.account, replace(state, under_way=None))

    def note_pending_evictions(self, pending: Mapping[AccountKey, PendingEviction]) -> "Ledger":
        """The ledger with exactly these pending evictions."""
        ledger = self
        for key, state in self.accounts.items():
            current = pending.get(key) if pending else None  # hashing each key would take longer
            if state.pending_eviction is not current:
                ledger = ledger._note_pending_eviction(key, current)
        return ledger

    def note_under_way(self, key: AccountKey, under_way: UnderWay) -> "Ledger":
        """The ledger with an action in progress that was already counted when it began, such as an earlier daemon's."""
        state = self.accounts.get(key) or AccountState()
        return self._with(key, replace(state, under_way=under_way, acted=True))

    def note_escalated(self, key: AccountKey, step: StepSignature) -> "Ledger":
        """The ledger after a stronger step has ended the grace period of the action in progress on the same victim."""
        state = self.accounts.get(key)
        if state is None or state.under_way is None:
            return self
        return self._with(key, replace(state, under_way=replace(state.under_way, step=step)))

    def note_observed(self, assessment: Assessment, now: Now) -> "Ledger":
        """The ledger after observe mode, or a rule that only observes, has planned the one action of this incident."""
        state = self.accounts.get(assessment.account)
        if state is None:
            return self
        observed = state.observed | {assessment.observes}
        ledger = self._with(assessment.account, replace(state, observed=observed, withheld=None))
        owner, begun = owner_of(assessment.pod), Begun(now.boottime_s, observed=True)
        if assessment.observes:
            return replace(ledger, trial=self.trial.add_begun(owner, begun))
        return replace(ledger, brakes=self.brakes.add_begun(owner, begun))

    def note_ended(self, key: AccountKey, step: StepSignature | None = None) -> "Ledger":
        """The ledger after the action in progress has ended: kill and evict steps of every rule start over.

        With a `step`, only if the action is of that step: another one may have begun meanwhile.
        """
        state = self.accounts.get(key)
        if state is None or (step is not None and state.under_way is not None and state.under_way.step != step):
            return self
        ended = replace(
            state, stretches=_of_warnings(state.stretches), tallies=_of_warnings(state.tallies), under_way=None
        )
        tallies = {uid: _of_warnings(of_pod) if uid == key.uid else of_pod for uid, of_pod in self.tallies.items()}
        return replace(self._with(key, ended), tallies={uid: of_pod for uid, of_pod in tallies.items() if of_pod})

    def note_failed(self, key: AccountKey, do: Do, now: Now) -> "Ledger":
        """The ledger after an action has failed: it is not tried again for some time; other actions continue."""
        state = self.accounts.get(key)
        if state is None:
            return self
        count = state.failures[do].count + 1 if do in state.failures else 1
        wait_s = min(_RETRY_FIRST_S * 2 ** min(count - 1, 16), _RETRY_MAX_S)
        failures = Failures(count=count, retry_at_s=now.boottime_s + wait_s)
        return self._with(key, replace(state, failures={**state.failures, do: failures}))

    def note_withdrawn(self, key: AccountKey, do: Do, now: Now, *, by_change: bool) -> "Ledger":
        """The ledger after an action was withdrawn before it began: it is tried again after a second if `by_change`.

        Otherwise as after a failure: the driver, the disk or the daemon was not ready.
        """
        state = self.accounts.get(key)
        if state is None:
            return self
        if not by_change:
            state = self.note_failed(key, do, now).accounts[key]
            failures = replace(state.failures[do], withdrawn=True)
        else:
            count = state.failures[do].count if do in state.failures else 0
            failures = Failures(count=count, retry_at_s=now.boottime_s + _RETRY_CHANGED_S, withdrawn=True)
        return self._with(key, replace(state, failures={**state.failures, do: failures}))

    def note_unused(self, assessment: Assessment) -> "Ledger":
        """The ledger after an action that would have counted did not begin."""
        return replace(self, brakes=self.brakes.note_unused(owner_of(assessment.pod)))

    def note_withheld(self, key: AccountKey, brake: str) -> "Ledger":
        """The ledger after a withheld step was reported; the identical object if it had been reported before."""
        state = self.accounts.get(key)
        if state is None or brake in state.reported:
            return self
        return self._with(key, replace(state, reported=state.reported | {brake}))

    def _note_pending_eviction(self, key: AccountKey, pending: PendingEviction | None) -> "Ledger":
        state = self.accounts.get(key)
        if state is None:
            return self
        return self._with(key, replace(state, pending_eviction=pending, acted=state.acted or pending is not None))

    def _without_withheld(self, key: AccountKey) -> "Ledger":
        state = self.accounts.get(key)
        return self if state is None or state.withheld is None else self._with(key, replace(state, withheld=None))

    def _with(self, key: AccountKey, state: AccountState) -> "Ledger":
        return replace(self, accounts={**self.accounts, key: state})


def _of_warnings(counts: Mapping[StepKey, _Count]) -> Mapping[StepKey, _Count]:
    """What steps have counted, without the steps that kill or evict."""
    return {key: count for key, count in counts.items() if not key[1].do.enforces}


def _assess_missing(key: AccountKey, others: list[Assessment]) -> Assessment:
    """An assessment of an account that the current rule does not have: its use, without anything to compare it with."""
    uses = tuple(use for other in others for use in other.uses if key.covers(use))
    used_at_least = sum(use.used_at_least for use in uses)
    return replace(
        others[0],
        account=key,
        rule=None,
        used=None if any(other.used is None for other in others) else used_at_least,
        used_at_least=used_at_least,
        declared=None,
        allowed=None,
        # What others use of a claim is compared with what it holds there, and it holds nothing.
        shared=(),
        beside=0,
        is_beside_known=True,
        behind_pod="",
        verdict=Verdict.UNDECLARED,
        uses=uses,
        short=frozenset[str]().union(*(other.short for other in others)) & {use.gpu for use in uses},
    )
