"""Attribution: which pod and container each use belongs to. A cgroup's claim counts only if the pod list confirms it.

A container that is missing from the pod list is usually new and listed within seconds; one that stays missing is a gap.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from watchdog.core.assessment import Assessment, AttributedUse, Attribution, ContainerKey, Reason, Unattributed
from watchdog.core.errors import Problem
from watchdog.core.model import (
    Container,
    Gap,
    GapReason,
    MpsSigns,
    Now,
    Place,
    PlaceKind,
    Pod,
    Process,
    Snapshot,
    Use,
)
from watchdog.core.mps import signs_of
from watchdog.core.rules import is_system

# The kubelet writes a new container's ID into the pod's status within seconds.
_OVERDUE_AFTER_S: Final = 60.0
# A container without GPU memory for this long is forgotten; a shorter pause does not restart its time.
_FORGOTTEN_AFTER_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Seen:
    first: Now
    last: Now

    def is_fresh(self, at: Now) -> bool:
        """Whether the container was last seen recently."""
        return self.last.boot_id == at.boot_id and at.boottime_s - self.last.boottime_s <= _FORGOTTEN_AFTER_S


@dataclass(frozen=True, slots=True)
class Unlisted:
    """When each container that the pod list lacks was first seen, from one cycle to the next."""

    seen: Mapping[ContainerKey, _Seen] = field(default_factory=dict)

    def after(self, attribution: Attribution, pods: Iterable[Pod], at: Now) -> "Unlisted":
        """The memory after one more cycle; containers that are listed by now are forgotten."""
        new = {(use.uid, use.unlisted) for use in attribution.attributed if not use.container}
        if not new and not self.seen:
            return self
        listed = {(pod.uid, known) for pod in pods for container in pod.containers for known in container.ids}
        kept = {key: seen for key, seen in self.seen.items() if key not in listed and seen.is_fresh(at)}
        return Unlisted(kept | {key: _Seen(kept[key].first if key in kept else at, at) for key in new})

    def overdue(self, at: Now, synced: Now | None) -> frozenset[ContainerKey]:
        """The containers first seen at least a minute ago that are missing although the list was synced since."""
        return frozenset(
            key
            for key, each in self.seen.items()
            if at.boottime_s - each.first.boottime_s >= _OVERDUE_AFTER_S
            and synced is not None
            and synced.boot_id == each.first.boot_id
            and synced.boottime_s > each.first.boottime_s
        )


def overdue_gaps(assessments: Iterable[Assessment], overdue: frozenset[ContainerKey]) -> tuple[Gap, ...]:
    """One gap for each container that should be in the list by now."""
    gaps: dict[Gap, None] = {}
    for assessment in assessments:
        for use in assessment.uses:
            if not use.container and (use.uid, use.unlisted) in overdue:
                gaps[_gap(assessment, use)] = None
    return tuple(gaps)


_MISSING: Final = Problem(
    "processes have run in it for more than a minute, but the pod list still lacks it: its memory counts "
    "for the pod, and the container itself is never killed",
    "compare `crictl ps` on the node with the status of the pod",
)
GVISOR_REMEDY: Final = 'use a step with do = "evict" for such pods, or run them with another runtimeClassName'
_GVISOR: Final = Problem(
    "it is a gVisor sandbox, in which one process uses the GPUs for all containers: its memory counts for the pod, and "
    "nothing in it is ever killed",
    GVISOR_REMEDY,
)


def _gap(assessment: Assessment, use: AttributedUse) -> Gap:
    what = f"container {use.unlisted[:12] or 'without an ID'} of pod {assessment.pod.title}"
    return Gap(reason=GapReason.CONTAINER, what=what, problem=_GVISOR if use.gvisor else _MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outsider:
    """A process that is not in its pod's cgroup."""

    pid: int
    # The title of its pod.
    pod: str
    # The name of the container of the pod list whose ID its cgroup has.
    container: str


def outsiders(processes: Mapping[int, Process], pods: Iterable[Pod]) -> tuple[Outsider, ...]:
    """The processes of the host that run in a container of a listed pod, by the name of their cgroup alone.

    That name proves nothing: it is reported, and nothing is attributed by it.
    """
    found = {pid: process.place.outside for pid, process in sorted(processes.items()) if process.place.outside}
    if not found:
        return ()
    known = {each: (pod, container) for pod in pods for container in pod.containers for each in container.ids}
    return tuple(
        Outsider(pid=pid, pod=known[each][0].title, container=known[each][1].name)
        for pid, each in found.items()
        if each in known
    )


OUTSIDE_REMEDY: Final = (
    "let the kubelet make the cgroups of pods (cgroupsPerQOS: true), and use the same cgroup driver for it and for the "
    "container runtime"
)
_OUTSIDE: Final = Problem(
    "processes run in a cgroup with its ID that is not below a pod's cgroup: their memory counts for no pod, and no "
    "action is taken on them",
    OUTSIDE_REMEDY,
)


def outside_gaps(outside: Iterable[Outsider]) -> tuple[Gap, ...]:
    """One gap for each container with processes outside its pod's cgroup."""
    return tuple(dict.fromkeys(_outside_gap(each) for each in outside))


def _outside_gap(outsider: Outsider) -> Gap:
    what = f"container {outsider.container} of pod {outsider.pod}"
    return Gap(reason=GapReason.OUTSIDE, what=what, problem=_OUTSIDE)


_REASONS: Mapping[PlaceKind, Reason] = {
    PlaceKind.HOST: Reason.HOST,
    PlaceKind.GONE: Reason.GONE,
    PlaceKind.ZOMBIE: Reason.ZOMBIE,
    # The lines disagree only if processes were moved between pods' cgroups by hand.
    PlaceKind.CONTRADICTORY: Reason.SPOOFED,
    PlaceKind.UNREADABLE: Reason.UNKNOWN_POD,
}


class _PodIndex:
    """The pod list, indexed by what cgroups contain: pod UIDs, static pods' config hashes, container IDs.

    If several pods claim the same key, a UID takes precedence over a config hash, then the pod that has the container,
    then the first by name.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods: dict[str, list[Pod]] = {}
        self._containers: defaultdict[str, list[tuple[Pod, Container]]] = defaultdict(list)
        ordered = sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))
        for pod in ordered:
            self._pods.setdefault(pod.uid, [pod])
        uids = frozenset(self._pods)
        for pod in ordered:
            # The hash is an annotation, which tenants write; a static pod's is the kubelet's own, or of a faked mirror.
            if pod.static and pod.config_hash and pod.config_hash not in uids:
                self._pods.setdefault(pod.config_hash, []).append(pod)
            for container in pod.containers:
                for container_id in container.ids:
                    self._containers[container_id].append((pod, container))

    def find(self, place: Place) -> tuple[Pod, str] | Reason:
        """The pod and the name of the container ("" if unknown) that a claim refers to, or why it is rejected."""
        named = self._pods.get(place.pod, []) if place.pod is not None else []
        matching = self._containers.get(place.container, []) if place.container is not None else []
        if place.pod is None:
            return (matching[0][0], matching[0][1].name) if len(matching) == 1 else Reason.UNKNOWN_POD
        for pod, container in matching:
            if any(pod is one for one in named):
                return pod, container.name
        if matching:
            return Reason.SPOOFED
        return (named[0], "") if named else Reason.UNKNOWN_POD


class PodIndexMemory:
    """The index of the last pod list: thousands of finished pods can be listed."""

    def __init__(self) -> None:
        self._pods: tuple[Pod, ...] = ()
        self._index = _PodIndex(())

    def of(self, pods: tuple[Pod, ...]) -> _PodIndex:
        """The index of this list, made again if it differs from the last one."""
        if len(pods) != len(self._pods) or any(one is not other for one, other in zip(pods, self._pods, strict=True)):
            self._pods, self._index = pods, _PodIndex(pods)
        return self._index


def attribute(snapshot: Snapshot, pods: Iterable[Pod], memory: PodIndexMemory | None = None) -> Attribution:
    """Put every use of a snapshot into exactly one place: a pod of the list, or unattributed with its reason.

    With a `memory`, a list that is the same as in the last cycle is not indexed again.
    """
    index = _PodIndex(pods) if memory is None else memory.of(tuple(pods))
    attributed: list[AttributedUse] = []
    unattributed: list[Unattributed] = []
    for use in sorted(snapshot.uses, key=lambda use: (use.pid, use.gpu)):
        process = snapshot.processes.get(use.pid)
        place = _find(process, index)
        if isinstance(place, Reason) or process is None or process.key is None:
            reason = place if isinstance(place, Reason) else Reason.GONE
            unattributed.append(_unattributed(use, reason, process))
            continue
        pod, container = place
        if is_trusted_server(process, pod):
            server = _unattributed(use, Reason.MPS_SERVER, process)
            unattributed.append(replace(server, uid=pod.uid, container=container))
            continue
        attributed.append(
            AttributedUse(
                key=process.key,
                uid=pod.uid,
                container=container,
                gpu=use.gpu,
                used=use.used,
                name=process.name,
                mps=_signs(use, process, pod),
                unlisted="" if container else process.place.container or "",
                gvisor=process.gvisor and not container,
                ended=process.ended,
            )
        )
    return Attribution(attributed=tuple(attributed), unattributed=tuple(unattributed))


def is_trusted_server(process: Process, pod: Pod) -> bool:
    """Whether a process of a pod is an MPS server that no tenant can fake, by its name and where it runs.

    NVIDIA's device plugin runs it in a privileged container of a DaemonSet. A name, a priority or an owner reference
    alone prove nothing: tenants write all of them.
    """
    if process.mps is None or not process.mps.server:
        return False
    is_daemon_sets = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return is_system(pod) or (is_daemon_sets and process.mps.privileged and _may_be_privileged(process, pod))


def _may_be_privileged(process: Process, pod: Pod) -> bool:
    """Whether the spec of a process's container makes it privileged; if the list lacks the container, that of each one.

    /proc alone proves nothing: root of an ordinary container can make a user namespace and map all users into it, and
    then looks the same there (user_namespaces(7)).
    """
    own = [each for each in pod.containers if process.place.container in each.ids] or pod.containers
    return all(each.privileged for each in own)


def _signs(use: Use, process: Process, pod: Pod) -> MpsSigns | None:
    signs = signs_of(use, process)
    if signs is None or not signs.privileged or _may_be_privileged(process, pod):
        return signs
    return replace(signs, privileged=False)


def _find(process: Process | None, index: _PodIndex) -> tuple[Pod, str] | Reason:
    if process is None:
        return Reason.GONE
    if process.mps is not None and process.place.kind is PlaceKind.HOST:
        return Reason.MPS_SERVER
    if process.place.kind is not PlaceKind.POD:
        return _REASONS[process.place.kind]
    return index.find(process.place)


def _unattributed(use: Use, reason: Reason, process: Process | None) -> Unattributed:
    return Unattributed(
        pid=use.pid,
        gpu=use.gpu,
        used=use.used,
        reason=reason,
        name=process.name if process is not None else "",
        mps=signs_of(use, process),
    )
