"""What a policy needs of the Kubernetes API besides the pods of its node: nothing is asked for that it does not use."""

from dataclasses import dataclass

from watchdog.core.policy import Declaration, Do, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Which parts of the API a policy uses; the pods of the node are needed by every one."""

    node: bool
    namespaces: bool
    events: bool
    evict: bool
    capacity: bool


def needs(policy: Policy) -> Needs:
    """What a policy uses in the mode that it is in; one that observes evicts nobody, and writes Events only if told to.

    A policy that enforces needs its node's object whatever its rules say: the annotation there that lowers it to
    observing, and the labels by which operators of the driver ask for maintenance.
    """
    enforces = policy.mode == "enforce"
    capacity = policy.capacity is not None
    return Needs(
        node=enforces or capacity or _minds_node(policy),
        namespaces=any(rule.match.namespace_labels for rule in policy.rules),
        events=enforces or policy.events_in_observe,
        evict=enforces and _evicts(policy),
        capacity=capacity,
    )


def _minds_node(policy: Policy) -> bool:
    """Whether a rule or a declaration asks for the node's labels."""
    by_rule = any(rule.match.node_labels for rule in policy.rules)
    return by_rule or any(_asks(declaration) for declaration in policy.declarations)


def _asks(declaration: Declaration) -> bool:
    # A MIG resource is an instance of its own unless the labels of GPU feature discovery say that it is cut.
    return bool(declaration.node_labels) or isinstance(declaration.shares, str) or declaration.unit == "mig"


def _evicts(policy: Policy) -> bool:
    """Whether a rule that may act has a step that evicts; a rule that only observes never does."""
    acting = (rule for rule in policy.rules if rule.mode != "observe")
    return any(step.do is Do.EVICT for rule in acting for step in rule.steps)
