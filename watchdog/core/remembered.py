"""What pods declare, remembered from cycle to cycle: read again only when something it was read from has changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from watchdog.core.amount import Cards, registrations, with_listed
from watchdog.core.declare import Phase, PodDeclaration, ReadPod
from watchdog.core.model import Node, Pod
from watchdog.core.policy import Policy

NOTHING: Final[Mapping[str, frozenset[str]]] = {}
# The size of the pods that are read in one cycle, 4 us each: some 30 ms. A pod alone may be nearly twice as large
# (kube/objects).
MOST_READ: Final = 7_000
_SIZE_OF_CONTAINER: Final = 4  # reading a container takes as much work as reading this many resources
_MOST_PHASES: Final = 4  # kept of one pod: a tenant can write thousands of init containers, each of which is a phase


class DeclarationMemory:
    """What pods declare, remembered as long as what it was read from is the same.

    That is what of the policy says how to read it, the node's labels and capacity, how device plugins registered it,
    and the cards but for their use; of a pod its containers with their resources, claims and phase, its annotations and
    its labels, and which resources the node listed in its life. A heartbeat of the Node object changes none of these.
    `cards` are those of the cycle. A pod is forgotten once a cycle does not ask for it.

    With `most` no more than that is read in a cycle (as `size_of` measures it), or one pod that is larger and half as
    much of others; the rest is read in later cycles. `other` is a memory that may have read a pod already.
    """

    def __init__(self, most: int | None = None, other: "DeclarationMemory | None" = None) -> None:
        self._most: Final = most
        self._other: Final = other
        self._common: tuple[object, ...] = ()
        self.cards = Cards(gpus=())
        self._known: dict[str, _Remembered] = {}
        self._asked: dict[str, _Remembered] = {}
        self._cycle = 0
        self._waiting: dict[str, int] = {}  # the cycle that first could not read the pod

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._known.keys() | self._asked.keys())

    @property
    def unread(self) -> frozenset[str]:
        """The UIDs of the pods that are read in a later cycle."""
        return frozenset(self._waiting)

    def begin(self, policy: Policy, node: Node, cards: Cards, listed: Mapping[str, frozenset[str]] = NOTHING) -> None:
        """Begin a cycle with this policy, node and cards, and the resources that were listed in each pod's life."""
        self._known, self._asked = self._asked, {}
        devices = tuple(
            (each.uuid, each.size, each.parent, each.profile, each.placement, each.memory) for each in cards.gpus
        )
        common = (
            *(
                policy.declarations,
                policy.allowance,
                policy.capacity,
                policy.reads_claims,
                policy.claims,
                node.labels,
                node.capacity,
                node.known,
            ),
            *(registrations(node), devices, cards.state),
        )
        if common != self._common:
            self._common, self._known = common, {}
        self._policy, self._node, self.cards, self._listed = policy, node, cards, listed
        self._cycle += 1

    def choose(self, pods: Iterable[Pod], using: Collection[str]) -> None:
        """Choose those of the `pods` that this cycle reads; those `using` GPU memory, by their UIDs, come first."""
        if self._most is None:
            return
        unread = [pod for pod in pods if self._find(pod) is None]
        chosen = _choose(unread, using, self._waiting, self._most)
        self._waiting = {pod.uid: self._waiting.get(pod.uid, self._cycle) for pod in unread if pod.uid not in chosen}

    def declare(self, pod: Pod, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...] | None:
        """What a pod declares in each of these phases; None if it is read in a later cycle."""
        if pod.uid in self._waiting:
            return None
        found = self._find(pod)
        if found is None:
            listed = self._listed_for(pod)
            read = ReadPod(pod, self._policy, with_listed(self._node, listed), self.cards)
            found = self._asked[pod.uid] = _Remembered(pod, listed, read)
        return found.declare(phases, per_container=per_container)

    def _listed_for(self, pod: Pod) -> frozenset[str]:
        """The resources that the node listed in a pod's life."""
        return self._listed.get(pod.uid, frozenset())

    def _find(self, pod: Pod) -> "_Remembered | None":
        """What was read of a pod that still says the same."""
        found = self._asked.get(pod.uid) or self._known.get(pod.uid)
        if found is None and self._other is not None and self._other._common == self._common:
            found = self._other._asked.get(pod.uid)
        if found is None or not found.fits(pod, self._listed_for(pod)):
            return None
        self._asked[pod.uid] = found
        return found


@dataclass(slots=True)
class _Remembered:
    """What one pod declared."""

    pod: Pod
    # The resources that the node listed in its life.
    listed: frozenset[str]
    read: ReadPod
    # By the names of the containers in the phases that were last asked for.
    by_phases: dict[tuple[tuple[tuple[str, ...], ...], bool], tuple[PodDeclaration, ...]] = field(default_factory=dict)

    def declare(self, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...]:
        """What the pod declared in each of these phases."""
        key = tuple(tuple(container.name for container in phase) for phase in phases), per_container
        if key not in self.by_phases:
            if len(self.by_phases) >= _MOST_PHASES:
                del self.by_phases[next(iter(self.by_phases))]
            self.by_phases[key] = self.read.declare(phases, per_container=per_container)
        return self.by_phases[key]

    def fits(self, pod: Pod, listed: frozenset[str]) -> bool:
        """Whether the pod still says the same; its containers' IDs and states are no part of that."""
        if listed != self.listed:
            return False
        if pod is not self.pod and _read_of(pod) != _read_of(self.pod):
            return False
        self.pod = pod  # which is compared by identity from now on
        return True


def _read_of(pod: Pod) -> tuple[object, ...]:
    """What of a pod is read for its declaration, besides its phase."""
    containers = [(each.name, each.kind, each.resources, each.claims) for each in pod.containers]
    return pod.annotations, pod.labels, containers, pod.claims


def size_of(pod: Pod) -> int:
    """How much there is to read of a pod: its containers and all their resources, annotations and labels."""
    return (
        sum(_SIZE_OF_CONTAINER + len(each.resources) for each in pod.containers)
        + sum(len(claim.devices) for claim in pod.claims.values())
        + len(pod.annotations)
        + len(pod.labels)
    )


def _choose(unread: list[Pod], using: Collection[str], waiting: dict[str, int], most: int) -> frozenset[str]:
    """Which of the unread pods are read in this cycle, by their UIDs.

    Pods that use memory come first. Half goes to those that have been `waiting` the longest, one of them at least, and
    half to the smallest. So large pods don't delay small ones, and of the pods that use memory, those that change in
    every cycle delay none for ever.
    """
    sizes = {pod.uid: size_of(pod) for pod in unread}
    if sum(sizes.values()) <= most:
        return frozenset(sizes)
    latest = max(waiting.values(), default=0) + 1

    def is_idle(uid: str) -> bool:
        return uid not in using

    chosen: set[str] = set()
    left = most
    for uid in sorted(sizes, key=lambda uid: (is_idle(uid), waiting.get(uid, latest), sizes[uid], uid)):
        if chosen and most - left + sizes[uid] > most // 2:
            break
        chosen.add(uid)
        left -= sizes[uid]
    left = max(left, most // 2)
    for uid in sorted(sizes.keys() - chosen, key=lambda uid: (is_idle(uid), sizes[uid], uid)):
        if sizes[uid] > left:
            continue
        chosen.add(uid)
        left -= sizes[uid]
    return frozenset(chosen)
