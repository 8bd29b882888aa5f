"""Rules: which one is a pod's, whether that can be said at all, and whether it only observes now."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.model import Gap, GapReason, Node, Now, Pod
from watchdog.core.policy import Match, Policy, Rule
from watchdog.core.protect import matches

Namespaces = Mapping[str, Mapping[str, str]]

_LEFT_ALONE: Final = "until then a pod that it may be for has no rule and is left alone"


def rule_of(pod: Pod, policy: Policy, node: Node, namespaces: Namespaces) -> Rule | Gap | None:
    """The first rule that matches a pod; None: no rule does, and the pod is measured and left alone.

    `namespaces` has the labels of every namespace that is known. Where a rule matches by labels that are not known, and
    everything else about it fits, that is a gap: no rule after it is taken, since it may be harsher than the one which
    the operator has put before it.
    """
    for rule in policy.rules:
        if not _fits(rule.match, pod):
            continue
        by_node = _carries(rule.match.node_labels, node.labels if node.known else None)
        by_namespace = _carries(rule.match.namespace_labels, namespaces.get(pod.namespace))
        if by_node is False or by_namespace is False:
            continue
        if by_node is None:
            return _node_gap(rule, node)
        return rule if by_namespace else _namespace_gap(rule, pod.namespace)
    return None


def observes(rule: Rule, now: Now) -> bool:
    """Whether a rule only observes at a moment, whatever the policy's mode: by its own mode, or outside its hours.

    Hours are judged by the wall clock. A rule's mode only lowers: `enforce` under a policy that observes observes.
    """
    return rule.mode == "observe" or (rule.active is not None and not rule.active.holds(now.wall_s))


def hours_at(policy: Policy, now: Now) -> tuple[bool, ...]:
    """Of each rule that has hours, whether they hold: all that time alone changes about what rules say."""
    return tuple(rule.active.holds(now.wall_s) for rule in policy.rules if rule.active is not None)


def _fits(match: Match, pod: Pod) -> bool:
    """Whether everything fits that the pod's own object tells; a pod without a controller is of the kind Pod."""
    return (
        (not match.namespaces or matches(pod.namespace, match.namespaces))
        and (not match.pods or matches(pod.name, match.pods) or matches(pod.title, match.pods))
        and (not match.owner_kinds or matches(pod.workload.kind, match.owner_kinds))
        and _carries(match.labels, pod.labels) is True
    )


def _carries(wanted: Mapping[str, str], labels: Mapping[str, str] | None) -> bool | None:
    """Whether labels have all that are wanted; None: they are not known."""
    if not wanted:
        return True
    if labels is None:
        return None
    return all(key in labels and fnmatchcase(labels[key], value) for key, value in wanted.items())


def _node_gap(rule: Rule, node: Node) -> Gap:
    why = (
        f"rule {rule.name} matches by labels of the node, which are not known; by the API: the gap `node {node.name}` "
        "has the cause; with --pods: give --node-object FILE"
    )
    return Gap(reason=GapReason.NODE, what=f"labels of node {node.name}", why=f"{why}; {_LEFT_ALONE}")


def _namespace_gap(rule: Rule, namespace: str) -> Gap:
    why = (
        f"rule {rule.name} matches by labels of the namespace, which are not known; by the API: the gap `namespaces` "
        "has the cause; with --pods: give --namespaces FILE with it"
    )
    return Gap(reason=GapReason.NAMESPACES, what=f"labels of namespace {namespace}", why=f"{why}; {_LEFT_ALONE}")
