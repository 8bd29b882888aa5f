"""Containers that processes run in and the pod list does not have: new ones for a moment, and those it never gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watchdog.core.findings import Assessment, Attribution
from watchdog.core.model import Gap, GapReason, Now, Pod

# The kubelet writes a new container's ID into the pod's status within seconds.
_PATIENCE_S: Final = 60.0
# A container that uses no GPU memory for so long is forgotten; one that stops for a moment gains no time by it.
_KEPT_S: Final = 600.0

ContainerKey = tuple[str, str]  # the UID of its pod, and its ID


@dataclass(frozen=True, slots=True)
class _Seen:
    first: Now
    last: Now

    def is_fresh(self, at: Now) -> bool:
        """Whether it was there lately."""
        return self.last.boot_id == at.boot_id and at.boottime_s - self.last.boottime_s <= _KEPT_S


@dataclass(frozen=True, slots=True)
class Unlisted:
    """When each container that the pod list lacks was first seen, from one pass to the next."""

    seen: Mapping[ContainerKey, _Seen] = field(default_factory=dict)

    def after(self, attribution: Attribution, pods: Iterable[Pod], at: Now) -> "Unlisted":
        """What is remembered after a pass; what the list has got by now is forgotten."""
        new = {(use.uid, use.unlisted) for use in attribution.attributed if not use.container}
        if not new and not self.seen:
            return self
        listed = {(pod.uid, each) for pod in pods for container in pod.containers for each in container.ids}
        kept = {key: seen for key, seen in self.seen.items() if key not in listed and seen.is_fresh(at)}
        return Unlisted(kept | {key: _Seen(kept[key].first if key in kept else at, at) for key in new})

    def overdue(self, at: Now, synced: Now | None) -> frozenset[ContainerKey]:
        """Those that were first seen a minute ago, although the list has been synced since then."""
        return frozenset(
            key
            for key, each in self.seen.items()
            if at.boottime_s - each.first.boottime_s >= _PATIENCE_S
            and synced is not None
            and synced.boot_id == each.first.boot_id
            and synced.boottime_s > each.first.boottime_s
        )


def overdue_gaps(assessments: Iterable[Assessment], overdue: frozenset[ContainerKey]) -> tuple[Gap, ...]:
    """What is not known for the containers that should be in the list by now, each once."""
    found: dict[Gap, None] = {}
    for assessment in assessments:
        for use in assessment.uses:
            if not use.container and (use.uid, use.unlisted) in overdue:
                found[_gap(assessment, use.unlisted)] = None
    return tuple(found)


def _gap(assessment: Assessment, container_id: str) -> Gap:
    what = f"container {container_id[:12] or 'without an ID'} of pod {assessment.pod.title}"
    why = (
        "processes have run in it for more than a minute, and the pod list still does not have it: its "
        "memory counts for the pod, and the container itself is never killed; compare `crictl ps` on the node with the "
        "status of the pod"
    )
    return Gap(reason=GapReason.CONTAINER, what=what, why=why)
