"""What pods declare, remembered from cycle to cycle: read again only when something it was read from has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from watchdog.core.amount import Cards, registrations, with_listed
from watchdog.core.declare import Phase, PodDeclaration, declare_in_phases
from watchdog.core.model import Node, Pod
from watchdog.core.policy import Policy

NOTHING: Final[Mapping[str, frozenset[str]]] = {}


class DeclarationMemory:
    """What pods declare, remembered as long as what it was read from is the same.

    That is the policy, the node's labels and capacity, how device plugins registered it, and the cards but for their
    use; of a pod its containers with their resources, claims and phase, its annotations and its labels, and which
    resources the node listed in its life. A heartbeat of the Node object changes none of these. `cards` are those of
    the cycle. A pod is forgotten once a cycle does not ask for it.
    """

    def __init__(self) -> None:
        self._common: tuple[object, ...] = ()
        self.cards = Cards(gpus=())
        self._known: dict[str, _Remembered] = {}
        self._asked: dict[str, _Remembered] = {}

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._known.keys() | self._asked.keys())

    def begin(self, policy: Policy, node: Node, cards: Cards, listed: Mapping[str, frozenset[str]] = NOTHING) -> None:
        """Begin a cycle with this policy, node and cards, and the resources that were listed in each pod's life."""
        self._known, self._asked = self._asked, {}
        devices = tuple((each.uuid, each.size, each.parent, each.profile, each.memory) for each in cards.gpus)
        common = (
            *(policy.declarations, policy.allowance, policy.capacity, node.labels, node.capacity, node.known),
            *(registrations(node), devices, cards.state),
        )
        if common != self._common:
            self._common, self._known = common, {}
        self._policy, self._node, self.cards, self._listed = policy, node, cards, listed

    def declare(self, pod: Pod, phases: Sequence[Phase], *, per_container: bool) -> tuple[PodDeclaration, ...]:
        """What a pod declares in each of these phases."""
        found = self._asked.get(pod.uid) or self._known.get(pod.uid)
        listed = self._listed.get(pod.uid, frozenset())
        if found is None or not found.fits(pod, listed):
            found = _Remembered(pod, listed)
        self._asked[pod.uid] = found
        key = tuple(tuple(container.name for container in phase) for phase in phases), per_container
        if key not in found.by_phases:
            found.by_phases[key] = declare_in_phases(
                pod, self._policy, with_listed(self._node, listed), self.cards, phases, per_container=per_container
            )
        return found.by_phases[key]


@dataclass(slots=True)
class _Remembered:
    """What one pod declared, by the names of the containers in each phase that was asked for."""

    pod: Pod
    listed: frozenset[str]
    by_phases: dict[tuple[tuple[tuple[str, ...], ...], bool], tuple[PodDeclaration, ...]] = field(default_factory=dict)

    def fits(self, pod: Pod, listed: frozenset[str]) -> bool:
        """Whether the pod still says the same; its containers' IDs and states are no part of that."""
        if listed != self.listed:
            return False
        if pod is self.pod:
            return True
        return _read_of(pod) == _read_of(self.pod)


def _read_of(pod: Pod) -> tuple[object, ...]:
    """What of a pod is read for its declaration, besides its phase."""
    containers = [(each.name, each.kind, each.resources, each.claims) for each in pod.containers]
    return pod.annotations, pod.labels, containers
