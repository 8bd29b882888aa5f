"""Checks of the node object, its pods and the namespaces, with their texts."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from watchdog.cli.doctor.facts import ApiFacts, ClusterFacts, ProcessFacts
from watchdog.cli.doctor.finding import ENFORCING, Finding, Topic, missing, ok, remedied, warning
from watchdog.core.assessment import Reason
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, Place, PodList
from watchdog.core.policy import Declaration, Policy
from watchdog.core.units import format_duration
from watchdog.report.text import span

NODE_NAME: Final = Topic(
    name="node_name",
    means="The cluster has a node with the name given by `--node`. Its pods are found only by that name.",
    cases={
        "exists": ok("the cluster has a node {node}"),
        "own": ok("this pod runs on node {node}"),
        "pods": ok("there are pods on a node named {node}"),
        "other": missing(
            "this pod runs on node {own}, but --node (NODE_NAME) is {node}: no pod on this node is known",
            "set NODE_NAME by the downward API (fieldRef: spec.nodeName), or give --node {own}",
        ),
        "absent": missing(
            "the cluster has no node {node}, so no pod on this node is known",
            "give --node NAME (or NODE_NAME) as shown by `kubectl get nodes`; the host name can differ",
        ),
        "similar": missing(
            "the cluster has no node {node}, but a node {similar}; no pod on this node is known",
            "give --node {similar} (or NODE_NAME) if that is this node",
        ),
        "doubtful": warning(
            "there is no pod on a node named {node}, and this account is not allowed to check whether that node exists",
            "check whether `kubectl get nodes` shows that name, and give the right one with --node (or NODE_NAME)",
        ),
    },
)
OWN_POD: Final = Topic(
    name="own_pod",
    means="The pod that this runs in is in the list of the node's pods. The daemon never acts on it.",
    cases={
        "known": ok("this pod, {pod}, is in the list"),
        "unknown": warning(
            "this pod{pod} is not in the list of the pods of node {node}",
            "check that --node (NODE_NAME) names the node that this pod runs on; just after a start run doctor again",
        ),
    },
)
CAPACITY: Final = Topic(
    name="capacity",
    means="The node advertises the resource of [capacity], if the policy has that table.",
    cases={
        "kept": ok("the node advertises {amount} of {resource}"),
        "absent": warning(
            "the node does not advertise {resource} (yet): pods that request it are not scheduled here",
            "the daemon advertises it: check that it runs, and its log",
        ),
    },
)
PODS: Final = Topic(
    name="pods",
    means="There is a pod list, and it can be read. Without one, processes of pods count as those of unknown pods.",
    cases={
        "read": ok("pods in {path}: {count}"),
        "none_named": missing(
            "there is no source for the pods of this node: processes of pods count as those of unknown pods",
            "run in a pod with a service account, or give --kubeconfig FILE; or give --pods FILE with the output of "
            "`kubectl get pods -A -o json`",
        ),
        "unreadable": missing("pod list {path}: {problem}", "{remedy}"),
        "empty": warning("{path} contains no pods", "check that its writer asks for all namespaces (-A)"),
        "api": ok("pods on node {node}, according to the API: {count}"),
        "api_unread": missing("{problem}", "{remedy}"),
        "api_empty": warning(
            "according to the API there are no pods on node {node}",
            "check that --node (NODE_NAME) is the node's name as shown by `kubectl get nodes`",
        ),
    },
)
PODS_FRESH: Final = Topic(
    name="pods_fresh",
    means="The pod list was written recently. The daemon considers an unchanged file current, so a writer that has "
    "died would go unnoticed.",
    cases={
        "fresh": ok("the pod list was written {age} ago"),
        "old": warning(
            "the pod list was written {age} ago (stale_after is {limit}); an unchanged file counts as current, so the "
            "daemon keeps enforcing by it",
            "check that its writer still runs; it should write again even if nothing has changed",
        ),
        "future": warning("the pod list was written in the future", "check that the clock is right"),
    },
)
PODS_NODE: Final = Topic(
    name="pods_node",
    means="The pod list has pods of this node.",
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
        "some": warning("{what} is left out: {why}", "check this pod: its processes count as those of an unknown pod"),
    },
)
PODS_CONTAINERS: Final = Topic(
    name="pods_containers",
    means="The pod list has container IDs, by which processes are assigned to containers; they are in `status`.",
    purposes=ENFORCING,
    cases={
        "known": ok("containers with an ID in the pod list: {count}"),
        "none": missing(
            "no container in the pod list has an ID: no action can be taken",
            "write whole objects (kubectl get pods -A -o json), with `status`; just after a start wait a minute",
        ),
        "none_started": warning(
            "no container in the pod list has an ID: there is nothing to act on",
            "no container has started here yet: run doctor again in a minute",
        ),
    },
)
PODS_KNOWN: Final = Topic(
    name="pods_known",
    means="GPU processes in the cgroup of a pod belong to pods in the list.",
    cases={
        "all": ok("every pod with processes on the GPUs is in the pod list"),
        "some": warning(
            "GPU processes that belong to no pod in the list: {count}, such as {pid}",
            "check that the list is current and of this node; a new pod is missing for a few seconds",
        ),
    },
)
NODE_OBJECT: Final = Topic(
    name="node_object",
    means="The node object can be read: its labels, if the policy needs any, and whether its GPUs are in maintenance.",
    purposes=ENFORCING,
    cases={
        "read": ok("the labels of node {node} are known"),
        "unneeded": ok("the policy needs no node labels"),
        "rules": missing(
            "the node's labels are unknown, and rules match by them ({names}): no action is taken on pods that these "
            "may match",
            "give --node-object FILE with the output of `kubectl get node {node} -o json`",
        ),
        "declarations": warning(
            "the node's labels are unknown, and declarations need them ({names}): these do not apply",
            "give --node-object FILE with the output of `kubectl get node {node} -o json`",
        ),
        "unlisted": missing(
            "the node's labels are unknown, as this account is not allowed to list nodes, and rules match by them "
            "({names}): no action is taken on pods that these may match",
            "have the right granted that right_node names",
        ),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("maintenance of the GPUs can't be noticed: {what}: {problem}", "{remedy}"),
        "label": warning(
            "the node has no label {label}, from which the declaration {name} takes its shares: it does not apply",
            "label the node (GPU feature discovery does this), or give the shares as a number",
        ),
    },
)
NAMESPACES: Final = Topic(
    name="namespaces",
    means="The labels of namespaces can be read, if the policy needs them.",
    purposes=ENFORCING,
    cases={
        "read": ok("namespaces with known labels: {count}"),
        "unneeded": ok("the policy needs no namespace labels"),
        "rules": missing(
            "the labels of namespaces are unknown, and rules match by them ({names}): no action is taken on pods that "
            "these may match",
            "give --namespaces FILE with the output of `kubectl get namespaces -o json`",
        ),
        "some": warning("{what}: {problem}", "{remedy}"),
        "unreadable": missing("{what}: {problem}", "{remedy}"),
        "unneeded_unreadable": warning("{what}, which the policy does not need: {problem}", "{remedy}"),
    },
)
OF_PODS: Final = (PODS, PODS_FRESH, PODS_NODE, PODS_READABLE, PODS_CONTAINERS, PODS_KNOWN)
CLUSTER_TOPICS: Final = (*OF_PODS, NODE_OBJECT, NAMESPACES)
PLACE: Final = (NODE_NAME, OWN_POD, CAPACITY)


def check_pods(facts: ClusterFacts, processes: ProcessFacts, stale_after_s: float) -> Iterable[Finding]:
    """The pod list: given, readable, current, of this node, with container IDs."""
    if facts.pods_path is None:
        yield from _by_api(facts, processes)
        return
    path, pods = facts.pods_path, facts.pods
    about_file = [gap for gap in pods.gaps if gap.what.startswith("pod file")]
    if pods.synced is None:
        yield PODS.finding("unreadable", path=path, **_remedied(about_file))
        return
    yield PODS.finding("read" if pods.pods else "empty", path=path, count=len(pods.pods))
    yield from _age(facts.age_s, stale_after_s)
    yield from _readable([gap for gap in pods.gaps if gap not in about_file], pods)
    if not pods.pods:
        return
    for gap in about_file:
        yield PODS_NODE.finding("elsewhere", path=path, **remedied(gap.problem, ""))
    if not about_file:
        yield PODS_NODE.finding("here", node=facts.node_name)
    yield from _contents(pods, processes)


def _by_api(facts: ClusterFacts, processes: ProcessFacts) -> Iterable[Finding]:
    pods = facts.pods
    if not facts.by_api:
        yield PODS.finding("none_named")
    elif pods.synced is None:
        if "pods" not in facts.unlisted:
            yield PODS.finding("api_unread", **_remedied(pods.gaps))
    else:
        yield PODS.finding("api" if pods.pods else "api_empty", node=facts.node_name, count=len(pods.pods))
        yield from _readable(pods.gaps, pods)
        if pods.pods:
            yield from _contents(pods, processes, none="none_started")


def _age(age_s: float | None, stale_after_s: float) -> Iterable[Finding]:
    if age_s is None:
        return
    if age_s < -1:
        yield PODS_FRESH.finding("future")
        return
    case = "fresh" if age_s <= stale_after_s else "old"
    yield PODS_FRESH.finding(case, age=span(max(age_s, 0)), limit=format_duration(stale_after_s))


def _readable(others: Iterable[Gap], pods: PodList) -> Iterable[Finding]:
    """Pods that could not be decoded; gaps of the list itself are reported elsewhere."""
    others = list(others)
    for gap in others:
        yield PODS_READABLE.finding("some", what=gap.what, why=gap.problem)
    if pods.pods and not others:
        yield PODS_READABLE.finding("all")


def _contents(pods: PodList, processes: ProcessFacts, none: str = "none") -> Iterable[Finding]:
    """What the list has about containers; `none` is the case for nothing."""
    known = sum(bool(container.ids) for pod in pods.pods for container in pod.containers)
    yield PODS_CONTAINERS.finding("known" if known else none, count=known)
    yield from _unknown(processes)


def _unknown(processes: ProcessFacts) -> Iterable[Finding]:
    if processes.attribution is None or not processes.listed:
        return
    unknown = {each.pid for each in processes.attribution.unattributed if each.reason is Reason.UNKNOWN_POD}
    if unknown:
        yield PODS_KNOWN.finding("some", count=len(unknown), pid=min(unknown))
    else:
        yield PODS_KNOWN.finding("all")


_LABEL: Final = "label:"


def check_node_object(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The node object, if the policy needs its labels."""
    rules = [rule.name for rule in policy.rules if rule.match.node_labels]
    asking = [each for each in policy.declarations if _asks(each)]
    if facts.node_path is None and "nodes" in facts.unlisted and rules:
        yield NODE_OBJECT.finding("unlisted", names=", ".join(rules))
    elif facts.node_path is None and facts.by_api:
        yield from _node_by_api(facts, asking, is_needed=bool(rules or asking))
    elif facts.node_gaps:
        yield _unread(NODE_OBJECT, facts.node_gaps, is_needed=bool(rules or asking))
    elif facts.node_path is not None:
        yield NODE_OBJECT.finding("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif rules:
        yield NODE_OBJECT.finding("rules", names=", ".join(rules), node=facts.node_name)
    elif asking:
        names = ", ".join(each.key for each in asking)
        yield NODE_OBJECT.finding("declarations", names=names, node=facts.node_name)
    else:
        yield NODE_OBJECT.finding("unneeded")


def _node_by_api(facts: ClusterFacts, asking: Iterable[Declaration], *, is_needed: bool) -> Iterable[Finding]:
    """If it was listed; a missing right or node is reported separately."""
    if facts.node.known:
        yield NODE_OBJECT.finding("read", node=facts.node.name)
        yield from _labels(facts, asking)
    elif facts.node_gaps:
        yield _unread(NODE_OBJECT, facts.node_gaps, is_needed=is_needed)
    elif not is_needed:
        yield NODE_OBJECT.finding("unneeded")


def _asks(declaration: Declaration) -> bool:
    return bool(declaration.node_labels) or _share_label(declaration) is not None


def _share_label(declaration: Declaration) -> str | None:
    shares = declaration.shares
    return shares.removeprefix(_LABEL) if isinstance(shares, str) and shares.startswith(_LABEL) else None


def _labels(facts: ClusterFacts, asking: Iterable[Declaration]) -> Iterable[Finding]:
    """Declarations that apply to this node while the label with their shares is missing."""
    labels = facts.node.labels
    for declaration in asking:
        wanted = _share_label(declaration)
        applies = all(fnmatchcase(labels.get(key, ""), value) for key, value in declaration.node_labels.items())
        if applies and wanted is not None and wanted not in labels:
            yield NODE_OBJECT.finding("label", label=wanted, name=declaration.key)


def check_namespaces(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """The labels of namespaces, if rules match by them."""
    rules = [rule.name for rule in policy.rules if rule.match.namespace_labels]
    if facts.namespaces_path is None and facts.by_api and (not rules or "namespaces" in facts.unlisted):
        if not rules:
            yield NAMESPACES.finding("unneeded")
    elif facts.namespace_gaps and not facts.namespaces:
        yield _unread(NAMESPACES, facts.namespace_gaps, is_needed=bool(rules))
    elif facts.namespace_gaps:
        for gap in facts.namespace_gaps:
            yield NAMESPACES.finding("some", what=gap.what, **_remedied([gap]))
    elif facts.namespaces_path is not None or facts.by_api:
        yield NAMESPACES.finding("read", count=len(facts.namespaces))
    elif rules:
        yield NAMESPACES.finding("rules", names=", ".join(rules))
    else:
        yield NAMESPACES.finding("unneeded")


def check_capacity(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """Whether the node advertises the policy's resource, if its object is known."""
    if policy.capacity is None or not facts.node.known or not facts.by_api:
        return
    resource = policy.capacity.resource
    amount = facts.node.capacity.get(resource)
    yield CAPACITY.finding("absent" if amount is None else "kept", resource=resource, amount=amount)


def _unread(where: Topic, gaps: tuple[Gap, ...], *, is_needed: bool) -> Finding:
    case = "unreadable" if is_needed else "unneeded_unreadable"
    return where.finding(case, what=gaps[0].what, **_remedied(gaps))


def _remedied(gaps: Iterable[Gap]) -> dict[str, str]:
    """A gap about a file or a request: the problem and the remedy."""
    problem = next((gap.problem for gap in gaps), Problem("it can't be read"))
    return remedied(problem, "write it again")


def check_node_name(facts: ApiFacts | None, cluster: ClusterFacts, own: Place | None) -> Iterable[Finding]:
    """Whether `--node` names this node, and whether the pod that this runs in (`own`) is listed."""
    if facts is None or facts.ended != "asked":
        return
    node, here = cluster.node_name, facts.account.node
    if here and here != node:
        yield NODE_NAME.finding("other", own=here, node=node)
    elif facts.exists is False or (facts.exists is None and facts.similar):
        case = "similar" if facts.similar else "absent"
        yield NODE_NAME.finding(case, node=node, similar=facts.similar)
    elif facts.exists or here:
        yield NODE_NAME.finding("exists" if facts.exists else "own", node=node)
    elif cluster.pods.synced is not None:
        yield NODE_NAME.finding("pods" if cluster.pods.pods else "doubtful", node=node)
    yield from _own_pod(facts, cluster, own)


def _own_pod(facts: ApiFacts, cluster: ClusterFacts, own: Place | None) -> Iterable[Finding]:
    uid = facts.account.pod_uid or (own.pod if own is not None else None)
    if not uid or cluster.pods.synced is None:
        return
    found = next(
        (pod for pod in cluster.pods.pods if uid == (pod.config_hash if pod.static and pod.config_hash else pod.uid)),
        None,
    )
    if found is not None:
        yield OWN_POD.finding("known", pod=f"{found.namespace}/{found.name}")
    else:
        name = f" {facts.account.pod}" if facts.account.pod else ""
        yield OWN_POD.finding("unknown", pod=name, node=cluster.node_name)
