"""Quiet ticks: a cycle that equal inputs can only repeat, so that it need not run again for them."""

from dataclasses import replace

from watchdog.core.inputs import Inputs
from watchdog.core.plan import ClosedCycle, OpenCycle

# A quiet cycle runs again after so long in any case.
MOST_S = 10.0


def is_quiet(opened: OpenCycle, finish: ClosedCycle) -> bool:
    """Whether nothing but the time would differ if this cycle ran once more with equal inputs, for some seconds.

    So nothing is missing from the reading, no account is above a threshold or has anything to come, and nothing that
    is remembered depends on the time: neither a container that the pod list lacks, nor the hours of a rule, nor the end
    of a deletion.
    """
    inputs, snapshot, ledger = opened.inputs, opened.snapshot, finish.plan.ledger
    has_acted = bool(opened.only or finish.plan.entries or finish.began or finish.outcomes)
    is_whole = ledger.last_cycle == snapshot.at
    if has_acted or not is_whole or snapshot.blind or snapshot.gaps or inputs.pods.gaps:
        return False
    has_more_to_come = (
        any(state.below_all is None or state.has_action for state in ledger.accounts.values())
        or not ledger.accounts.keys() <= {assessment.account for assessment in opened.assessments}
        or ledger.brakes.opened is not None
        or ledger.trial.opened is not None
        or any(assessment.rule_gap is not None for assessment in opened.assessments)
        or any(not use.container for use in opened.attribution.attributed)
        or any(pod.deletion_deadline_s is not None for pod in inputs.pods.pods)
        or any(rule.active is not None for rule in inputs.policy.rules)
    )
    return not has_more_to_come


def are_same(before: Inputs, after: Inputs) -> bool:
    """Whether a cycle would do the same with both; when the pods were last confirmed does not matter, unless too old.

    The policy is the identical object, since the rule of an assessment is one of its own.
    """
    if before.policy is not after.policy:
        return False
    pods = replace(after.pods, synced=before.pods.synced)
    return before == replace(after, pods=pods, overdue=before.overdue, hidden=before.hidden)
