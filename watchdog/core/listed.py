"""Which resources the node listed at any time in each pod's life, as far as is known."""

from collections.abc import Mapping
from typing import Final

from watchdog.core.keys import WantedKeys, keys_of
from watchdog.core.model import Node, Now, Pod
from watchdog.core.policy import Policy

# A pod that was scheduled while the node listed a resource may appear in the pod list after the node has dropped it.
_LATE_S: Final = 60.0
_FORGOTTEN_AFTER_S: Final = 3600.0  # a pod can leave the list for a while, with its processes running
_MOST: Final = 5000  # pods; no node has as many in an hour

ListedByPod = Mapping[str, frozenset[str]]


class ListedResources:
    """The resources that pods request and the node listed in their lives, by the pods' UIDs, in `by_pod`.

    The kubelet drops the resources of device plugins for a while when a node registers again. Only those that the
    policy reads are remembered.
    """

    def __init__(self) -> None:
        self.by_pod: ListedByPod = {}
        self._pods: tuple[Pod, ...] | None = None
        self._capacity: Mapping[str, str] = {}
        self._policy: Policy | None = None
        self._listed_s: dict[str, float] = {}  # when each resource was last listed, CLOCK_BOOTTIME
        self._seen_s: dict[str, float] = {}  # when each remembered pod was last in the list

    def restore(self, earlier: ListedByPod, now: Now) -> None:
        """Add what an earlier daemon knew."""
        self.by_pod = {
            **self.by_pod,
            **{uid: keys | self.by_pod.get(uid, frozenset()) for uid, keys in earlier.items()},
        }
        self._seen_s |= dict.fromkeys(earlier.keys() - self._seen_s.keys(), now.boottime_s)
        self._pods = None

    def note(self, pods: tuple[Pod, ...], node: Node, policy: Policy, now: Now) -> ListedByPod:
        """Note what a node lists now for these pods; returns what is new, and no resources for a forgotten pod."""
        if pods is self._pods and node.capacity == self._capacity and policy is self._policy:
            return {}
        self._pods, self._capacity, self._policy = pods, node.capacity, policy
        wanted = WantedKeys(keys_of(policy).resources)
        here = [key for key in node.capacity if wanted.names(key) or wanted.matches(key)]
        self._listed_s |= dict.fromkeys(here, now.boottime_s)
        listed = {key for key, listed_s in self._listed_s.items() if now.boottime_s - listed_s <= _LATE_S}
        new: dict[str, frozenset[str]] = {}
        for pod in pods if listed else ():
            known = self.by_pod.get(pod.uid, frozenset())
            found = known.union(*(listed & container.resources.keys() for container in pod.containers))
            if found != known and not pod.is_finished and (known or len(self.by_pod) + len(new) < _MOST):
                new[pod.uid] = found
        self._seen_s |= dict.fromkeys(
            (pod.uid for pod in pods if pod.uid in new or pod.uid in self.by_pod), now.boottime_s
        )
        gone = self._long_gone(now)
        if new or gone:
            self.by_pod = {uid: keys for uid, keys in {**self.by_pod, **new}.items() if uid not in gone}
        return {**new, **dict.fromkeys(gone, frozenset())}

    def _long_gone(self, now: Now) -> frozenset[str]:
        gone = {uid for uid, seen_s in self._seen_s.items() if now.boottime_s - seen_s > _FORGOTTEN_AFTER_S}
        for uid in gone:
            del self._seen_s[uid]
        return frozenset(gone)


def merged(*found: ListedByPod) -> dict[str, frozenset[str]]:
    """What several know of the resources that were listed, together."""
    together: dict[str, frozenset[str]] = {}
    for one in found:
        for uid, keys in one.items():
            together[uid] = together.get(uid, frozenset()) | keys
    return together
