"""Checks of the node's object, its pods and namespaces, each with what it says."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from watchdog.cli.doctor.api import CAPACITY
from watchdog.cli.doctor.facts import ClusterFacts, ProcessFacts
from watchdog.cli.doctor.finding import ENFORCING, Finding, Topic, missing, ok, remedied, warning
from watchdog.core.assessment import Reason
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, PodList
from watchdog.core.policy import Declaration, Policy
from watchdog.core.units import format_duration
from watchdog.report.text import span

PODS: Final = Topic(
    name="pods",
    means="There is a pod list, and it can be read. Without one every process of a pod is of an unknown pod.",
    cases={
        "read": ok("pods in {path}: {count}"),
        "none_named": missing(
            "there is no way to the pods of this node: every process of a pod is of an unknown pod",
            "run in a pod with a service account, or give --kubeconfig FILE; or give --pods FILE with what "
            "`kubectl get pods -A -o json` prints",
        ),
        "unreadable": missing("pod list {path}: {problem}", "{remedy}"),
        "empty": warning("{path} holds no pod", "see that whatever writes it asks for all namespaces (-A)"),
        "api": ok("pods of node {node}, by the API: {count}"),
        "api_unread": missing("{problem}", "{remedy}"),
        "api_empty": warning(
            "by the API no pod is on node {node}",
            "see that --node (NODE_NAME) is the node's name, as `kubectl get nodes` shows it",
        ),
    },
)
PODS_FRESH: Final = Topic(
    name="pods_fresh",
    means="The pod list was written recently. The daemon takes a file that stands still for true, so one whose writer "
    "has died is not noticed otherwise.",
    cases={
        "fresh": ok("the pod list was written {age} ago"),
        "old": warning(
            "the pod list was written {age} ago (stale_after is {limit}); a file that stands still counts as true, so "
            "the daemon goes on using force by it",
            "see that whatever writes it still runs; it should write again even where nothing has changed",
        ),
        "future": warning("the pod list was written in the future", "see that the clock is right"),
    },
)
PODS_NODE: Final = Topic(
    name="pods_node",
    means="The pod list has pods of this very node.",
    cases={
        "here": ok("the pod list has pods of node {node}"),
        "elsewhere": warning("{path}: {problem}", "{remedy}"),
    },
)
PODS_READABLE: Final = Topic(
    name="pods_readable",
    means="Every pod of the list can be read.",
    cases={
        "all": ok("every pod of the list can be read"),
        "some": warning(
            "{what} is left out: {why}", "look at this pod: its processes count as those of an unknown pod"
        ),
    },
)
PODS_CONTAINERS: Final = Topic(
    name="pods_containers",
    means="The pod list has IDs of containers, by which processes are told apart; they stand in `status`.",
    purposes=ENFORCING,
    cases={
        "known": ok("containers with an ID in the pod list: {count}"),
        "none": missing(
            "no container of the pod list has an ID: nobody can be acted on",
            "write the whole objects (kubectl get pods -A -o json), with `status`; just after a start wait a minute",
        ),
        "none_started": warning(
            "no container of the pod list has an ID: there is nobody to act on",
            "no container has started here yet: look again in a minute",
        ),
    },
)
PODS_KNOWN: Final = Topic(
    name="pods_known",
    means="Processes on the GPUs that stand in the cgroup of a pod are of pods that the list has.",
    cases={
        "all": ok("every pod with processes on the GPUs is in the pod list"),
        "some": warning(
            "processes on the GPUs that are of no pod in the list: {count}, like {pid}",
            "see that the list is of this node and fresh; a pod that has just started is missing for some seconds",
        ),
    },
)
NODE_OBJECT: Final = Topic(
    name="node_object",
    means="The node's own object can be read: its labels, where the policy asks for some, and whether its GPUs are "
    "under maintenance.",
    purposes=ENFORCING,
    cases={
        "read": ok("the labels of node {node} are known"),
        "unneeded": ok("the policy asks for no label of the node"),
        "rules": missing(
            "the labels of the node are not known, and rules match by them ({names}): pods that these may be for are "
            "left alone",
            "give --node-object FILE with what `kubectl get node {node} -o json` prints",
        ),
        "declarations": warning(
            "the labels of the node are not known, and declarations ask for them ({names}): these do not apply",
            "give --node-object FILE with what `kubectl get node {node} -o json` prints",
        ),
        "unlisted": missing(
            "the labels of the node are not known, as this account may not list nodes, and rules match by them "
            "({names}): pods that these may be for are left alone",
            "have the right granted that right_node names",
        ),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("maintenance of the GPUs is not seen: {what}: {problem}", "{remedy}"),
        "label": warning(
            "the node has no label {label}, and the declaration {name} takes its shares from it: it does not apply",
            "label the node (GPU feature discovery does), or give the shares as a number",
        ),
    },
)
NAMESPACES: Final = Topic(
    name="namespaces",
    means="The labels of namespaces can be read, where the policy asks for them.",
    purposes=ENFORCING,
    cases={
        "read": ok("namespaces whose labels are known: {count}"),
        "unneeded": ok("the policy asks for no label of a namespace"),
        "rules": missing(
            "the labels of namespaces are not known, and rules match by them ({names}): pods that these may be for are "
            "left alone",
            "give --namespaces FILE with what `kubectl get namespaces -o json` prints",
        ),
        "some": warning("{what}: {problem}", "{remedy}"),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("{what}, which the policy does not need: {problem}", "{remedy}"),
    },
)
OF_PODS: Final = (PODS, PODS_FRESH, PODS_NODE, PODS_READABLE, PODS_CONTAINERS, PODS_KNOWN)
CLUSTER_TOPICS: Final = (*OF_PODS, NODE_OBJECT, NAMESPACES)


def check_pods(facts: ClusterFacts, processes: ProcessFacts, stale_after_s: float) -> Iterable[Finding]:
    """The pod list: named, readable, fresh, of this node, with the IDs of containers."""
    if facts.pods_path is None:
        yield from _by_api(facts, processes)
        return
    path, pods = facts.pods_path, facts.pods
    about_file = [gap for gap in pods.gaps if gap.what.startswith("pod file")]
    if pods.synced is None:
        yield PODS.say("unreadable", path=path, **_remedied(about_file))
        return
    yield PODS.say("read" if pods.pods else "empty", path=path, count=len(pods.pods))
    yield from _age(facts.age_s, stale_after_s)
    yield from _readable([gap for gap in pods.gaps if gap not in about_file], pods)
    if not pods.pods:
        return
    for gap in about_file:
        yield PODS_NODE.say("elsewhere", path=path, **remedied(gap.problem, ""))
    if not about_file:
        yield PODS_NODE.say("here", node=facts.node_name)
    yield from _contents(pods, processes)


def _by_api(facts: ClusterFacts, processes: ProcessFacts) -> Iterable[Finding]:
    pods = facts.pods
    if not facts.by_api:
        yield PODS.say("none_named")
    elif pods.synced is None:
        if "pods" not in facts.unlisted:
            yield PODS.say("api_unread", **_remedied(pods.gaps))
    else:
        yield PODS.say("api" if pods.pods else "api_empty", node=facts.node_name, count=len(pods.pods))
        yield from _readable(pods.gaps, pods)
        if pods.pods:
            yield from _contents(pods, processes, none="none_started")


def _age(age_s: float | None, stale_after_s: float) -> Iterable[Finding]:
    if age_s is None:
        return
    if age_s < -1:
        yield PODS_FRESH.say("future")
        return
    case = "fresh" if age_s <= stale_after_s else "old"
    yield PODS_FRESH.say(case, age=span(max(age_s, 0)), limit=format_duration(stale_after_s))


def _readable(others: Iterable[Gap], pods: PodList) -> Iterable[Finding]:
    """Pods that could not be decoded; gaps of the list itself are told elsewhere."""
    others = list(others)
    for gap in others:
        yield PODS_READABLE.say("some", what=gap.what, why=gap.problem)
    if pods.pods and not others:
        yield PODS_READABLE.say("all")


def _contents(pods: PodList, processes: ProcessFacts, none: str = "none") -> Iterable[Finding]:
    """What the list tells of containers; `none` is the case where that is nothing."""
    known = sum(bool(container.ids) for pod in pods.pods for container in pod.containers)
    yield PODS_CONTAINERS.say("known" if known else none, count=known)
    yield from _unknown(processes)


def _unknown(processes: ProcessFacts) -> Iterable[Finding]:
    if processes.attribution is None or not processes.listed:
        return
    unknown = {each.pid for each in processes.attribution.unattributed if each.reason is Reason.UNKNOWN_POD}
    if unknown:
        yield PODS_KNOWN.say("some", count=len(unknown), pid=min(unknown))
    else:
        yield PODS_KNOWN.say("all")


_LABEL: Final = "label:"


def check_node_object(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The node's own object, where the policy asks for its labels."""
    rules = [rule.name for rule in policy.rules if rule.match.node_labels]
    asking = [each for each in policy.declarations if _asks(each)]
    if facts.node_path is None and "nodes" in facts.unlisted and rules:
        yield NODE_OBJECT.say("unlisted", names=", ".join(rules))
    elif facts.node_path is None and facts.by_api:
        yield from _node_by_api(facts, asking, is_needed=bool(rules or asking))
    elif facts.node_gaps:
        yield _unread(NODE_OBJECT, facts.node_gaps, is_needed=bool(rules or asking))
    elif facts.node_path is not None:
        yield NODE_OBJECT.say("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif rules:
        yield NODE_OBJECT.say("rules", names=", ".join(rules), node=facts.node_name)
    elif asking:
        names = ", ".join(each.key for each in asking)
        yield NODE_OBJECT.say("declarations", names=names, node=facts.node_name)
    else:
        yield NODE_OBJECT.say("unneeded")


def _node_by_api(facts: ClusterFacts, asking: Iterable[Declaration], *, is_needed: bool) -> Iterable[Finding]:
    """Where it was listed; that the right is missing, or that there is no such node, is told as that."""
    if facts.node.known:
        yield NODE_OBJECT.say("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif facts.node_gaps:
        yield _unread(NODE_OBJECT, facts.node_gaps, is_needed=is_needed)
    elif not is_needed:
        yield NODE_OBJECT.say("unneeded")


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
            yield NODE_OBJECT.say("label", label=wanted, name=declaration.key)


def check_namespaces(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The labels of namespaces, where rules match by them."""
    rules = [rule.name for rule in policy.rules if rule.match.namespace_labels]
    if facts.namespaces_path is None and facts.by_api and (not rules or "namespaces" in facts.unlisted):
        if not rules:
            yield NAMESPACES.say("unneeded")
    elif facts.namespace_gaps and not facts.namespaces:
        yield _unread(NAMESPACES, facts.namespace_gaps, is_needed=bool(rules))
    elif facts.namespace_gaps:
        for gap in facts.namespace_gaps:
            yield NAMESPACES.say("some", what=gap.what, **_remedied([gap]))
    elif facts.namespaces_path is not None or facts.by_api:
        yield NAMESPACES.say("read", count=len(facts.namespaces))
    elif rules:
        yield NAMESPACES.say("rules", names=", ".join(rules))
    else:
        yield NAMESPACES.say("unneeded")


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
    problem = next((gap.problem for gap in gaps), Problem("it can't be read"))
    return remedied(problem, "write it anew")
