"""What an account must be allowed to do with the Kubernetes API for a policy to work, and nothing more."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from watchdog.core.needs import needs
from watchdog.core.policy import Policy

EVENTS_GROUP: Final = "events.k8s.io"


class Piece(StrEnum):
    """The pieces that rights come in: each is one role, and is there only if the policy needs it."""

    OBSERVE = "observe"
    NODE = "node"
    NAMESPACES = "namespaces"
    EVICT = "evict"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on one kind of object, of all namespaces and names: `group` is empty for the core API.

    RBAC could name objects, but not "those of my node": a DaemonSet has one role for all nodes.
    """

    piece: Piece
    resource: str
    verbs: tuple[str, ...]
    why: str
    group: str = ""
    subresource: str = ""

    @property
    def target(self) -> str:
        """The resource as RBAC writes it: `pods/eviction`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


_PODS: Final = Right(
    piece=Piece.OBSERVE,
    resource="pods",
    verbs=("list", "watch"),
    why="the pods of the node: whose processes are whose, and what each pod declares",
)
_EVENTS: Final = Right(
    piece=Piece.OBSERVE,
    group=EVENTS_GROUP,
    resource="events",
    verbs=("create", "patch"),
    why="Events on the pods that are warned or hit; patch counts one that goes on",
)
_NODE: Final = Right(
    piece=Piece.NODE,
    resource="nodes",
    verbs=("list", "watch"),
    why="the node's own object: labels that rules and declarations ask for, the mode annotation, maintenance",
)
_NAMESPACES: Final = Right(
    piece=Piece.NAMESPACES,
    resource="namespaces",
    verbs=("list", "watch"),
    why="the labels of namespaces, by which a rule matches",
)
_EVICT: Final = (
    Right(
        piece=Piece.EVICT,
        resource="pods",
        verbs=("get",),
        why="the pod as it is right before it is evicted",
    ),
    Right(
        piece=Piece.EVICT,
        resource="pods",
        subresource="eviction",
        verbs=("create",),
        why="the eviction itself, with the UID of the pod that was meant",
    ),
)
_CAPACITY: Final = Right(
    piece=Piece.CAPACITY,
    resource="nodes",
    subresource="status",
    verbs=("patch",),
    why="the entry of [capacity] in the node's status",
)


def rights_of(policy: Policy) -> tuple[Right, ...]:
    """The rights that a policy needs in the mode that it is in, piece by piece."""
    need = needs(policy)
    return (
        _PODS,
        *([_EVENTS] if need.events else []),
        _NODE,
        *([_NAMESPACES] if need.namespaces else []),
        *(_EVICT if need.evict else ()),
        *([_CAPACITY] if need.capacity else []),
    )


ALL_RIGHTS: Final = (_PODS, _EVENTS, _NODE, _NAMESPACES, *_EVICT, _CAPACITY)
