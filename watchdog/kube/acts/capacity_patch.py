"""The change of a node's capacity: a JSON patch that is carried out on that very node as it was seen, or not at all.

What becomes of it (k8s.io/kubernetes/pkg/kubelet, nodestatus/setters.go and kubelet_node_status.go): the scheduler
counts by `status.allocatable`, which is the kubelet's. At each of its status syncs (`nodeStatusUpdateFrequency`, 10 s)
MachineInfo leaves entries of the capacity that are not its own as they are, copies each entry into allocatable, and
takes out of allocatable what is no longer in the capacity. So allocatable follows, and is never patched here. Where a
device plugin offers the same resource, the same function writes the plugin's number over ours at each sync. A kubelet
that starts sets every extended resource to 0 if it finds no checkpoint of device plugins (reconcileExtendedResource),
and a node object that is created anew has none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from watchdog.core.capacity import advertised
from watchdog.core.model import Node
from watchdog.core.units import format_quantity
from watchdog.kube.api.answers import Answer, ApiError
from watchdog.kube.api.client import Api
from watchdog.kube.objects.nodes import decode_node
from watchdog.kube.objects.wire import DECODE_ERRORS, continue_token, split_items

CONTENT_TYPE: Final = "application/json-patch+json"
_CAPACITY: Final = "/status/capacity"
# Nodes at a time: one takes 10 to 20 KiB, with the images that it has.
_PORTION: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one entry of a node's capacity, from what was seen there to an `amount`; None takes it away.

    `written` is the entry as the server writes it, None where it is missing; `bare` says that the node has no capacity
    at all. `uid` is that of the node's object: another one of the same name is another node.
    """

    node: str
    uid: str
    resource: str
    written: str | None
    bare: bool
    amount: int | None

    @classmethod
    def of(cls, node: Node, resource: str, amount: int | None) -> "Change":
        """The change on a node as it is known."""
        written = node.capacity.get(resource)
        return cls(
            node=node.name,
            uid=node.uid,
            resource=resource,
            written=written,
            bare=not node.capacity,
            amount=amount,
        )

    @property
    def before(self) -> str:
        """What was advertised, for people."""
        return "nothing" if self.written is None else quantity(self.written)

    def patch(self) -> list[dict[str, Any]]:
        """The JSON patch (RFC 6902). Where something else is there by now, a test fails, and nothing is done."""
        entry = f"{_CAPACITY}/{self.resource.replace('~', '~0').replace('/', '~1')}"
        tests: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": self.uid}]
        if self.bare:
            # A missing entry equals null for the server (evanphx/json-patch); its parent must be there to test one.
            tests.append({"op": "test", "path": _CAPACITY, "value": None})
            return [*tests, {"op": "add", "path": _CAPACITY, "value": {self.resource: str(self.amount)}}]
        tests.append({"op": "test", "path": entry, "value": self.written})
        if self.amount is None:
            return [*tests, {"op": "remove", "path": entry}]
        return [*tests, {"op": "add", "path": entry, "value": str(self.amount)}]


def read_node(api: Api, name: str) -> tuple[Answer, Node | None]:
    """The node of a name as it is now, None where there is none; ApiError where no answer comes, or no list.

    As a list of one: whoever may follow the node may do that, and needs no right to get it.
    """
    answer = api.call("GET", "/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})
    if not answer.is_good:
        return answer, None
    try:
        nodes = [decode_node(item) for item in split_items(answer.body, "Node")]
    except (ValueError, *DECODE_ERRORS) as error:
        raise ApiError(f"node {name} can't be read: {error}; report it with the server's version") from error
    return answer, next((node for node in nodes if node.name == name), None)


def list_nodes(api: Api, *, selector: str = "", portion: int = _PORTION) -> Iterator[Node]:
    """Every node of the cluster whose labels a selector matches (empty: all), asked for so many at a time.

    ApiError where a refusal comes, or no list; a selector that is none is refused by the server.
    """
    chosen: dict[str, str | int] = {"labelSelector": selector} if selector else {}
    query = {**chosen, "limit": portion}
    while True:
        answer = api.call("GET", "/api/v1/nodes", query)
        if not answer.is_good:
            raise ApiError(answer.sentence("listing the nodes"))
        try:
            yield from [decode_node(item) for item in split_items(answer.body, "Node")]
            more = continue_token(answer.body)
        except (ValueError, *DECODE_ERRORS) as error:
            raise ApiError(f"the nodes can't be read: {error}; report it with the server's version") from error
        if not more:
            return
        query = {**chosen, "limit": portion, "continue": more}


def send(api: Api, change: Change) -> Answer:
    """Ask the API server for a change; ApiError where no answer comes."""
    path = f"/api/v1/nodes/{quote(change.node, safe='')}/status"
    return api.call("PATCH", path, body=change.patch(), content_type=CONTENT_TYPE)


def is_outrun(answer: Answer) -> bool:
    """Whether a change was refused because the node is no longer as it was seen.

    A patch whose tests fail is a 422 as an invalid amount is, but without causes (applyJSPatch in
    k8s.io/apiserver/pkg/endpoints/handlers/patch.go); 404: the node's object is gone.
    """
    return answer.status == 404 or (answer.status == 422 and not answer.causes)


def quantity(written: str) -> str:
    """A quantity as people read it: 85899345920 is 80Gi."""
    amount = advertised(written)
    return written if amount is None else format_quantity(amount)
