"""The labels of namespaces from the API server."""

from collections.abc import Mapping
from typing import Final

from watchdog.bell import Bell
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.rules import Namespaces
from watchdog.kube.api.client import Api
from watchdog.kube.follow.feed import Feed, Kind
from watchdog.kube.follow.follower import Resource
from watchdog.kube.follow.shelf import Decoded, Item, Shelf
from watchdog.kube.follow.watch_stream import Identity
from watchdog.kube.objects.wire import NAMESPACE_DECODER

_Labelled = tuple[str, Mapping[str, str]]
# Only metadata is sent (PartialObjectMetadata in k8s.io/apimachinery/pkg/apis/meta/v1).
_LOOK: Final = "look at it with `kubectl get namespace -o json`"
_PARTIAL: Final = "application/json;as={};v=v1;g=meta.k8s.io"


class NamespaceFeed(Feed[_Labelled, Namespaces]):
    """Lists and watches the metadata of all namespaces."""

    def __init__(self, api: Api, bell: Bell) -> None:
        resource = Resource(
            noun="namespaces",
            path="/api/v1/namespaces",
            list_kind="PartialObjectMetadataList",
            selector={},
            heartbeat=False,
            make_shelf=lambda: Shelf(_decode, namespaced=False),
            accept=(_PARTIAL.format("PartialObjectMetadataList"), _PARTIAL.format("PartialObjectMetadata")),
        )
        kind = Kind(resource=resource, thread="api-namespaces", reason=GapReason.NAMESPACES, gather=_gather)
        super().__init__(api, kind, bell)

    def read(self, now: Now) -> tuple[Namespaces, tuple[Gap, ...]]:
        """The labels by namespace as they are known now, and what could not be learned of them."""
        view = self.look()
        return view.objects, self.gaps_of(view)


def _decode(item: Item) -> Decoded[_Labelled]:
    metadata = NAMESPACE_DECODER.decode(item).metadata
    return Decoded(identity=Identity(name=metadata.name), value=(metadata.name, metadata.labels or {}))


def _gather(shelf: Shelf[_Labelled]) -> tuple[Namespaces, tuple[Gap, ...]]:
    return dict(shelf.values), tuple(
        Gap(
            reason=GapReason.NAMESPACES,
            what=f"namespace {each.title}",
            why=f"it can't be read, so its labels are not known: {each.why}; {_LOOK}",
        )
        for each in shelf.unread
    )
