"""The memory of decisions: what has been counted, warned and begun for each account, and what the brakes remember.

Durations are differences of CLOCK_BOOTTIME.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from watchdog.core.assessment import AccountKey, Assessment, Verdict
from watchdog.core.brakes import Begun, BrakeMemory, owner_of
from watchdog.core.model import Now
from watchdog.core.policy import Do, Policy, Rule, Threshold

Signature = tuple[Threshold, float, Do, bool]
StepKey = tuple[str, Signature]  # the name of a rule, and one of its steps

# A step that failed (no right to signal, no API) must not be tried again at every cycle: earlyoom once looped on EPERM.
_RETRY_FIRST_S = 10.0
_RETRY_MAX_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The time that an account has been above the threshold of one step, without interruption.

    `counted_s` is what lies between conclusive readings that counted, at most an interval each; `since` is the first of
    them and `last` the latest conclusive one. `least_used` is the smallest usage within it, and `threshold_bytes` the
    largest threshold: that of the largest allowed, since a threshold grows with it. `not_above` is the last reading
    before it of which the usage was known, if there was one; `observes` says that its rule only observed.
    """

    counted_s: float
    since: Now
    last: Now
    least_used: int
    threshold_bytes: int
    not_above: Now | None = None
    observes: bool = False

    def lasts_until(self, other: "Stretch", reset_after_s: float) -> bool:
        """Whether a reading can extend it: not after a long gap, and not where its rule begins to enforce."""
        gap_s = other.last.boottime_s - self.last.boottime_s
        is_near = other.last.boot_id == self.last.boot_id and 0 <= gap_s < reset_after_s
        return is_near and (other.observes or not self.observes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """An action that failed: how often in this incident, and the boot time before which it is not tried again."""

    failures: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An action that has begun and whose memory has not been seen free yet: by which step, on which container.

    `step` is its signature, since a reload can put other steps before it; None: left by an earlier daemon. `cards` are
    the GPUs that its memory is on; None where that is not known. `until_s` is the boot time until which it is waited
    for at most. `sent` names the signals of a kill that were sent so far; `ended` says that its processes have ended.
    """

    step: Signature | None
    victim: str
    whole_pod: bool = False
    cards: frozenset[str] | None = None
    until_s: float | None = None
    sent: tuple[str, ...] = ()
    ended: bool = False

    def step_of(self, rule: Rule) -> int | None:
        """Where its step stands in a rule as it is now; None: not any more."""
        return next((index for index, step in enumerate(rule.steps) if step.signature == self.step), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """An eviction that has begun and has not come about: it holds up no other step, and is not begun a second time.

    `tries` are those made so far, `refused` says why the last one came to nothing, `is_blocked` that it was the pod's
    disruption budget. `next_s` is the boot time of the next try (None: an answer is awaited), `until_s` that at which
    it is given up. `cards` are the GPUs that the pod's memory is on.
    """

    step: Signature
    tries: int
    until_s: float
    next_s: float | None = None
    refused: str = ""
    is_blocked: bool = False
    cards: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """What the ladder remembers of one account.

    `ran_under` names the rules that have been in force for it, and `stretches` has one entry for each of their steps
    that it is above; `read` is the last reading that knew all its usage. The rest belongs to the incident and not to a
    step: `warned_s` has the boot time of the last warning, and `observed` whether observe mode has planned the
    incident's one action, each apart for rules that only observe (True); `acted` says that an action has begun in it,
    and `reported` are the brakes already told of. `calm` is the assessment that was not above any threshold: as long as
    whole cycles give the very same one the state stays as it is, and its last reading is that of the ledger's
    `last_pass`. `trying` is an eviction that has not come about yet.
    """

    ran_under: frozenset[str] = frozenset()
    stretches: Mapping[StepKey, Stretch] = field(default_factory=dict)
    read: Now | None = None
    over_since: Now | None = None
    warned_s: Mapping[bool, float] = field(default_factory=dict)
    retries: Mapping[Do, Retry] = field(default_factory=dict)
    observed: frozenset[bool] = frozenset()
    acted: bool = False
    under_way: UnderWay | None = None
    trying: Trying | None = None
    reported: frozenset[str] = frozenset()
    calm: Assessment | None = None

    @property
    def has_action(self) -> bool:
        """Whether an action has begun and has not ended: it is remembered whether its account is seen or not."""
        return self.under_way is not None or self.trying is not None

    @property
    def is_in_incident(self) -> bool:
        """Whether anything is remembered that only the end of the incident clears: back-off too, and what was told."""
        told = self.warned_s or self.observed or self.reported
        return bool(self.stretches or self.retries or told or self.acted)

    @property
    def above_since_s(self) -> float:
        """Boot time since which it has been above a mark of force of any rule; infinity: above none."""
        forced = (stretch for (_, step), stretch in self.stretches.items() if step[2].is_force)
        return min((stretch.since.boottime_s for stretch in forced), default=float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is remembered of all accounts, and of actions for the brakes.

    `last_pass` is the last cycle that read the whole node conclusively. `trial` is the brakes' memory for rules that
    only observe: what they would have done must not hold back the others.
    """

    accounts: Mapping[AccountKey, AccountState] = field(default_factory=dict)
    last_pass: Now | None = None
    brakes: BrakeMemory = field(default_factory=BrakeMemory)
    trial: BrakeMemory = field(default_factory=BrakeMemory)

    def reset(self) -> "Ledger":
        """The ledger when enforcement begins: no stretches, and actions in progress still known."""
        return replace(self._without_stretches(), brakes=self.brakes.without_observed())

    def reloaded(self, before: Policy, after: Policy) -> "Ledger":
        """The ledger after another policy was loaded: all accounts start over unless what they count by is the same."""
        return self if after.counts_like(before) else self._without_stretches()

    def _without_stretches(self) -> "Ledger":
        actions = {
            key: AccountState(under_way=state.under_way, trying=state.trying)
            for key, state in self.accounts.items()
            if state.has_action
        }
        return replace(self, accounts=actions, last_pass=None)

    def split(self, assessments: Iterable[Assessment]) -> tuple[dict[AccountKey, AccountState], list[Assessment]]:
        """The states that a whole cycle with these assessments leaves as they are, and the other assessments."""
        calm: dict[AccountKey, AccountState] = {}
        others: list[Assessment] = []
        for assessment in assessments:
            state = self.accounts.get(assessment.account)
            if state is not None and state.calm is assessment:
                calm[assessment.account] = state
            else:
                others.append(assessment)
        return calm, others

    def unformed(self, assessments: Iterable[Assessment]) -> Iterator[Assessment]:
        """Accounts in an incident that the rule in force does not form, read by what the pod's other accounts use.

        A pod that is relabelled from a rule for pods to one for containers, or back, is still the same pod.
        """
        missing = {key for key, state in self.accounts.items() if state.is_in_incident}
        if not missing:
            return
        pods: dict[str, list[Assessment]] = {}
        for assessment in assessments:
            missing.discard(assessment.account)
            pods.setdefault(assessment.account.uid, []).append(assessment)
        for key in sorted(missing, key=lambda key: key.sort_key):
            if key.uid in pods:
                yield _read_by(key, pods[key.uid])

    def last_read(self, state: AccountState | None) -> Now | None:
        """The last reading that knew an account's usage: one that the last whole cycle did not have used nothing."""
        last = self.last_pass
        if state is None:
            return last
        if state.calm is None or last is None or (state.read and state.read.boottime_s > last.boottime_s):
            return state.read
        return last

    def note_begun(self, assessment: Assessment, action: UnderWay | Trying, now: Now) -> "Ledger":
        """The ledger after an action on an account has begun: the brakes count it, whatever comes of it."""
        brakes = self.brakes.note(owner_of(assessment.pod), Begun(now.boottime_s))
        key = assessment.account
        if isinstance(action, Trying):
            return replace(self._note_tried(key, action), brakes=brakes)
        return replace(self.note_under_way(key, action), brakes=brakes)

    def note_tried(self, trying: Mapping[AccountKey, Trying]) -> "Ledger":
        """The ledger with the evictions that have not come about yet, and no others."""
        ledger = self
        for key, state in self.accounts.items():
            if state.trying is not (trying.get(key) if trying else None):  # to hash each key would take longer
                ledger = ledger._note_tried(key, trying.get(key))
        return ledger

    def note_under_way(self, key: AccountKey, under_way: UnderWay) -> "Ledger":
        """The ledger with an action in progress that was counted when it began, by an earlier daemon say."""
        state = self.accounts.get(key) or AccountState()
        return self._with(key, replace(state, under_way=under_way, acted=True))

    def note_escalated(self, key: AccountKey, step: Signature) -> "Ledger":
        """The ledger after a stronger step has ended the grace of the action in progress; its victim stays the same."""
        state = self.accounts.get(key)
        if state is None or state.under_way is None:
            return self
        return self._with(key, replace(state, under_way=replace(state.under_way, step=step)))

    def note_observed(self, assessment: Assessment, now: Now) -> "Ledger":
        """The ledger after observe mode, or a rule that only observes, has planned the one action of this incident."""
        state = self.accounts.get(assessment.account)
        if state is None:
            return self
        ledger = self._with(assessment.account, replace(state, observed=state.observed | {assessment.observes}))
        owner, begun = owner_of(assessment.pod), Begun(now.boottime_s, observed=True)
        if assessment.observes:
            return replace(ledger, trial=self.trial.note(owner, begun))
        return replace(ledger, brakes=self.brakes.note(owner, begun))

    def note_ended(self, key: AccountKey, step: Signature | None = None) -> "Ledger":
        """The ledger after an action that had begun has ended: kill and evict steps of every rule start over.

        With a step only if it is the action of that step: another one may have begun meanwhile.
        """
        state = self.accounts.get(key)
        if state is None or (step is not None and state.under_way is not None and state.under_way.step != step):
            return self
        kept = {step: stretch for step, stretch in state.stretches.items() if not step[1][2].is_force}
        return self._with(key, replace(state, stretches=kept, under_way=None))

    def note_failed(self, key: AccountKey, do: Do, now: Now) -> "Ledger":
        """The ledger after an action has failed: it waits before it is tried again, other actions go on."""
        state = self.accounts.get(key)
        if state is None:
            return self
        failures = state.retries[do].failures + 1 if do in state.retries else 1
        wait_s = min(_RETRY_FIRST_S * 2 ** min(failures - 1, 16), _RETRY_MAX_S)
        retry = Retry(failures=failures, at_s=now.boottime_s + wait_s)
        return self._with(key, replace(state, retries={**state.retries, do: retry}))

    def note_reported(self, key: AccountKey, brake: str) -> "Ledger":
        """The ledger after a withholding has been told of; the very same one where it had been before."""
        state = self.accounts.get(key)
        if state is None or brake in state.reported:
            return self
        return self._with(key, replace(state, reported=state.reported | {brake}))

    def _note_tried(self, key: AccountKey, trying: Trying | None) -> "Ledger":
        state = self.accounts.get(key)
        if state is None:
            return self
        return self._with(key, replace(state, trying=trying, acted=state.acted or trying is not None))

    def _with(self, key: AccountKey, state: AccountState) -> "Ledger":
        return replace(self, accounts={**self.accounts, key: replace(state, calm=None)})


def _read_by(key: AccountKey, others: list[Assessment]) -> Assessment:
    """What is known of an account that is not formed: its usage, and nothing that it could be held against."""
    every = (use for each in others for use in each.uses)
    uses = tuple(use for use in every if key.container in (None, use.container) and key.gpu in (None, use.gpu))
    used_at_least = sum(use.used or 0 for use in uses)
    return replace(
        others[0],
        account=key,
        rule=None,
        used=None if any(each.used is None for each in others) else used_at_least,
        used_at_least=used_at_least,
        declared=None,
        allowed=None,
        verdict=Verdict.UNDECLARED,
        uses=uses,
        short=frozenset[str]().union(*(each.short for each in others)) & {use.gpu for use in uses},
    )
