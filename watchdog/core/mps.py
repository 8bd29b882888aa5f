"""MPS: which processes can't be ended without breaking the work of other pods.

A client that is ended by a signal with work outstanding leaves its server, and that server's other clients, in an
undefined state (https://docs.nvidia.com/deploy/mps/615/when-to-use-mps.html, client early termination). Which processes
are clients is reported by the driver; which server a client has can only be learned from a control daemon. So a client
counts as using a server outside its pod, unless its own pod has a server and it can have no other, and no trusted
control daemon lists it. Such a client is first drained by its control daemon, which ends its work on the GPU, if that
is possible.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from watchdog.core.assessment import AttributedUse, Attribution, KnownDrains, MpsHazard, MpsRole, Reason
from watchdog.core.model import PlaceKind, Pod, Process, ProcessKey, Snapshot
from watchdog.core.policy import Step
from watchdog.core.rules import is_system

# The name of a request to drain a client among the signals of an action.
DRAIN: Final = "DRAIN"
_ENDED: Final = frozenset({Reason.GONE, Reason.ZOMBIE})


def is_trusted_server(process: Process, pod: Pod) -> bool:
    """Whether a process of a pod is an MPS server that no tenant can fake, by its name and where it runs.

    NVIDIA's device plugin runs it in a privileged container of a DaemonSet. A name, a priority or an owner reference
    alone prove nothing: tenants write all of them.
    """
    is_daemon_sets = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return process.mps_server and (is_system(pod) or (is_daemon_sets and process.privileged))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mps:
    """The MPS servers and clients of one reading of the node."""

    # The GPUs with a server that may serve any pod: one that is trusted, is named by a trusted control daemon, or runs
    # on the host or in an unknown place.
    shared: frozenset[str] = frozenset()
    # Clients, by GPU and pod UID ("": of no known pod), that have neither such a server nor one in their own pod.
    orphans: frozenset[tuple[str, str]] = frozenset()
    # The containers of trusted servers, by pod UID and name.
    trusted: frozenset[tuple[str, str]] = frozenset()
    # Whether clients of any pod may be missing, since a GPU can't be listed, or a client's cgroup can't be read or is
    # contradictory.
    hidden: bool = False
    # The listed clients that can be drained.
    drainable: frozenset[ProcessKey] = frozenset()
    # The listed clients that have been drained.
    drained: frozenset[ProcessKey] = frozenset()
    # The listed servers that a trusted control daemon names, which prove to serve any pod.
    named: frozenset[ProcessKey] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, attribution: Attribution, drains: KnownDrains) -> "Mps":
        """Find the servers and clients that the driver lists."""
        outside = [use for use in attribution.unattributed if use.reason not in _ENDED]
        inside = attribution.attributed
        servers = [use for use in inside if use.mps_server or use.key in drains.servers]
        outside_servers = [use for use in outside if use.mps_server]
        clients = {(use.gpu, use.uid) for use in inside if use.mps} | {(use.gpu, "") for use in outside if use.mps}
        if not servers and not clients and not outside_servers:
            return cls()  # without any sign of MPS on the node, a hidden GPU is no reason to spare every pod
        named = frozenset(use.key for use in servers if use.key in drains.servers)
        shared = {use.gpu for use in outside_servers} | {use.gpu for use in servers if use.key in named}
        explained = {(server.gpu, server.uid) for server in servers}
        unlisted = {gpu.uuid for gpu in snapshot.gpus if gpu.up and not gpu.listed}
        listed = {use.key for use in inside if use.mps is not False}
        unreadable = {pid for pid, p in snapshot.processes.items() if p.place.kind is PlaceKind.UNREADABLE}
        anywhere = (use for use in outside if use.reason is Reason.SPOOFED or use.pid in unreadable)
        may_hide = bool(snapshot.unseen) or any(use.mps is not False for use in anywhere)
        return cls(
            shared=frozenset(shared),
            orphans=frozenset(client for client in clients - explained if client[0] not in shared),
            trusted=frozenset((server.uid, server.container) for server in outside_servers if server.uid),
            hidden=may_hide or not unlisted.isdisjoint(shared | {gpu for gpu, _ in clients}),
            drainable=drains.drainable & listed,
            drained=(drains.drained - drains.drainable) & listed,
            named=named,
        )

    def hazards(self, pod: Pod, uses: tuple[AttributedUse, ...], *, accepts_clients: bool) -> tuple[MpsHazard, ...]:
        """The parts of a pod that can't be ended without breaking other pods' work.

        `accepts_clients`: the operator accepts that risk for clients, though not for servers.
        """
        if self == _NO_MPS:
            return ()
        servers = [use for use in uses if use.mps_server or use.key in self.named]
        needed = [use for use in servers if use.key in self.named or self._is_needed(use, pod)]
        spared = self.drainable | self.drained
        trusted = (name for uid, name in sorted(self.trusted) if uid == pod.uid)
        hazards = [MpsHazard(role=MpsRole.SERVER, container=name) for name in trusted]
        hazards += [_hazard(MpsRole.SERVER, use) for use in needed]
        if not accepts_clients:
            foreign = self._foreign(pod, uses)
            hazards += [_hazard(MpsRole.CLIENT, use) for use in foreign if use.key not in spared]
            hazards += [MpsHazard(role=MpsRole.HIDDEN)] if self.hidden else []
        return tuple(dict.fromkeys(hazards))

    def to_drain(self, pod: Pod, uses: tuple[AttributedUse, ...]) -> tuple[MpsHazard, ...]:
        """The clients of a pod that must be drained before they are ended, and can be."""
        if not self.drainable:
            return ()
        clients = (use for use in self._foreign(pod, uses) if use.key in self.drainable)
        return tuple(dict.fromkeys(_hazard(MpsRole.CLIENT, use) for use in clients))

    def _foreign(self, pod: Pod, uses: tuple[AttributedUse, ...]) -> list[AttributedUse]:
        """The uses that may be those of clients of a server outside their pod."""
        # On these GPUs the pod's clients can have no server but its own, and that one has no clients outside.
        own = {use.gpu for use in uses if use.mps_server and not self._has_orphans(use.gpu, pod)}
        served = own - self.shared
        return [use for use in uses if use.key in self.drainable or self._is_foreign(use, served)]

    def _is_needed(self, use: AttributedUse, pod: Pod) -> bool:
        """Whether other pods need a server that is not trusted: a privileged one, as of NVIDIA's DRA driver.

        It runs in a Deployment's pod, so that its clients elsewhere have to show it. Without privileges two pods of one
        tenant could show the same.
        """
        return use.privileged and self._has_orphans(use.gpu, pod)

    def _has_orphans(self, gpu: str, pod: Pod) -> bool:
        """Whether clients of other pods on a GPU may have a server of this pod."""
        return any(at == gpu and uid != pod.uid for at, uid in self.orphans)

    def _is_foreign(self, use: AttributedUse, served: set[str]) -> bool:
        """Whether a use may be that of a client of a server outside its pod."""
        return use.gpu in self.shared if use.mps is None else use.mps and use.gpu not in served


_NO_MPS: Final = Mps()


def _hazard(role: MpsRole, use: AttributedUse) -> MpsHazard:
    return MpsHazard(role=role, container=use.container, key=use.key, name=use.name)


def mps_gpus(attribution: Attribution) -> set[str]:
    """The GPUs on which MPS servers or clients are listed."""
    inside = {use.gpu for use in attribution.attributed if use.mps or use.mps_server}
    return inside | {use.gpu for use in attribution.unattributed if use.mps or use.mps_server}


def hazard_of(hazards: Iterable[MpsHazard], step: Step, victim: str, targets: Iterable[ProcessKey]) -> MpsHazard | None:
    """The first of a pod's hazards among what a step would end; None if there is none."""
    return next(hit_by(hazards, step, victim, targets), None)


def clients_ended(
    clients: Iterable[MpsHazard], step: Step, victim: str, targets: Iterable[ProcessKey]
) -> frozenset[ProcessKey]:
    """The clients that a step ends: a kill never ends processes of containers that are not in the pod list."""
    hit = hit_by(clients, step, victim, targets)
    return frozenset(
        client.key for client in hit if client.key is not None and (client.container or step.do.deletes_pod)
    )


def hit_by(hazards: Iterable[MpsHazard], step: Step, victim: str, targets: Iterable[ProcessKey]) -> Iterator[MpsHazard]:
    """Those of a pod's hazards, or of its clients that can be drained, that a step would end."""
    if step.hits_whole_pod:
        yield from hazards
    elif step.scope == "process":
        keys = set(targets)
        yield from (hazard for hazard in hazards if hazard.key in keys)
    else:
        yield from (hazard for hazard in hazards if hazard.container in (None, victim))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainableClient:
    """A client that a trusted control daemon can drain."""

    key: ProcessKey
    # That of its server.
    server_pid: int
    # The daemon's pipe directory.
    pipe: str


class Drained(Enum):
    """Whether a client may be ended now without breaking its neighbours."""

    DONE = "done"  # it was drained, or is no client any more
    REFUSED = "refused"  # it was not drained
    UNKNOWN = "unknown"  # it may or may not have been drained


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """How a request to drain a client ended."""

    # That of the request.
    request_id: int
    key: ProcessKey
    drained: Drained
    # Why the client was not drained; empty if the daemon agreed.
    reason: str = ""
