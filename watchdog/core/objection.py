"""Objections: what speaks against a deed that has begun, by the pod, its rule and the policy of another moment."""

from watchdog.core.assess import Setting
from watchdog.core.eviction import against_evicting
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Do, Rule
from watchdog.core.protect import protection
from watchdog.core.rules import observes, rule_of


def objection_to_evicting(pod: Pod, grace_s: float, setting: Setting, now: Now) -> str | None:
    """Why a pod must not be evicted, as it is and by the policy as it is at this moment; None: nothing."""
    rule = rule_of(pod, setting.policy, setting.node, setting.namespaces)
    if not isinstance(rule, Rule) or not any(step.do is Do.EVICT for step in rule.steps):
        return "the rule that is for the pod now has no step that evicts"
    if observes(rule, now):
        return f"rule {rule.name} only observes now"
    protected = protection(pod, setting.policy.protect, setting.own, now)
    spared = protected or against_evicting(pod, now.wall_s + grace_s)
    return None if spared is None else f"the pod is protected now: {spared}"
