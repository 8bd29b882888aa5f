"""The node's own object and the labels of namespaces, from files or from the API."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import watchdog.doctor.topics_cluster as topic
from watchdog.core.model import Gap
from watchdog.core.policy import Declaration, Policy
from watchdog.doctor.facts import ClusterFacts
from watchdog.doctor.finding import Finding, Topic
from watchdog.doctor.remedied import remedied
from watchdog.doctor.topics_api import CAPACITY

_LABEL: Final = "label:"


def check_node_object(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The node's own object, where the policy asks for its labels."""
    rules = [rule.name for rule in policy.rules if rule.match.node_labels]
    asking = [each for each in policy.declarations if _asks(each)]
    if facts.node_path is None and "nodes" in facts.unlisted and rules:
        yield topic.NODE_OBJECT.say("unlisted", names=", ".join(rules))
    elif facts.node_path is None and facts.by_api:
        yield from _node_by_api(facts, asking, is_needed=bool(rules or asking))
    elif facts.node_gaps:
        yield _unread(topic.NODE_OBJECT, facts.node_gaps, is_needed=bool(rules or asking))
    elif facts.node_path is not None:
        yield topic.NODE_OBJECT.say("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif rules:
        yield topic.NODE_OBJECT.say("rules", names=", ".join(rules), node=facts.node_name)
    elif asking:
        names = ", ".join(each.key for each in asking)
        yield topic.NODE_OBJECT.say("declarations", names=names, node=facts.node_name)
    else:
        yield topic.NODE_OBJECT.say("unneeded")


def _node_by_api(facts: ClusterFacts, asking: Iterable[Declaration], *, is_needed: bool) -> Iterable[Finding]:
    """Where it was listed; that the right is missing, or that there is no such node, is told as that."""
    if facts.node.known:
        yield topic.NODE_OBJECT.say("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif facts.node_gaps:
        yield _unread(topic.NODE_OBJECT, facts.node_gaps, is_needed=is_needed)
    elif not is_needed:
        yield topic.NODE_OBJECT.say("unneeded")


def _asks(declaration: Declaration) -> bool:
    return bool(declaration.node_labels) or _share_label(declaration) is not None


def _share_label(declaration: Declaration) -> str | None:
    shares = declaration.shares
    return shares.removeprefix(_LABEL) if isinstance(shares, str) and shares.startswith(_LABEL) else None


def _labels(facts: ClusterFacts, asking: Iterable[Declaration]) -> Iterable[Finding]:
    """Say where a declaration is for this very node, and the label with the shares is not there."""
    labels = facts.node.labels
    for declaration in asking:
        wanted = _share_label(declaration)
        applies = all(fnmatchcase(labels.get(key, ""), value) for key, value in declaration.node_labels.items())
        if applies and wanted is not None and wanted not in labels:
            yield topic.NODE_OBJECT.say("label", label=wanted, name=declaration.key)


def check_namespaces(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The labels of namespaces, where rules match by them."""
    rules = [rule.name for rule in policy.rules if rule.match.namespace_labels]
    if facts.namespaces_path is None and facts.by_api and (not rules or "namespaces" in facts.unlisted):
        if not rules:
            yield topic.NAMESPACES.say("unneeded")
    elif facts.namespace_gaps and not facts.namespaces:
        yield _unread(topic.NAMESPACES, facts.namespace_gaps, is_needed=bool(rules))
    elif facts.namespace_gaps:
        for gap in facts.namespace_gaps:
            yield topic.NAMESPACES.say("some", what=gap.what, **_remedied([gap]))
    elif facts.namespaces_path is not None or facts.by_api:
        yield topic.NAMESPACES.say("read", count=len(facts.namespaces))
    elif rules:
        yield topic.NAMESPACES.say("rules", names=", ".join(rules))
    else:
        yield topic.NAMESPACES.say("unneeded")


def check_capacity(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """Whether the node advertises what the policy says, where its object is known."""
    if policy.capacity is None or not facts.node.known or not facts.by_api:
        return
    resource = policy.capacity.resource
    amount = facts.node.capacity.get(resource)
    yield CAPACITY.say("absent" if amount is None else "kept", resource=resource, amount=amount)


def _unread(where: Topic, gaps: tuple[Gap, ...], *, is_needed: bool) -> Finding:
    case = "unreadable" if is_needed else "unneeded_unreadable"
    return where.say(case, what=gaps[0].what, **_remedied(gaps))


def _remedied(gaps: Iterable[Gap]) -> dict[str, str]:
    """A gap about a file or a request: what is wrong, and what helps."""
    return remedied(next((gap.why for gap in gaps), "it can't be read"), "write it anew")
