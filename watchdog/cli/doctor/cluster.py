"""Checks of the node object, its pods and the namespaces."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from watchdog.cli.doctor.facts import Facts
from watchdog.cli.doctor.finding import CheckResult, missing, ok, to_enforce, to_observe, warning
from watchdog.core.assessment import Reason
from watchdog.core.attribute import GVISOR_REMEDY, OUTSIDE_REMEDY, outsiders
from watchdog.core.errors import Problem
from watchdog.core.model import Gap
from watchdog.core.policy import Declaration
from watchdog.core.rules import MODE, REASON, switches
from watchdog.core.units import format_duration
from watchdog.daemon.enforcement import annotation_note
from watchdog.report.sentences.node import reason_given
from watchdog.report.text import count, inert, span

_POD_FILE: Final = "pod file"


def _was_asked(facts: Facts) -> bool:
    """Whether the objects were read: from files, or from an API server that answered every query."""
    return facts.api.ended in ("unused", "asked")


def _is_misnamed(facts: Facts) -> bool:
    """Whether `--node` does not name this node."""
    api, node = facts.api, facts.options.node
    if api.account.node and api.account.node != node:
        return True
    return api.exists is False or (api.exists is None and bool(api.similar))


def _knows_node(facts: Facts) -> bool:
    return _was_asked(facts) and not _is_misnamed(facts)


def _has_list(facts: Facts) -> bool:
    has_source = facts.options.pods is not None or facts.api.is_used
    return _knows_node(facts) and has_source and facts.cluster.pods.synced is not None


def _has_pods(facts: Facts) -> bool:
    return _has_list(facts) and bool(facts.cluster.pods.pods)


def _problem(gaps: Iterable[Gap]) -> Problem:
    """The first problem with a file or a request."""
    problem = next((gap.problem for gap in gaps), Problem("it can't be read"))
    return Problem(problem.cause, problem.remedy or "write it again")


@to_observe(given=lambda facts: facts.api.ended == "asked")
def node_name(facts: Facts) -> Iterator[CheckResult]:
    """The cluster has a node with the name given by `--node`. Its pods are found only by that name."""
    node, own, similar = facts.options.node, facts.api.account.node, facts.api.similar
    if own and own != node:
        yield missing(
            f"this pod runs on node {own}, but --node (NODE_NAME) is {node}: no pod on this node is known",
            f"set NODE_NAME by the downward API (fieldRef: spec.nodeName), or give --node {own}",
        )
    elif _is_misnamed(facts) and similar:
        yield missing(
            f"the cluster has no node {node}, but a node {similar}; no pod on this node is known",
            f"give --node {similar} (or NODE_NAME) if that is this node",
        )
    elif _is_misnamed(facts):
        yield missing(
            f"the cluster has no node {node}, so no pod on this node is known",
            "give --node NAME (or NODE_NAME) as shown by `kubectl get nodes`; the host name can differ",
        )
    elif facts.api.exists:
        yield ok(f"the cluster has a node {node}")
    elif own:
        yield ok(f"this pod runs on node {node}")
    elif facts.cluster.pods.pods and facts.cluster.pods.synced is not None:
        yield ok(f"there are pods on a node named {node}")
    elif facts.cluster.pods.synced is not None:
        yield warning(
            f"there is no pod on a node named {node}, and this account is not allowed to check whether that node "
            "exists",
            "check whether `kubectl get nodes` shows that name, and give the right one with --node (or NODE_NAME)",
        )


@to_observe(given=lambda facts: facts.api.ended == "asked" and facts.cluster.pods.synced is not None)
def own_pod(facts: Facts) -> Iterator[CheckResult]:
    """The pod that doctor runs in is in the list of the node's pods. The daemon never acts on it."""
    account, place, node = facts.api.account, facts.processes.environment.own, facts.options.node
    uid = account.pod_uid or (place.pod if place is not None else None)
    own = [
        pod
        for pod in facts.cluster.pods.pods
        if uid == (pod.config_hash if pod.static and pod.config_hash else pod.uid)
    ]
    if uid and own:
        pod = f"{own[0].namespace}/{own[0].name}"
        yield ok(f"this pod, {pod}, is in the list")
    elif uid:
        pod = f" {account.pod}" if account.pod else ""
        yield warning(
            f"this pod{pod} is not in the list of the pods of node {node}",
            "check that --node (NODE_NAME) names the node that this pod runs on; just after a start run doctor again",
        )


@to_observe(given=_knows_node)
def pods(facts: Facts) -> Iterator[CheckResult]:
    """There is a pod list, and it can be read. Without one, processes of pods count as those of unknown pods."""
    path, listed, node = facts.options.pods, facts.cluster.pods, facts.options.node
    count = len(listed.pods)
    if path is None and not facts.api.is_used:
        yield missing(
            "there is no source for the pods of this node: processes of pods count as those of unknown pods",
            "run in a pod with a service account, or give --kubeconfig FILE; or give --pods FILE with the output of "
            "`kubectl get pods -A -o json`",
        )
    elif path is not None and listed.synced is None:
        problem = _problem(gap for gap in listed.gaps if gap.what.startswith(_POD_FILE))
        yield missing(f"pod list {path}: {problem.cause}", problem.remedy)
    elif listed.synced is None:
        if "pods" not in facts.api.unlisted:
            problem = _problem(listed.gaps)
            yield missing(problem.cause, problem.remedy)
    elif path is not None and count:
        yield ok(f"pods in {path}: {count}")
    elif path is not None:
        yield warning(f"{path} contains no pods", "check that its writer asks for all namespaces (-A)")
    elif count:
        yield ok(f"pods on node {node}, according to the API: {count}")
    else:
        yield warning(
            f"according to the API there are no pods on node {node}",
            "check that --node (NODE_NAME) is the node's name as shown by `kubectl get nodes`",
        )


@to_observe(given=_has_list)
def pods_fresh(facts: Facts) -> Iterator[CheckResult]:
    """The pod list was written recently.

    The daemon considers an unchanged file current, so a writer that has died would go unnoticed.
    """
    age_s, limit_s = facts.cluster.age_s, facts.known_policy.stale_after_s
    if facts.options.pods is None or age_s is None:
        return
    age, limit = span(max(age_s, 0)), format_duration(limit_s)
    if age_s < -1:
        yield warning("the pod list was written in the future", "check that the clock is right")
    elif age_s <= limit_s:
        yield ok(f"the pod list was written {age} ago")
    else:
        yield warning(
            f"the pod list was written {age} ago (stale_after is {limit}); an unchanged file counts as current, so the "
            "daemon keeps enforcing by it",
            "check that its writer still runs; it should write again even if nothing has changed",
        )


@to_observe(given=_has_list)
def pods_readable(facts: Facts) -> Iterator[CheckResult]:
    """Every pod of the list can be read."""
    gaps = [gap for gap in facts.cluster.pods.gaps if not gap.what.startswith(_POD_FILE)]
    for gap in gaps:
        yield warning(
            f"{gap.what} is left out: {gap.problem}",
            "check this pod: its processes count as those of an unknown pod",
        )
    if facts.cluster.pods.pods and not gaps:
        yield ok("every pod of the list can be read")


@to_observe(given=_has_pods)
def pods_node(facts: Facts) -> Iterator[CheckResult]:
    """The pod list has pods of this node."""
    path, node = facts.options.pods, facts.options.node
    if path is None:
        return
    gaps = [gap for gap in facts.cluster.pods.gaps if gap.what.startswith(_POD_FILE)]
    for gap in gaps:
        yield warning(f"{path}: {gap.problem.cause}", gap.problem.remedy)
    if not gaps:
        yield ok(f"the pod list has pods of node {node}")


@to_enforce(given=_has_pods)
def pods_containers(facts: Facts) -> Iterator[CheckResult]:
    """The pod list has container IDs, by which processes are assigned to containers; they are in `status`."""
    count = sum(bool(container.ids) for pod in facts.cluster.pods.pods for container in pod.containers)
    if count:
        yield ok(f"containers with an ID in the pod list: {count}")
    elif facts.options.pods is not None:
        yield missing(
            "no container in the pod list has an ID: no action can be taken",
            "write whole objects (kubectl get pods -A -o json), with `status`; just after a start wait a minute",
        )
    else:
        yield warning(
            "no container in the pod list has an ID: there is nothing to act on",
            "no container has started here yet: run doctor again in a minute",
        )


@to_observe(given=_has_pods)
def pods_known(facts: Facts) -> Iterator[CheckResult]:
    """GPU processes in the cgroup of a pod belong to pods in the list."""
    if facts.processes.attribution is None or not facts.processes.listed:
        return
    unknown = {use.pid for use in facts.processes.attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
    if unknown:
        count, pid = len(unknown), min(unknown)
        yield warning(
            f"GPU processes that belong to no pod in the list: {count}, such as {pid}",
            "check that the list is current and of this node; a new pod is missing for a few seconds",
        )
    else:
        yield ok("every pod with processes on the GPUs is in the pod list")


@to_observe(given=_has_pods)
def pods_cgroups(facts: Facts) -> Iterator[CheckResult]:
    """GPU processes of containers in the list run below a pod's cgroup.

    A container ID elsewhere in a path proves nothing: nothing is attributed by it.
    """
    outside = outsiders(facts.processes.listed, facts.cluster.pods.pods)
    if outside:
        count, pid, container, pod = len(outside), outside[0].pid, outside[0].container, outside[0].pod
        yield missing(
            f"GPU processes that run in containers of the list, but not below a pod's cgroup: {count}, such as {pid} "
            f"(container {container} of pod {pod}). Their memory counts for no pod",
            OUTSIDE_REMEDY,
        )
    elif facts.processes.listed:
        yield ok("no container of the list runs outside of the pods' cgroups")


@to_enforce(given=_has_pods)
def pods_gvisor(facts: Facts) -> Iterator[CheckResult]:
    """No pod with processes on the GPUs is a gVisor sandbox, in which nothing can be killed."""
    if facts.processes.attribution is None or not facts.processes.listed:
        return
    pids = sorted({use.key.pid for use in facts.processes.attribution.attributed if use.gvisor})
    if pids:
        count, pid = len(pids), pids[0]
        yield warning(
            f"GPU processes that are gVisor sandboxes: {count}, such as {pid}. Their memory counts for their pods, and "
            "they are never killed",
            GVISOR_REMEDY,
        )
    else:
        yield ok("no process on the GPUs is a gVisor sandbox")


@to_enforce(given=_knows_node)
def node_object(facts: Facts) -> Iterator[CheckResult]:
    """The node object can be read: its labels, if the policy needs any, and whether its GPUs are in maintenance."""
    cluster, node = facts.cluster, facts.options.node
    rules = ", ".join(rule.name for rule in facts.known_policy.rules if rule.match.node_labels)
    declarations = [entry for entry in facts.known_policy.declarations if entry.node_labels or _share_label(entry)]
    is_by_api = facts.options.node_object is None and facts.api.is_used
    if facts.options.node_object is None and rules and "nodes" in facts.api.unlisted:
        yield missing(
            "the node's labels are unknown, as this account is not allowed to list nodes, and rules match by them "
            f"({rules}): no action is taken on pods that these may match",
            "grant the right that right_node reports",
        )
    elif cluster.node.known if is_by_api else facts.options.node_object is not None and not cluster.node_gaps:
        yield ok(f"the labels of node {cluster.node.name} are known")
        yield from _missing_labels(cluster.node.labels, declarations)
    elif cluster.node_gaps:
        what, problem = cluster.node_gaps[0].what, _problem(cluster.node_gaps)
        if rules or declarations:
            yield missing(f"{what}: {problem.cause}", problem.remedy)
        else:
            yield warning(f"maintenance of the GPUs can't be noticed: {what}: {problem.cause}", problem.remedy)
    elif not (rules or declarations):
        yield ok("the policy needs no node labels")
    elif not is_by_api:  # otherwise a right or the node itself is missing, which is reported there
        yield _no_node_object(node, rules, ", ".join(entry.key for entry in declarations))


def _no_node_object(node: str, rules: str, declarations: str) -> CheckResult:
    remedy = f"give --node-object FILE with the output of `kubectl get node {node} -o json`"
    if rules:
        return missing(
            f"the node's labels are unknown, and rules match by them ({rules}): no action is taken on pods that these "
            "may match",
            remedy,
        )
    return warning(
        f"the node's labels are unknown, and declarations need them ({declarations}): these do not apply", remedy
    )


def _missing_labels(labels: Mapping[str, str], declarations: Iterable[Declaration]) -> Iterator[CheckResult]:
    """Declarations that apply to this node while the label with their shares is missing."""
    for declaration in declarations:
        label, name = _share_label(declaration), declaration.key
        applies = all(fnmatchcase(labels.get(key, ""), value) for key, value in declaration.node_labels.items())
        if applies and label is not None and label not in labels:
            yield warning(
                f"the node has no label {label}, from which the declaration {name} takes its shares: it does not apply",
                "label the node (GPU feature discovery does this), or give the shares as a number",
            )


def _share_label(declaration: Declaration) -> str | None:
    shares = declaration.shares
    return shares.removeprefix("label:") if isinstance(shares, str) and shares.startswith("label:") else None


@to_observe(given=lambda facts: _knows_node(facts) and facts.cluster.node.known and facts.api.is_used)
def capacity(facts: Facts) -> Iterator[CheckResult]:
    """The node advertises the resource of [capacity], if the policy has that table."""
    if facts.known_policy.capacity is None:
        return
    resource = facts.known_policy.capacity.resource
    amount = facts.cluster.node.capacity.get(resource)
    if amount is not None:
        yield ok(f"the node advertises {amount} of {resource}")
    else:
        yield warning(
            f"the node does not advertise {resource} (yet): pods that request it are not scheduled here",
            "the daemon advertises it: check that it runs, and its log",
        )


@to_enforce(given=_knows_node)
def node_annotation(facts: Facts) -> Iterator[CheckResult]:
    """No annotation of the node turns enforcement off, and this can be checked."""
    cluster, node, key = facts.cluster, facts.options.node, MODE
    if facts.options.node_object is None and "nodes" in facts.api.unlisted:
        return  # reported as a missing right
    found = switches(cluster.node, cluster.node_gaps)
    if found.unseen:
        problem = cluster.node_gaps[0].problem
        yield missing(
            f"whether the annotation {key} of node {node} turns enforcement off can't be read, so it is assumed to: "
            f"{problem.cause}",
            problem.remedy or "see the findings about the node object",
        )
    elif not cluster.node.known:
        if facts.known_policy.mode == "enforce":
            yield ok(
                f"the object of node {node} is not watched (--node-object, or the API): neither its annotation {key} "
                "nor maintenance of its GPUs is noticed"
            )
    elif found.ignored is not None:
        value = inert(repr(found.ignored), 100)
        yield warning(
            f"the annotation {key} of node {node} is {value}, which has no effect: the only valid value is observe",
            f"`kubectl annotate node {node} {key}-`; only the policy can turn enforcement on",
        )
    elif found.observes:
        why = reason_given(annotation_note(found), node)
        yield missing(
            f"the annotation {key} of node {node} turns enforcement off ({why})",
            f"if that is no longer needed, remove it: `kubectl annotate node {node} {key}- {REASON}-`",
        )
    else:
        yield ok(f"node {node} has no annotation {key}")


@to_enforce(given=lambda facts: _was_asked(facts) and facts.cluster.claiming > 0)
def claims(facts: Facts) -> Iterator[CheckResult]:
    """It is known what resource claims gave the pods, if any pod has one and the policy has the scheme `dra`."""
    pods, gaps = count(facts.cluster.claiming, "pod"), facts.cluster.claim_gaps
    for gap in gaps:
        yield warning(f"{gap.what}: {gap.problem.cause}", _problem([gap]).remedy)
    if facts.cluster.lacks_uuids:
        yield warning(
            "no ResourceSlice of this node has the UUID of a device, so nothing that claims gave can be tied to a "
            "card, and it counts as nothing",
            "use a driver that publishes the attribute uuid, as NVIDIA's and HAMi's do",
        )
    elif not gaps:
        yield ok(f"it is known what the claims of {pods} were given")


@to_enforce(given=_was_asked)
def namespaces(facts: Facts) -> Iterator[CheckResult]:
    """The labels of namespaces can be read, if the policy needs them."""
    gaps, count = facts.cluster.namespace_gaps, len(facts.cluster.namespaces)
    rules = ", ".join(rule.name for rule in facts.known_policy.rules if rule.match.namespace_labels)
    if facts.options.namespaces is None and not rules:
        yield ok("the policy needs no namespace labels")
    elif facts.options.namespaces is None and "namespaces" in facts.api.unlisted:
        return  # reported as a missing right
    elif gaps and not rules and not count:
        problem = _problem(gaps)
        yield warning(f"{gaps[0].what}, which the policy does not need: {problem.cause}", problem.remedy)
    elif gaps and not count:
        problem = _problem(gaps)
        yield missing(f"{gaps[0].what}: {problem.cause}", problem.remedy)
    elif gaps:
        for gap in gaps:
            yield warning(f"{gap.what}: {gap.problem.cause}", _problem([gap]).remedy)
    elif facts.options.namespaces is not None or facts.api.is_used:
        yield ok(f"namespaces with known labels: {count}")
    else:
        yield missing(
            f"the labels of namespaces are unknown, and rules match by them ({rules}): no action is taken on pods that "
            "these may match",
            "give --namespaces FILE with the output of `kubectl get namespaces -o json`",
        )
