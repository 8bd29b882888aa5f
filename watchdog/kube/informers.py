"""Informers for the pods of this node, its node object and the labels of namespaces, from the API server."""

from collections.abc import Mapping
from typing import Final

from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Now, Pod, PodList
from watchdog.core.rules import Namespaces
from watchdog.kube.client import Api
from watchdog.kube.objects import decode_node, pod_of
from watchdog.kube.reflector import USUAL, RequestPace
from watchdog.kube.store import Decoded, Identity, Item, Store
from watchdog.kube.watch import Informer, InformerKind, Resource
from watchdog.kube.wire import NAMESPACE_DECODER, POD_DECODER

_Labelled = tuple[str, Mapping[str, str]]
# Only metadata is sent (PartialObjectMetadata in k8s.io/apimachinery/pkg/apis/meta/v1).
_SHOW_NAMESPACE: Final = "see `kubectl get namespace -o json`"
_PARTIAL: Final = "application/json;as={};v=v1;g=meta.k8s.io"


class NamespaceInformer(Informer[_Labelled, Namespaces]):
    """Lists and watches the metadata of all namespaces."""

    def __init__(self, api: Api, bell: Bell) -> None:
        resource = Resource(
            noun="namespaces",
            path="/api/v1/namespaces",
            list_kind="PartialObjectMetadataList",
            selector={},
            heartbeat=False,
            make_store=lambda: Store(_decode, namespaced=False),
            accept=(_PARTIAL.format("PartialObjectMetadataList"), _PARTIAL.format("PartialObjectMetadata")),
        )
        kind = InformerKind(resource=resource, thread="api-namespaces", reason=GapReason.NAMESPACES, gather=_gather)
        super().__init__(api, kind, bell)

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """The labels by namespace as known now, and gaps."""
        view = self.take_view()
        return view.objects, self.gaps_of(view)


def _decode(item: Item) -> Decoded[_Labelled]:
    metadata = NAMESPACE_DECODER.decode(item).metadata
    return Decoded(identity=Identity(name=metadata.name), value=(metadata.name, metadata.labels or {}))


def _gather(store: Store[_Labelled]) -> tuple[Namespaces, tuple[Gap, ...]]:
    return dict(store.values), tuple(
        Gap(
            reason=GapReason.NAMESPACES,
            what=f"namespace {each.title}",
            problem=Problem(f"it can't be read, so its labels are not known: {each.why}", _SHOW_NAMESPACE),
        )
        for each in store.unread
    )


_NodeAndGaps = tuple[Node, tuple[Gap, ...]]
_SHOW_NODE: Final = "see `kubectl get node NAME -o json`"


class NodeInformer(Informer[Node, Node]):
    """Lists and watches one node; its name is known from the start, the rest with the first list."""

    def __init__(self, api: Api, name: str, bell: Bell) -> None:
        def decode(item: Item) -> Decoded[Node] | None:
            node = decode_node(item)
            if node.name != name:
                return None
            return Decoded(identity=Identity(name=node.name, uid=node.uid), value=node)

        unknown = Node(name=name, known=False, awaited=True)

        def gather(store: Store[Node]) -> _NodeAndGaps:
            gaps = tuple(
                _node_gap(each.title, Problem(f"it can't be read: {each.why}", _SHOW_NODE)) for each in store.unread
            )
            return next(store.values, unknown), gaps

        resource = Resource(
            noun=f"node {name}",
            path="/api/v1/nodes",
            list_kind="NodeList",
            selector={"fieldSelector": f"metadata.name={name}"},
            heartbeat=True,  # an annotation on it can switch enforcement off
            make_store=lambda: Store(decode, namespaced=False),
        )
        super().__init__(
            api, InformerKind(resource=resource, thread="api-node", reason=GapReason.NODE, gather=gather), bell
        )
        self._name = name

    def read(self, now: Now) -> _NodeAndGaps:
        """The node as known now, and gaps."""
        view = self.take_view()
        gaps = self.gaps_of(view)
        if view.objects.known or gaps:
            return view.objects, gaps
        if view.synced is None:
            # Requested and not there yet differs from never requested: the node may ask to stop.
            why = Problem("it has not come from the API server yet, so its labels and annotations are not known")
            return view.objects, (_node_gap(self._name, why),) if self.is_following else ()
        why = Problem(
            "there is none of this name, so its labels and annotations are not known", "give its name with --node"
        )
        return view.objects, (_node_gap(self._name, why),)


def _node_gap(name: str, problem: Problem) -> Gap:
    return Gap(reason=GapReason.NODE, what=f"node {name}", problem=problem)


_SHOW_POD: Final = "see `kubectl get pod -o json`"


class PodInformer(Informer[Pod, tuple[Pod, ...]]):
    """Lists and watches the pods of one node; unchanged pods stay identical objects."""

    def __init__(self, api: Api, node: str, bell: Bell, pace: RequestPace = USUAL) -> None:
        resource = pods_of(node, pace)
        super().__init__(
            api, InformerKind(resource=resource, thread="api-pods", reason=GapReason.PODS, gather=gather), bell
        )

    def read(self, now: Now) -> PodList:
        """The pods as known now; `synced` is when the API server last confirmed that."""
        view = self.take_view()
        return PodList(pods=view.objects, synced=view.synced, gaps=self.gaps_of(view))


def pods_of(node: str, pace: RequestPace = USUAL) -> Resource[Pod]:
    """The pods of a node, as they are listed and watched."""
    return Resource(
        noun=f"pods of node {node}",
        path="/api/v1/pods",
        list_kind="PodList",
        # The only selector of pods that the API server has an index for.
        selector={"fieldSelector": f"spec.nodeName={node}"},
        heartbeat=True,
        make_store=lambda: pod_store(node),
        pace=pace,
    )


def pod_store(node: str) -> Store[Pod]:
    """An empty store for the pods of a node."""

    def decode(item: Item) -> Decoded[Pod] | None:
        raw = POD_DECODER.decode(item)
        if raw.spec.node_name and raw.spec.node_name != node:
            return None
        pod = pod_of(raw)
        return Decoded(identity=Identity(namespace=pod.namespace, name=pod.name, uid=pod.uid), value=pod)

    return Store(decode, namespaced=True)


def gather(store: Store[Pod]) -> tuple[tuple[Pod, ...], tuple[Gap, ...]]:
    """The pods by UID, and a gap for each that could not be read or has the UID of another one."""
    pods: dict[str, Pod] = {}
    gaps = [
        _pod_gap(each.title, f"it can't be read, so its processes are of an unknown pod: {each.why}")
        for each in store.unread
    ]
    for pod in store.values:
        first = pods.setdefault(pod.uid, pod)
        if first is not pod:
            gaps.append(
                _pod_gap(
                    pod.title, f"it has the UID {pod.uid} of {first.title}, which came before it, so it is left out"
                )
            )
    return tuple(pods.values()), tuple(gaps)


def _pod_gap(title: str, cause: str) -> Gap:
    return Gap(reason=GapReason.PODS, what=f"pod {title}", problem=Problem(cause, _SHOW_POD))
