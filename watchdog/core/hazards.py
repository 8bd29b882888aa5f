"""Hazards: processes that can't be ended without breaking other pods' work, and which of them a step would end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from watchdog.core.model import ProcessKey
from watchdog.core.policy import Step


class HazardRole(StrEnum):
    """Why ending a process would break the work of other pods."""

    SERVER = "server"
    CLIENT = "client"
    HIDDEN = "hidden"  # it can't be determined now whether there is a client


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """A process that other pods need, so that it must not be ended, or only once it was drained."""

    role: HazardRole
    # The name of its container; None: it may be in any.
    container: str | None = None
    # None: it is any process of `container`, or of the pod if that is None too.
    key: ProcessKey | None = None
    name: str = ""


def hazard_of(hazards: Iterable[Hazard], step: Step, victim: str, targets: Iterable[ProcessKey]) -> Hazard | None:
    """The first of a pod's hazards among what a step would end; None if there is none."""
    return next(hit_by(hazards, step, victim, targets), None)


def clients_ended(
    clients: Iterable[Hazard], step: Step, victim: str, targets: Iterable[ProcessKey]
) -> frozenset[ProcessKey]:
    """The clients that a step ends: a kill never ends processes of containers that are not in the pod list."""
    hit = hit_by(clients, step, victim, targets)
    return frozenset(
        client.key for client in hit if client.key is not None and (client.container or step.do.deletes_pod)
    )


def hit_by(hazards: Iterable[Hazard], step: Step, victim: str, targets: Iterable[ProcessKey]) -> Iterator[Hazard]:
    """Those of a pod's hazards, or of its clients that can be drained, that a step would end."""
    if step.hits_whole_pod:
        yield from hazards
    elif step.scope == "process":
        keys = set(targets)
        yield from (hazard for hazard in hazards if hazard.key in keys)
    else:
        yield from (hazard for hazard in hazards if hazard.container in (None, victim))
