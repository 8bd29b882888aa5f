"""The parts of the Kubernetes API that a policy needs besides the node and its pods."""

from dataclasses import dataclass

from watchdog.core.policy import Do, Policy, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Which parts of the API a policy uses.

    Every policy needs the node's pods and the Node object: that object requests the release of the driver, and an
    observing daemon blocks the maintenance of a GPU just like an enforcing one.
    """

    namespaces: bool
    events: bool
    evict: bool
    capacity: bool


def needs(policy: Policy) -> Needs:
    """The needs of a policy in its mode; one that observes evicts no pod, and writes Events only if it says so."""
    enforces = policy.mode == "enforce"
    return Needs(
        namespaces=any(rule.match.namespace_labels for rule in policy.rules),
        events=enforces or policy.events.observe,
        # A rule that only observes never evicts.
        evict=enforces and any(rule.mode != "observe" and _evicts(rule) for rule in policy.rules),
        capacity=policy.capacity is not None,
    )


def _evicts(rule: Rule) -> bool:
    return any(step.do is Do.EVICT for step in rule.steps)
