"""Rules: which one applies to a pod, which pods are protected, and what the Node object switches off."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.errors import Problem
from watchdog.core.keys import keys_of
from watchdog.core.model import Gap, GapReason, Node, Now, Place, Pod, elapsed_s
from watchdog.core.policy import Match, Policy, Protect, Rule
from watchdog.core.units import format_duration

_SYSTEM: Final = "kube-system"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000  # scheduling.SystemCriticalPriority of k8s.io/kubernetes
# A tenant may delete its pod with any grace period it likes, a year for instance.
MOST_TERMINATING_S: Final = 600.0
_AT_MOST: Final = format_duration(MOST_TERMINATING_S)
TERMINATING: Final = f"it is terminating, and left alone until its deletion deadline ({_AT_MOST} at most)"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns (`*` and `?`)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def has_name(pod: Pod, patterns: Iterable[str]) -> bool:
    """Whether a pod has one of these names, NAME or NAMESPACE/NAME; without a slash, in any namespace."""
    # The `*` of a pattern for names alone would also match a slash, and so any pod of such a namespace.
    return any(fnmatchcase(pod.title if "/" in pattern else pod.name, pattern) for pattern in patterns)


def is_system(pod: Pod) -> bool:
    """Whether a pod belongs to the system, so that no tenant can have started it.

    Its priority shows nothing: since Kubernetes 1.17 any namespace may use system-node-critical, unless a quota forbids
    it (https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default).
    """
    return pod.namespace == _SYSTEM or pod.static


def protection(pod: Pod, protect: Protect, own: Place | None, now: Now) -> str | None:
    """A short reason why a pod is never acted on, or None. `own` is where the daemon itself runs."""
    if own is not None and _is_own(pod, own):
        return "it is the watchdog's own pod"
    if pod.namespace == _SYSTEM:
        return "it is in kube-system"
    if pod.static:
        return "it is a static pod"
    if _is_terminating_in_time(pod, now):
        return TERMINATING
    return _by_policy(pod, protect)


class TerminatingPods:
    """Remembers when each terminating pod was first seen terminating, while it is known and the daemon runs.

    Unlike the grace period, a tenant can't set that time. A restarted daemon starts counting again, but no tenant can
    restart it; of a pod that has left, the journal keeps the time.
    """

    def __init__(self) -> None:
        self._since: dict[str, Now] = {}

    def since(self, uid: str) -> Now | None:
        """When a pod was first seen terminating; None: it was not."""
        return self._since.get(uid)

    def with_first_seen(self, pods: tuple[Pod, ...], now: Now) -> tuple[Pod, ...]:
        """The pods, with `terminating_since` set for the terminating ones."""
        listed = {pod.uid for pod in pods}
        terminating = {pod.uid: pod.terminating_since or now for pod in pods if pod.deletion_deadline_s is not None}
        self._since = terminating | {uid: since for uid, since in self._since.items() if uid in listed}
        return tuple(
            pod if pod.deletion_deadline_s is None else replace(pod, terminating_since=self._since[pod.uid])
            for pod in pods
        )


def _is_terminating_in_time(pod: Pod, now: Now) -> bool:
    deadline_s, since = pod.deletion_deadline_s, pod.terminating_since
    if deadline_s is None or now.wall_s > deadline_s:
        return False
    return since is None or elapsed_s(since, now) <= MOST_TERMINATING_S


def _is_own(pod: Pod, own: Place) -> bool:
    # For any other pod the hash is an annotation, which its owner can write.
    names = (pod.uid, pod.config_hash) if pod.static else (pod.uid,)
    return (own.pod is not None and own.pod in names) or any(
        own.container in container.ids for container in pod.containers
    )


def _by_policy(pod: Pod, protect: Protect) -> str | None:
    if matches(pod.namespace, protect.namespaces):
        return f"the policy protects namespace {pod.namespace}"
    if has_name(pod, protect.pods):
        return "the policy protects pods of this name"
    if pod.priority is not None and matches(pod.namespace, protect.priority_namespaces):
        if pod.priority >= SYSTEM_CRITICAL_PRIORITY:
            return "its priority is system-critical"
        if pod.priority >= protect.priority_at_least:
            return f"the policy protects priority {protect.priority_at_least} and above"
    if protect.annotation and protect.annotation in pod.annotations:
        return f"it carries the annotation {protect.annotation}"
    return None


Namespaces = Mapping[str, Mapping[str, str]]

_LEFT_ALONE: Final = "until then a pod that it may be for has no rule and is left alone"


def rule_of(pod: Pod, policy: Policy, node: Node, namespaces: Namespaces) -> Rule | Gap | None:
    """The first rule that matches a pod; None if none does, so that the pod is measured and left alone.

    `namespaces` has the labels of every known namespace. If only unknown labels keep a rule from matching, that is a
    gap. No later rule is used, since it may be harsher than the one that the operator put first. Nor is any while a pod
    was read for another policy, and what this one reads may have been left out.
    """
    if pod.keys is not None and not pod.keys.cover(keys_of(policy)):
        return _unread_gap(pod)
    for rule in policy.rules:
        if not _matches_pod(rule.match, pod):
            continue
        by_node = has_labels(rule.match.node_labels, node.labels if node.known else None)
        by_namespace = has_labels(rule.match.namespace_labels, namespaces.get(pod.namespace))
        if by_node is False or by_namespace is False:
            continue
        if by_node is None:
            return _node_gap(rule, node)
        return rule if by_namespace else _namespace_gap(rule, pod.namespace)
    return None


def observes(rule: Rule, now: Now) -> bool:
    """Whether a rule only observes at a moment, whatever the policy's mode: by its own mode, or outside its hours.

    Hours count by the wall clock. A rule cannot enforce while the policy observes.
    """
    return rule.mode == "observe" or (rule.active is not None and not rule.active.holds(now.wall_s))


def hours_at(policy: Policy, now: Now) -> tuple[bool, ...]:
    """Whether each rule with hours is active: the only effect that time alone has on rules."""
    return tuple(rule.active.holds(now.wall_s) for rule in policy.rules if rule.active is not None)


def _matches_pod(match: Match, pod: Pod) -> bool:
    """Whether all conditions on the pod's own object match; a pod without a controller is of kind Pod."""
    return (
        (not match.namespaces or matches(pod.namespace, match.namespaces))
        and (not match.pods or has_name(pod, match.pods))
        and (not match.owner_kinds or matches(pod.workload.kind, match.owner_kinds))
        and has_labels(match.labels, pod.labels) is True
    )


def has_labels(wanted: Mapping[str, str], labels: Mapping[str, str] | None) -> bool | None:
    """Whether all wanted labels are present; None if the labels are unknown."""
    if not wanted:
        return True
    if labels is None:
        return None
    return all(key in labels and fnmatchcase(labels[key], value) for key, value in wanted.items())


def _node_gap(rule: Rule, node: Node) -> Gap:
    problem = Problem(
        f"rule {rule.name} matches by labels of the node, which are not known",
        f"by the API: the gap `node {node.name}` has the cause; with --pods: give --node-object FILE; {_LEFT_ALONE}",
    )
    return Gap(reason=GapReason.NODE, what=f"labels of node {node.name}", problem=problem)


def _unread_gap(pod: Pod) -> Gap:
    problem = Problem(
        "it has more annotations, labels or resources than are kept, and the policy reads others since it was changed",
        "wait: the pods are being listed again; until then it has no rule and is left alone",
    )
    if pod.left_since is not None:
        problem = Problem(
            "it is gone from the API server, and the policy now reads annotations, labels or resources that were not "
            "kept of it",
            "end its containers with `crictl stop` on the node; until then it has no rule and is left alone",
        )
    return Gap(reason=GapReason.PODS, what=f"pod {pod.title}", problem=problem)


def _namespace_gap(rule: Rule, namespace: str) -> Gap:
    problem = Problem(
        f"rule {rule.name} matches by labels of the namespace, which are not known",
        "by the API: the gap `namespaces` has the cause; with --pods: give --namespaces FILE with it; " + _LEFT_ALONE,
    )
    return Gap(reason=GapReason.NAMESPACES, what=f"labels of namespace {namespace}", problem=problem)


MODE: Final = "gpu-memory-watchdog/mode"  # annotation
REASON: Final = "gpu-memory-watchdog/reason"  # annotation, read beside MODE
RELEASE: Final = "gpu-memory-watchdog/release-driver"  # annotation
MIG_STATE: Final = "nvidia.com/mig.config.state"
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"

# Set by NVIDIA's MIG manager before it ends the clients of the GPUs, and before it reboots the node; afterwards the
# state is `success` or `failed`. If it ends in between, `pending` stays until it runs again.
# https://github.com/NVIDIA/mig-parted/blob/000bdfbd4e14630d499a721a841b2d68d2d96ee6/deployments/gpu-operator/reconfigure-mig.sh
_MIG_CHANGES: Final = frozenset({"pending", "rebooting"})
# From the cordon of the node to the restart of its driver pod: docs/operations.md has every state, with its source.
# Only nodes with a driver pod are taken further (BuildState in pkg/upgrade/upgrade_state.go): without one it stays.
# https://github.com/NVIDIA/k8s-operator-libs/blob/1090aefaaaa9287325120aac59e0021708e52359/pkg/upgrade/consts.go
_UPGRADES: Final = frozenset(
    {
        "node-maintenance-required",
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "post-maintenance-required",
        "pod-restart-required",
    }
)


_LONGEST_VALUE: Final = 100  # characters of an annotation's value, which may have 256 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switches set on the Node object."""

    # Whether the daemon is only to observe.
    observes: bool = False
    # The reason given for that; empty: none.
    why: str = ""
    # An invalid value of the mode's annotation; None: there is none.
    ignored: str | None = None
    # Why the driver is to be released; None if it is not.
    maintenance: str | None = None
    # Whether the Node object has a source but is unknown, or too old, and so are its switches.
    unseen: bool = False


def switches(node: Node, gaps: Iterable[Gap]) -> Switches:
    """The switches of a node; `gaps` are those of its source.

    An unknown node without gaps has no source: no switch is set.
    """
    if not node.known:
        return Switches(unseen=any(True for _ in gaps))
    mode = node.annotations.get(MODE)
    observes = mode is not None and mode.strip().lower() == "observe"
    why = node.annotations.get(REASON, "") if observes else ""
    return Switches(observes=observes, why=why, ignored=None if observes else mode, maintenance=maintenance_of(node))


def maintenance_of(node: Node) -> str | None:
    """The label or annotation of the node that requests the release of the driver, as a sentence; or None."""
    for label, states in ((MIG_STATE, _MIG_CHANGES), (UPGRADE_STATE, _UPGRADES)):
        if node.labels.get(label) in states:
            return f"the node's label {label} is {node.labels[label]}"
    # As with other annotations of a node its presence counts, even with an empty value; only "false" does not.
    release = node.annotations.get(RELEASE)
    if release is None or release.strip().lower() == "false":
        return None
    value = release.strip()[:_LONGEST_VALUE]
    return f"the node's annotation {RELEASE} is {value!r}" if value else f"the node carries the annotation {RELEASE}"
