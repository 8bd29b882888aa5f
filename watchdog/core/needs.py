"""What a policy needs of the Kubernetes API besides its node and the pods there: nothing that it does not use."""

from dataclasses import dataclass

from watchdog.core.policy import Do, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Which parts of the API a policy uses.

    The pods of the node and its own object are needed by every one: that object asks for the driver to be let go, and
    a daemon that observes holds up the maintenance of a GPU no less than one that enforces.
    """

    namespaces: bool
    events: bool
    evict: bool
    capacity: bool


def needs(policy: Policy) -> Needs:
    """What a policy uses in its mode; one that observes evicts nobody, and writes Events only if told to."""
    enforces = policy.mode == "enforce"
    return Needs(
        namespaces=any(rule.match.namespace_labels for rule in policy.rules),
        events=enforces or policy.events.observe,
        evict=enforces and _evicts(policy),
        capacity=policy.capacity is not None,
    )


def _evicts(policy: Policy) -> bool:
    """Whether a rule that may act has a step that evicts; a rule that only observes never does."""
    acting = (rule for rule in policy.rules if rule.mode != "observe")
    return any(step.do is Do.EVICT for rule in acting for step in rule.steps)
