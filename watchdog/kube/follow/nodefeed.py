"""The node's own object from the API server."""

from typing import Final

from watchdog.bell import Bell
from watchdog.core.model import Gap, GapReason, Node, Now
from watchdog.kube.api.client import Api
from watchdog.kube.follow.feed import Feed, Kind
from watchdog.kube.follow.follower import Resource
from watchdog.kube.follow.shelf import Decoded, Item, Shelf
from watchdog.kube.follow.watch_stream import Identity
from watchdog.kube.objects.nodes import decode_node

_Found = tuple[Node, tuple[Gap, ...]]
_LOOK: Final = "look at it with `kubectl get node NAME -o json`"


class NodeFeed(Feed[Node, Node]):
    """Lists and watches one node; its name is known from the start, the rest with the first list."""

    def __init__(self, api: Api, name: str, bell: Bell) -> None:
        def decode(item: Item) -> Decoded[Node] | None:
            node = decode_node(item)
            if node.name != name:
                return None
            return Decoded(identity=Identity(name=node.name, uid=node.uid), value=node)

        unknown = Node(name=name, known=False, awaited=True)

        def gather(shelf: Shelf[Node]) -> _Found:
            gaps = tuple(_gap(each.title, f"it can't be read: {each.why}; {_LOOK}") for each in shelf.unread)
            return next(shelf.values, unknown), gaps

        resource = Resource(
            noun=f"node {name}",
            path="/api/v1/nodes",
            list_kind="NodeList",
            selector={"fieldSelector": f"metadata.name={name}"},
            heartbeat=True,  # an annotation on it can switch enforcement off
            make_shelf=lambda: Shelf(decode, namespaced=False),
        )
        super().__init__(api, Kind(resource=resource, thread="api-node", reason=GapReason.NODE, gather=gather), bell)
        self._name = name

    def read(self, now: Now) -> _Found:
        """The node as it is known now, and what could not be learned of it."""
        view = self.look()
        gaps = self.gaps_of(view)
        if view.objects.known or gaps:
            return view.objects, gaps
        if view.synced is None:
            # Asked for and not there yet is another thing than never asked for: it may say to stop.
            why = "it has not come from the API server yet, so its labels and annotations are not known"
            return view.objects, (_gap(self._name, why),) if self.is_following else ()
        why = "there is none of this name, so its labels and annotations are not known; give its name with --node"
        return view.objects, (_gap(self._name, why),)


def _gap(name: str, why: str) -> Gap:
    return Gap(reason=GapReason.NODE, what=f"node {name}", why=why)
