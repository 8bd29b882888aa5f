"""MPS: which processes can't be ended without breaking the work of other pods.

A client that is ended by a signal with work outstanding leaves its server, and that server's other clients, in an
undefined state (https://docs.nvidia.com/deploy/mps/615/when-to-use-mps.html, client early termination). Which processes
are clients is reported by the driver; which server a client has can only be learned from a control daemon. So a client
counts as using a server outside its pod, unless its own pod has a server and it can have no other, and no trusted
control daemon lists it. Such a client is first drained by its control daemon, which ends its work on the GPU, if that
is possible.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from watchdog.core.assessment import AttributedUse, Attribution, KnownDrains, Reason, Unattributed
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.model import MpsSigns, PlaceKind, Pod, Process, ProcessKey, Snapshot, Use

_ENDED: Final = frozenset({Reason.GONE, Reason.ZOMBIE})


def signs_of(use: Use, process: Process | None) -> MpsSigns | None:
    """What the driver and /proc show together of MPS; None: nothing."""
    shown = None if process is None else process.mps
    return shown if use.client is False else replace(shown or MpsSigns(), client=use.client)


def is_client(use: AttributedUse | Unattributed) -> bool:
    """Whether a use is that of a client for certain."""
    return use.mps is not None and use.mps.client is True


def may_be_client(use: AttributedUse | Unattributed) -> bool:
    """Whether a use is that of a client, or that is unknown."""
    return use.mps is not None and use.mps.client is not False


def has_servers_name(use: AttributedUse | Unattributed) -> bool:
    """Whether a use is that of a process with the name of an MPS server."""
    return use.mps is not None and use.mps.server


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
        servers = [use for use in inside if has_servers_name(use) or use.key in drains.servers]
        outside_servers = [use for use in outside if has_servers_name(use)]
        clients = {(use.gpu, use.uid) for use in inside if is_client(use)}
        clients |= {(use.gpu, "") for use in outside if is_client(use)}
        if not servers and not clients and not outside_servers:
            return cls()  # without any sign of MPS on the node, a hidden GPU is no reason to spare every pod
        named = frozenset(use.key for use in servers if use.key in drains.servers)
        shared = {use.gpu for use in outside_servers} | {use.gpu for use in servers if use.key in named}
        explained = {(server.gpu, server.uid) for server in servers}
        unlisted = {gpu.uuid for gpu in snapshot.gpus if gpu.up and not gpu.listed}
        listed = {use.key for use in inside if may_be_client(use)}
        unreadable = {pid for pid, p in snapshot.processes.items() if p.place.kind is PlaceKind.UNREADABLE}
        anywhere = (use for use in outside if use.reason is Reason.SPOOFED or use.pid in unreadable)
        may_hide = bool(snapshot.unseen) or any(map(may_be_client, anywhere))
        return cls(
            shared=frozenset(shared),
            orphans=frozenset(client for client in clients - explained if client[0] not in shared),
            trusted=frozenset((server.uid, server.container) for server in outside_servers if server.uid),
            hidden=may_hide or not unlisted.isdisjoint(shared | {gpu for gpu, _ in clients}),
            drainable=drains.drainable & listed,
            drained=(drains.drained - drains.drainable) & listed,
            named=named,
        )

    def hazards(self, pod: Pod, uses: tuple[AttributedUse, ...], *, accepts_clients: bool) -> tuple[Hazard, ...]:
        """The parts of a pod that can't be ended without breaking other pods' work.

        `accepts_clients`: the operator accepts that risk for clients, though not for servers.
        """
        if self == _NO_MPS:
            return ()
        servers = [use for use in uses if has_servers_name(use) or use.key in self.named]
        needed = [use for use in servers if use.key in self.named or self._is_needed(use, pod)]
        no_hazard = self.drainable | self.drained
        trusted = (name for uid, name in sorted(self.trusted) if uid == pod.uid)
        hazards = [Hazard(role=HazardRole.SERVER, container=name) for name in trusted]
        hazards += [_hazard(HazardRole.SERVER, use) for use in needed]
        if not accepts_clients:
            foreign = self._foreign(pod, uses)
            hazards += [_hazard(HazardRole.CLIENT, use) for use in foreign if use.key not in no_hazard]
            hazards += [Hazard(role=HazardRole.HIDDEN)] if self.hidden else []
        return tuple(dict.fromkeys(hazards))

    def to_drain(self, pod: Pod, uses: tuple[AttributedUse, ...]) -> tuple[Hazard, ...]:
        """The clients of a pod that must be drained before they are ended, and can be."""
        if not self.drainable:
            return ()
        clients = (use for use in self._foreign(pod, uses) if use.key in self.drainable)
        return tuple(dict.fromkeys(_hazard(HazardRole.CLIENT, use) for use in clients))

    def _foreign(self, pod: Pod, uses: tuple[AttributedUse, ...]) -> list[AttributedUse]:
        """The uses that may be those of clients of a server outside their pod."""
        # On these GPUs the pod's clients can have no server but its own, and that one has no clients outside.
        own = {use.gpu for use in uses if has_servers_name(use) and not self._has_orphans(use.gpu, pod)}
        served = own - self.shared
        return [use for use in uses if use.key in self.drainable or self._is_foreign(use, served)]

    def _is_needed(self, use: AttributedUse, pod: Pod) -> bool:
        """Whether other pods need a server that is not trusted: a privileged one, as of NVIDIA's DRA driver.

        It runs in a Deployment's pod, so that its clients elsewhere have to show it. Without privileges two pods of one
        tenant could show the same.
        """
        return use.mps is not None and use.mps.privileged and self._has_orphans(use.gpu, pod)

    def _has_orphans(self, gpu: str, pod: Pod) -> bool:
        """Whether clients of other pods on a GPU may have a server of this pod."""
        return any(at == gpu and uid != pod.uid for at, uid in self.orphans)

    def _is_foreign(self, use: AttributedUse, served: set[str]) -> bool:
        """Whether a use may be that of a client of a server outside its pod."""
        return use.gpu not in served if is_client(use) else may_be_client(use) and use.gpu in self.shared


_NO_MPS: Final = Mps()


def _hazard(role: HazardRole, use: AttributedUse) -> Hazard:
    return Hazard(role=role, container=use.container, key=use.key, name=use.name)


def mps_gpus(attribution: Attribution) -> set[str]:
    """The GPUs on which MPS servers or clients are listed."""
    inside = {use.gpu for use in attribution.attributed if is_client(use) or has_servers_name(use)}
    return inside | {use.gpu for use in attribution.unattributed if is_client(use) or has_servers_name(use)}


def certain_mps_gpus(attribution: Attribution) -> set[str]:
    """The GPUs on which MPS is certainly in use: by clients, or by a server that no tenant can have named so."""
    privileged = {use.gpu for use in attribution.attributed if use.mps is not None and use.mps.privileged}
    clients = {use.gpu for use in attribution.attributed if is_client(use)}
    outside = (use for use in attribution.unattributed if is_client(use) or (has_servers_name(use) and _is_system(use)))
    return privileged | clients | {use.gpu for use in outside}


def _is_system(use: Unattributed) -> bool:
    """Whether a process is the node's own, or that of a trusted server."""
    return use.reason in (Reason.HOST, Reason.MPS_SERVER)


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
