"""The ladder: how one more reading changes what each step of an account has counted: its stretch and its tally."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.ledger import AccountState, Ledger, Stretch
from watchdog.core.model import Now
from watchdog.core.policy import Policy, Rule, Step
from watchdog.core.rules import observes
from watchdog.core.tally import Seen, StepKey, Tally, is_tallied, seen_of_pod, tallied


class Comparison(Enum):
    """How a reading compares with a threshold."""

    ABOVE = auto()
    BELOW = auto()  # at or below it
    INCONCLUSIVE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """A step of an account at one reading: its threshold, and how the use compares with it."""

    # Its place in the steps of the rule, from 0.
    index: int
    step: Step
    threshold_bytes: int
    # The bytes that are compared with the threshold.
    used: int
    # The result of the comparison.
    reading: Comparison


def step_readings(assessment: Assessment, *, stale: bool, rule: Rule | None = None) -> tuple[StepReading, ...]:
    """Compare an assessment with each step of its rule, or of another; empty if what is allowed is unknown."""
    rule = rule or assessment.rule
    allowed, by_request = assessment.allowed, assessment.allowed_under_pressure
    if rule is None or allowed is None or by_request is None:
        return ()
    readings = []
    for index, step in enumerate(rule.steps):
        threshold_bytes = step.above.threshold_bytes(by_request if step.under_pressure else allowed, step.do)
        used = _compared(assessment, step)
        reading = Comparison.ABOVE if used > threshold_bytes else Comparison.BELOW
        if stale or (reading is Comparison.BELOW and not _is_sure(assessment, step)):
            reading = Comparison.INCONCLUSIVE
        readings.append(
            StepReading(index=index, step=step, threshold_bytes=threshold_bytes, used=used, reading=reading)
        )
    return tuple(readings)


def _compared(assessment: Assessment, step: Step) -> int:
    """The bytes that a threshold is compared with: a step under pressure counts only while a card is short."""
    return 0 if step.under_pressure and not assessment.short else assessment.compared


def _is_sure(assessment: Assessment, step: Step) -> bool:
    """Whether the compared bytes are all that can be in use."""
    return assessment.is_compared_known or (step.under_pressure and not assessment.short)


def climb(
    assessment: Assessment, ladder: tuple[StepReading, ...], ledger: Ledger, policy: Policy, now: Now, *, stale: bool
) -> AccountState:
    """The state of an account after one more reading; `ladder` are the steps of the current rule."""
    # An account that the last complete cycle did not see used nothing.
    state = ledger.accounts.get(assessment.account) or AccountState(read=ledger.last_cycle)
    ran_under = state.ran_under if assessment.rule is None else state.ran_under | {assessment.rule.name}
    rules = [rule for rule in policy.rules if rule.name in ran_under]
    is_blind = stale or _is_hidden(assessment)
    is_known = assessment.used is not None and not is_blind
    stretches, tallies = state.stretches, state.tallies
    # Below every threshold of the current rule, a reading starts no stretch and no tally.
    starts = any(step_reading.reading is Comparison.ABOVE for step_reading in ladder)
    if not stale and (stretches or tallies or starts):
        compared = [_Compared.of(rule, assessment, ladder, now) for rule in rules]
        tallies = {key: tally for each in compared for key, tally in each.tallies(state, policy, now)}
    if not is_blind and (stretches or starts):
        stretches = {key: stretch for each in compared for key, stretch in each.stretches(state, policy, now)}
    elif is_blind and assessment.is_compared_known and not stale:
        stretches = dict(_lowered(stretches, assessment.compared))
    over_since = (state.over_since or now) if assessment.verdict is Verdict.OVER else state.over_since
    over_since = None if assessment.verdict is Verdict.WITHIN else over_since
    read = now if is_known else state.read
    # An account without any use may have no limit either: only its use forms it.
    has_limit = assessment.allowed is not None or assessment.used == 0
    if is_known and not stretches and has_limit and _is_below_all(assessment, rules, ladder):
        return AccountState(  # the incident has ended, or there was none: nothing of it is remembered
            ran_under=ran_under,
            tallies=tallies,
            read=read,
            over_since=over_since,
            under_way=state.under_way,
            pending_eviction=state.pending_eviction,
            withheld=state.withheld,  # a moment below must not cost it its turn
        )
    return replace(state, ran_under=ran_under, stretches=stretches, tallies=tallies, read=read, over_since=over_since)


def _is_hidden(assessment: Assessment) -> bool:
    """Whether what is allowed cannot be known at the moment, so that use says nothing about its thresholds."""
    is_unknown = assessment.allowed is None and assessment.verdict is Verdict.UNKNOWN
    return is_unknown or assessment.rule_gap is not None


def absent(state: AccountState, policy: Policy, now: Now, *, is_sure: bool) -> AccountState:
    """The state of an account that nothing is seen of, while its pod lives; `is_sure`: it uses nothing."""
    withheld = state.with_withheld(None if is_sure else 0, now).withheld
    if not is_sure:
        return AccountState(ran_under=state.ran_under, tallies=state.tallies, read=state.read, withheld=withheld)
    tallies = {}
    for key, tally in state.tallies.items():
        after = tally.then(Seen.BELOW, replace(tally, last=now), key[1].for_s, policy)
        if after is not None:
            tallies[key] = after
    return AccountState(ran_under=state.ran_under, tallies=tallies, read=now, withheld=withheld)


def climb_pod(
    accounts: Collection[Assessment],
    before: Mapping[StepKey, Tally],
    ran_under: Collection[str],
    policy: Policy,
    now: Now,
    *,
    seen: bool,
) -> Mapping[StepKey, Tally]:
    """The tallies of a pod after one more reading of all its accounts; `seen`: it can have no others.

    A tally begins with an account of one container or one card: that of a whole pod has its own.
    """
    after: dict[StepKey, Tally] = {}
    for rule in (rule for rule in policy.rules if rule.name in ran_under):
        compared = [_Compared.of(rule, each, step_readings(each, stale=False), now) for each in accounts]
        for index, step in enumerate(rule.steps):
            key = rule.name, step.signature
            known = before.get(key)
            # Nobody knows whether the memory of containers that the list lacks is above a threshold of others.
            found = [(each, each.seen(index, known)) for each in compared if each.assessment.account.container != ""]
            above = [each for each, seen_of in found if seen_of is Seen.ABOVE]
            if not is_tallied(step) or (known is None and not any(each.assessment.account.is_part for each in above)):
                continue
            least_bytes = min((each.thresholds_bytes[index] for each in above), default=0)
            alone = Tally(since=now, last=now, threshold_bytes=least_bytes, observes=observes(rule, now))
            reading = seen_of_pod((seen_of for _, seen_of in found), is_sure=seen)
            tally = tallied(known, reading, alone, step.for_s, policy)
            if tally is not None:
                after[key] = tally
    return after


def is_calm(assessment: Assessment, ledger: Ledger) -> bool:
    """Whether an account is surely below every threshold, and nothing of it is remembered but its rule.

    So it has no action, tally or withheld use. `climb` then only notes its rule and the reading. Most accounts are calm
    at every cycle, and this takes a tenth of the time.
    """
    rule, allowed = assessment.rule, assessment.allowed
    if rule is None or allowed is None or not assessment.is_compared_known:
        return False
    if assessment.short or assessment.verdict is not Verdict.WITHIN:
        return False
    state = ledger.accounts.get(assessment.account)
    if state is not None and (
        state.has_action or state.withheld or state.tallies or not state.ran_under <= {rule.name}
    ):
        return False
    used = assessment.compared
    return all(step.under_pressure or used <= step.above.threshold_bytes(allowed, step.do) for step in rule.steps)


def _lowered(stretches: Mapping[StepKey, Stretch], used: int) -> Iterator[tuple[StepKey, Stretch]]:
    """The stretches after a reading with known use and unknown allowance: use below the threshold ends them."""
    for key, stretch in stretches.items():
        least_used = min(stretch.least_used, used)
        if least_used > stretch.threshold_bytes:
            yield key, replace(stretch, least_used=least_used)


def _is_below_all(assessment: Assessment, rules: list[Rule], ladder: tuple[StepReading, ...]) -> bool:
    """Whether use is at or below every threshold; steps under pressure do not count."""
    return all(
        step_reading.step.under_pressure or step_reading.reading is Comparison.BELOW
        for rule in rules
        for step_reading in (ladder if rule is assessment.rule else step_readings(assessment, stale=False, rule=rule))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A reading compared with the steps of one rule.

    For another rule than the current one the reading counts only if it is above some threshold of the current one, and
    only if the owner could be warned. A rule that only observes warns no owner. A stretch for which the reading does
    not count lasts while use stays above its threshold, and a tally is held: a tenant who changes labels can neither
    end nor extend it.
    """

    rule: Rule
    assessment: Assessment
    # By the index of the step; empty if the reading does not count for the rule.
    thresholds_bytes: Mapping[int, int]
    only_observes: bool

    @classmethod
    def of(cls, rule: Rule, assessment: Assessment, ladder: tuple[StepReading, ...], now: Now) -> "_Compared":
        """Compare a reading with a rule; `ladder` are the steps of the current rule."""
        only_observes = observes(rule, now)
        is_current = assessment.rule is not None and assessment.rule.name == rule.name
        is_above = any(step_reading.reading is Comparison.ABOVE for step_reading in ladder)
        counts = is_current or (is_above and (only_observes or not assessment.observes))
        counted = ladder if is_current else step_readings(assessment, stale=False, rule=rule) if counts else ()
        thresholds_bytes = {step_reading.index: step_reading.threshold_bytes for step_reading in counted}
        return cls(rule=rule, assessment=assessment, thresholds_bytes=thresholds_bytes, only_observes=only_observes)

    def stretches(self, state: AccountState, policy: Policy, now: Now) -> Iterator[tuple[StepKey, Stretch]]:
        """The stretches of the rule after the reading."""
        for index, step in enumerate(self.rule.steps):
            key = self.rule.name, step.signature
            before, used = state.stretches.get(key), _compared(self.assessment, step)
            if before is None and used <= self.thresholds_bytes.get(index, used):
                continue  # there is no stretch, and this reading starts none
            alone = Stretch(
                counted_s=0.0,
                since=now,
                last=now,
                least_used=used,
                threshold_bytes=self.thresholds_bytes.get(index, 0),
                not_above=before.not_above if before is not None else state.read,
                observes=self.only_observes,
            )
            counts, is_sure = index in self.thresholds_bytes, _is_sure(self.assessment, step)
            after = _extend(before, alone, policy, counts=counts, is_sure=is_sure)
            if after is not None:
                yield key, after

    def tallies(self, state: AccountState, policy: Policy, now: Now) -> Iterator[tuple[StepKey, Tally]]:
        """The tallies of the rule after the reading."""
        for index, step in enumerate(self.rule.steps):
            if not is_tallied(step):
                continue
            key = self.rule.name, step.signature
            before, threshold_bytes = state.tallies.get(key), self.thresholds_bytes.get(index, 0)
            alone = Tally(since=now, last=now, threshold_bytes=threshold_bytes, observes=self.only_observes)
            after = tallied(before, self.seen(index, before), alone, step.for_s, policy)
            if after is not None:
                yield key, after

    def seen(self, index: int, before: Tally | None) -> Seen:
        """What the reading says to the tally of a step."""
        assessment, step = self.assessment, self.rule.steps[index]
        is_sure = _is_sure(assessment, step)
        found = Seen.of(_compared(assessment, step), self.thresholds_bytes.get(index), before, is_sure=is_sure)
        return Seen.UNSURE if found is Seen.HELD and _is_hidden(assessment) else found


def _extend(before: Stretch | None, alone: Stretch, policy: Policy, *, counts: bool, is_sure: bool) -> Stretch | None:
    """A stretch after one more reading, which is given as a separate stretch; None if it has ended."""
    is_above = counts and alone.least_used > alone.threshold_bytes
    if before is None or not before.lasts_until(alone, policy.reset_after_s):
        return alone if is_above else None
    threshold_bytes = max(before.threshold_bytes, alone.threshold_bytes) if counts else before.threshold_bytes
    least_used = min(before.least_used, alone.least_used)
    if least_used > threshold_bytes:
        more_s = min(alone.last.boottime_s - before.last.boottime_s, policy.interval_s) if counts else 0.0
        return replace(
            before,
            counted_s=before.counted_s + more_s,
            last=alone.last,
            least_used=least_used,
            threshold_bytes=threshold_bytes,
            observes=alone.observes,
        )
    if is_above:
        return alone
    return None if is_sure else before
