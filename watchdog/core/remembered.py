"""What pods declare, remembered from cycle to cycle: read again only when something it was read from has changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from watchdog.core.amount import Cards
from watchdog.core.declare import Phase, PodDeclaration, declare_in_phases
from watchdog.core.model import Node, Pod
from watchdog.core.policy import Policy


class DeclarationMemory:
    """What pods declare, remembered as long as what it was read from is the same.

    That is the policy, the node's labels and capacity, the cards but for their use, and of a pod its containers with
    their resources, claims and phase, its annotations and its labels. A heartbeat of the Node object changes none of
    these. A pod is forgotten once a cycle does not ask for it.
    """

    def __init__(self) -> None:
        self._common: tuple[object, ...] = ()
        self._cards = Cards(gpus=())
        self._known: dict[str, _Remembered] = {}
        self._asked: dict[str, _Remembered] = {}

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._known.keys() | self._asked.keys())

    def begin(self, policy: Policy, node: Node, cards: Cards) -> None:
        """Begin a cycle with this policy, node and cards."""
        self._known, self._asked = self._asked, {}
        devices = tuple((each.uuid, each.size, each.parent, each.profile, each.memory) for each in cards.gpus)
        common = (policy.declarations, policy.allowance, node.labels, node.capacity, node.known, devices, cards.state)
        if common != self._common:
            self._common, self._known = common, {}
        self._policy, self._node, self._cards = policy, node, cards

    def declare(self, pod: Pod, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...]:
        """What a pod declares in each of these phases."""
        found = self._asked.get(pod.uid) or self._known.get(pod.uid)
        if found is None or not found.fits(pod):
            found = _Remembered(pod)
        self._asked[pod.uid] = found
        key = tuple(tuple(container.name for container in phase) for phase in phases), per_container
        if key not in found.by_phases:
            found.by_phases[key] = declare_in_phases(
                pod, self._policy, self._node, self._cards, phases, per_container=per_container
            )
        return found.by_phases[key]


@dataclass(slots=True)
class _Remembered:
    """What one pod declared, by the names of the containers in each phase that was asked for."""

    pod: Pod
    by_phases: dict[tuple[tuple[tuple[str, ...], ...], bool], tuple[PodDeclaration, ...]] = field(default_factory=dict)

    def fits(self, pod: Pod) -> bool:
        """Whether the pod still says the same; its containers' IDs and states are no part of that."""
        if pod is self.pod:
            return True
        return _read_of(pod) == _read_of(self.pod)


def _read_of(pod: Pod) -> tuple[object, ...]:
    """What of a pod is read for its declaration, besides its phase."""
    containers = [(each.name, each.kind, each.resources, each.claims) for each in pod.containers]
    return pod.annotations, pod.labels, containers
