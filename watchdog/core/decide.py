"""The decision: which steps are due, on which container, and which of them the gate lets through."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.brakes import BreakerOwners, update_breaker
from watchdog.core.gate import Gate, brake_by_state, urgency
from watchdog.core.ladder import Comparison, StepReading, absent, climb, climb_pod, is_calm, step_readings
from watchdog.core.ledger import AccountState, Ledger
from watchdog.core.model import Now
from watchdog.core.plan import Count, Plan, PlanEntry
from watchdog.core.policy import Do, Policy, Rule, Step
from watchdog.core.rules import rule_of
from watchdog.core.tally import StepKey, Tally
from watchdog.core.turns import Candidate, pass_in_turn
from watchdog.core.victims import card_of, targets_of, victim_of


def decide(assessments: Iterable[Assessment], ledger: Ledger, now: Now, inputs: Inputs) -> Plan:
    """Plan one cycle. It depends neither on the mode nor on the order of the assessments."""
    assessments = tuple(assessments)
    policy, hidden = inputs.policy, inputs.hidden
    is_whole = not inputs.is_inconclusive and hidden is None and all(each.used is not None for each in assessments)
    states = _kept(assessments, ledger, now, hidden)
    calm, others = _by_calm(assessments, ledger, now, inputs)
    states |= calm
    above: list[tuple[Assessment, Rule, list[StepReading]]] = []
    for assessment in sorted(others, key=urgency):
        rule = assessment.rule
        ladder = step_readings(assessment, stale=inputs.pods_stale)
        if assessment.allowed is None and assessment.account not in ledger.accounts:
            continue
        state = climb(assessment, ladder, ledger, policy, now, stale=inputs.pods_stale)
        if _only_waits(assessment, inputs):
            state = _held(state, now)
        states[assessment.account] = state
        shown = [step_reading for step_reading in ladder if _is_planned(step_reading, inputs)]
        if rule is None or not shown:
            is_below = assessment.is_conclusive and assessment.used is not None and not inputs.pods_stale
            states[assessment.account] = state.with_withheld(None if is_below else 0, now)
        else:
            above.append((assessment, rule, shown))
    in_force = _rules_of_unread(inputs)
    for key in [key for key in states if key.uid in inputs.unread] if inputs.unread else ():
        states[key] = _with_rule(states[key], in_force(key))
    states.update(_absent(ledger, states, now, inputs, in_force))
    tallies = _of_pods(assessments, others, ledger, states, now, inputs)
    candidates: list[Candidate] = [
        tuple(
            _entry(each, rule, reading, states[each.account], tallies.get(each.account.uid, {}), now)
            for reading in shown
        )
        for each, rule, shown in above
    ]
    ledger = replace(ledger, accounts=states, tallies=tallies, last_cycle=now if is_whole else ledger.last_cycle)
    ledger, owners = _update_breakers(assessments, candidates, ledger, policy, now, stale=inputs.is_inconclusive)
    gate = Gate(inputs, ledger, now)
    gate.reserve(
        (entry.gpu, entry.assessment.observes)
        for candidate in candidates
        for entry in candidate
        if entry.gpu is not None and entry.assessment.observes in ledger.accounts[entry.account].observed
    )
    entries = [*pass_in_turn(candidates, gate, inputs, now)]
    return Plan(
        entries=tuple(
            sorted(entries, key=lambda entry: (entry.due_in_s, *urgency(entry.assessment), entry.step_index))
        ),
        ledger=replace(ledger, accounts=gate.states),
        breaker_owners=owners,
    )


def _kept(
    assessments: Iterable[Assessment], ledger: Ledger, now: Now, hidden: frozenset[str] | None
) -> dict[AccountKey, AccountState]:
    """What is remembered of accounts whether they are seen or not: actions in progress, and what may be hidden now."""
    kept = dict(ledger.where(lambda state: state.has_action))
    # A pod that declares nothing has an account only while its use is seen.
    if unseen := (hidden or frozenset()) - {each.account.uid for each in assessments}:
        kept |= {key: state for key, state in ledger.accounts.items() if key.uid in unseen}
    return {key: state.with_withheld(0, now) for key, state in kept.items()}


def _by_calm(
    assessments: Sequence[Assessment], ledger: Ledger, now: Now, inputs: Inputs
) -> tuple[Mapping[AccountKey, AccountState], Sequence[Assessment]]:
    """The states of calm accounts, one for all of a rule; and the other accounts, those that are missing among them."""
    states: dict[AccountKey, AccountState] = {}
    others = list(ledger.missing_accounts(assessments))
    calm: dict[str, AccountState] = {}  # by rule
    for assessment in assessments:
        rule = assessment.rule
        if rule is None or inputs.pods_stale or not is_calm(assessment, ledger):
            others.append(assessment)
            continue
        if rule.name not in calm:
            calm[rule.name] = AccountState(ran_under=frozenset({rule.name}), read=now)
        states[assessment.account] = calm[rule.name]
    return states, others


def _absent(
    ledger: Ledger,
    states: Mapping[AccountKey, AccountState],
    now: Now,
    inputs: Inputs,
    in_force: Callable[[AccountKey], str | None],
) -> Iterator[tuple[AccountKey, AccountState]]:
    """What is remembered of accounts whose pods are listed, but of which nothing is seen at all any more.

    A pod that only its use gives an account could otherwise forget its tallies by using nothing for a moment. One whose
    declaration waits to be read would forget its rules as well, and any tenant can create pods that make it wait.
    """
    unread, accounts = inputs.unread, ledger.accounts.items()
    listed = {pod.uid for pod in inputs.pods.pods}

    def state_of(key: AccountKey, state: AccountState) -> AccountState | None:
        if key.uid not in listed or not (state.tallies or key.uid in unread):
            return None
        after = absent(state, inputs.policy, now, is_sure=not inputs.pods_stale)
        if key.uid in unread:
            return _with_rule(after, in_force(key))
        return after if after.tallies else None

    # Accounts of which nothing is remembered share a state (`Ledger.where`).
    shared: dict[tuple[str, bool, int], AccountState | None] = {}
    for key, state in accounts if unread else ledger.where(lambda state: bool(state.tallies)):
        kind = key.uid, key.container is None, id(state)
        if kind not in shared:
            shared[kind] = state_of(key, state)
        after = shared[kind]
        if after is not None and key not in states:
            yield key, after


def _rules_of_unread(inputs: Inputs) -> Callable[[AccountKey], str | None]:
    """What gives the name of the rule in force for an account whose pod's declaration waits to be read; None: none."""
    pods = {pod.uid: pod for pod in inputs.pods.pods if pod.uid in inputs.unread} if inputs.unread else {}

    @cache
    def of_pod(uid: str) -> Rule | None:
        rule = rule_of(pods[uid], inputs.policy, inputs.node, inputs.namespaces) if uid in pods else None
        return rule if isinstance(rule, Rule) else None

    def of_account(key: AccountKey) -> str | None:
        rule = of_pod(key.uid)
        return rule.name if rule is not None and (key.container is not None) == (rule.account == "container") else None

    return of_account


def _only_waits(assessment: Assessment, inputs: Inputs) -> bool:
    """Whether nothing of an account is unknown but what its pod declares, which waits to be read."""
    return assessment.account.uid in inputs.unread and assessment.is_compared_known and not inputs.pods_stale


def _held(state: AccountState, now: Now) -> AccountState:
    """The state of an account after a time that does not count, and ends nothing, however long it is (Point 39)."""
    return replace(
        state,
        stretches={key: replace(stretch, last=now) for key, stretch in state.stretches.items()},
        tallies={key: replace(tally, last=now) for key, tally in state.tallies.items()},
    )


def _with_rule(state: AccountState, rule: str | None) -> AccountState:
    """The state of an account that a rule of this name applies to; None: none is known to."""
    return state if rule is None or rule in state.ran_under else replace(state, ran_under=state.ran_under | {rule})


def _of_pods(
    assessments: Iterable[Assessment],
    others: Iterable[Assessment],
    ledger: Ledger,
    states: Mapping[AccountKey, AccountState],
    now: Now,
    inputs: Inputs,
) -> Mapping[str, Mapping[StepKey, Tally]]:
    """The tallies of whole pods after a reading of these accounts; `others` are those that are not calm."""
    keys = (each.account for each in others if each.account.is_part)
    parts = {key.uid for key in keys if key in states and states[key].tallies}
    uids = parts | ledger.tallies.keys()
    if not uids:
        return {}
    of_uid: dict[str, list[Assessment]] = {uid: [] for uid in uids}
    ran_under = {uid: {name for name, _ in ledger.tallies.get(uid, {})} for uid in uids}
    for key, assessment in {each.account: each for each in (*assessments, *others) if each.account.uid in uids}.items():
        of_uid[key.uid].append(assessment)
        ran_under[key.uid] |= states[key].ran_under if key in states else frozenset()
    listed = {pod.uid for pod in inputs.pods.pods}
    after: dict[str, Mapping[StepKey, Tally]] = {}
    for uid, own in of_uid.items():
        before = ledger.tallies.get(uid, {})
        if inputs.pods_stale:
            after[uid] = before
        elif own or uid in listed:
            seen = bool(own) or inputs.hidden is None
            after[uid] = climb_pod(own, before, ran_under[uid], inputs.policy, now, seen=seen)
            if own and all(_only_waits(each, inputs) for each in own):
                after[uid] = {key: replace(tally, last=now) for key, tally in after[uid].items()}
    return {uid: tallies for uid, tallies in after.items() if tallies}


def due_step(assessment: Assessment, policy: Policy, ledger: Ledger, now: Now, do: Do) -> PlanEntry | None:
    """The last step with this action that one more reading makes due on an account, regardless of brakes, or None."""
    if assessment.rule is None:
        return None
    ladder = step_readings(assessment, stale=False)
    state = climb(assessment, ladder, ledger, policy, now, stale=False)
    of_pod = ledger.tallies.get(assessment.account.uid, {})
    if of_pod:  # it is above for the pod too, whatever its other accounts use
        of_pod = climb_pod((assessment,), of_pod, {assessment.rule.name}, policy, now, seen=False)
    above = (each for each in ladder if each.reading is Comparison.ABOVE and each.step.do is do)
    entries = (_entry(assessment, assessment.rule, step_reading, state, of_pod, now) for step_reading in above)
    return next((entry for entry in reversed(tuple(entries)) if entry.due_in_s <= 0), None)


def _update_breakers(
    assessments: Sequence[Assessment],
    candidates: Iterable[Candidate],
    ledger: Ledger,
    policy: Policy,
    now: Now,
    *,
    stale: bool,
) -> tuple[Ledger, BreakerOwners | None]:
    """The ledger with both breakers updated, that of enforcing and that of observing rules.

    Also the owners that the former counted; None if there was no reason to count.
    """
    entries = (entry for candidate in candidates for entry in candidate)
    counted = (entry for entry in entries if entry.do.enforces and not entry.definition.under_pressure)
    # What is never let through says nothing about whether the others are right, and would keep the breaker open.
    enforcing = [entry for entry in counted if brake_by_state(entry, now) is None]
    due = {entry.account for entry in enforcing if entry.due_in_s <= 0 and _is_first(entry, ledger)}
    above = {entry.account for entry in enforcing}
    breaker = policy.brakes.breaker
    if not due and ledger.brakes.opened is None and ledger.trial.opened is None:
        return ledger, None
    blind = stale or (len(assessments) > 0 and not any(each.is_conclusive for each in assessments))
    owners = BreakerOwners.of((each for each in assessments if not each.observes), above, due)
    trial = BreakerOwners.of((each for each in assessments if each.observes), above, due)
    brakes = update_breaker(ledger.brakes, breaker, owners, now.boottime_s, blind=blind)
    tried = update_breaker(ledger.trial, breaker, trial, now.boottime_s, blind=blind)
    return replace(ledger, brakes=brakes, trial=tried), owners


def _is_first(entry: PlanEntry, ledger: Ledger) -> bool:
    state = ledger.accounts[entry.account]
    return not state.acted and entry.assessment.observes not in state.observed


def _is_planned(step_reading: StepReading, inputs: Inputs) -> bool:
    """Whether a step is part of the plan: above its threshold, or withheld by nothing but a stale pod list."""
    if not inputs.pods_stale:
        return step_reading.reading is Comparison.ABOVE
    return step_reading.step.do.enforces and step_reading.used > step_reading.threshold_bytes


def _entry(
    assessment: Assessment,
    rule: Rule,
    step_reading: StepReading,
    state: AccountState,
    of_pod: Mapping[StepKey, Tally],
    now: Now,
) -> PlanEntry:
    step = step_reading.step
    card = card_of(assessment) if step.under_pressure else None
    victim = victim_of(assessment, card) if step.do.takes_scope else (assessment.account.container or "")
    key = rule.name, step.signature
    stretch, tally, of_pod_tally = state.stretches.get(key), state.tallies.get(key), of_pod.get(key)
    lefts_s = {
        Count.STRETCH: step.for_s - (stretch.counted_s if stretch is not None else 0.0),
        Count.TALLY: tally.left_s(step) if tally is not None else math.inf,
        Count.POD: of_pod_tally.left_s(step) if of_pod_tally is not None else math.inf,
    }
    count = min(lefts_s, key=lambda each: max(lefts_s[each], 0.0))
    return PlanEntry(
        assessment=assessment,
        rule=rule,
        step_index=step_reading.index,
        victim=victim,
        targets=targets_of(assessment, victim, step, card),
        threshold_bytes=step_reading.threshold_bytes,
        due_in_s=_due_in_s(step, lefts_s[count], state, now, observes=assessment.observes),
        gpu=card,
        above_since=stretch.since if stretch is not None else now,
        not_above=stretch.not_above if stretch is not None else None,
        stretch=stretch,
        count=count,
        tally={Count.STRETCH: None, Count.TALLY: tally, Count.POD: of_pod_tally}[count],
    )


def _due_in_s(step: Step, left_s: float, state: AccountState, now: Now, *, observes: bool) -> float:
    waits = [0.0, left_s]
    if not step.do.enforces and observes in state.warned_s:
        waits.append(state.warned_s[observes] + step.repeat_s - now.boottime_s)
    failed = state.failures.get(step.do)
    if failed is not None and (state.pending_eviction is None or state.pending_eviction.step != step.signature):
        waits.append(failed.retry_at_s - now.boottime_s)
    return max(waits)
