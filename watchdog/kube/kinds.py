"""The kinds of objects that are watched: one row for each has what it shares with the others.

`run`, `scan`, `doctor` and `rights` walk the table. What only one kind has stays in its own reader of files and in its
own informer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from watchdog.clock import Bell
from watchdog.core.model import GapReason
from watchdog.core.policy import Policy
from watchdog.kube.files import NamespaceFile, NodeFile, ObjectsFile, PodFile, SliceFile
from watchdog.options import Options

if TYPE_CHECKING:
    from watchdog.kube.client import Api
    from watchdog.kube.informers import NamespaceInformer, NodeInformer, PodInformer, SliceInformer
    from watchdog.kube.watch import Informer

FileT = TypeVar("FileT", bound=ObjectsFile[Any])
InformerT = TypeVar("InformerT", bound="Informer[Any, Any]")


class Piece(StrEnum):
    """A group of rights: each is one role, which exists only if the policy needs it."""

    OBSERVE = "observe"
    NODE = "node"
    NAMESPACES = "namespaces"
    CLAIMS = "claims"
    EVICT = "evict"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Verbs on one kind of object, of all names: a rule of a role."""

    # In the plural, as in requests: `pods`.
    resource: str
    verbs: tuple[str, ...]
    # What it is for, as a clause.
    why: str
    # The API group; "" for the core API.
    group: str = ""
    # "" for the object itself.
    subresource: str = ""

    @property
    def target(self) -> str:
        """The resource as RBAC writes it: `pods/eviction`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Right(Permission):
    """What the daemon may do, in all namespaces.

    RBAC can name objects, but not "those of my node": a DaemonSet has one role for all nodes.
    """

    # The role that it is in.
    piece: Piece


def _to_watch(piece: Piece, resource: str, why: str, group: str = "") -> Right:
    return Right(piece=piece, group=group, resource=resource, verbs=("list", "watch"), why=why)


def _no_rules(_policy: Policy) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchedKind(Generic[FileT, InformerT]):
    """One kind of objects that is watched, or read from a file."""

    # Its name in the check of doctor that it may be watched.
    name: str
    # What is requested of it, as doctor says it.
    what: str
    # The field of `Options` that names a file of them.
    option: str
    # The reason of its gaps.
    reason: GapReason
    # Opens a file of them on the node of this name.
    open_file: Callable[[Path, str], FileT]
    # Prepares to watch them for the node of this name. Only this loads the client of the API.
    make_informer: Callable[["Api", str, Bell], InformerT]
    # Whether a policy needs it.
    is_needed: Callable[[Policy], bool] = lambda _: True
    # Whether it is watched only from the moment on that a pod of the node has a claim.
    waits_for_claims: bool = False
    # The names of the rules that match pods by its labels.
    rules_by_label: Callable[[Policy], list[str]] = _no_rules
    # The rights that it takes, the one to list and watch it first; then what is read with it.
    rights: tuple[Right, ...]
    # The comment of the role that has them.
    role: str
    # Which policies need them, as the files in deploy/rbac say it.
    needed_by: str
    # Whether observing needs them too, not only enforcing.
    is_for_observing: bool = False
    # How doctor's description of them ends.
    watched_when: str = ""
    # What follows without them.
    without: str

    @property
    def piece(self) -> Piece:
        """The role that its rights are in."""
        return self.rights[0].piece

    @property
    def resource(self) -> str:
        """Its name in requests."""
        return self.rights[0].resource

    def path(self, options: Options) -> Path | None:
        """The file that it is read from; None without one."""
        path: Path | None = getattr(options, self.option)
        return path

    def is_watched(self, policy: Policy, options: Options) -> bool:
        """Whether it is read through the API, if that is used."""
        return self.is_needed(policy) and self.path(options) is None


def _watch_pods(api: "Api", node: str, bell: Bell) -> "PodInformer":
    from watchdog.kube.informers import PodInformer

    return PodInformer(api, node, bell)


def _watch_node(api: "Api", node: str, bell: Bell) -> "NodeInformer":
    from watchdog.kube.informers import NodeInformer

    return NodeInformer(api, node, bell)


def _watch_namespaces(api: "Api", _node: str, bell: Bell) -> "NamespaceInformer":
    from watchdog.kube.informers import NamespaceInformer

    return NamespaceInformer(api, bell)


def _watch_slices(api: "Api", node: str, bell: Bell) -> "SliceInformer":
    from watchdog.kube.informers import SliceInformer

    return SliceInformer(api, node, bell)


PODS: Final = WatchedKind(
    name="pods",
    what="the pods of this node",
    option="pods",
    reason=GapReason.PODS,
    open_file=PodFile,
    make_informer=_watch_pods,
    rights=(
        _to_watch(
            Piece.OBSERVE,
            "pods",
            "the pods of the node: which process belongs to which pod, and what each pod declares",
        ),
    ),
    role="The pods, and Events for their owners.",
    needed_by="What every policy needs, and Events, for one that enforces or has `observe = true` in [events].",
    is_for_observing=True,
    without="processes can't be attributed, so all use belongs to unknown pods and no action is taken",
)
# Every policy needs it: it requests the release of the driver, and an observing daemon blocks the maintenance of a GPU
# just like an enforcing one.
NODE: Final = WatchedKind(
    name="node",
    what="this node's object",
    option="node_object",
    reason=GapReason.NODE,
    open_file=NodeFile,
    make_informer=_watch_node,
    rules_by_label=lambda policy: [rule.name for rule in policy.rules if rule.match.node_labels],
    rights=(
        _to_watch(
            Piece.NODE,
            "nodes",
            "the node's own object: labels that rules and declarations ask for, the mode annotation, maintenance",
        ),
    ),
    role="The node's own object.",
    needed_by="What every policy needs: the node says when the driver is to be let go for maintenance.",
    watched_when=": it always watches its own node object",
    without="the node's labels are unknown, as is whether its annotation turns enforcement off and whether the driver "
    "must be released for maintenance",
)
NAMESPACES: Final = WatchedKind(
    name="namespaces",
    what="the namespaces",
    option="namespaces",
    reason=GapReason.NAMESPACES,
    open_file=lambda path, _: NamespaceFile(path),
    make_informer=_watch_namespaces,
    is_needed=lambda policy: policy.reads_namespaces,
    rules_by_label=lambda policy: [rule.name for rule in policy.rules if rule.match.namespace_labels],
    rights=(_to_watch(Piece.NAMESPACES, "namespaces", "the labels of namespaces, by which a rule matches"),),
    role="The labels of namespaces.",
    needed_by="For a policy with a rule that has `namespace_labels`.",
    watched_when=", if rules match by their labels",
    without="pods that rules with namespace_labels may match are left alone",
)
_DRA: Final = "resource.k8s.io"
SLICES: Final = WatchedKind(
    name="slices",
    what="the resource slices of this node",
    option="slices",
    reason=GapReason.CLAIMS,
    open_file=SliceFile,
    make_informer=_watch_slices,
    is_needed=lambda policy: policy.reads_claims,
    waits_for_claims=True,
    rights=(
        _to_watch(Piece.CLAIMS, "resourceslices", "the cards that drivers offer for claims, by their UUIDs", _DRA),
        Right(
            piece=Piece.CLAIMS,
            group=_DRA,
            resource="resourceclaims",
            verbs=("get",),
            why="what the claims of this node's pods were given, each by its name",
        ),
    ),
    role="What resource claims gave the pods.",
    needed_by='For a policy with the scheme "dra", which is part of "*".',
    watched_when=" and get resourceclaims, if the policy has the scheme `dra`",
    without="how much memory the pods with resource claims may use is unknown, so they are left alone",
)
WATCHED_KINDS: Final[tuple[WatchedKind[Any, Any], ...]] = (PODS, NODE, NAMESPACES, SLICES)
