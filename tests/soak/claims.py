"""What resource claims gave the simulated pods, as the scheduler wrote it, and as the daemon gets to know of it.

The objects are read by the daemon's own decoders; what they give is known here from what they were made of.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tests.claims import NODE, claim, device, resource_slice, result, with_claims
from watchdog.core.errors import Problem
from watchdog.core.model import Claim, Container, Gap, Now, Pod
from watchdog.daemon.sources import NoSource
from watchdog.kube.claims import (
    Allocation,
    Devices,
    MissingClaim,
    ReadClaims,
    decode_claim,
    decode_slice,
    newest_devices,
)
from watchdog.kube.objects import decode_pod

if TYPE_CHECKING:
    from tests.soak.world import World

Gi: Final = 2**30
_PORT: Final = "port-0"  # of a network card, which has a memory of its own
_PORTS: Final = "nic.example.com"
_UNREAD: Final = Problem("it could not be read", "give the right back")
_EXTENDED: Final = "nvidia.com/gpu"  # the resource that a claim of the scheduler's own gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one claim was given: of each of these cards an amount in bytes, or all (None); or a share without one (0).

    `number` tells it from what the same name was given before. It is reserved for the pods with these `uids`.
    """

    name: str
    number: int
    parts: tuple[tuple[str, int | None], ...]
    uids: frozenset[str]
    has_port: bool = False

    def size_on(self, card: str | None, sizes: Mapping[str, int]) -> int | None:
        """The bytes of its shares, and of whole devices, on a card (None: on all); None: it gives no amount."""
        if not self.gives_amounts:
            return None
        own = [(at, size) for at, size in self.parts if card in (None, at)]
        return sum(sizes[at] if size is None else size for at, size in own)

    @property
    def gives_amounts(self) -> bool:
        """Whether it gives any."""
        return any(size != 0 for _, size in self.parts)

    @property
    def cards(self) -> frozenset[str]:
        """The cards of which it has a part."""
        return frozenset(card for card, _ in self.parts)


NOTHING: Final = Given(name="", number=0, parts=(), uids=frozenset())  # what a claim gives that is gone


@lru_cache(maxsize=256)
def allocation(given: Given) -> Allocation:
    """What the daemon reads of it."""
    results: list[dict[str, Any]] = []
    for card, size in given.parts:
        share = {} if size is None else {"shareID": f"share-{given.number}"}
        results.append({**result(card.lower(), None if size is None else str(size)), **share})
    results += [{**result(_PORT, "3Gi", driver=_PORTS), "shareID": "port"}] if given.has_port else []
    return decode_claim(json.dumps(claim(given.name, *results, pods=tuple(sorted(given.uids)))).encode())[1]


@lru_cache(maxsize=256)
def claiming(
    names: tuple[str, ...], using: frozenset[str], name: str, *, extended: bool
) -> tuple[Mapping[str, Claim], Mapping[str, Container]]:
    """The claims of a pod, and its containers by name, as the daemon reads them; `extended`: the scheduler made it."""
    spec = {"nodeName": NODE, "containers": [{"name": each} for each in names]}
    raw: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}
    if extended:
        limits = {"limits": {_EXTENDED: "1"}}
        spec["containers"] = [{"name": each, **({"resources": limits} if each in using else {})} for each in names]
        mappings = [{"containerName": e, "resourceName": _EXTENDED, "requestName": "gpu"} for e in sorted(using)]
        raw["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": mappings}}
    else:
        raw = with_claims(raw, {"entry": name}, {each: ["entry"] for each in using})
    pod = decode_pod(json.dumps(raw).encode())
    assert pod is not None
    return pod.claims, {each.name: each for each in pod.containers}


@dataclass(slots=True)
class Claims:
    """The claims of the cluster by namespace and name. While `refused` the API server answers no request for one."""

    made: dict[tuple[str, str], Given] = field(default_factory=dict)
    refused: bool = False

    def reserve(self, namespace: str, name: str, uid: str) -> None:
        """Reserve a claim for one more pod."""
        known = self.made[namespace, name]
        self.made[namespace, name] = replace(known, uids=known.uids | {uid})


class SimulatedClaims(NoSource[tuple[ReadClaims, tuple[Gap, ...]]]):
    """Answers for the claims that the daemon wants; `given` has what it knows by them, by pod and claim.

    It hears only those for pods that are `listed`, and keeps what holds for good. For anything else it must ask again
    once it has stopped asking, as for a pod that was not in the list for a while.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._wanted: Sequence[MissingClaim] = ()
        self._read = ReadClaims()
        self._started: set[tuple[str, str]] = set()  # by pods that had not left when they were first asked for
        self.listed: frozenset[str] = frozenset()
        self.given: dict[tuple[str, str], Given] = {}

    def want(self, wanted: Sequence[MissingClaim]) -> None:  # type: ignore[override]
        self._wanted = wanted

    def read(self, now: Now) -> tuple[ReadClaims, tuple[Gap, ...]]:
        """What there is to say of what was wanted before."""
        answers = {(pod.uid, name): self._answer(pod, name) for pod, name in self._wanted}
        if answers != self._read.answers:
            self._read = ReadClaims(answers=answers)
        self.given = {
            key: given
            for key, given in self.given.items()
            if (key[0] in self.listed if key in answers else given is not NOTHING)
        }
        return self._read, ()

    def _answer(self, pod: Pod, name: str) -> Allocation | Problem:
        claims, key = self._world.cluster.claims, (pod.uid, name)
        if claims.refused:
            return self._read.answers.get(key, _UNREAD)  # what was answered before stays
        known = claims.made.get((pod.namespace, name))
        found = None if known is None else allocation(known)
        if known is not None and found is not None and pod.uid in known.uids:
            self.given[key] = known
            return found
        if pod.left_since is None:
            self._started.add(key)
        if key not in self._started:
            self.given.pop(key, None)
            return found or _UNREAD
        # What is gone, or was made again for others, gives nothing (point 43); what it gave before stays known.
        self.given[key] = NOTHING
        if found is not None and not found.is_of_others(pod.uid):
            return found
        return Allocation(devices=(), is_allocated=True, reserved_for=frozenset((pod.uid,)), is_kept=False)


class SimulatedSlices(NoSource[tuple[Devices, tuple[Gap, ...]]]):
    """The devices of the node: its cards with another size than NVML's, and a port of a network card."""

    def __init__(self, world: "World") -> None:
        cards = [device(uuid.lower(), uuid, "90Gi") for uuid in sorted(world.cards.sizes)]
        slices = (resource_slice(*cards), resource_slice(device(_PORT, None, "3Gi"), driver=_PORTS))
        super().__init__((newest_devices(decode_slice(json.dumps(each).encode()) for each in slices), ()))
