"""The files with Kubernetes' objects: pods, the node, namespaces."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import watchdog.doctor.topics_policy as topic
from watchdog.core.findings import Reason
from watchdog.core.model import Gap
from watchdog.core.policy import Declaration, Policy
from watchdog.core.units import format_duration
from watchdog.doctor.facts import ClusterFacts, ProcessFacts
from watchdog.doctor.finding import Finding, Topic
from watchdog.export.phrases import span

_LABEL: Final = "label:"


def check_pods(facts: ClusterFacts, processes: ProcessFacts, stale_after_s: float) -> Iterable[Finding]:
    """The pod list: named, readable, fresh, of this node, with the IDs of containers."""
    path, pods = facts.pods_path, facts.pods
    if path is None:
        yield topic.PODS.say("none_named")
        return
    about_file = [gap for gap in pods.gaps if gap.what.startswith("pod file")]
    if pods.synced is None:
        yield topic.PODS.say("unreadable", path=path, **_remedied(about_file))
        return
    yield topic.PODS.say("read" if pods.pods else "empty", path=path, count=len(pods.pods))
    yield from _age(facts.age_s, stale_after_s)
    others = [gap for gap in pods.gaps if gap not in about_file]
    for gap in others:
        yield topic.PODS_READABLE.say("some", what=gap.what, why=gap.why)
    if not pods.pods:
        return
    if not others:
        yield topic.PODS_READABLE.say("all")
    for gap in about_file:
        said, _, remedy = gap.why.rpartition("; ")
        yield topic.PODS_NODE.say("elsewhere", path=path, said=said, remedy=remedy)
    if not about_file:
        yield topic.PODS_NODE.say("here", node=facts.node_name)
    known = sum(bool(container.ids) for pod in pods.pods for container in pod.containers)
    yield topic.PODS_CONTAINERS.say("known" if known else "none", count=known)
    yield from _unknown(processes)


def _age(age_s: float | None, stale_after_s: float) -> Iterable[Finding]:
    if age_s is None:
        return
    if age_s < -1:
        yield topic.PODS_FRESH.say("future")
        return
    case = "fresh" if age_s <= stale_after_s else "old"
    yield topic.PODS_FRESH.say(case, age=span(max(age_s, 0)), limit=format_duration(stale_after_s))


def _unknown(processes: ProcessFacts) -> Iterable[Finding]:
    if processes.attribution is None or not processes.listed:
        return
    unknown = {each.pid for each in processes.attribution.unattributed if each.reason is Reason.UNKNOWN_POD}
    if unknown:
        yield topic.PODS_KNOWN.say("some", count=len(unknown), pid=min(unknown))
    else:
        yield topic.PODS_KNOWN.say("all")


def check_node_object(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The node's own object, where the policy asks for its labels."""
    rules = [rule.name for rule in policy.rules if rule.match.node_labels]
    asking = [each for each in policy.declarations if _asks(each)]
    if facts.node_gaps:
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
    if facts.namespace_gaps and not facts.namespaces:
        yield _unread(topic.NAMESPACES, facts.namespace_gaps, is_needed=bool(rules))
    elif facts.namespace_gaps:
        for gap in facts.namespace_gaps:
            yield topic.NAMESPACES.say("some", what=gap.what, **_remedied([gap]))
    elif facts.namespaces_path is not None:
        yield topic.NAMESPACES.say("read", count=len(facts.namespaces))
    elif rules:
        yield topic.NAMESPACES.say("rules", names=", ".join(rules))
    else:
        yield topic.NAMESPACES.say("unneeded")


def _unread(where: Topic, gaps: tuple[Gap, ...], *, is_needed: bool) -> Finding:
    case = "unreadable" if is_needed else "unneeded_unreadable"
    return where.say(case, what=gaps[0].what, **_remedied(gaps))


def _remedied(gaps: Iterable[Gap]) -> dict[str, str]:
    """A gap about a file: what is wrong, and what helps."""
    why = next((gap.why for gap in gaps), "it can't be read")
    problem, _, remedy = why.rpartition("; ")
    return {"problem": problem or why, "remedy": remedy or "write it anew"}
