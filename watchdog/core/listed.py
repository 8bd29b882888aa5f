"""Which resources the node listed at any time in each pod's life, as far as is known."""

from collections.abc import Mapping
from typing import Final

from watchdog.core.keys import WantedKeys, keys_of
from watchdog.core.model import Node, Now, Pod
from watchdog.core.policy import Policy

# A pod that was scheduled while the node listed a resource may appear in the pod list after the node has dropped it.
_LATE_S: Final = 60.0
_FORGOTTEN_AFTER_S: Final = 3600.0  # a pod can leave the list for a while, with its processes running
_LONGEST_PAUSE_S: Final = 300.0  # the longest interval; a node that was suspended for longer has seen no list
_MOST: Final = 5000  # pods; beyond them those that have been gone for the longest are forgotten

ListedByPod = Mapping[str, frozenset[str]]


class ListedResources:
    """The resources that pods request and the node listed in their lives, by the pods' UIDs, in `by_pod`.

    The kubelet drops the resources of device plugins for a while when a node registers again. Only those that the
    policy reads are remembered.
    """

    def __init__(self) -> None:
        self.by_pod: ListedByPod = {}
        self._read: dict[str, Pod] = {}  # pods that need not be read again, by UID
        self._here: list[str] = []  # what the policy reads of what the node lists
        self._basis: tuple[frozenset[str], Policy] | None = None  # under what they were read
        self._listed_s: dict[str, float] = {}  # when each resource was last listed, CLOCK_BOOTTIME
        # When each remembered pod was last in the list; later by the pauses that are too long to count.
        self._seen_s: dict[str, float] = {}
        self._updated_s: float | None = None

    def restore(self, earlier: ListedByPod, now: Now) -> None:
        """Add what an earlier daemon knew."""
        self.by_pod = merged(earlier, self.by_pod)
        self._seen_s |= dict.fromkeys(earlier.keys() - self._seen_s.keys(), now.boottime_s)

    def update(self, pods: tuple[Pod, ...], node: Node, policy: Policy, now: Now) -> ListedByPod:
        """Note what a node lists now for these pods; returns what is new, and no resources for a forgotten pod."""
        basis = (frozenset(node.capacity), policy)
        if self._basis is None or self._basis[0] != basis[0] or self._basis[1] is not policy:
            self._basis, self._read = basis, {}
        self._skip_pause(now)
        here = self._listed(node, policy, now)
        new: dict[str, frozenset[str]] = {}
        for pod in pods if here else ():
            if not _may_run(pod) or self._read.get(pod.uid) is pod:
                continue
            known = self.by_pod.get(pod.uid, frozenset())
            found = known.union(*(container.resources.keys() & here for container in pod.containers))
            if found != known and (known or len(new) < _MOST):
                new[pod.uid] = found
        self._read = {pod.uid: pod for pod in pods if _may_run(pod)}
        self.by_pod = {**self.by_pod, **new} if new else self.by_pod
        self._seen_s |= dict.fromkeys((uid for uid in self._read if uid in self.by_pod), now.boottime_s)
        gone = self._long_gone(now) | self._surplus()
        if gone:
            self.by_pod = {uid: keys for uid, keys in self.by_pod.items() if uid not in gone}
        return {**new, **dict.fromkeys(gone, frozenset())}

    def _listed(self, node: Node, policy: Policy, now: Now) -> set[str]:
        """What the policy reads of what the node lists, or has just dropped."""
        if not self._read:
            wanted = WantedKeys(keys_of(policy).resources)
            self._here = [key for key in node.capacity if wanted.names(key) or wanted.matches(key)]
        self._listed_s |= dict.fromkeys(self._here, now.boottime_s)
        return {key for key, listed_s in self._listed_s.items() if now.boottime_s - listed_s <= _LATE_S}

    def _skip_pause(self, now: Now) -> None:
        """No pod counts as missing for longer than one interval across the time since the last list."""
        too_long_s = now.boottime_s - (now.boottime_s if self._updated_s is None else self._updated_s)
        too_long_s -= _LONGEST_PAUSE_S
        self._updated_s = now.boottime_s
        if too_long_s > 0:
            self._seen_s = {uid: seen_s + too_long_s for uid, seen_s in self._seen_s.items()}

    def _surplus(self) -> frozenset[str]:
        """The pods that are too many: a tenant can make thousands in an hour, and must not keep out others by them."""
        number = len(self.by_pod) - _MOST
        gone = [uid for uid in self.by_pod if uid not in self._read] if number > 0 else []
        surplus = sorted(gone, key=lambda uid: (self._seen_s.get(uid, 0.0), uid))[:number] if gone else []
        for uid in surplus:
            self._seen_s.pop(uid, None)
        return frozenset(surplus)

    def _long_gone(self, now: Now) -> frozenset[str]:
        gone = {uid for uid, seen_s in self._seen_s.items() if now.boottime_s - seen_s > _FORGOTTEN_AFTER_S}
        for uid in gone:
            del self._seen_s[uid]
        return frozenset(gone)


def _may_run(pod: Pod) -> bool:
    """Whether containers of a pod may run; one that has left counts as finished, and is known only while they do."""
    return not pod.is_finished or pod.left_since is not None


def merged(*found: ListedByPod) -> dict[str, frozenset[str]]:
    """What several know of the resources that were listed, together."""
    together: dict[str, frozenset[str]] = {}
    for one in found:
        for uid, keys in one.items():
            together[uid] = together.get(uid, frozenset()) | keys
    return together
