"""A node's advertised capacity: the patch, when it may be made again, and the thread that keeps it in place."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from watchdog import clock
from watchdog.core.capacity import Settling, advertised, offered
from watchdog.core.errors import Problem
from watchdog.core.model import Node, Snapshot
from watchdog.core.policy import Policy
from watchdog.core.units import format_quantity
from watchdog.kube.client import Api, ApiResponse, RequestBackoff
from watchdog.kube.failure import ApiError
from watchdog.kube.messages import LogMessage, MessageQueue
from watchdog.kube.objects import decode_node
from watchdog.kube.wire import DECODE_ERRORS, DOCUMENT_DECODER, decode_json, split_items

_CAPACITY: Final = "/status/capacity"
# Nodes at a time: one takes 10 to 20 KiB, with the images that it has.
_PORTION: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """A change of one entry of a node's capacity, from what was seen there."""

    node: str
    # That of the node's object: another object of the same name is another node.
    uid: str
    resource: str
    # The entry as the server writes it; None if it is missing.
    written: str | None
    # Whether the node has no capacity at all.
    bare: bool
    # What it is changed to; None removes it.
    amount: int | None

    @classmethod
    def of(cls, node: Node, resource: str, amount: int | None) -> "CapacityChange":
        """The change of a node as currently known."""
        written, bare = node.capacity.get(resource), not node.capacity
        return cls(node=node.name, uid=node.uid, resource=resource, written=written, bare=bare, amount=amount)

    @property
    def before(self) -> str:
        """What was advertised, in readable form."""
        amount = advertised(self.written)
        if self.written is None or amount is None:
            return self.written or "nothing"
        return format_quantity(amount)

    def patch(self) -> list[dict[str, Any]]:
        """The JSON patch (RFC 6902). If the entry has changed meanwhile, a test fails and nothing is changed."""
        path = f"{_CAPACITY}/{self.resource.replace('~', '~0').replace('/', '~1')}"
        value = str(self.amount)
        change: dict[str, Any] = {"op": "add", "path": path, "value": value}
        if self.bare:
            # To the server a missing entry equals null (evanphx/json-patch); its parent must exist to test one.
            path = _CAPACITY
            change = {"op": "add", "path": path, "value": {self.resource: value}}
        elif self.amount is None:
            change = {"op": "remove", "path": path}
        tests = {"/metadata/uid": self.uid, path: self.written}
        return [*({"op": "test", "path": at, "value": expected} for at, expected in tests.items()), change]


def read_node(api: Api, name: str) -> tuple[ApiResponse, Node | None]:
    """The current node of this name, None if there is none; ApiError if no response comes, or it is not a list.

    It is read as a list of one: an account may have the rights to list and watch the node, but not to get it.
    """
    response = api.call("GET", "/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})
    if not response.is_good:
        return response, None
    nodes, _ = _decode_nodes(response.body, f"node {name}")
    return response, next((node for node in nodes if node.name == name), None)


def list_nodes(api: Api, *, selector: str = "", portion: int = _PORTION) -> Iterator[Node]:
    """Every node of the cluster whose labels match a selector (empty: all), requested `portion` at a time.

    ApiError if the request is refused, as for an invalid selector, or the response is not a list.
    """
    query: dict[str, str | int] = {"labelSelector": selector} if selector else {}
    query["limit"] = portion
    while True:
        response = api.call("GET", "/api/v1/nodes", query)
        if not response.is_good:
            raise ApiError(response.problem("listing the nodes"))
        nodes, more = _decode_nodes(response.body, "the list of nodes")
        yield from nodes
        if not more:
            return
        query["continue"] = more


def _decode_nodes(body: bytes, what: str) -> tuple[list[Node], str]:
    """The nodes of a list, and the token to request the rest of it; empty if it is complete."""
    try:
        nodes = [decode_node(item) for item in split_items(body, "Node")]
        return nodes, decode_json(DOCUMENT_DECODER, body).metadata.more
    except (ValueError, *DECODE_ERRORS) as error:
        raise ApiError(Problem(f"{what} can't be read: {error}", "report it with the server's version")) from error


def send(api: Api, change: CapacityChange) -> ApiResponse:
    """Request a change from the API server; ApiError if no response comes."""
    path = f"/api/v1/nodes/{quote(change.node, safe='')}/status"
    return api.call("PATCH", path, body=change.patch(), content_type="application/json-patch+json")


def is_outdated(response: ApiResponse) -> bool:
    """Whether a change was refused because the node has changed meanwhile.

    A patch whose tests fail is a 422 like an invalid amount, but without causes (applyJSPatch in
    k8s.io/apiserver/pkg/endpoints/handlers/patch.go); 404: the node's object is gone.
    """
    return response.status == 404 or (response.status == 422 and not response.causes)


# A change appears in the watch within this time; until then what is known of the node is outdated.
_ECHO_S: Final = 5.0
# A change that lasts this long is not contested.
_QUIET_S: Final = 600.0
# How often in a row a reverted change is made again at once: a kubelet may start twice.
PATIENCE: Final = 3


class CapacityPace:
    """Decides when the next change may be made; times are CLOCK_BOOTTIME seconds."""

    def __init__(self) -> None:
        self.not_before_s = 0.0
        self.failures = 0
        self._uid: str | None = None
        self._made: CapacityChange | None = None
        self._made_at_s = 0.0
        self._reverts = 0
        self._contested = RequestBackoff(first_s=8.0, longest_s=600.0)
        # A server that does not respond may be back at any moment; a refusal lasts until somebody changes something.
        self._unavailable = RequestBackoff()
        self._refused = RequestBackoff(first_s=1.0, longest_s=60.0)

    def awaits_echo(self, change: CapacityChange, now_s: float) -> bool:
        """Whether this same change has just been made, and is not yet visible in the node as known."""
        return change == self._made and now_s - self._made_at_s < _ECHO_S

    def consider(self, change: CapacityChange, now_s: float) -> str | None:
        """Consider a change that has become necessary; a sentence if something else reverts it repeatedly."""
        made, self._made = self._made, None
        if change.uid != self._uid:
            # Another object, which has not been changed yet.
            self._uid, self._reverts, self.not_before_s = change.uid, 0, 0.0
            return None
        if made is None or (made.resource, made.amount) != (change.resource, change.amount):
            return None
        if now_s - self._made_at_s >= _QUIET_S:
            self._reverts = 0
            self._contested.reset()
        self._reverts += 1
        if self._reverts < PATIENCE:
            return None
        self.not_before_s = now_s + self._contested.next_s()
        return (
            f"node {change.node}: {change.resource} does not stay at {format_quantity(change.amount or 0)}, something "
            "else repeatedly sets it to another amount. A device plugin that offers the same resource does this (the "
            "kubelet writes its number at every status sync): name another resource in [capacity], or remove it from "
            "the plugin. It is retried at growing intervals"
        )

    def made(self, change: CapacityChange, now_s: float) -> None:
        """The server has made a change."""
        self.failures = 0
        self._unavailable.reset()
        self._refused.reset()
        self._made, self._made_at_s = change, now_s

    def failed(self, response: ApiResponse | None, now_s: float) -> None:
        """A change was not made; without a response, none came."""
        self.failures += 1
        is_unavailable = response is None or response.status == 429 or response.status >= 500
        backoff = self._unavailable if is_unavailable else self._refused
        self.not_before_s = now_s + backoff.next_s(response.retry_after_s if response is not None else None)


class CapacityKeeper:
    """Advertises on this node what the policy says; the requests are made on a thread `api-capacity`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._problems = MessageQueue()
        self._settling = Settling()
        self._kept: str | None = None
        self._thread: threading.Thread | None = None
        # What follows is shared with the thread.
        self._condition = threading.Condition()
        self._stopped = False
        self._wanted: CapacityChange | None = None
        self._pace = CapacityPace()
        self._changes: list[str] = []

    def advertise(self, node: Node, snapshot: Snapshot, policy: Policy) -> None:
        """Have the node advertise what it has to offer by this snapshot; returns at once.

        The loop calls this after each cycle and whenever the node has changed. Only the daemon with the node's lock
        does: two daemons with different policies would revert each other's changes.
        """
        dropped = self._dropped(node, policy)
        change = self._change(node, snapshot, policy)
        now_s = clock.now().boottime_s
        with self._condition:
            if dropped is not None:
                self._problems.add(dropped, dropped, now_s)
            if change is None or self._pace.awaits_echo(change, now_s):
                self._wanted = None
                return
            contest = self._pace.consider(change, now_s)
            if contest is not None:
                self._problems.add("contest", contest, now_s)
            self._wanted = change
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="api-capacity", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can be started now: the next cycle tries again
                    thread.start()
                    self._thread = thread
            self._condition.notify()

    def take_messages(self) -> tuple[LogMessage, ...]:
        """The messages since the last call."""
        with self._condition:
            changes, self._changes = self._changes, []
        problems = (LogMessage(text=text, is_problem=True) for text in self._problems.take_new())
        return (*(LogMessage(text=text) for text in changes), *problems)

    def pause(self) -> None:
        """Change nothing until `advertise` is called again: another daemon may be responsible."""
        with self._condition:
            self._wanted = None

    def stop(self) -> None:
        """Stop making changes. The advertised amount stays: `gpu-watchdog withdraw` removes it."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def _change(self, node: Node, snapshot: Snapshot, policy: Policy) -> CapacityChange | None:
        capacity = policy.capacity
        if capacity is None or not node.known or not node.uid:
            return None
        present = advertised(node.capacity.get(capacity.resource))
        wanted = offered(capacity, snapshot)
        amount = self._settling.settle(wanted, present, snapshot.at, policy.reset_after_s)
        return None if amount is None else CapacityChange.of(node, capacity.resource, amount)

    def _dropped(self, node: Node, policy: Policy) -> str | None:
        """After a reload, a sentence: what an earlier policy advertised stays until it is withdrawn."""
        resource = policy.capacity.resource if policy.capacity is not None else None
        dropped, self._kept = self._kept, resource
        if dropped in (None, resource):
            return None
        self._settling = Settling()
        return (
            f"the policy no longer advertises {dropped}, and node {node.name} still does: "
            f"`gpu-watchdog withdraw --node {node.name} --resource {dropped}` removes it"
        )

    def _run(self) -> None:
        while (change := self._next()) is not None:
            what = f"advertising {change.resource} on node {change.node}"
            response: ApiResponse | None = None
            try:
                response = send(self._api, change)
                problem = response.problem(what)
            except ApiError as error:
                problem = error.problem.of(what)
            with self._condition:
                self._on_response(change, response, problem)

    def _next(self) -> CapacityChange | None:
        """Wait for a change and for the time to make it; None after `stop`."""
        with self._condition:
            while not self._stopped:
                wait_s = self._pace.not_before_s - clock.now().boottime_s
                if self._wanted is not None and wait_s <= 0:
                    return self._wanted
                self._condition.wait(wait_s if self._wanted is not None else None)
            return None

    def _on_response(self, change: CapacityChange, response: ApiResponse | None, problem: Problem) -> None:
        now_s = clock.now().boottime_s
        if response is not None and response.is_good:
            self._pace.made(change, now_s)
            if self._wanted == change:
                self._wanted = None
            after = format_quantity(change.amount or 0)
            now = f"node {change.node} now advertises {after} of {change.resource}"
            self._changes.append(f"{now}, before it was {change.before}")
            return
        self._pace.failed(response, now_s)
        if response is None or not is_outdated(response):
            self._problems.add("unreachable" if response is None else f"{response.status}", str(problem), now_s)
        elif self._pace.failures > PATIENCE:
            # A node that has changed meanwhile is about to be known as it is now; if it never is, that is reported.
            why = "it has changed since it was last seen, and the watch has not shown the change yet"
            self._problems.add("outdated", f"node {change.node} can't be changed: {why}", now_s)
