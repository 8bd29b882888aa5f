"""The simulated cluster: pods of this node as they truly are, and the list of them that the daemon reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal

from tests.soak.claims import Claims, claiming
from tests.soak.clock import Clock
from watchdog.core.model import Claim, Container, ContainerKind, Node, Now, Owner, Pod, PodList

Mi: Final = 2**20
Gi: Final = 2**30
Kind = Literal["bytes", "mib", "gpu_mib", "share", "note", "claim"]
# How amounts are written, by kind: the key, and the bytes that its number 1 stands for.
KEYS: Final[Mapping[str, tuple[str, int]]] = {
    "bytes": ("veriff.com/gpu-memory", 1),
    "mib": ("volcano.sh/vgpu-memory", Mi),
    "gpu_mib": ("nvidia.com/gpumem", Mi),
    "share": ("nvidia.com/gpu.shared", 1),
    "note": ("vram", 1),
}
GARBAGE: Final = "many"
UNLISTED: Final = "example.com/gpu-memory"  # what the node does not list
# What a cycle may read of pods here, as `size_of` measures it. There is room for the largest fat pod and for all
# tenants, as on a real node.
MOST_READ: Final = 800
_FAT: Final = ((3, 85), (100, 3))  # how many fat pods, of how many containers each
LABEL: Final = "nvidia.com/gpu.replicas"
REPLICAS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A container: its true ID, whether the list knows that ID yet, and the bytes that it declares (-1: garbage).

    Of kind `share` it is the number of shares, and of kind `claim` anything: it uses the pod's claim. Of one of `INIT`,
    `runs` is what the list says. `unlisted` are the bytes that it requests of what the node does not list.
    """

    name: str
    cid: str
    known: bool = True
    declares: int | None = None
    kind: ContainerKind = ContainerKind.MAIN
    runs: bool = True
    unlisted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod as it truly is. `kind` is how its amounts are written; of kind `note` the pod declares `notes` bytes.

    Of kind `claim` it has that ResourceClaim; `extended`: the scheduler made it, for a resource that the pod requests.
    `dying_s` is the boot time at which this daemon first saw it terminating; only the oracle's copies have it.
    """

    uid: str
    namespace: str
    name: str
    owner: tuple[str, str] | None
    boxes: tuple[Box, ...]
    kind: Kind = "bytes"
    notes: int | None = None
    tier: str = "a"
    priority: int | None = None
    spared: bool = False
    static: bool = False
    claim: str = ""
    extended: bool = False
    deadline_s: float | None = None
    dying_s: float | None = None

    @property
    def workload(self) -> tuple[str, str, str]:
        """Who stands behind it, as the brakes tell owners apart."""
        kind, name = self.owner or ("Pod", self.name)
        return (self.namespace, kind, name)


@lru_cache(maxsize=256)
def as_pod(tenant: Tenant) -> Pod:
    annotations = {"spare-me": "yes"} if tenant.spared else {}
    if tenant.notes is not None:
        annotations[KEYS["note"][0]] = _written(tenant.notes, KEYS["note"][1])
    claims, claiming_containers = _claiming(tenant)
    return Pod(
        namespace=tenant.namespace,
        name=tenant.name,
        uid=tenant.uid,
        containers=tuple(_as_container(box, tenant, claiming_containers.get(box.name)) for box in tenant.boxes),
        claims=claims,
        labels={"tier": tenant.tier},
        annotations=annotations,
        owner=None if tenant.owner is None else Owner(kind=tenant.owner[0], name=tenant.owner[1]),
        priority=tenant.priority,
        static=tenant.static,
        deletion_deadline_s=tenant.deadline_s,
    )


def _claiming(tenant: Tenant) -> tuple[Mapping[str, Claim], Mapping[str, Container]]:
    if not tenant.claim:
        return {}, {}
    names = tuple(box.name for box in tenant.boxes if box.kind is ContainerKind.MAIN)
    using = frozenset(box.name for box in tenant.boxes if box.declares is not None)
    return claiming(names, using, tenant.claim, extended=tenant.extended)


def _as_container(box: Box, tenant: Tenant, claiming_one: Container | None) -> Container:
    resources: dict[str, str] = {}
    if tenant.kind in KEYS and tenant.kind != "note" and box.declares is not None:
        key, unit = KEYS[tenant.kind]
        resources = {key: _written(box.declares, unit)}
    resources |= {} if claiming_one is None else claiming_one.resources
    resources |= {} if box.unlisted is None else {UNLISTED: str(box.unlisted)}
    ids = frozenset({box.cid} if box.known else ())
    made = Container(
        name=box.name,
        kind=box.kind,
        ids=ids,
        running=box.runs,
        resources=resources,
        privileged=tenant.owner is not None and tenant.owner[0] == "DaemonSet",
    )
    return made if claiming_one is None else replace(made, claims=claiming_one.claims)


def _fat(each: int, containers: int, written: int) -> Pod:
    """A pod that never runs and declares nothing, as it was `written`."""
    return Pod(
        namespace="mallory",
        name=f"fat-{each}",
        uid=f"fat-{each}",
        containers=tuple(Container(name=f"c{number}", kind=ContainerKind.INIT) for number in range(containers)),
        labels={"written": str(written)},
    )


def _written(amount: int, unit: int) -> str:
    """An amount as people write it: a whole number of the unit, with a suffix where one fits."""
    if amount < 0:
        return GARBAGE
    if unit == 1 and amount and amount % Mi == 0:
        return f"{amount // Mi}Mi"
    return str(amount // unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The pod list at one moment, as the daemon has it, the tenants behind it, and who was deleted before."""

    tenants: Mapping[str, Tenant]
    pods: tuple[Pod, ...]
    gone: frozenset[str] = frozenset()
    fat: tuple[Pod, ...] = ()


@dataclass(slots=True)
class Cluster:
    """Pods by UID. While `frozen` the list is not renewed, and grows old. The node's labels may be missing.

    A list may lack pods that are there (`missing`); of those in `gone` the API server says that they were deleted.
    While `dropped` the node lists no resource of its device plugins, which comes with no new pod. The `fat` pods never
    run; their owner rewrites them all the time, so that they have to be read in every cycle.
    """

    clock: Clock
    tenants: dict[str, Tenant] = field(default_factory=dict)
    frozen: bool = False
    labelled: bool = True
    dropped: bool = False
    view: View = field(default_factory=lambda: View(tenants={}, pods=()))
    synced: Now | None = None
    gone: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    fat: tuple[Pod, ...] = ()
    claims: Claims = field(default_factory=Claims)
    _serial: int = 0

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    def put(self, tenant: Tenant) -> None:
        self.tenants[tenant.uid] = tenant
        if (tenant.namespace, tenant.claim) in self.claims.made:
            self.claims.reserve(tenant.namespace, tenant.claim, tenant.uid)

    def change(self, uid: str, **fields: object) -> Tenant:
        self.tenants[uid] = replace(self.tenants[uid], **fields)  # type: ignore[arg-type]
        return self.tenants[uid]

    def remove(self, uid: str) -> None:
        self.tenants.pop(uid, None)
        self.gone.add(uid)

    def fatten(self) -> None:
        """Let the fat pods come, or change."""
        number = self.serial()
        counts = [containers for pods, containers in _FAT for _ in range(pods)]
        self.fat = tuple(_fat(each, count, number) for each, count in enumerate(counts))

    @property
    def node(self) -> Node:
        plugins = {} if self.dropped else {key: "0" for kind, (key, _) in KEYS.items() if kind != "note"}
        capacity = {"cpu": "8", **plugins}
        return Node(name="n1", labels={LABEL: str(REPLICAS)} if self.labelled else {}, capacity=capacity)

    def read(self, now: Now) -> PodList:
        if not self.frozen:
            tenants = {uid: tenant for uid, tenant in self.tenants.items() if uid not in self.missing}
            if self.view.tenants != tenants or self.view.gone != self.gone or self.view.fat is not self.fat:
                pods = (*map(as_pod, tenants.values()), *self.fat)
                self.view = View(tenants=tenants, pods=pods, gone=frozenset(self.gone), fat=self.fat)
            self.synced = now
        return PodList(pods=self.view.pods, synced=self.synced, gone=self.view.gone)
