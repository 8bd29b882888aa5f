"""The pods of this node from the API server."""

from typing import Final

from watchdog.bell import Bell
from watchdog.core.model import Gap, GapReason, Now, Pod, PodList
from watchdog.kube.api.client import Api
from watchdog.kube.follow.course import USUAL, Pace
from watchdog.kube.follow.feed import Feed, Kind
from watchdog.kube.follow.follower import Resource
from watchdog.kube.follow.shelf import Decoded, Item, Shelf
from watchdog.kube.follow.watch_stream import Identity
from watchdog.kube.objects.pods import pod_of
from watchdog.kube.objects.wire import POD_DECODER

_LOOK: Final = "look at it with `kubectl get pod -o json`"


class PodFeed(Feed[Pod, tuple[Pod, ...]]):
    """Lists and watches the pods of one node; unchanged pods stay the very same objects."""

    def __init__(self, api: Api, node: str, bell: Bell, pace: Pace = USUAL) -> None:
        resource = pods_of(node, pace)
        super().__init__(api, Kind(resource=resource, thread="api-pods", reason=GapReason.PODS, gather=gather), bell)

    def read(self, now: Now) -> PodList:
        """The pods as they are known now; `synced` is when the API server last vouched for that."""
        view = self.look()
        return PodList(pods=view.objects, synced=view.synced, gaps=self.gaps_of(view))


def pods_of(node: str, pace: Pace = USUAL) -> Resource[Pod]:
    """The pods of a node, as they are listed and watched."""
    return Resource(
        noun=f"pods of node {node}",
        path="/api/v1/pods",
        list_kind="PodList",
        # The only selector of pods that the API server has an index for.
        selector={"fieldSelector": f"spec.nodeName={node}"},
        heartbeat=True,
        make_shelf=lambda: pod_shelf(node),
        pace=pace,
    )


def pod_shelf(node: str) -> Shelf[Pod]:
    """Keeps the pods of a node."""

    def decode(item: Item) -> Decoded[Pod] | None:
        raw = POD_DECODER.decode(item)
        if raw.spec.node_name and raw.spec.node_name != node:
            return None
        pod = pod_of(raw)
        return Decoded(identity=Identity(namespace=pod.namespace, name=pod.name, uid=pod.uid), value=pod)

    return Shelf(decode, namespaced=True)


def gather(shelf: Shelf[Pod]) -> tuple[tuple[Pod, ...], tuple[Gap, ...]]:
    """The pods by UID, and a gap for each that could not be read or that has another one's UID."""
    pods: dict[str, Pod] = {}
    gaps = [
        _gap(each.title, f"it can't be read, so its processes are of an unknown pod: {each.why}")
        for each in shelf.unread
    ]
    for pod in shelf.values:
        first = pods.setdefault(pod.uid, pod)
        if first is not pod:
            gaps.append(
                _gap(pod.title, f"it has the UID {pod.uid} of {first.title}, which came before it, so it is left out")
            )
    return tuple(pods.values()), tuple(gaps)


def _gap(title: str, why: str) -> Gap:
    return Gap(reason=GapReason.PODS, what=f"pod {title}", why=f"{why}; {_LOOK}")
