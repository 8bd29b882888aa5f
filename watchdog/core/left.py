"""Pods that have left the list of the API server while processes of their containers may still run.

A force deletion removes the object at once. If the pod was deleted with a grace period before, of a year for instance,
its kubelet goes on to give its containers that; otherwise it ends them within seconds (measured with a kubelet 1.34 and
containerd), or gives them the grace period of their spec (calculateEffectiveGracePeriod in
k8s.io/kubernetes/pkg/kubelet/pod_workers.go).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.errors import Problem
from watchdog.core.keys import WantedKeys
from watchdog.core.model import Container, Gap, GapReason, Now, Pod, PodKeys, PodList
from watchdog.core.rules import TerminatingPods

# A search reads the cgroup of every process on the node: some 5 ms. There is at most one per cycle.
_SEARCH_EVERY_S: Final = 10.0
# Each has processes on this node. Those that use the least memory are given up first.
MOST_LEFT: Final = 512
_MOST_TEXTS: Final = 200_000  # keys and values of all of them together: some 20 MB


class LeftPods:
    """What is known of the pods that have left, as long as processes of their containers live.

    A pod has left once the API server reports that it is gone: by a deletion in the watch or, if a list lacks the pod,
    by the response to a request for this pod alone. A file proves nothing. `write` gets all of them after each change.
    """

    def __init__(self, write: Callable[[tuple[Pod, ...]], None] = lambda _: None) -> None:
        self._write = write
        self._terminating = TerminatingPods()
        self._listed: tuple[Pod, ...] = ()
        self._missing: dict[str, Pod] = {}  # from the list, which alone proves nothing
        self._left: dict[str, Pod] = {}
        self._used: Mapping[str, int] = {}  # bytes by UID in the last reading
        self._searched_s: dict[str, float] = {}
        self._is_full = False

    @property
    def unproven(self) -> tuple[Pod, ...]:
        """The pods that a list lacks, and about which the API server has to be asked."""
        return tuple(self._missing.values())

    def restore(self, pods: Iterable[Pod], now: Now) -> None:
        """Take over what an earlier daemon knew of pods that had left; no container survives a reboot."""
        earlier = {pod.uid: pod for pod in pods}
        for uid, pod in earlier.items():
            if pod.left_since is not None and pod.left_since.boot_id == now.boot_id:
                self._left.setdefault(uid, pod)
        if earlier or self._left:
            self._change()

    def with_left(self, listed: PodList, keys: PodKeys, now: Now) -> PodList:
        """The list with the pods that have left it, and since when each terminating pod is; `keys` are what is read."""
        if listed.by_file:
            return replace(listed, pods=self._terminating.with_first_seen(listed.pods, now))
        if listed.synced is not None and (listed.pods is not self._listed or self._missing or self._left):
            self._compare(listed, keys, now)
        shown = (*listed.pods, *self._left.values())
        timed = self._terminating.with_first_seen((*shown, *self._missing.values()), now)
        gaps = (*listed.gaps, _FULL) if self._is_full else listed.gaps
        return replace(listed, pods=timed[: len(shown)], gone=frozenset(), gaps=gaps)

    def _compare(self, listed: PodList, keys: PodKeys, now: Now) -> None:
        """Find the pods that are no longer listed, and those of them that have left."""
        uids = {pod.uid for pod in listed.pods}
        if listed.pods is not self._listed:
            for pod in self._listed:
                if pod.uid not in uids and (pod.uid in self._used or _may_run(pod)):
                    since = self._terminating.since(pod.uid)
                    self._missing[pod.uid] = replace(_only_read(pod, keys), terminating_since=since)
            self._listed = listed.pods
        back = uids & self._left.keys()
        self._missing = {uid: pod for uid, pod in self._missing.items() if uid not in uids}
        proven = self._missing.keys() & listed.gone
        for uid in sorted(proven):
            self._left[uid] = _departed(self._missing.pop(uid), now)
        for uid in back:
            del self._left[uid]
        if proven or back:
            self._change()

    def on_reading(self, attribution: Attribution, may_live: Callable[[Pod], bool], now: Now) -> None:
        """Forget, by a reading, pods without processes; `may_live` searches for those of one pod's containers."""
        used: dict[str, int] = {}
        for use in attribution.attributed:
            used[use.uid] = used.get(use.uid, 0) + (use.used or 0)
        self._used = used
        known = {**self._left, **self._missing}
        self._searched_s = {uid: at_s for uid, at_s in self._searched_s.items() if uid in known}
        due_s = now.boottime_s - _SEARCH_EVERY_S
        due = [uid for uid in known if uid not in used and self._searched_s.get(uid, due_s) <= due_s]
        if not due:
            return
        uid = min(due, key=lambda each: (self._searched_s.get(each, 0.0), each))
        self._searched_s[uid] = now.boottime_s
        if not may_live(known[uid]):
            self._missing.pop(uid, None)
            if self._left.pop(uid, None) is not None:
                self._change()

    def _change(self) -> None:
        self._make_room()
        self._write(tuple(self._left.values()))

    def _make_room(self) -> None:
        """Give up the pods that use the least while there are too many."""
        sizes = {uid: _size(pod) for uid, pod in self._left.items()}
        texts = sum(sizes.values())
        self._is_full = False
        for uid in sorted(self._left, key=lambda uid: (self._used.get(uid, 0), uid)):
            if len(self._left) <= MOST_LEFT and texts <= _MOST_TEXTS:
                break
            self._is_full = True
            texts -= sizes[uid]
            del self._left[uid]


_FULL: Final = Gap(
    reason=GapReason.LEFT,
    what="pods that have left",
    problem=Problem(
        "so many deleted pods still have processes here that not all are remembered: those of the others are of an "
        "unknown pod",
        "find out who deletes pods by force, and end their containers with `crictl stop` on the node",
    ),
)
_LEFT: Final = Problem(
    "it is gone from the API server, and processes of its containers still use GPU memory: what was known of it holds",
    "it was deleted by force, or its kubelet does not end it: end its containers with `crictl stop` on the node",
)


def left_gaps(assessments: Iterable[Assessment]) -> tuple[Gap, ...]:
    """One gap for each pod that has left and still uses GPU memory."""
    titles = (each.pod.title for each in assessments if each.pod.left_since is not None and each.uses)
    return tuple(Gap(reason=GapReason.LEFT, what=f"pod {title}", problem=_LEFT) for title in dict.fromkeys(titles))


def _may_run(pod: Pod) -> bool:
    """Whether containers may run although the object is gone; the kubelet reports their ends before it removes it."""
    containers = pod.containers
    return not pod.is_finished and (
        any(each.running for each in containers) or not any(each.ids for each in containers)
    )


def _departed(pod: Pod, now: Now) -> Pod:
    """A pod that has left at this moment; what it declares is free again, unless processes use it.

    One that was not seen terminating has the grace period of its spec from now on. One that was has its deadline: a
    deletion by force can only shorten that.
    """
    deadline_s = now.wall_s + pod.grace_s if pod.deletion_deadline_s is None else pod.deletion_deadline_s
    return replace(
        pod,
        is_finished=True,
        left_since=now,
        deletion_deadline_s=deadline_s,
        terminating_since=pod.terminating_since or now,
    )


def _only_read(pod: Pod, keys: PodKeys) -> Pod:
    """A pod with no more than what identifies it, and what a policy with these keys reads of it."""
    names = [container.name for container in pod.containers]
    annotations, labels = WantedKeys(keys.annotations, names), WantedKeys(keys.labels, names)
    resources = WantedKeys(keys.resources, names)

    def reduced(container: Container) -> Container:
        return replace(container, resources=_wanted(container.resources, resources))

    return replace(
        pod,
        containers=tuple(map(reduced, pod.containers)),
        annotations=_wanted(pod.annotations, annotations),
        labels=_wanted(pod.labels, labels),
        keys=keys if pod.keys is None or pod.keys.cover(keys) else pod.keys,
    )


def _wanted(texts: Mapping[str, str], keys: WantedKeys) -> dict[str, str]:
    return {key: value for key, value in texts.items() if keys.names(key) or keys.matches(key)}


def _size(pod: Pod) -> int:
    texts = len(pod.annotations) + len(pod.labels)
    return texts + sum(1 + len(each.ids) + len(each.resources) for each in pod.containers)
