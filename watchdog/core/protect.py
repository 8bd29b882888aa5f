"""Protection: the pods that are never acted on, whatever they use."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.model import Now, Place, Pod
from watchdog.core.policy import Protect

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000  # scheduling.SystemCriticalPriority of k8s.io/kubernetes
TERMINATING: Final = "it is terminating and its grace period has not passed"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns (`*` and `?`)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def protection(pod: Pod, protect: Protect, own: Place | None, now: Now) -> str | None:
    """Say in a few words why a pod is never acted on, or None. `own` is where the daemon itself runs."""
    if own is not None and _is_own(pod, own):
        return "it is the watchdog's own pod"
    if pod.namespace == "kube-system":
        return "it is in kube-system"
    if pod.static:
        return "it is a static pod"
    if pod.priority is not None and pod.priority >= SYSTEM_CRITICAL_PRIORITY:
        return "its priority is system-critical"
    if pod.deletion_deadline_s is not None and now.wall_s <= pod.deletion_deadline_s:
        return TERMINATING
    return _by_policy(pod, protect)


def _is_own(pod: Pod, own: Place) -> bool:
    by_pod = own.pod is not None and own.pod in (pod.uid, pod.config_hash)
    return by_pod or any(own.container in container.ids for container in pod.containers)


def _by_policy(pod: Pod, protect: Protect) -> str | None:
    if matches(pod.namespace, protect.namespaces):
        return f"the policy protects namespace {pod.namespace}"
    if matches(pod.name, protect.pods) or matches(pod.title, protect.pods):
        return "the policy protects pods of this name"
    if pod.priority is not None and pod.priority >= protect.priority_at_least:
        return f"the policy protects priority {protect.priority_at_least} and above"
    if protect.annotation and protect.annotation in pod.annotations:
        return f"it carries the annotation {protect.annotation}"
    return None
