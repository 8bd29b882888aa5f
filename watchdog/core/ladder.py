"""The ladder: how each step of an account counts, reading by reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from watchdog.core.findings import Assessment, Verdict
from watchdog.core.ledger import AccountState, Ledger, Signature, Timer
from watchdog.core.model import Now
from watchdog.core.policy import Policy, Rule, Step
from watchdog.core.pressure import allowed_under_pressure


class Reading(Enum):
    """What one reading says about one mark."""

    ABOVE = auto()
    BELOW = auto()  # at or below it
    INCONCLUSIVE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A step of an account at this reading: the height of its mark in bytes, and what the reading says about it."""

    index: int
    step: Step
    height: int
    reading: Reading


def rungs(assessment: Assessment, *, stale: bool) -> tuple[Rung, ...]:
    """Hold an assessment against each step of its rule; none where nothing is allowed, since nothing was declared."""
    if assessment.rule is None or assessment.allowed is None:
        return ()
    under_pressure = allowed_under_pressure(assessment)
    found = []
    for index, step in enumerate(assessment.rule.steps):
        allowed = under_pressure if step.under_pressure else assessment.allowed
        height = step.above.height(assessment.allowed if allowed is None else allowed, step.do)
        found.append(Rung(index=index, step=step, height=height, reading=_read(assessment, step, height, stale=stale)))
    return tuple(found)


def _read(assessment: Assessment, step: Step, height: int, *, stale: bool) -> Reading:
    if stale:
        return Reading.INCONCLUSIVE
    if step.under_pressure and not assessment.short:
        return Reading.BELOW  # there is room: it counts only while there is none
    if assessment.used_at_least > height:
        return Reading.ABOVE
    return Reading.BELOW if assessment.used is not None else Reading.INCONCLUSIVE


def _has_ended(ladder: tuple[Rung, ...]) -> bool:
    """Whether a reading ends the incident: at or below the lowest mark, and no short card to give way on.

    That a card has room again ends no incident of the other steps.
    """
    if any(rung.step.under_pressure and rung.reading is not Reading.BELOW for rung in ladder):
        return False
    lasting = [rung for rung in ladder if not rung.step.under_pressure] or ladder
    lowest = min((rung.height for rung in lasting), default=0)
    return any(rung.height == lowest and rung.reading is Reading.BELOW for rung in lasting)


def climb(
    assessment: Assessment, rule: Rule, ladder: tuple[Rung, ...], ledger: Ledger, policy: Policy, now: Now
) -> AccountState:
    """Take one reading into what is remembered of an account: timers run, are held or begin anew."""
    before = ledger.accounts.get(assessment.account)
    if all(rung.reading is Reading.BELOW for rung in ladder):
        return _settle(assessment, rule, ladder, before, now)
    state = before or AccountState(rule=rule.name, declared=assessment.declared)
    fresh = _is_fresh(state, assessment, rule)
    ended = _has_ended(ladder)
    known = {rung.step.signature: rung for rung in ladder}
    # An account that the last whole pass did not have used nothing then.
    earlier = ledger.last_pass if before is None else None
    below = {} if fresh else {key: at for key, at in ledger.last_below(state).items() if key in known}
    timers: dict[Signature, Timer] = {}
    for key, rung in known.items():
        timer = None if fresh else state.timers.get(key)
        timer = _count(timer, rung.reading, below.get(key) or earlier, policy, now)
        if timer is not None:
            timers[key] = timer
    below |= {key: now for key, rung in known.items() if rung.reading is Reading.BELOW}
    over_since = (state.over_since or now) if assessment.verdict is Verdict.OVER else state.over_since
    return AccountState(
        rule=rule.name,
        declared=assessment.declared,
        timers=timers,
        below=below,
        over_since=None if assessment.verdict is Verdict.WITHIN else over_since,
        warned_s={} if ended or fresh else _still(state.warned_s, known),
        retries={} if ended or fresh else state.retries,
        observed=state.observed and not ended and not fresh,
        acted=state.acted and not ended and not fresh,
        observes=assessment.observes,
        under_way=state.under_way,
        trying=state.trying,
        reported=frozenset() if ended or fresh else state.reported,
    )


def _is_fresh(state: AccountState, assessment: Assessment, rule: Rule) -> bool:
    """Whether all of an account's ladder begins anew: another rule, another declaration, or its rule now enforces."""
    begins = state.observes and not assessment.observes
    return begins or state.rule != rule.name or state.declared != assessment.declared


def _settle(
    assessment: Assessment, rule: Rule, ladder: tuple[Rung, ...], before: AccountState | None, now: Now
) -> AccountState:
    """What is remembered of an account below all its marks: no timer runs, and the incident, if it was one, is over."""
    is_over = assessment.verdict is Verdict.OVER
    over_since = before.over_since if before is not None else None
    return AccountState(
        rule=rule.name,
        declared=assessment.declared,
        below={rung.step.signature: now for rung in ladder},
        over_since=(over_since or now) if is_over else None,
        observes=assessment.observes,
        under_way=before.under_way if before is not None else None,
        trying=before.trying if before is not None else None,
        calm=assessment,
    )


def _still(warned_s: Mapping[Signature, float], known: Mapping[Signature, Rung]) -> dict[Signature, float]:
    return {key: at for key, at in warned_s.items() if key in known}


def _count(timer: Timer | None, reading: Reading, not_above: Now | None, policy: Policy, now: Now) -> Timer | None:
    """A timer after one more reading; None: it does not run."""
    if reading is Reading.BELOW:
        return None
    blind_s = now.boottime_s - timer.last.boottime_s if timer is not None else 0.0
    if timer is None or timer.last.boot_id != now.boot_id or blind_s < 0 or blind_s >= policy.reset_after_s:
        return Timer(counted_s=0.0, since=now, last=now, not_above=not_above) if reading is Reading.ABOVE else None
    if reading is Reading.INCONCLUSIVE:
        return timer
    counted_s = timer.counted_s + min(blind_s, policy.interval_s)
    return Timer(counted_s=counted_s, since=timer.since, last=now, not_above=timer.not_above)
