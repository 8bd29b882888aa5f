"""The decision: which steps are above their marks, which are due, and what the gate lets through."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from watchdog.core.breaker import Crowd, turn
from watchdog.core.findings import Assessment
from watchdog.core.gate import Gate, urgency
from watchdog.core.ladder import Reading, Rung, climb, rungs
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, Plan, PlanEntry
from watchdog.core.policy import Do, Policy, Rule
from watchdog.core.pressure import card_of, rank
from watchdog.core.victim import targets_of, victim_of

_NO_RULE = Rule(name="")  # an account that no rule is for is remembered for `over_since` alone

_Candidate = tuple[PlanEntry, ...]  # the steps of one account that are above their marks, one at least


def decide(assessments: Iterable[Assessment], policy: Policy, ledger: Ledger, now: Now, conditions: Conditions) -> Plan:
    """Plan one pass. Neither the mode nor the order of the input has a part in it: only what is handed in."""
    assessments = tuple(assessments)
    is_whole = not conditions.are_dark and all(assessment.used is not None for assessment in assessments)
    states, others = ledger.split(assessments) if is_whole else ({}, list(assessments))
    # A deed that has not ended is remembered although its account may not be seen any more.
    states |= {key: state for key, state in ledger.accounts.items() if state.has_deed}
    candidates: list[_Candidate] = []
    for assessment in sorted(others, key=urgency):
        rule = assessment.rule
        ladder = rungs(assessment, stale=conditions.pods_stale)
        if assessment.allowed is None:
            continue
        state = climb(assessment, rule or _NO_RULE, ladder, ledger, policy, now)
        states[assessment.account] = state
        if rule is None:
            continue
        shown = tuple(rung for rung in ladder if _shows(rung, assessment, conditions))
        if shown:
            candidates.append(tuple(_entry(assessment, rule, rung, state, now) for rung in shown))
    ledger = replace(ledger, accounts=states, last_pass=now if is_whole else ledger.last_pass)
    ledger, crowd = _look_at_crowd(assessments, candidates, ledger, policy, now, stale=conditions.are_dark)
    gate = Gate(conditions, policy, ledger, now)
    observed = (entry for account in candidates for entry in account if ledger.accounts[entry.account].observed)
    gate.reserve(entry.card for entry in observed if entry.card is not None)
    entries = [entry for account in sorted(candidates, key=_turn) for entry in gate.pass_through(account)]
    return Plan(
        entries=tuple(sorted(entries, key=lambda entry: (entry.due_in_s, *urgency(entry.assessment), entry.step))),
        ledger=replace(ledger, accounts=gate.states),
        crowd=crowd,
    )


def _turn(candidate: _Candidate) -> tuple[object, ...]:
    """The order in which accounts come to the gate: by urgency; then who may have to give way on a short card."""
    last = next((entry for entry in reversed(candidate) if entry.due_in_s <= 0 and entry.do.is_force), None)
    if last is None or last.card is None:
        return (False, *urgency(candidate[0].assessment))
    return (True, *rank(last.assessment, last.card))


def _look_at_crowd(
    assessments: Sequence[Assessment],
    candidates: Iterable[_Candidate],
    ledger: Ledger,
    policy: Policy,
    now: Now,
    *,
    stale: bool,
) -> tuple[Ledger, Crowd | None]:
    """The ledger after the breakers have looked: that of the rules that act, and that of those that only observe.

    With it the crowd of the rules that act, where there was a reason to look.
    """
    forced = [entry for account in candidates for entry in account if _counts(entry)]
    due = {entry.account for entry in forced if entry.due_in_s <= 0 and _is_first(ledger.accounts[entry.account])}
    above = {entry.account for entry in forced}
    breaker = policy.brakes.breaker
    if not due and ledger.brakes.opened is None and ledger.trial.opened is None:
        return ledger, None
    blind = stale or (len(assessments) > 0 and not any(each.is_conclusive for each in assessments))
    crowd = Crowd.of((each for each in assessments if not each.observes), above, due)
    trial = Crowd.of((each for each in assessments if each.observes), above, due)
    brakes = turn(ledger.brakes, breaker, crowd, now.boottime_s, blind=blind)
    return replace(ledger, brakes=brakes, trial=turn(ledger.trial, breaker, trial, now.boottime_s, blind=blind)), crowd


def _counts(entry: PlanEntry) -> bool:
    return entry.do.is_force and not entry.definition.under_pressure


def _is_first(state: AccountState) -> bool:
    return not state.acted and not state.observed


def _shows(rung: Rung, assessment: Assessment, conditions: Conditions) -> bool:
    """Whether a step stands in the plan: above its mark, or held back from force by nothing but a stale pod list."""
    if not conditions.pods_stale:
        return rung.reading is Reading.ABOVE
    has_room = rung.step.under_pressure and not assessment.short
    return rung.step.do.is_force and assessment.used_at_least > rung.height and not has_room


def _entry(assessment: Assessment, rule: Rule, rung: Rung, state: AccountState, now: Now) -> PlanEntry:
    step = rung.step
    card = card_of(assessment) if step.under_pressure else None
    victim = victim_of(assessment, card) if step.do is Do.KILL else (assessment.account.container or "")
    timer = state.timers.get(step.signature)
    return PlanEntry(
        assessment=assessment,
        rule=rule,
        step=rung.index,
        victim=victim,
        targets=targets_of(assessment, victim, step, card),
        height=rung.height,
        due_in_s=_due_in_s(rung, state, now),
        card=card,
        above_since=timer.since if timer is not None else now,
        not_above=timer.not_above if timer is not None else None,
    )


def _due_in_s(rung: Rung, state: AccountState, now: Now) -> float:
    step = rung.step
    timer = state.timers.get(step.signature)
    waits = [0.0, step.for_s - (timer.counted_s if timer is not None else 0.0)]
    warned_s = state.warned_s.get(step.signature)
    if step.do is Do.WARN and warned_s is not None:
        waits.append(warned_s + step.repeat_s - now.boottime_s)
    retry = state.retries.get(step.signature)
    if retry is not None:
        waits.append(retry.at_s - now.boottime_s)
    return max(waits)
