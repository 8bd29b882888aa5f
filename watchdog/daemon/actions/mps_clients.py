"""The MPS clients among what an action would end, by a reading."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.hazards import Hazard, HazardRole, clients_ended
from watchdog.core.model import Now, PlaceKind, ProcessKey, Snapshot
from watchdog.core.mps import mps_gpus
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Policy

# A request that has no answer by then, or a reading that does not come, ends the action: within this time, or within
# this many timeouts of the control program if that is longer. One request takes up to five calls of it, after another.
_GIVE_UP_AFTER_S: Final = 60.0
_GIVE_UP_AFTER_TIMEOUTS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClients:
    """The MPS clients of servers outside the pod among what an action would end."""

    # The CLOCK_BOOTTIME at which the reading that shows them was requested.
    asked_s: float
    # Those that can be drained.
    drainable: frozenset[ProcessKey] = frozenset()
    # Those that can't.
    others: frozenset[ProcessKey] = frozenset()
    # Whether there may be more, on a GPU that could not be listed or in a container that could not be read.
    is_hidden: bool = False
    # Whether there are MPS servers or clients on the node.
    has_mps: bool = False
    # Whether the policy accepts that clients that can't be drained are ended.
    accepts_clients: bool = False
    # Whether others of the container are, or may be, clients or servers that other pods need, if only one process of it
    # is to end.
    has_others_beside: bool = False
    # An action that waits for longer has failed.
    give_up_after_s: float = _GIVE_UP_AFTER_S


ClientsOf = Callable[[PlanEntry], SeenClients]


def no_clients(_: PlanEntry) -> SeenClients:
    """Before the first reading."""
    return SeenClients(asked_s=-math.inf)


def clients_seen(
    assessments: Iterable[Assessment], attribution: Attribution, snapshot: Snapshot, policy: Policy, asked: Now
) -> ClientsOf:
    """A function that gives the clients of an action by a reading.

    A kill ends the processes of the containers that its last look saw. If one of them has been started again since, the
    clients of its new instance are left alone, while an eviction ends those too.
    """
    accepts_clients = policy.safety.signal_mps_clients
    timeout_s = policy.mps.timeout_s if policy.mps is not None else 0.0
    give_up_after_s = max(_GIVE_UP_AFTER_S, _GIVE_UP_AFTER_TIMEOUTS * timeout_s)
    places = (
        snapshot.processes[use.pid].place for use in snapshot.uses if use.client and use.pid in snapshot.processes
    )
    is_blind = snapshot.blind or any(place.kind is PlaceKind.UNREADABLE for place in places)

    def seen_of(entry: PlanEntry) -> SeenClients:
        if not is_blind and not mps_gpus(attribution):
            return SeenClients(
                asked_s=asked.boottime_s, accepts_clients=accepts_clients, give_up_after_s=give_up_after_s
            )
        pod = next((each for each in assessments if each.account.uid == entry.account.uid), None)
        hazards, clients = (pod.hazards, pod.to_drain) if pod is not None else ((), ())
        step, victim, targets = entry.effective_step, entry.victim, entry.targets
        ids = frozenset[str]().union(*(container.ids for container in entry.assessment.pod.containers))

        def is_covered(client: Hazard) -> bool:
            process = snapshot.processes.get(client.key.pid) if client.key is not None else None
            return step.do.deletes_pod or (process is not None and process.place.container in ids)

        clients = tuple(filter(is_covered, clients))
        others = (hazard for hazard in hazards if hazard.role is HazardRole.CLIENT and is_covered(hazard))
        beside = (
            hazard.key not in targets
            for hazard in (*hazards, *(() if accepts_clients else clients))
            if step.scope == "process" and hazard.container == victim
        )
        is_hidden = is_blind or pod is None or any(hazard.role is HazardRole.HIDDEN for hazard in hazards)
        may_be_beside = is_hidden and step.scope == "process" and not accepts_clients
        return SeenClients(
            asked_s=asked.boottime_s,
            drainable=clients_ended(clients, step, victim, targets),
            others=clients_ended(others, step, victim, targets),
            is_hidden=is_hidden,
            has_mps=True,
            accepts_clients=accepts_clients,
            has_others_beside=may_be_beside or any(beside),
            give_up_after_s=give_up_after_s,
        )

    return seen_of
