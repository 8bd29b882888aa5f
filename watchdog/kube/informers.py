"""Informers for what is watched of this node: its pods, its node object, its slices; and the labels of namespaces."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Now, Pod, PodKeys, PodList
from watchdog.core.rules import Namespaces
from watchdog.kube.claims import NOT_READ, DeviceKey, Devices, PublishedDevices, decode_slice, newest_devices
from watchdog.kube.client import Api
from watchdog.kube.departures import Departures
from watchdog.kube.objects import NO_KEYS, decode_namespace, decode_node, decode_pod, distinct_pods, shrunk
from watchdog.kube.reflector import USUAL, RequestPace
from watchdog.kube.store import Store
from watchdog.kube.watch import Informer, Resource
from watchdog.kube.wire import Item

_Labelled = tuple[str, Mapping[str, str]]
_Gaps = tuple[Gap, ...]
# Only metadata is sent (PartialObjectMetadata in k8s.io/apimachinery/pkg/apis/meta/v1).
_PARTIAL: Final = "application/json;as={};v=v1;g=meta.k8s.io"
_SHOW: Final = "see `kubectl get {} -o json`"


class NamespaceInformer(Informer[_Labelled, Namespaces]):
    """Lists and watches the metadata of all namespaces."""

    def __init__(self, api: Api, bell: Bell) -> None:
        resource = Resource(
            noun="namespaces",
            thread="api-namespaces",
            reason=GapReason.NAMESPACES,
            path="/api/v1/namespaces",
            list_kind="PartialObjectMetadataList",
            selector={},
            heartbeat=False,
            make_store=lambda: Store(decode_namespace, namespaced=False),
            gather=_gather_namespaces,
            accept=(_PARTIAL.format("PartialObjectMetadataList"), _PARTIAL.format("PartialObjectMetadata")),
        )
        super().__init__(api, resource, bell)

    def read(self, now: Now) -> tuple[Namespaces, _Gaps]:
        """The labels by namespace as known now, and gaps."""
        view = self.take_view()
        return view.objects, view.gaps


def _gather_namespaces(store: Store[_Labelled]) -> tuple[Namespaces, _Gaps]:
    return dict(store.values), unread_gaps(store, GapReason.NAMESPACES, "namespace", ", so its labels are not known")


class NodeInformer(Informer[Node, Node]):
    """Lists and watches one node; its name is known from the start, the rest with the first list."""

    def __init__(self, api: Api, name: str, bell: Bell) -> None:
        def decode(item: Item) -> Node | None:
            node = decode_node(item)
            return node if node.name == name else None

        def gather(store: Store[Node]) -> tuple[Node, _Gaps]:
            return next(store.values, Node(name=name, known=False, awaited=True)), unread_gaps(
                store, GapReason.NODE, "node"
            )

        resource = Resource(
            noun=f"node {name}",
            thread="api-node",
            reason=GapReason.NODE,
            path="/api/v1/nodes",
            list_kind="NodeList",
            selector={"fieldSelector": f"metadata.name={name}"},
            heartbeat=True,  # an annotation on it can switch enforcement off
            make_store=lambda: Store(decode, namespaced=False),
            gather=gather,
        )
        super().__init__(api, resource, bell)
        self._name = name

    def read(self, now: Now) -> tuple[Node, _Gaps]:
        """The node as known now, and gaps."""
        view = self.take_view()
        if view.objects.known or view.gaps or (view.synced is None and not self.is_following):
            return view.objects, view.gaps
        # Requested and not there yet differs from never requested: the node may ask to stop.
        problem = Problem("it has not arrived from the API server yet, so its labels and annotations are not known")
        if view.synced is not None:
            cause = "there is no node of this name, so its labels and annotations are not known"
            problem = Problem(cause, "give its name with --node")
        return view.objects, (Gap(reason=GapReason.NODE, what=f"node {self._name}", problem=problem),)


class SliceInformer(Informer[PublishedDevices, Devices]):
    """Lists and watches the ResourceSlices of one node: the devices that drivers offer there for claims.

    Those of no node, which devices have that several nodes can reach, are watched too while they are wanted.
    """

    def __init__(self, api: Api, node: str, bell: Bell) -> None:
        self._others: Informer[PublishedDevices, Devices] = Informer(api, _slices_of("", "api-other-slices"), bell)
        self._merged: tuple[Devices, Devices, Devices] = {}, {}, {}
        super().__init__(api, _slices_of(node, "api-slices"), bell)

    def want(self, strangers: Collection[DeviceKey]) -> None:
        """Read those of no node too while there are such devices; where nothing is watched they are listed, once."""
        others = self._others
        if self.view.synced is None:
            return  # what is missing may be on its way
        if not self.is_following:
            if strangers and others.view.synced is None and others.view.problem is None:
                others.fetch()
        elif others.is_following:
            if not strangers:
                others.forget()
        elif strangers:
            try:
                others.start()
            except RuntimeError:  # no thread can be started at the moment
                others.forget()

    def stop(self) -> None:
        """Stop at once."""
        self._others.stop()
        super().stop()

    def forget(self) -> None:
        """Stop and forget all devices."""
        super().forget()
        self._others.forget()

    @property
    def has_died(self) -> bool:
        """Whether a thread has ended without being stopped."""
        return super().has_died or self._others.has_died

    def has_changed(self) -> bool:
        """Whether `read` would return something else than last time."""
        return super().has_changed() or self._others.has_changed()

    def read(self, now: Now) -> tuple[Devices, _Gaps]:
        """The devices as known now, and gaps."""
        view, others = self.take_view(), self._others.take_view()
        if view.synced is None:
            return NOT_READ, view.gaps
        if not others.objects:
            return view.objects, (*view.gaps, *others.gaps)
        if self._merged[0] is not view.objects or self._merged[1] is not others.objects:
            self._merged = view.objects, others.objects, {**others.objects, **view.objects}
        return self._merged[2], (*view.gaps, *others.gaps)


def _slices_of(node: str, thread: str) -> Resource[PublishedDevices, Devices]:
    """The slices of a node; "": those of none."""
    return Resource(
        noun=f"resource slices of {f'node {node}' if node else 'no node'}",
        thread=thread,
        reason=GapReason.CLAIMS,
        path="/apis/resource.k8s.io/v1/resourceslices",
        list_kind="ResourceSliceList",
        # The API server has an index for it, unlike for the name of the pool, which 1.34 can't select by at all.
        selector={"fieldSelector": f"spec.nodeName={node}"},
        heartbeat=False,
        make_store=lambda: Store(decode_slice, namespaced=False, own=lambda value: tuple(value.devices.values())),
        gather=_gather_slices,
    )


def _gather_slices(store: Store[PublishedDevices]) -> tuple[Devices, _Gaps]:
    gaps = unread_gaps(store, GapReason.CLAIMS, "resourceslice", ", so its devices are not known")
    return newest_devices(store.values), gaps


class PodInformer(Informer[Pod, tuple[Pod, ...]]):
    """Lists and watches the pods of one node; unchanged pods stay identical objects."""

    def __init__(self, api: Api, node: str, bell: Bell, pace: RequestPace = USUAL) -> None:
        self._keys = PodKeys()
        self._departures = Departures(api, bell)
        self._taken_gone = self._departures.gone
        super().__init__(api, pods_of(node, pace, lambda: self._keys, self._departures.note_deleted), bell)

    def want(self, keys: PodKeys) -> None:
        """Read these keys of every pod from now on, whatever else it carries; if they are new, list the pods again."""
        if not self._keys.cover(keys):
            self._keys |= keys
            self.list_again()

    def find(self, missing: Iterable[Pod]) -> None:
        """Ask the API server for pods that a list lacks; those that it does not have are `gone` in what is read."""
        self._departures.ask(missing)

    def has_changed(self) -> bool:
        """Whether `read` would return something else than last time, apart from `synced`."""
        return super().has_changed() or self._departures.gone is not self._taken_gone

    def read(self, now: Now) -> PodList:
        """The pods as known now; `synced` is when the API server last confirmed that."""
        view = self.take_view()
        self._taken_gone = self._departures.gone  # after the pods: a deletion is noted before its pod is removed
        return PodList(pods=view.objects, synced=view.synced, gaps=view.gaps, gone=self._taken_gone)


def pods_of(
    node: str,
    pace: RequestPace = USUAL,
    keys: Callable[[], PodKeys] = PodKeys,
    on_deleted: Callable[[str], None] = lambda _: None,
) -> Resource[Pod, tuple[Pod, ...]]:
    """The pods of a node, as they are listed and watched; `keys` are read whatever else a pod carries.

    `on_deleted` gets the UID of each pod that the watch reports as deleted.
    """
    return Resource(
        noun=f"pods of node {node}",
        thread="api-pods",
        reason=GapReason.PODS,
        path="/api/v1/pods",
        list_kind="PodList",
        # The only selector of pods that the API server has an index for.
        selector={"fieldSelector": f"spec.nodeName={node}"},
        heartbeat=True,
        make_store=lambda: pod_store(node, keys(), on_deleted),
        gather=gather_pods,
        pace=pace,
    )


def pod_store(node: str, keys: PodKeys = NO_KEYS, on_deleted: Callable[[str], None] = lambda _: None) -> Store[Pod]:
    """An empty store for the pods of a node."""
    return Store(
        lambda item: decode_pod(item, node, keys),
        namespaced=True,
        may_go=_runs_nothing,
        shrink=lambda pod: shrunk(pod, keys),
        on_deleted=on_deleted,
        own=lambda pod: replace(pod, keys=None),
    )


def _runs_nothing(pod: Pod) -> bool:
    """Whether no container of a pod has started, or all have ended, so that hardly any process can be its own."""
    return pod.is_finished or not pod.has_started


def gather_pods(store: Store[Pod]) -> tuple[tuple[Pod, ...], _Gaps]:
    """The pods by UID, and a gap for each that could not be read or has the UID of another one."""
    pods, gaps = distinct_pods(store.values, _SHOW.format("pod"))
    return pods, (*unread_gaps(store, GapReason.PODS, "pod", ", so its processes are of an unknown pod"), *gaps)


def unread_gaps(store: Store[Any], reason: GapReason, kind: str, consequence: str = "") -> _Gaps:
    """A gap for each object of a kind, as `kubectl get` names it, that was listed and could not be read."""
    return tuple(
        Gap(
            reason=reason,
            what=f"{kind} {unread.title}",
            problem=Problem(f"it can't be read{consequence}: {unread.why}", _SHOW.format(kind)),
        )
        for unread in store.unread
    )
