"""The memory of decisions: what has been counted, warned and begun for each account, and what the brakes remember.

Durations are differences of CLOCK_BOOTTIME.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from watchdog.core.brakes import Begun, BrakeMemory, owner_of
from watchdog.core.findings import AccountKey, Assessment
from watchdog.core.model import Now
from watchdog.core.policy import Do, Mark, Rule

Signature = tuple[Mark, float, Do, bool]

# A step that failed (no right to signal, no API) must not be tried again at every pass: earlyoom once looped on EPERM.
_RETRY_FIRST_S = 10.0
_RETRY_MAX_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """How long a step has counted: only between consecutive conclusive readings above its mark.

    `since` is the first reading of this count and `last` the latest; `not_above` is the last conclusive reading
    before it that was not above the mark, if there was one.
    """

    counted_s: float
    since: Now
    last: Now
    not_above: Now | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A step that failed: how often in this incident, and the boot time before which it is not tried again."""

    failures: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """A deed that has begun and whose memory has not been seen free yet: by which step, on which container.

    `step` is its signature, since a reload can put other steps before it; None: left by an earlier daemon. `cards` are
    the GPUs that its memory is on; None where that is not known. `until_s` is the boot time until which it is waited
    for at most.
    """

    step: Signature | None
    victim: str
    whole_pod: bool = False
    cards: frozenset[str] | None = None
    until_s: float | None = None

    def rung(self, rule: Rule) -> int | None:
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

    `below` has the last conclusive reading not above each mark. `warned_s` has the boot time of each warning of
    this incident; `observed` says that observe mode has planned this incident's one deed, `acted` that a deed has begun
    in it; `reported` are the brakes already told of; `observes` says that the rule only observed. `calm` is the
    assessment that was not above any mark: as long as whole passes give the very same one the state stays as it is, and
    its last reading is that of the ledger's `last_pass`. `trying` is an eviction that has not come about yet.
    """

    rule: str
    declared: int | None
    timers: Mapping[Signature, Timer] = field(default_factory=dict)
    below: Mapping[Signature, Now] = field(default_factory=dict)
    over_since: Now | None = None
    warned_s: Mapping[Signature, float] = field(default_factory=dict)
    retries: Mapping[Signature, Retry] = field(default_factory=dict)
    observed: bool = False
    acted: bool = False
    observes: bool = False
    under_way: UnderWay | None = None
    trying: Trying | None = None
    reported: frozenset[str] = frozenset()
    calm: Assessment | None = None

    @property
    def has_deed(self) -> bool:
        """Whether a deed has begun and has not ended: it is remembered whether its account is seen or not."""
        return self.under_way is not None or self.trying is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is remembered of all accounts, and of deeds for the brakes.

    `last_pass` is the last pass that read the whole node conclusively. `trial` is the brakes' memory for rules that
    only observe: what they would have done must not hold back the others.
    """

    accounts: Mapping[AccountKey, AccountState] = field(default_factory=dict)
    last_pass: Now | None = None
    brakes: BrakeMemory = field(default_factory=BrakeMemory)
    trial: BrakeMemory = field(default_factory=BrakeMemory)

    def begun_anew(self) -> "Ledger":
        """The ledger when enforcement begins: all ladders at their foot, deeds under way still known."""
        return Ledger(
            accounts={
                key: AccountState(
                    rule=state.rule, declared=state.declared, under_way=state.under_way, trying=state.trying
                )
                for key, state in self.accounts.items()
                if state.has_deed
            },
            brakes=self.brakes.without_observed(),
            trial=self.trial,
        )

    def split(self, assessments: Iterable[Assessment]) -> tuple[dict[AccountKey, AccountState], list[Assessment]]:
        """The states that a whole pass with these assessments leaves as they are, and the assessments of all others."""
        calm: dict[AccountKey, AccountState] = {}
        others: list[Assessment] = []
        for assessment in assessments:
            state = self.accounts.get(assessment.account)
            if state is not None and state.calm is assessment:
                calm[assessment.account] = state
            else:
                others.append(assessment)
        return calm, others

    def last_below(self, state: AccountState) -> Mapping[Signature, Now]:
        """The last conclusive reading of an account not above each mark."""
        last = self.last_pass
        if state.calm is None or last is None:
            return state.below
        return {key: at if at.boottime_s > last.boottime_s else last for key, at in state.below.items()}

    def note_begun(self, assessment: Assessment, rule: str, deed: UnderWay | Trying, now: Now) -> "Ledger":
        """The ledger after a deed on an account has begun: the brakes count it, whatever comes of it."""
        brakes = self.brakes.note(owner_of(assessment.pod), Begun(now.boottime_s))
        key = assessment.account
        if isinstance(deed, Trying):
            return replace(self._note_tried(key, deed), brakes=brakes)
        return replace(self.note_under_way(key, rule, assessment.declared, deed), brakes=brakes)

    def note_tried(self, trying: Mapping[AccountKey, Trying]) -> "Ledger":
        """The ledger with the evictions that have not come about yet, and no others."""
        ledger = self
        for key, state in self.accounts.items():
            if state.trying is not trying.get(key):
                ledger = ledger._note_tried(key, trying.get(key))
        return ledger

    def note_under_way(self, key: AccountKey, rule: str, declared: int | None, under_way: UnderWay) -> "Ledger":
        """The ledger with a deed under way that was counted when it began, by an earlier daemon say."""
        state = self.accounts.get(key) or AccountState(rule=rule, declared=declared)
        return self._with(key, replace(state, under_way=under_way, acted=True))

    def note_hastened(self, key: AccountKey, step: Signature) -> "Ledger":
        """The ledger after a stronger step has ended the grace of the deed under way; its victim stays the same."""
        state = self.accounts.get(key)
        if state is None or state.under_way is None:
            return self
        return self._with(key, replace(state, under_way=replace(state.under_way, step=step)))

    def note_observed(self, assessment: Assessment, now: Now) -> "Ledger":
        """The ledger after observe mode, or a rule that only observes, has planned the one deed of this incident."""
        state = self.accounts.get(assessment.account)
        if state is None:
            return self
        ledger = self._with(assessment.account, replace(state, observed=True))
        owner, begun = owner_of(assessment.pod), Begun(now.boottime_s, observed=True)
        if assessment.observes:
            return replace(ledger, trial=self.trial.note(owner, begun))
        return replace(ledger, brakes=self.brakes.note(owner, begun))

    def note_ended(self, key: AccountKey, step: Signature | None = None) -> "Ledger":
        """The ledger after a deed that had begun has ended: the timers of force begin anew.

        With a step only if it is the deed of that step: another one may have begun meanwhile.
        """
        state = self.accounts.get(key)
        if state is None or (step is not None and state.under_way is not None and state.under_way.step != step):
            return self
        timers = {signature: timer for signature, timer in state.timers.items() if not signature[2].is_force}
        return self._with(key, replace(state, timers=timers, under_way=None))

    def note_failed(self, key: AccountKey, step: Signature, now: Now) -> "Ledger":
        """The ledger after a step has failed: it waits before it is tried again, the other steps go on."""
        state = self.accounts.get(key)
        if state is None:
            return self
        failures = state.retries[step].failures + 1 if step in state.retries else 1
        wait_s = min(_RETRY_FIRST_S * 2 ** min(failures - 1, 16), _RETRY_MAX_S)
        retry = Retry(failures=failures, at_s=now.boottime_s + wait_s)
        return self._with(key, replace(state, retries={**state.retries, step: retry}))

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
