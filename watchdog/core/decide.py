"""The decision: which steps are above their marks, which are due, and what the gate lets through."""

from collections.abc import Iterable

from watchdog.core.findings import Assessment
from watchdog.core.gate import Gate, urgency
from watchdog.core.ladder import Reading, Rung, climb, rungs
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Now
from watchdog.core.plan import Conditions, Plan, PlanEntry
from watchdog.core.policy import Do, Policy, Rule
from watchdog.core.victim import targets_of, victim_of

_NO_RULE = Rule(name="")  # an account that no rule is for is remembered for `over_since` alone


def decide(assessments: Iterable[Assessment], policy: Policy, ledger: Ledger, now: Now, conditions: Conditions) -> Plan:
    """Plan one pass. Neither the mode nor the order of the input has a part in it: only what is handed in."""
    assessments = tuple(assessments)
    is_whole = not conditions.pods_stale and all(assessment.used is not None for assessment in assessments)
    states, others = ledger.split(assessments) if is_whole else ({}, list(assessments))
    # A deed under way is remembered although its account may not be seen any more.
    states |= {key: state for key, state in ledger.accounts.items() if state.under_way is not None}
    candidates: list[tuple[PlanEntry, ...]] = []
    for assessment in sorted(others, key=urgency):
        rule = assessment.rule
        ladder = rungs(assessment, stale=conditions.pods_stale)
        if assessment.allowed is None:
            continue
        state = climb(assessment, rule or _NO_RULE, ladder, ledger, policy, now)
        states[assessment.account] = state
        if rule is None:
            continue
        shown = (rung for rung in ladder if _shows(rung, assessment, conditions))
        candidates.append(tuple(_entry(assessment, rule, rung, state, now) for rung in shown))
    gate = Gate(conditions, states, now)
    entries = [entry for account in candidates for entry in gate.pass_through(account)]
    return Plan(
        entries=tuple(sorted(entries, key=lambda entry: (entry.due_in_s, *urgency(entry.assessment), entry.step))),
        ledger=Ledger(accounts=gate.states, last_pass=now if is_whole else ledger.last_pass),
    )


def _shows(rung: Rung, assessment: Assessment, conditions: Conditions) -> bool:
    """Whether a step stands in the plan: above its mark, or held back from force by nothing but a stale pod list."""
    if rung.step.under_pressure:
        return False  # read, not followed yet: the loader says so, and `run` observes
    if conditions.pods_stale:
        return rung.step.do.is_force and assessment.used_at_least > rung.height
    return rung.reading is Reading.ABOVE


def _entry(assessment: Assessment, rule: Rule, rung: Rung, state: AccountState, now: Now) -> PlanEntry:
    victim = victim_of(assessment) if rung.step.do.is_force else (assessment.account.container or "")
    timer = state.timers.get(rung.step.signature)
    return PlanEntry(
        assessment=assessment,
        rule=rule,
        step=rung.index,
        victim=victim,
        targets=targets_of(assessment, victim, rung.step.scope) if rung.step.do is not Do.WARN else (),
        height=rung.height,
        due_in_s=_due_in_s(rung, state, now),
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
