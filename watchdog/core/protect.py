"""Protection: the pods that are never acted on, whatever they use."""

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.model import Now, Place, Pod
from watchdog.core.policy import Protect

_SYSTEM: Final = "kube-system"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000  # scheduling.SystemCriticalPriority of k8s.io/kubernetes
# A tenant may delete its pod with any grace period it likes, a year for instance.
MOST_TERMINATING_S: Final = 600.0
TERMINATING: Final = "it is terminating: it is left alone until its deletion deadline, for 10m at most"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns (`*` and `?`)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_system(pod: Pod) -> bool:
    """Whether a pod is one of the cluster's own, which no tenant can start."""
    return pod.namespace == _SYSTEM or pod.static or (pod.priority or 0) >= SYSTEM_CRITICAL_PRIORITY


def protection(pod: Pod, protect: Protect, own: Place | None, now: Now) -> str | None:
    """Say in a few words why a pod is never acted on, or None. `own` is where the daemon itself runs."""
    if own is not None and _is_own(pod, own):
        return "it is the watchdog's own pod"
    if pod.namespace == _SYSTEM:
        return "it is in kube-system"
    if pod.static:
        return "it is a static pod"
    if pod.priority is not None and pod.priority >= SYSTEM_CRITICAL_PRIORITY:
        return "its priority is system-critical"
    if _may_take_its_time(pod, now):
        return TERMINATING
    return _by_policy(pod, protect)


class Terminating:
    """Remembers when each terminating pod was first seen so, for as long as it is listed and the daemon lives.

    No tenant writes that moment, as it does the grace period, and none can restart the daemon, after which it counts
    from the new one's first sight.
    """

    def __init__(self) -> None:
        self._given: tuple[Pod, ...] = ()
        self._marked: tuple[Pod, ...] = ()
        self._since: dict[str, Now] = {}

    def mark(self, pods: tuple[Pod, ...], now: Now) -> tuple[Pod, ...]:
        """The pods, the terminating ones with the moment at which each was first seen so."""
        if pods is not self._given:
            listed = {pod.uid for pod in pods}
            self._since = {uid: since for uid, since in self._since.items() if uid in listed}
            before = {pod.uid: pod for pod in self._marked}
            self._given, self._marked = pods, tuple(self._mark(pod, before.get(pod.uid), now) for pod in pods)
        return self._marked

    def _mark(self, pod: Pod, before: Pod | None, now: Now) -> Pod:
        if pod.deletion_deadline_s is None:
            return pod
        marked = replace(pod, terminating_since=self._since.setdefault(pod.uid, now))
        return before if before == marked else marked


def _may_take_its_time(pod: Pod, now: Now) -> bool:
    deadline_s, since = pod.deletion_deadline_s, pod.terminating_since
    if deadline_s is None or now.wall_s > deadline_s:
        return False
    if since is None:
        return True
    is_same_boot = since.boot_id == now.boot_id
    passed_s = now.boottime_s - since.boottime_s if is_same_boot else now.wall_s - since.wall_s
    return passed_s <= MOST_TERMINATING_S


def _is_own(pod: Pod, own: Place) -> bool:
    # Of any other pod the hash is an annotation, which its owner can write.
    names = (pod.uid, pod.config_hash) if pod.static else (pod.uid,)
    return (own.pod is not None and own.pod in names) or any(
        own.container in container.ids for container in pod.containers
    )


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
